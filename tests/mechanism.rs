//! The right bytes by the right road: whole trains, no copies, and no more crossings for more
//! sessions.
//!
//! The roads' own counters are read twice: what the engine says it did, and what the sink saw
//! arrive.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onrush_server::config::Config;
use onrush_server::data::Data;
use onrush_server::engine::Stream;
use onrush_server::library::{Library, Media};
use onrush_server::server::Server;
use onrush_sys::path::PathName;
use onrush_testkit::film::{Container, film};
use onrush_testkit::http_client::Client;
use onrush_testkit::interleaved::InterleavedClient;
use onrush_testkit::sink::{Counts, Sink, Verdict};
use onrush_testkit::tcp_sink::{TcpSink, without_timestamps};
use onrush_testkit::testbed::{Mode, RCV_DEVICE, RCV_IPV4, SND_IPV4, Testbed};
use onrush_testkit::{require_programs, require_root};
use onrush_wire::media::ts::synth::constant_rate;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, SocketType, eth, socket};
use tempfile::TempDir;
use tokio::runtime;

use common::{LONG, Site, Viewer, clip, watch};

mod common;

/// What the engine says it did and what the sink says arrived.
struct Outcome {
    seen: Counts,
    trains: u64,
    trains_zero_copy: u64,
    trains_copied: u64,
    trains_single: u64,
    packets: u64,
    /// In the last three quarters of it.
    crossings: u64,
    /// In the last three quarters of it.
    ticks: u64,
    /// How long they took.
    wall: Duration,
}

/// What is played: it lasts so many seconds.
#[derive(Clone, Copy, Debug)]
enum Film {
    /// The clip, a transport stream of 1 Mbit/s.
    Ts(f64),
    /// H.264 and AAC in an MP4, of so many bits a second.
    Mp4(u64, u64),
    /// The AAC of that alone.
    Sound(u64, u64),
}

impl Film {
    /// Puts it into a folder, under that name.
    fn make(self, folder: &TempDir) -> &'static str {
        let name = match self {
            Self::Ts(_) => "clip.ts",
            Self::Mp4(..) | Self::Sound(..) => "film.mp4",
        };
        let path = folder.path().join(name);
        match self {
            Self::Ts(seconds) => fs::write(&path, clip(seconds)).unwrap(),
            Self::Mp4(rate_bps, seconds) | Self::Sound(rate_bps, seconds) => {
                let made = film(Container::Mp4, rate_bps, seconds).unwrap();
                fs::copy(made, &path).map(drop).unwrap();
            }
        }
        onrush_testkit::media::age(&path).unwrap();
        name
    }

    /// Bytes behind the RTP header of its packets at the most, in a frame of Ethernet.
    fn payload_bytes(self) -> usize {
        match self {
            Self::Ts(_) => 7 * 188,
            Self::Mp4(..) | Self::Sound(..) => 1460,
        }
    }

    /// Which of its tracks the stream of that number has.
    fn track(self, media: &Media, stream: u16) -> usize {
        match self {
            Self::Sound(..) => 1,
            _ => usize::from(stream) % media.tracks(),
        }
    }
}

/// Plays `seconds` of the clip to so many ports of the sink at once, from an engine in this
/// process.
fn play(mode: Mode, path: PathName, streams: u16, seconds: f64) -> Outcome {
    play_film(mode, path, streams, Film::Ts(seconds))
}

/// The same of any film: of its tracks each stream has the next.
fn play_film(mode: Mode, path: PathName, streams: u16, film: Film) -> Outcome {
    let (testbed, folder) = Site::prepare(mode);
    play_in(&testbed, &folder, path, streams, film)
}

fn play_in(
    testbed: &Testbed,
    folder: &TempDir,
    path: PathName,
    streams: u16,
    film: Film,
) -> Outcome {
    let outcome = (0..4).find_map(|_| try_to_play(testbed, folder, path, streams, film));
    outcome.expect("a machine on which not each play loses something to others")
}

