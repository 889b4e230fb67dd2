//! What a sink counts, and what it says of datagrams that went astray.

use super::*;
use crate::playout::{Ended, Playout, Train};
use crate::testbed::{
    Mode, Options, RCV_DEVICE, RCV_IPV4, RCV_IPV6, SND_IPV4, SND_IPV6, Testbed,
    stay_on_one_processor,
};
use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const FIRST: u16 = 20_000;
const LAST: u16 = 20_099;
const PACKET_BYTES: usize = HEADER_BYTES + 7 * 188;
const LONG: Duration = Duration::from_secs(60);

fn testbed_and_sink() -> (Testbed, Sink) {
    let testbed = Testbed::new(Options::default()).unwrap();
    let sink = Sink::attach(&testbed.rcv, RCV_DEVICE, FIRST..=LAST).unwrap();
    (testbed, sink)
}

fn sender(testbed: &Testbed, port: u16) -> UdpSocket {
    connected(testbed, SND_IPV4.into(), RCV_IPV4.into(), port)
}

fn connected(testbed: &Testbed, from: IpAddr, to: IpAddr, port: u16) -> UdpSocket {
    let socket = testbed.snd.run(|| UdpSocket::bind((from, 0))).unwrap();
    socket.connect((to, port)).unwrap();
    socket
}

fn rtp(sequence: u16, timestamp: u32) -> Vec<u8> {
    let payload_type = PAYLOAD_TYPE_MP2T;
    let header = Header {
        marker: false,
        payload_type,
        sequence,
        timestamp,
        ssrc: 7,
    };
    let mut packet = vec![0x47; PACKET_BYTES];
    packet[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    packet
}

fn train(sequence: u16, packets: u16) -> Vec<u8> {
    (0..packets)
        .flat_map(|i| rtp(sequence.wrapping_add(i), 0))
        .collect()
}

fn segment(socket: &UdpSocket, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap();
    let value = (&raw const bytes).cast();
    // SAFETY: the value points to a live c_int and its length is given as such.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            value,
            4,
        )
    };
    assert_eq!(done, 0);
}