/// Nothing if what all arrivals of a processor share had no room: that it loses packets then is
/// nobody's fault.
fn try_to_play(
    testbed: &Testbed,
    folder: &TempDir,
    path: PathName,
    streams: u16,
    film: Film,
) -> Option<Outcome> {
    let dropped = testbed.dropped();
    // Trains of nine or ten packets at the clip's 1 Mbit/s.
    let burst = Duration::from_millis(BURST_MS);
    let (data, media) = engine_of(testbed, folder, path, burst, film);
    let ports = FIRST_PORT..=FIRST_PORT + streams - 1;
    let sink = Sink::attach(&testbed.rcv, RCV_DEVICE, ports.clone()).unwrap();

    let open = |port| {
        let track = film.track(&media, port - FIRST_PORT);
        stream_of(testbed, &data, (&media, track, film.payload_bytes()), port)
    };
    let streams: Vec<_> = ports.map(open).collect();
    let packets = streams.iter().map(|it| it.source().plan().rtp_packets());
    let due = packets.sum::<u64>();
    for (number, stream) in (0..).zip(&streams) {
        // Spread over the burst, as clients that come when they like are: eight of them keep every
        // tick as busy as many do.
        let delay = Duration::from_millis(200 + BURST_MS * (number % 8) / 8);
        stream.play(0, None, delay).unwrap();
    }
    let counters = data.engines().counters().next().expect("one engine");
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    // Before all play, each that comes wakes the engine.
    arrived(&sink, due / 4);
    let begin = Instant::now();
    let (crossings, ticks) = (load(&counters.crossings), load(&counters.ticks));
    let seen = arrived(&sink, due);
    if testbed.dropped() > dropped {
        return None;
    }
    assert_eq!(
        (seen.packets, seen.rtp_packets),
        (due, due),
        "{path}: {counters:?}"
    );
    assert_eq!((seen.sequence_missing, seen.sequence_repeated), (0, 0));
    // The engine writes its counters down from time to time, and the memory of the last trains
    // comes back a moment after them.
    let give_up = Instant::now() + LONG;
    let sent = |by: &[&AtomicU64]| by.iter().map(|counter| load(counter)).sum::<u64>();
    let ways = [
        &counters.trains_zero_copy,
        &counters.trains_copied,
        &counters.trains_single,
    ];
    let released = || sent(&ways);
    while load(&counters.packets) < due || released() < load(&counters.trains) {
        assert!(Instant::now() < give_up, "{counters:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(Outcome {
        seen,
        trains: load(&counters.trains),
        trains_zero_copy: load(&counters.trains_zero_copy),
        trains_copied: load(&counters.trains_copied),
        trains_single: load(&counters.trains_single),
        packets: load(&counters.packets),
        crossings: load(&counters.crossings) - crossings,
        ticks: load(&counters.ticks) - ticks,
        wall: begin.elapsed(),
    })
}

/// An engine in this process that runs in the sending namespace, and the clip for it to play.
fn engine(
    testbed: &Testbed,
    folder: &TempDir,
    path: PathName,
    burst: Duration,
    seconds: f64,
) -> (Data, Arc<Media>) {
    engine_of(testbed, folder, path, burst, Film::Ts(seconds))
}

/// The same for any film.
fn engine_of(
    testbed: &Testbed,
    folder: &TempDir,
    path: PathName,
    burst: Duration,
    film: Film,
) -> (Data, Arc<Media>) {
    let name = film.make(folder);
    let config = Config {
        media_root: folder.path().to_owned(),
        cache_bytes: 8 << 20,
        burst,
        path,
        ..Config::default()
    };
    let library = Arc::new(Library::new(&config).unwrap());
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let media = runtime.block_on(library.open(name)).unwrap();
    let data = testbed.snd.run(|| Data::start(&config)).unwrap();
    assert_eq!(data.path(), path, "a path asked for by name runs as itself");
    (data, media)
}

fn stream(testbed: &Testbed, data: &Data, media: &Media, port: u16) -> Stream {
    stream_of(testbed, data, (media, 0, 7 * 188), port)
}

/// The same of any track, in packets of at most so many bytes behind their RTP headers.
fn stream_of(
    testbed: &Testbed,
    data: &Data,
    (media, track, payload_bytes): (&Media, usize, usize),
    port: u16,
) -> Stream {
    let socket = testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0))).unwrap();
    socket.connect((RCV_IPV4, port)).unwrap();
    data.open(media, track, payload_bytes, socket.into())
        .unwrap()
}

/// What the sink has counted when so many packets have arrived.
fn arrived(sink: &Sink, packets: u64) -> Counts {
    let give_up = Instant::now() + LONG;
    loop {
        let seen = sink.totals().unwrap();
        if seen.packets >= packets || Instant::now() > give_up {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

// SPECIFICATION.md: 16
#[test]
fn every_path_in_uso_goes_its_own_road() {
    require_root!();
    for path in PathName::ALL {
        let outcome = play(Mode::Uso, path, 4, 2.0);
        assert_eq!(outcome.packets, outcome.seen.packets, "{path}");
        if path.segments() {
            // The device passes on what it is given: a train arrives as it was sent.
            assert_eq!(outcome.trains, outcome.seen.skbs, "{path}");
            assert!(
                outcome.seen.train_packets_max >= 9,
                "{path}: {:?}",
                outcome.seen
            );
            assert!(
                outcome.seen.skbs * 5 < outcome.seen.packets,
                "{path}: {:?}",
                outcome.seen
            );
        } else {
            assert_eq!(
                (outcome.seen.trains, outcome.seen.train_packets_max),
                (0, 1),
                "{path}"
            );
        }
        let ways = (
            outcome.trains_copied,
            outcome.trains_single,
            outcome.trains_zero_copy,
        );
        let seen = outcome.seen;
        let expected = if path == PathName::UringRegisteredZc {
            // Lone packets are copied on purpose; whatever the sink saw as a train was not.
            (0, seen.skbs - seen.trains, seen.trains)
        } else {
            (outcome.trains, 0, 0)
        };
        assert_eq!(ways, expected, "{path}: trains copied, single, and neither");
    }
}

/// A session that has jumped: headers from the slab, payloads from the shared images, and still
/// trains, no copy, and one crossing a tick.
// SPECIFICATION.md: 13
#[test]
fn after_a_jump_trains_of_eight_leave_without_a_copy() {
    require_root!();
    for (mode, path, streams) in [
        (Mode::Uso, PathName::UringRegisteredZc, 4),
        (Mode::Uso, PathName::UringRegisteredZc, 64),
        (Mode::SoftwareGso, PathName::UringRegisteredZc, 4),
        (Mode::Uso, PathName::SendmmsgGso, 4),
        (Mode::Uso, PathName::Sendmmsg, 4),
    ] {
        let outcome = (0..4).find_map(|_| try_to_jump(mode, path, streams));
        outcome.expect("a machine on which not each play loses something to others");
    }
}

/// Nothing if what all arrivals of a processor share had no room.
fn try_to_jump(mode: Mode, path: PathName, streams: u16) -> Option<()> {
    let (testbed, folder) = Site::prepare(mode);
    let dropped = testbed.dropped();
    let burst = Duration::from_millis(BURST_MS);
    let (data, media) = engine(&testbed, &folder, path, burst, 4.0);
    let ports = FIRST_PORT..=FIRST_PORT + streams - 1;
    let sink = Sink::attach(&testbed.rcv, RCV_DEVICE, ports.clone()).unwrap();
    let streams: Vec<_> = ports
        .map(|port| stream(&testbed, &data, &media, port))
        .collect();
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let packets = media.plan(0, 7 * 188).unwrap().rtp_packets();
    let counters = data.engines().counters().next().expect("one engine");
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    // The first packets in numbers that all share.
    let count = streams.len() as u64;
    for stream in &streams {
        stream.play(0, Some(1), Duration::ZERO).unwrap();
        runtime.block_on(stream.ended());
    }
    assert_eq!(arrived(&sink, count).packets, count);
    let (singles, crossings) = (load(&counters.trains_single), load(&counters.crossings));
    assert_eq!(load(&counters.trains_own_headers), 0);
    let (ticks, before) = (load(&counters.ticks), sink.totals().unwrap());
    // Then to the middle, and back to the start.
    let mut due = count;
    for (from, stop) in [(packets / 2, packets), (0, packets / 4)] {
        for (number, stream) in (0..).zip(&streams) {
            runtime.block_on(stream.prepare(from)).unwrap();
            let delay = Duration::from_millis(200 + BURST_MS * (number % 8) / 8);
            stream.play(from, Some(stop), delay).unwrap();
        }
        due += count * (stop - from);
        for stream in &streams {
            runtime.block_on(stream.ended());
        }
    }
    let seen = arrived(&sink, due);
    if testbed.dropped() > dropped {
        return None;
    }
    // One run of numbers in each stream, over both jumps.
    assert_eq!((seen.packets, seen.rtp_packets), (due, due), "{path}");
    assert_eq!((seen.sequence_missing, seen.sequence_repeated), (0, 0));
    let give_up = Instant::now() + LONG;
    let is_released = || {
        let ways = [
            &counters.trains_zero_copy,
            &counters.trains_copied,
            &counters.trains_single,
        ];
        ways.map(load).iter().sum::<u64>() >= load(&counters.trains)
    };
    while !is_released() {
        assert!(Instant::now() < give_up, "{counters:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let own = load(&counters.trains_own_headers);
    let trains = seen.trains - before.trains;
    let skbs = seen.skbs - before.skbs;
    match (path, mode) {
        (PathName::UringRegisteredZc, Mode::Uso) => {
            assert_eq!(counters.own_headers_path(), "uring_vectored_zc");
            assert_eq!((seen.train_packets_max, own), (8, skbs), "{seen:?}");
            assert_eq!(load(&counters.trains_copied), 0);
            assert_eq!(load(&counters.trains_zero_copy), trains);
            assert_eq!(load(&counters.trains_single) - singles, skbs - trains);
        }
        (PathName::UringRegisteredZc, Mode::SoftwareGso) => {
            assert_eq!(seen.train_packets_max, 1, "the stack has cut them");
            assert!(own * 4 < due, "{own} trains of {due} packets");
        }
        (PathName::SendmmsgGso, _) => {
            assert_eq!((seen.train_packets_max, own), (8, skbs), "{seen:?}");
            assert_eq!(load(&counters.trains_copied), load(&counters.trains));
        }
        _ => assert_eq!(seen.train_packets_max, 1),
    }
    if path == PathName::UringRegisteredZc {
        // One a tick, and one for each batch of 256 trains.
        let crossings = load(&counters.crossings) - crossings;
        let ticks = load(&counters.ticks) - ticks;
        assert!(
            crossings <= ticks + own / 200 + 2,
            "{crossings} in {ticks} ticks for {own} trains"
        );
    }
    Some(())
}

#[test]
fn a_sniffer_makes_the_kernel_copy_and_the_counters_say_so() {
    require_root!();
    let (testbed, folder) = Site::prepare(Mode::Uso);
    // An AF_PACKET tap gets a copy of its own of zero-copy data, though it never reads it.
    let packet = (AddressFamily::PACKET, SocketType::RAW, Some(eth::ALL));
    let _tap = testbed
        .snd
        .run(|| socket(packet.0, packet.1, packet.2))
        .unwrap();
    let film = Film::Ts(2.0);
    let outcome = play_in(&testbed, &folder, PathName::UringRegisteredZc, 4, film);
    assert_eq!(
        (outcome.trains_zero_copy, outcome.trains_copied),
        (0, outcome.trains - outcome.trains_single)
    );
}

#[test]
fn a_lone_packet_takes_little_room_in_its_receivers_socket() {
    require_root!();
    let (testbed, folder) = Site::prepare(Mode::Uso);
    // At 1 Mbit/s a burst of a millisecond is one packet.
    let burst = Duration::from_millis(1);
    let (data, media) = engine(&testbed, &folder, PathName::UringRegisteredZc, burst, 2.0);
    let deaf = testbed
        .rcv
        .run(|| UdpSocket::bind((RCV_IPV4, FIRST_PORT)))
        .unwrap();
    set_socket_recv_buffer_size_force(&deaf, 256 << 10).unwrap();
    let sent = media.plan(0, 7 * 188).unwrap().rtp_packets();
    let stream = stream(&testbed, &data, &media, FIRST_PORT);
    stream.play(0, None, Duration::ZERO).unwrap();
    let give_up = Instant::now() + LONG;
    while stream.snapshot().packets < sent {
        assert!(Instant::now() < give_up, "{:?}", stream.snapshot());
        std::thread::sleep(Duration::from_millis(20));
    }
    deaf.set_nonblocking(true).unwrap();
    let held = (0..sent)
        .take_while(|_| deaf.recv(&mut [0; 2000]).is_ok())
        .count();
    // The kernel doubles the size asked for, and adds its own to the 1328 bytes of a packet.
    assert!(held > 100, "512 KiB hold {held} packets of {sent}");
}

#[test]
fn software_gso_makes_singles_of_the_same_trains() {
    require_root!();
    for path in PathName::ALL {
        let outcome = play(Mode::SoftwareGso, path, 4, 2.0);
        assert_eq!(outcome.packets, outcome.seen.packets, "{path}");
        assert_eq!(
            (outcome.seen.trains, outcome.seen.train_packets_max),
            (0, 1),
            "{path}"
        );
        assert!(outcome.trains * 5 < outcome.packets, "{path}");
    }
}

// SPECIFICATION.md: 11
#[test]
fn crossings_do_not_grow_with_the_streams() {
    require_root!();
    few_and_many(Film::Ts(3.0));
}

#[test]
fn crossings_do_not_grow_with_the_streams_of_an_mp4() {
    require_root!();
    require_programs!("ffmpeg");
    few_and_many(Film::Mp4(1_000_000, 4));
}

fn few_and_many(film: Film) {
    let few = play_film(Mode::Uso, PathName::UringRegisteredZc, 8, film);
    let many = play_film(Mode::Uso, PathName::UringRegisteredZc, 256, film);
    assert_eq!(many.packets, few.packets * 32);
    assert_eq!(many.trains_zero_copy, many.seen.trains);
    for Outcome {
        crossings,
        ticks,
        trains,
        wall,
        ..
    } in [few, many]
    {
        // The clock makes the ticks, four a burst; on a busy machine some are late, and then there
        // are fewer.
        let ticks_max = 4 * wall.as_millis() / u128::from(BURST_MS) + 10;
        assert!(
            u128::from(ticks) < ticks_max,
            "{ticks} of {ticks_max} ticks"
        );
        // One a tick, and one for each batch that what is caught up with fills, of 256 trains.
        assert!(
            crossings > 0 && crossings <= ticks + trains / 200 + 2,
            "{crossings} in {ticks} ticks for {trains} trains"
        );
    }
}

/// An access unit is a train: all of its packets but those in front that are shorter, which are its
/// parameter sets, and the rest of what is more than a train, or a chunk, holds.
#[test]
fn an_access_unit_of_an_mp4_is_a_train() {
    require_root!();
    require_programs!("ffmpeg");
    const SECONDS: u64 = 4;
    let film = Film::Mp4(4_000_000, SECONDS);
    let path = PathName::UringRegisteredZc;
    let (testbed, folder) = Site::prepare(Mode::Uso);
    let (data, media) = engine_of(&testbed, &folder, path, BURST, film);
    let pictures = stream_of(
        &testbed,
        &data,
        (&media, 0, film.payload_bytes()),
        FIRST_PORT,
    );
    let (source, mut bursts) = (pictures.source(), Vec::new());
    let plan = source.plan();
    let mut sends_of = |packets| {
        plan.bursts(packets, &mut bursts);
        let packets = bursts.drain(..).map(|burst| u64::from(burst.packets));
        packets.map(|packets| packets.div_ceil(TRAIN_PACKETS)).sum()
    };
    let expected: u64 = sends_of(0..plan.rtp_packets());
    // If each chunk's end cut one.
    let cut: u64 = (0..source.chunks())
        .map(|chunk| sends_of(source.packets_of(chunk)))
        .sum();
    drop((pictures, data));
    // Of one stream, which has the pictures.
    let outcome = play_in(&testbed, &folder, path, 1, film);
    let seen = outcome.seen;
    assert_eq!(outcome.packets, plan.rtp_packets());
    // A chunk's end cuts one, unless there is room in the chunk for its rest, as there is in some.
    assert_eq!(seen.skbs, outcome.trains, "{seen:?}");
    let chunks = u64::from(source.chunks());
    assert!(
        (expected..cut).contains(&seen.skbs),
        "{expected} to {cut}: {seen:?}"
    );
    assert!(seen.skbs * 10 < seen.packets, "{seen:?}");
    // One for each picture; what is more than a train is a few for each sync sample.
    let (pictures, syncs) = (25 * SECONDS, SECONDS / 2);
    let most = pictures + chunks + 5 * syncs;
    assert!((pictures..most).contains(&seen.skbs), "{seen:?}");
    assert!(seen.train_packets_max > 40, "{seen:?}");
    let ways = [
        outcome.trains_copied,
        outcome.trains_single,
        outcome.trains_zero_copy,
    ];
    assert_eq!(ways, [0, seen.skbs - seen.trains, seen.trains], "{seen:?}");
}

/// Two packets of sound are a train, without a copy, though the kernel is told the length of the
/// first with each: it is another for each, and none is as long as the longest.
#[test]
fn two_packets_of_sound_are_a_train() {
    require_root!();
    require_programs!("ffmpeg");
    const SECONDS: u64 = 8;
    let film = Film::Sound(1_000_000, SECONDS);
    for path in PathName::ALL.into_iter().filter(|path| path.segments()) {
        let (testbed, folder) = Site::prepare(Mode::Uso);
        let seen = play_in(&testbed, &folder, path, 1, film);
        let (sink, ways) = (seen.seen, (seen.trains_zero_copy, seen.trains_copied));
        // A frame has 1024 samples of 48 kHz. Four go into a packet, or three if four would be more
        // than the packet before has; what is left over is alone.
        let frames = SECONDS * 48_000 / 1024;
        assert!(
            sink.packets * 4 >= frames && sink.packets * 3 <= frames,
            "{sink:?}"
        );
        assert_eq!(sink.train_packets_max, 2, "{sink:?}");
        assert_eq!(sink.skbs, seen.trains, "{sink:?}");
        assert!(sink.skbs * 10 <= sink.packets * 6, "{sink:?}");
        let expected = match path {
            PathName::UringRegisteredZc => (sink.trains, 0),
            _ => (0, sink.skbs),
        };
        assert_eq!(ways, expected, "{path}: zero copy and copied of {sink:?}");
    }
}

/// Packets of a frame of Ethernet that the largest datagram holds.
const TRAIN_PACKETS: u64 = 44;

#[test]
fn strace_sees_one_crossing_a_tick_whatever_is_due() {
    require_root!();
    require_programs!("strace");
    const SESSIONS: u64 = 256;
    let burst = Duration::from_millis(20);
    let metrics = SocketAddr::from((SND_IPV4, METRICS_PORT));
    let arguments = ["--burst=20ms", &format!("--metrics={metrics}")];
    let site = Site::with_clip(&clip(24.0), Mode::Uso, &arguments);
    // Memory that is made ready meanwhile has calls of its own.
    site.server.wait_for_line("cache: all ", LONG).unwrap();
    // Nobody looks at the packets: they are dropped where they arrive.
    let sink = Sink::attach(&site.testbed.rcv, RCV_DEVICE, 1024..=u16::MAX).unwrap();
    let set_up = |_| Viewer::setup(&site.testbed, "clip.ts");
    let mut viewers: Vec<_> = (0..SESSIONS).map(set_up).collect();
    for viewer in &mut viewers {
        viewer.play(None);
    }
    let counted = || site.testbed.rcv.run(|| counted_anew(metrics));
    let [ticks, trains] = counted();
    let (begin, before) = (Instant::now(), sink.totals().unwrap().rtp_packets);
    let calls = site
        .server
        .count_system_calls(Duration::from_secs(3))
        .unwrap();
    let packets = sink.totals().unwrap().rtp_packets - before;
    let interval = begin.elapsed();
    let [ticks_after, trains_after] = counted();
    let (ticks, trains) = (ticks_after - ticks, trains_after - trains);
    site.stop();
    // As the engine counts them, from before the first call that strace saw until after the last:
    // traced, it is late for many, which are one then. A batch of trains is one more.
    let crossings = calls["io_uring_enter"];
    assert!(
        crossings <= ticks + ticks / 10 + trains / 200,
        "{crossings} crossings in {ticks} ticks for {trains} trains"
    );
    // Four ticks a burst.
    let ticks_max = 4 * interval.as_micros() / burst.as_micros();
    assert!(
        u128::from(crossings) < ticks_max * 3 / 2,
        "{crossings} crossings in {ticks_max} ticks"
    );
    // Sender reports and housekeeping are calls of their own; a call a packet, or a burst, is not
    // there.
    let all = calls.values().sum::<u64>();
    assert!(
        u128::from(all) < 2 * u128::from(SESSIONS) * interval.as_millis() / 1000
            && all * 20 < packets,
        "{packets} packets: {calls:?}"
    );
}

/// Ticks and trains that the engine of a server has counted, when it has written them down once
/// more.
fn counted_anew(metrics: SocketAddr) -> [u64; 2] {
    let read = || {
        let page = Client::connect(metrics).unwrap().get("/metrics").unwrap();
        let page = String::from_utf8(page).unwrap();
        ["onrush_ticks_total{", "onrush_trains_total{"].map(|name| {
            let values = page.lines().filter(|line| line.starts_with(name));
            let values =
                values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
            values.sum::<u64>()
        })
    };
    let ([before, _], give_up) = (read(), Instant::now() + LONG);
    loop {
        let now = read();
        if now[0] > before {
            return now;
        }
        assert!(Instant::now() < give_up, "no tick after {before}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What control, engine and the threads that look at files ask of the kernel until somebody
/// watches: connect, DESCRIBE, SETUP and PLAY. Waiting is not counted, because how often that is
/// interrupted is chance.
#[test]
fn a_set_up_takes_so_many_system_calls() {
    require_root!();
    require_programs!("strace");
    const SESSIONS: u64 = 200;
    // Memory that grows behind the viewers is none of theirs: so little is there before the first.
    let memory = ["--burst=1s", "--cache=64MiB"];
    let site = Site::with_clip(&clip(24.0), Mode::Uso, &memory);
    let _sink = Sink::attach(&site.testbed.rcv, RCV_DEVICE, 1024..=u16::MAX).unwrap();
    let set_up = |_| {
        let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
        viewer.play(None);
        viewer
    };
    // What a first one leaves for the others is there already.
    let mut viewers: Vec<_> = (0..8).map(set_up).collect();
    let calls = site
        .server
        .count_system_calls_while(|| viewers.extend((0..SESSIONS).map(set_up)));
    let mut calls = calls.unwrap();
    site.stop();
    // A file that the kernel has in its cache is opened by control itself: it wakes no thread that
    // may wait for a disk, which took four of these for each. What is left is of the threads that
    // build packets.
    let wakings = calls.remove("futex").unwrap_or(0);
    assert!(wakings <= SESSIONS, "{wakings} futex calls");
    for wait in ["epoll_wait", "io_uring_enter", "restart_syscall"] {
        calls.remove(wait);
    }
    let each = calls.values().sum::<u64>() / SESSIONS;
    assert!(each <= SET_UP_CALLS_MAX, "{each} for each: {calls:?}");
    // One RTP socket of his own, taken up by the ring; no RTCP socket.
    for (call, most) in [
        ("socket", 1),
        ("bind", 1),
        ("io_uring_register", 1),
        ("accept4", 2),
    ] {
        assert!(
            calls[call] * 10 <= SESSIONS * most * 11,
            "{call}: {calls:?}"
        );
    }
}

/// Over TCP, too, payloads leave by reference to the images that all share, before a session's
/// first jump and after it: the kernel copies none of them, but for those that a connection begins
/// with.
#[test]
fn tcp_carries_payloads_without_a_copy_over_jumps() {
    require_root!();
    const CONNECTIONS: usize = 16;
    const PART_BYTES: u64 = 3 << 20;
    let (testbed, folder) = Site::prepare(Mode::Uso);
    without_timestamps(&testbed.rcv).unwrap();
    // Eight seconds of 16 Mbit/s.
    let film = constant_rate(8 * 10_640, 0, 2_538);
    let path = folder.path().join("film.ts");
    fs::write(&path, film).unwrap();
    onrush_testkit::media::age(&path).unwrap();
    let address = SocketAddr::from((SND_IPV4, 8554));
    let config = Config {
        media_root: folder.path().to_owned(),
        rtsp_addresses: vec![address],
        cache_bytes: 64 << 20,
        path: PathName::UringRegisteredZc,
        ..Config::default()
    };
    let server = testbed.snd.run(|| Server::start(config)).unwrap();
    let url = format!("rtsp://{address}/film.ts");
    let mut clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let client = testbed.rcv.run(|| InterleavedClient::connect(address));
            let (mut client, track) = (client.unwrap(), format!("{url}/track1"));
            let transport = [("Transport", "RTP/AVP/TCP;unicast;interleaved=0-1")];
            let answer = client.request("SETUP", &track, &transport).unwrap();
            let session = answer.session_id().expect("a session").0.to_owned();
            (client, session)
        })
        .collect();
    let sockets = clients.iter().map(|(client, _)| client.stream());
    let sink = TcpSink::attach(&testbed.rcv, RCV_DEVICE, sockets).unwrap();
    for (client, session) in &mut clients {
        let headers = [("Session", &**session), ("Range", "npt=0-")];
        client.send("PLAY", &url, &headers).unwrap();
    }
    let give_up = Instant::now() + LONG;
    let wait_for = |client: &InterleavedClient, bytes| {
        while sink.connection(client.stream()).unwrap().bytes < bytes {
            let seen = sink.connection(client.stream());
            assert!(Instant::now() < give_up, "{seen:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    for (client, session) in &clients {
        wait_for(client, PART_BYTES);
        let jump = format!(
            "PLAY {url} RTSP/1.0\r\nCSeq: 9\r\nSession: {session}\r\nRange: npt=4-\r\n\r\n"
        );
        sink.send(client.stream(), jump.as_bytes()).unwrap();
    }
    for (client, _) in &clients {
        wait_for(client, 2 * PART_BYTES);
    }
    let seen = clients
        .iter()
        .map(|(client, _)| sink.connection(client.stream()).unwrap());
    let bytes = seen.map(|seen| seen.bytes).sum::<u64>();
    let status = server.shutdown();
    // SETUP and two times PLAY.
    let answers = status.sessions.answers[1];
    assert_eq!(answers, 3 * CONNECTIONS as u64, "all have jumped");
    let engine = &status.engines[0];
    assert_eq!(engine.trains, engine.trains_framed, "{engine:?}");
    assert_eq!(engine.own_headers_path, "uring_vectored_zc", "{engine:?}");
    // All connections together.
    assert!(engine.trains > 4 * engine.crossings, "{engine:?}");
    assert!(bytes >= 2 * PART_BYTES * CONNECTIONS as u64);
    // A connection's first sends are gathered by the kernel, and those beside the first that it was
    // asked to refer to, until it has told of that one.
    assert!(
        engine.trains_zero_copy * 4 > engine.trains * 3,
        "{engine:?}"
    );
}

/// Calls of a set-up; as many as there were when this was written, and a tenth. Three of them are
/// the debug build's, which asks of each descriptor whether it is open before it closes it.
const SET_UP_CALLS_MAX: u64 = 41;

// SPECIFICATION.md: 12
#[test]
fn what_a_player_gets_was_sent_in_trains() {
    require_root!();
    for mode in [Mode::Uso, Mode::SoftwareGso] {
        let clip = clip(3.0);
        let ts = Arc::from(&*clip);
        let site = Site::with_clip(&clip, mode, &["--burst=100ms"]);
        let ports = 1024..=u16::MAX;
        let sink = Sink::attach_with(&site.testbed.rcv, RCV_DEVICE, ports, Verdict::Pass).unwrap();
        let packets = watch(&site.testbed, "clip.ts", &ts, None).packets;
        let seen = sink.totals().unwrap();
        assert_eq!(seen.rtp_packets, packets, "{}", mode.name());
        assert_eq!(
            seen.skbs * 5 < packets,
            mode == Mode::Uso,
            "{}: {seen:?}",
            mode.name()
        );
        site.stop();
    }
}

const METRICS_PORT: u16 = 9554;
const FIRST_PORT: u16 = 20_000;
const BURST_MS: u64 = 100;
const BURST: Duration = Duration::from_millis(BURST_MS);