/// The veth pair's softirq runs within the send as a rule, but not by promise.
fn totals_at(sink: &Sink, packets: u64) -> Counts {
    let give_up = Instant::now() + LONG;
    loop {
        let totals = sink.totals().unwrap();
        if totals.packets >= packets || Instant::now() > give_up {
            return totals;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn trains_arrive_whole_in_uso_and_as_singles_in_software_gso() {
    crate::require_root!();
    let (mut testbed, mut sink) = testbed_and_sink();
    for (mode, skbs, trains, longest) in [(Mode::Uso, 3, 3, 44), (Mode::SoftwareGso, 132, 0, 1)] {
        testbed.set_mode(mode).unwrap();
        sink.reset().unwrap();
        for (from, to) in [
            (SND_IPV4.into(), RCV_IPV4.into()),
            (SND_IPV6.into(), RCV_IPV6.into()),
        ] {
            let socket = connected(&testbed, from, to, FIRST);
            segment(&socket, PACKET_BYTES);
            socket
                .send(&train(if from.is_ipv4() { 0 } else { 44 }, 44))
                .unwrap();
        }
        let socket = sender(&testbed, LAST);
        segment(&socket, PACKET_BYTES);
        socket.send(&train(65_530, 44)).unwrap();
        let expected = Counts {
            packets: 132,
            bytes: 132 * 1328,
            skbs,
            trains,
            train_packets_max: longest,
            rtp_packets: 132,
            ..Counts::default()
        };
        assert_eq!(totals_at(&sink, 132), expected, "{}", mode.name());
        assert_eq!(sink.port(FIRST).unwrap().counts.packets, 88);
        assert_eq!(sink.port(LAST).unwrap().counts.packets, 44);
        assert_eq!(sink.lateness().unwrap().packets(), 132);
    }
}

#[test]
fn ports_outside_the_range_reach_their_receiver() {
    crate::require_root!();
    let (testbed, sink) = testbed_and_sink();
    let receivers = [FIRST - 1, FIRST, LAST, LAST + 1].map(|port| {
        let socket = testbed
            .rcv
            .run(|| UdpSocket::bind((RCV_IPV4, port)))
            .unwrap();
        sender(&testbed, port).send(&rtp(0, 0)).unwrap();
        socket
    });
    assert_eq!(totals_at(&sink, 2).packets, 2);
    // Those inside are counted, and so are past their receivers.
    let moment = Duration::from_millis(100);
    let got = [(0, LONG), (3, LONG), (1, moment), (2, moment)].map(|(i, patience)| {
        let socket: &UdpSocket = &receivers[i];
        socket.set_read_timeout(Some(patience)).unwrap();
        socket.recv(&mut [0; 2000]).is_ok()
    });
    assert_eq!(got, [true, true, false, false]);
    assert!(matches!(
        sink.port(LAST + 1),
        Err(SinkError::Port { port: 20_100, .. })
    ));
}

/// Other programs use the device, too: what is theirs reaches them, at ports of the range as well.
#[test]
fn only_what_was_chosen_is_counted() {
    crate::require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    let attach = || Sink::attach_here(RCV_DEVICE, FIRST..=LAST, Look::default());
    let mut sink = testbed.rcv.run(attach).unwrap();
    sink.set_open(FIRST, true).unwrap();
    let [ipv4, ipv6]: [(IpAddr, IpAddr); 2] = [
        (SND_IPV4.into(), RCV_IPV4.into()),
        (SND_IPV6.into(), RCV_IPV6.into()),
    ];
    let reaches = |(from, to): (IpAddr, IpAddr), port, datagram: &[u8]| {
        let receiver = testbed.rcv.run(|| UdpSocket::bind((to, port))).unwrap();
        receiver.set_read_timeout(Some(LONG)).unwrap();
        let sender = connected(&testbed, from, to, port);
        sender.send(datagram).unwrap();
        receiver.recv(&mut [0; 5000]).unwrap() == datagram.len()
    };
    // Three fragments, of which two name no port.
    assert!(reaches(ipv4, LAST + 1, &[0; 4000]));
    sink.count_sender(SND_IPV4.into()).unwrap();
    // Nobody has opened the one port, and who sends to the other is not named.
    assert!(reaches(ipv4, LAST, &rtp(0, 0)) && reaches(ipv6, FIRST, &rtp(0, 0)));
    assert_eq!(sink.totals().unwrap(), Counts::default());
    sink.count_sender(SND_IPV6.into()).unwrap();
    let send = |(from, to): (IpAddr, IpAddr)| {
        let socket = connected(&testbed, from, to, FIRST);
        socket.send(&rtp(0, 0)).unwrap();
    };
    send(ipv4);
    send(ipv6);
    assert_eq!(totals_at(&sink, 2).packets, 2);
    // It stays open until it is closed.
    sink.take_port(FIRST).unwrap();
    send(ipv4);
    assert_eq!(totals_at(&sink, 1).packets, 1);
    sink.set_open(FIRST, false).unwrap();
    assert!(reaches(ipv4, FIRST, &rtp(1, 0)));
    assert!(sink.set_open(LAST + 1, true).is_err());
    // There is room for 62 more, and who is named is named.
    for last in 0..62 {
        sink.count_sender([10, 9, 8, last].into()).unwrap();
    }
    assert!(sink.count_sender([10, 9, 8, 61].into()).is_ok());
    let refused = sink.count_sender([10, 9, 8, 62].into());
    assert!(matches!(
        refused,
        Err(SinkError::Senders { senders_max: 64 })
    ));
}

#[test]
fn a_passing_sink_counts_what_it_lets_through() {
    crate::require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    let sink = Sink::attach_with(&testbed.rcv, RCV_DEVICE, FIRST..=FIRST, Verdict::Pass).unwrap();
    let receiver = testbed
        .rcv
        .run(|| UdpSocket::bind((RCV_IPV4, FIRST)))
        .unwrap();
    receiver.set_read_timeout(Some(LONG)).unwrap();
    let socket = sender(&testbed, FIRST);
    segment(&socket, PACKET_BYTES);
    socket.send(&train(0, 3)).unwrap();
    for sequence in 0..3 {
        let mut bytes = [0; 2000];
        assert_eq!(receiver.recv(&mut bytes).unwrap(), PACKET_BYTES);
        assert_eq!(Header::read(&bytes).unwrap().sequence, sequence);
    }
    let totals = sink.totals().unwrap();
    assert_eq!((totals.packets, totals.trains), (3, 1));
}

#[test]
fn lost_and_repeated_numbers_are_counted_across_the_wrap() {
    crate::require_root!();
    let (testbed, sink) = testbed_and_sink();
    let (a, b) = (sender(&testbed, FIRST), sender(&testbed, FIRST + 2));
    stay_on_one_processor();
    // 65534 and 1 are skipped; 65533 comes again.
    for sequence in [65_532, 65_533, 65_535, 0, 65_533, 2] {
        a.send(&rtp(sequence, 0)).unwrap();
        b.send(&rtp(sequence.wrapping_mul(0), 0)).unwrap();
    }
    let totals = totals_at(&sink, 12);
    let port = sink.port(FIRST).unwrap().counts;
    assert_eq!((port.sequence_missing, port.sequence_repeated), (2, 1));
    let port = sink.port(FIRST + 2).unwrap().counts;
    assert_eq!((port.sequence_missing, port.sequence_repeated), (0, 5));
    assert_eq!((totals.sequence_missing, totals.sequence_repeated), (2, 6));
}

#[test]
fn what_comes_late_is_told_from_what_comes_again() {
    crate::require_root!();
    let (testbed, sink) = testbed_and_sink();
    let (single, trains) = (sender(&testbed, FIRST), sender(&testbed, LAST));
    segment(&trains, PACKET_BYTES);
    stay_on_one_processor();
    // 11 and 13 are late, and 9, which the first of all has overtaken; 12 comes again, and 14 to 19
    // never.
    for sequence in [10, 12, 11, 12, 9, 20, 13] {
        single.send(&rtp(sequence, 0)).unwrap();
    }
    for sequence in [65_532, 4, 0, 0] {
        trains.send(&train(sequence, 4)).unwrap();
    }
    totals_at(&sink, 7 + 16);
    let numbers = |port| {
        let counts = sink.port(port).unwrap().counts;
        (
            counts.sequence_missing,
            counts.sequence_repeated,
            counts.sequence_reordered,
        )
    };
    assert_eq!(numbers(FIRST), (6 + 3, 1 + 3, 3));
    assert_eq!(numbers(LAST), (4, 4 + 4, 4));
}

#[test]
fn a_sink_that_looks_seldom_counts_all_and_notices_later() {
    crate::require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    let (netns, ports) = (&testbed.rcv, FIRST..=LAST);
    let sink = Sink::attach_seldom_looking(netns, RCV_DEVICE, ports, 4).unwrap();
    let (whole, lossy) = (sender(&testbed, FIRST), sender(&testbed, LAST));
    segment(&lossy, PACKET_BYTES);
    stay_on_one_processor();
    for sequence in 0..9 {
        whole
            .send(&rtp(65_530_u16.wrapping_add(sequence), 0))
            .unwrap();
    }
    // Looks at 0, 8 and 17; 9 is missing.
    for (sequence, packets) in [
        (0, 2),
        (2, 2),
        (4, 2),
        (6, 2),
        (8, 1),
        (10, 3),
        (13, 2),
        (15, 2),
    ] {
        lossy.send(&train(sequence, packets)).unwrap();
    }
    let before = totals_at(&sink, 9 + 16);
    assert_eq!((before.sequence_missing, before.sequence_repeated), (0, 0));
    lossy.send(&train(17, 2)).unwrap();
    totals_at(&sink, 9 + 18);
    let port = sink.port(FIRST).unwrap().counts;
    assert_eq!((port.packets, port.rtp_packets), (9, 3));
    assert_eq!((port.sequence_missing, port.sequence_repeated), (0, 0));
    let port = sink.port(LAST).unwrap().counts;
    assert_eq!((port.packets, port.rtp_packets), (18, 2 + 1 + 2));
    assert_eq!((port.sequence_missing, port.sequence_repeated), (1, 0));
    // The last comes again, and three packets later there is a look.
    for sequence in 8..12 {
        whole
            .send(&rtp(65_530_u16.wrapping_add(sequence), 0))
            .unwrap();
    }
    let totals = totals_at(&sink, 13 + 18);
    assert_eq!((totals.sequence_missing, totals.sequence_repeated), (1, 1));
}

#[test]
fn lateness_follows_the_timestamps_across_their_wrap() {
    crate::require_root!();
    let (testbed, sink) = testbed_and_sink();
    let (late, early) = (sender(&testbed, FIRST), sender(&testbed, LAST));
    stay_on_one_processor();
    // 36,000 ticks are 400 ms: due before the first, so at least that late whatever the clock does.
    late.send(&rtp(0, 5)).unwrap();
    late.send(&rtp(1, 5_u32.wrapping_sub(36_000))).unwrap();
    // An hour early, over the wrap.
    early.send(&rtp(0, u32::MAX)).unwrap();
    early.send(&rtp(1, 3600 * 90_000)).unwrap();
    assert_eq!(totals_at(&sink, 4).packets, 4);
    let (earliest, latest) = sink.port(FIRST).unwrap().lateness_ns;
    assert_eq!(earliest, 0);
    assert!(latest >= 400_000_000, "{latest}");
    let (earliest, latest) = sink.port(LAST).unwrap().lateness_ns;
    assert!(earliest < -3_500_000_000_000, "{earliest}");
    assert_eq!(latest, 0);
    let histogram = sink.lateness().unwrap();
    assert_eq!((histogram.packets(), histogram.under), (4, 1));
    // The two first packets are late by nothing: in the step that begins at zero.
    assert_eq!(histogram.quantile_ns(0.5), Some(LATENESS_STEP_NS));
    assert!(histogram.quantile_ns(1.0).unwrap() >= 400_000_000);
}

/// 32 bits of 90 kHz wrap after 13 hours, and have a sign for half of that.
#[test]
fn lateness_follows_the_timestamps_for_ten_hours() {
    crate::require_root!();
    let (testbed, sink) = testbed_and_sink();
    let socket = sender(&testbed, FIRST);
    stay_on_one_processor();
    // All at once, each an hour earlier than the one before.
    for hour in 0..=10_u16 {
        socket
            .send(&rtp(hour, u32::from(hour) * 3600 * 90_000))
            .unwrap();
    }
    assert_eq!(totals_at(&sink, 11).packets, 11);
    let (earliest, latest) = sink.port(FIRST).unwrap().lateness_ns;
    assert!(earliest < -35_900_000_000_000, "{earliest}");
    assert_eq!(latest, 0);
}

#[test]
fn a_clock_that_starts_anew_excuses_no_gap() {
    crate::require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    let (netns, ports) = (&testbed.rcv, FIRST..=LAST);
    let mut sink = Sink::attach_seldom_looking(netns, RCV_DEVICE, ports, 4).unwrap();
    let (whole, lossy) = (sender(&testbed, FIRST), sender(&testbed, LAST));
    stay_on_one_processor();
    // Nobody looks at the second of each port.
    for sequence in 0..2 {
        whole.send(&rtp(sequence, 0)).unwrap();
        lossy.send(&rtp(sequence, 0)).unwrap();
    }
    totals_at(&sink, 4);
    for port in [FIRST, LAST] {
        sink.restart_clock(port).unwrap();
    }
    // An hour on, by their timestamps. At the second port 2 to 6 are missing.
    whole.send(&rtp(2, 3600 * 90_000)).unwrap();
    lossy.send(&rtp(7, 3600 * 90_000)).unwrap();
    assert_eq!(totals_at(&sink, 6).packets, 6);
    for (port, missing) in [(FIRST, 0), (LAST, 5)] {
        let port = sink.port(port).unwrap();
        let counts = port.counts;
        assert_eq!((counts.packets, counts.rtp_packets), (3, 2));
        assert_eq!(
            (counts.sequence_missing, counts.sequence_repeated),
            (missing, 0)
        );
        // Each of the two that were looked at is where its clock starts.
        assert_eq!(port.lateness_ns, (0, 0));
        assert_eq!(port.timestamp_first, 3600 * 90_000);
        assert!(port.arrival_ns.0 < port.arrival_ns.1);
    }
    assert!(sink.restart_clock(LAST + 1).is_err());
}

#[test]
fn by_the_clock_the_first_packet_is_late_too() {
    crate::require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    let sink = Sink::attach_by_clock(&testbed.rcv, RCV_DEVICE, FIRST..=LAST, 1).unwrap();
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let ticks = clock.tv_sec * 90_000 + clock.tv_nsec * 9 / 100_000;
    let now = u32::try_from(ticks & 0xffff_ffff).unwrap();
    // 5,400,000 ticks are a minute: nothing else in here takes as long.
    sender(&testbed, FIRST)
        .send(&rtp(0, now.wrapping_sub(5_400_000)))
        .unwrap();
    sender(&testbed, LAST).send(&rtp(0, now)).unwrap();
    assert_eq!(totals_at(&sink, 2).packets, 2);
    let late = [FIRST, LAST].map(|port| sink.port(port).unwrap().lateness_ns);
    assert!(late[0].0 >= 60_000_000_000, "{late:?}");
    assert!(late[1].0 > -1_000_000 && late[1].1 < late[0].1, "{late:?}");
}

#[test]
fn trains_that_come_together_are_one_burst() {
    crate::require_root!();
    // A pause that is never as long, and one that always is, however slow this machine is.
    for (burst_gap_ns, longest) in [(600_000_000_000, 24), (1, 8), (0, 0)] {
        let testbed = Testbed::new(Options::default()).unwrap();
        let look = Look {
            every: 4,
            burst_gap_ns,
            ..Look::default()
        };
        let (netns, ports) = (&testbed.rcv, FIRST..=LAST);
        let sink = Sink::load(netns, RCV_DEVICE, ports, Verdict::Drop, look).unwrap();
        let (socket, other) = (sender(&testbed, FIRST), sender(&testbed, LAST));
        segment(&socket, PACKET_BYTES);
        for sequence in [0, 8, 16] {
            socket.send(&train(sequence, 8)).unwrap();
            other.send(&rtp(sequence, 0)).unwrap();
        }
        assert_eq!(totals_at(&sink, 27).packets, 27);
        let port = sink.port(FIRST).unwrap();
        assert_eq!(port.burst_packets_max, longest, "{burst_gap_ns}");
        assert_eq!(port.counts.train_packets_max, 8);
    }
}

#[test]
fn rtcp_and_runts_count_as_packets_but_not_as_rtp() {
    crate::require_root!();
    let (testbed, sink) = testbed_and_sink();
    let socket = sender(&testbed, FIRST + 1);
    let sender_report = [0x80, 200, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0];
    for datagram in [&sender_report[..], &[0x80], &[]] {
        socket.send(datagram).unwrap();
    }
    let totals = totals_at(&sink, 3);
    assert_eq!(
        (totals.packets, totals.bytes, totals.rtp_packets),
        (3, 13, 0)
    );
}

#[test]
fn a_quantile_is_the_end_of_its_step() {
    let mut histogram = Histogram {
        under: 1,
        steps: vec![0; 5000],
        over: 1,
    };
    histogram.steps[500] = 98;
    assert_eq!(histogram.quantile_ns(0.0), Some(LATENESS_FLOOR_NS));
    assert_eq!(histogram.quantile_ns(0.5), Some(LATENESS_STEP_NS));
    assert_eq!(histogram.quantile_ns(1.0), Some(i64::MAX));
    let empty = Histogram {
        under: 0,
        steps: vec![0; 5000],
        over: 0,
    };
    assert_eq!(empty.quantile_ns(0.5), None);
}

#[test]
fn lateness_is_by_the_clock_of_the_port_until_it_is_taken() {
    crate::require_root!();
    let (testbed, mut sink) = testbed_and_sink();
    let socket = sender(&testbed, FIRST);
    stay_on_one_processor();
    // A hundred seconds ahead at 48 kHz are 53 at 90 kHz.
    for (clock_hz, earliest_s) in [(48_000, 90), (0, 50)] {
        sink.set_clock(FIRST, clock_hz).unwrap();
        for (sequence, timestamp) in [(1, 0), (2, 4_800_000)] {
            socket.send(&rtp(sequence, timestamp)).unwrap();
        }
        let give_up = Instant::now() + LONG;
        while sink.port(FIRST).unwrap().counts.packets < 2 && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        let early_s = -sink.take_port(FIRST).unwrap().lateness_ns.0 / 1_000_000_000;
        assert!(
            (earliest_s..=earliest_s + 10).contains(&early_s),
            "{early_s}"
        );
    }
    assert_eq!(sink.port(FIRST).unwrap().counts, Counts::default());
    assert!(sink.set_clock(LAST + 1, 8000).is_err());
}

/// The sink's account and that of a receiver with a socket are one: fed with the same packets at
/// the same moments, they are equal in all they hold.
#[test]
fn the_sink_follows_a_player_as_sockets_do() {
    crate::require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    let look = Look {
        playout: true,
        ..Look::default()
    };
    let (netns, ports) = (&testbed.rcv, FIRST..=LAST);
    let mut sink = Sink::load(netns, RCV_DEVICE, ports, Verdict::Drop, look).unwrap();
    sink.set_clock(FIRST, 48_000).unwrap();
    let (socket, mut expected) = (sender(&testbed, FIRST), Playout::default());
    segment(&socket, PACKET_BYTES);
    stay_on_one_processor();
    let mut sent = 0_u64;
    let mut send = |sink: &mut Sink, timestamps: &[u32]| {
        let packets = u32::try_from(timestamps.len()).unwrap();
        let numbers = (0_u16..).skip(usize::try_from(sent).unwrap());
        let train = timestamps.iter().zip(numbers);
        let train: Vec<u8> = train.flat_map(|(&at, number)| rtp(number, at)).collect();
        socket.send(&train).unwrap();
        totals_at(sink, sent + u64::from(packets));
        expected.train(&Train {
            timestamps: (timestamps[0], timestamps[timestamps.len() - 1]),
            clock_hz: 48_000,
            packets,
            packets_before: sent,
            arrival_ns: sink.port(FIRST).unwrap().arrival_ns.1,
        });
        sent += u64::from(packets);
        assert_eq!(
            sink.playouts.get(&0, 0).unwrap(),
            expected,
            "after {sent} packets"
        );
    };
    // Over the wrap, and back a little, as pictures go.
    let first = u32::MAX - 3000;
    for ticks in [0, 960, 480, 1440, 9600] {
        send(&mut sink, &[first.wrapping_add(ticks)]);
    }
    std::thread::sleep(Duration::from_millis(1010));
    // A second later: on time and late by up to minutes, alone, in trains that are charged one by
    // one, and in longer ones that are charged in groups; some early, some the wrong way round.
    for packets in [1, 2, 8, 16, 17, 44] {
        for ticks in [0, 47_000, 96_000, 4_800_000, 0_u32.wrapping_sub(4_800_000)] {
            for stride in [0, 100, 480, 0_u32.wrapping_sub(480)] {
                let timestamp = |number: u32| ticks.wrapping_add(number.wrapping_mul(stride));
                let train: Vec<_> = (0..packets)
                    .map(|i| first.wrapping_add(timestamp(i)))
                    .collect();
                send(&mut sink, &train);
            }
        }
    }
    // On by fifteen hours, over what 31 bits can tell.
    for hour in 1..=15 {
        send(&mut sink, &[first.wrapping_add(hour * 3600 * 48_000)]);
    }
    let ended = Ended {
        at_ns: sink.port(FIRST).unwrap().arrival_ns.1 + 1_000_000_000,
        buffer_ns: 40_000_000,
    };
    sink.restart_playout(FIRST, Some(ended)).unwrap();
    expected.restart(Some(ended), sent);
    assert_eq!(sink.take_playout(FIRST).unwrap(), expected);
    assert_eq!(sink.take_playout(FIRST).unwrap(), Playout::default());
    assert!(expected.finish(None, sent).unwrap().needed_ns > 50_000_000_000);
}

#[test]
fn a_sink_that_follows_no_player_has_no_account() {
    crate::require_root!();
    let (testbed, mut sink) = testbed_and_sink();
    sender(&testbed, FIRST).send(&rtp(0, 0)).unwrap();
    assert_eq!(totals_at(&sink, 1).packets, 1);
    for port in [FIRST, LAST] {
        assert_eq!(sink.take_playout(port).unwrap(), Playout::default());
        sink.restart_playout(port, None).unwrap();
    }
    assert!(sink.take_playout(LAST + 1).is_err());
}
