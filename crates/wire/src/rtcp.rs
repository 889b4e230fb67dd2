//! RTCP (RFC 3550, section 6): the sender's reports, and what receivers say back.
//!
//! Times are arguments: [`ntp`] turns a Unix time into the format that reports carry.

use std::time::Duration;

use rtcp_types::prelude::*;
use rtcp_types::{
    Bye, Compound, Packet, ReceiverReport, ReportBlock, Sdes, SdesChunk, SdesItem, SenderReport,
};

/// What a sender says about a stream.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The stream's synchronisation source.
    pub ssrc: u32,
    /// The sender's name, the same in all of its streams.
    pub cname: &'a str,
    /// Now, as [`ntp`] gives it.
    pub ntp: u64,
    /// The RTP timestamp of the same moment.
    pub timestamp: u32,
    /// RTP packets sent.
    pub packets: u64,
    /// Bytes of their payload, without headers.
    pub payload_bytes: u64,
}

/// What a datagram from a receiver said.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Heard {
    /// It holds a receiver report, if only an empty one: somebody is there.
    pub alive: bool,
    /// How our packets arrive there.
    pub reception: Option<Reception>,
    /// The receiver says that it leaves.
    pub bye: bool,
}

/// How a stream arrives at a receiver.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reception {
    /// Lost since the report before, in 256ths.
    pub lost_fraction: u8,
    /// Lost since the beginning; negative where packets came twice.
    pub lost: i32,
    /// The highest sequence number received, its cycles above.
    pub sequence_max: u32,
    /// Variation of the packets' travel time, in ticks of the RTP clock.
    pub jitter: u32,
    /// From our latest report to its answer and back, if it answers one.
    pub round_trip: Option<Duration>,
}

impl Sending<'_> {
    /// A sender report and the sender's name.
    #[must_use]
    pub fn report(&self) -> Vec<u8> {
        let compound = Compound::builder()
            .add_packet(self.sender())
            .add_packet(name(self.ssrc, self.cname));
        write(&compound)
    }

    /// The same, and the end of the stream, with a reason of which 255 bytes are sent.
    #[must_use]
    pub fn goodbye(&self, reason: &str) -> Vec<u8> {
        let compound = Compound::builder()
            .add_packet(self.sender())
            .add_packet(name(self.ssrc, self.cname));
        write(&compound.add_packet(bye(self.ssrc, reason)))
    }

    fn sender(&self) -> impl RtcpPacketWriter + use<> {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the counters are modulo 2^32"
        )]
        SenderReport::builder(self.ssrc)
            .ntp_timestamp(self.ntp)
            .rtp_timestamp(self.timestamp)
            .packet_count(self.packets as u32)
            .octet_count(self.payload_bytes as u32)
    }
}

/// A sender that does not know yet what its timestamps are: nothing has come of its stream.
///
/// A sender report would have to say one, and a receiver that ties tracks together by reports would
/// believe it. So it begins with a receiver report, of nothing (RFC 3550, section 6.1).
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// The stream's synchronisation source.
    pub ssrc: u32,
    /// The sender's name, the same in all of its streams.
    pub cname: &'a str,
}

impl Waiting<'_> {
    /// An empty receiver report and the sender's name: somebody is here.
    #[must_use]
    pub fn report(&self) -> Vec<u8> {
        let compound = Compound::builder()
            .add_packet(ReceiverReport::builder(self.ssrc))
            .add_packet(name(self.ssrc, self.cname));
        write(&compound)
    }

    /// The same, and the end of the stream, with a reason of which 255 bytes are sent.
    #[must_use]
    pub fn goodbye(&self, reason: &str) -> Vec<u8> {
        let compound = Compound::builder()
            .add_packet(ReceiverReport::builder(self.ssrc))
            .add_packet(name(self.ssrc, self.cname));
        write(&compound.add_packet(bye(self.ssrc, reason)))
    }
}

/// Reads what came for the sender of `ssrc` at `arrival` (as [`ntp`] gives it). What cannot be read
/// says nothing; what stands before it does.
#[must_use]
pub fn read(datagram: &[u8], ssrc: u32, arrival: u64) -> Heard {
    let mut heard = Heard::default();
    let Ok(compound) = Compound::parse(datagram) else {
        return heard;
    };
    for packet in compound {
        match packet {
            Ok(Packet::Rr(report)) => {
                heard.alive = true;
                let block = report.report_blocks().find(|block| block.ssrc() == ssrc);
                heard.reception = block
                    .map(|block| reception(&block, arrival))
                    .or(heard.reception);
            }
            Ok(Packet::Bye(_)) => heard.bye = true,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    heard
}

/// What a sender says of the line between its clock and its timestamps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SenderLine {
    /// The sender's source.
    pub ssrc: u32,
    /// Its clock, as [`ntp`] gives it, of whatever beginning.
    pub ntp: u64,
    /// The timestamp of that moment.
    pub timestamp: u32,
}

/// The first sender report in what a publisher has sent, if there is one.
#[must_use]
pub fn sender_line(datagram: &[u8]) -> Option<SenderLine> {
    let mut packets = Compound::parse(datagram).ok()?.map_while(Result::ok);
    packets.find_map(|packet| match packet {
        Packet::Sr(report) => Some(SenderLine {
            ssrc: report.ssrc(),
            ntp: report.ntp_timestamp(),
            timestamp: report.rtp_timestamp(),
        }),
        _ => None,
    })
}

/// What a receiver says about a stream that comes in.
#[derive(Clone, Copy, Debug)]
pub struct Receiving<'a> {
    /// Our synchronisation source.
    pub ssrc: u32,
    /// Our name.
    pub cname: &'a str,
    /// The stream's.
    pub sender: u32,
    /// Lost since the report before, in 256ths; see [`lost_fraction`].
    pub lost_fraction: u8,
    /// Lost since the beginning; 24 bits are said.
    pub lost: u32,
    /// The highest sequence number received, its cycles above.
    pub sequence_max: u32,
    /// In ticks of the stream's clock.
    pub jitter: u32,
    /// The middle 32 bits of its last report's NTP time, and how long ago that came in 65536ths
    /// of a second; zero for none.
    pub last_report: (u32, u32),
}

impl Receiving<'_> {
    /// A receiver report and the receiver's name.
    #[must_use]
    pub fn report(&self) -> Vec<u8> {
        let (last, delay) = self.last_report;
        let block = ReportBlock::builder(self.sender)
            .fraction_lost(self.lost_fraction)
            .cumulative_lost(self.lost.min((1 << 23) - 1))
            .extended_sequence_number(self.sequence_max)
            .interarrival_jitter(self.jitter)
            .last_sender_report_timestamp(last)
            .delay_since_last_sender_report_timestamp(delay);
        let report = ReceiverReport::builder(self.ssrc).add_report_block(block);
        let name = name(self.ssrc, self.cname);
        write(&Compound::builder().add_packet(report).add_packet(name))
    }
}

/// How much was lost of the packets that were expected since the report before, in 256ths (RFC
/// 3550, section 6.4.1 and appendix A.3). What is more than all is all but a 256th.
#[must_use]
pub fn lost_fraction(expected: u32, lost: u32) -> u8 {
    let fraction = (u64::from(lost) << 8).checked_div(expected.into());
    u8::try_from(fraction.unwrap_or(0)).unwrap_or(u8::MAX)
}

/// A Unix time as RTCP says it: seconds since 1900, 32 bits before the point and 32 behind.
#[must_use]
pub fn ntp(unix: Duration) -> u64 {
    const SECONDS_1900_TO_1970: u64 = 2_208_988_800;
    let fraction = (u64::from(unix.subsec_nanos()) << 32) / 1_000_000_000;
    // The seconds wrap in 2036, as the format says.
    (unix.as_secs() + SECONDS_1900_TO_1970) << 32 | fraction
}

/// How long to wait before the next report (RFC 3550, sections 6.2 and 6.3.1): 5 s, spread over
/// [0.5, 1.5] so that sessions that began together do not report together, and divided by e - 3/2,
/// as the RFC does for what else it corrects. A report is so small beside the stream that 5 % of it
/// are never the bound.
#[must_use]
pub fn report_interval(random: u32) -> Duration {
    const MINIMUM: Duration = Duration::from_secs(5);
    MINIMUM.mul_f64((0.5 + f64::from(random) / f64::from(u32::MAX)) / (std::f64::consts::E - 1.5))
}

fn reception(block: &ReportBlock<'_>, arrival: u64) -> Reception {
    #[allow(
        clippy::cast_possible_wrap,
        reason = "24 bits, moved up so that the sign is the sign"
    )]
    let lost = (block.cumulative_lost() << 8) as i32 >> 8;
    let answered = block.last_sender_report_timestamp();
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the middle 32 bits, as LSR is defined"
    )]
    let arrival = (arrival >> 16) as u32;
    let held = block.delay_since_last_sender_report_timestamp();
    let round_trip = arrival.wrapping_sub(answered).wrapping_sub(held);
    // Past half the range the receiver's clock, or its honesty, has made the journey negative.
    let round_trip = (answered != 0 && round_trip < 1 << 31)
        .then(|| Duration::from_nanos((u64::from(round_trip) * 1_000_000_000) >> 16));
    Reception {
        lost_fraction: block.fraction_lost(),
        lost,
        sequence_max: block.extended_sequence_number(),
        jitter: block.interarrival_jitter(),
        round_trip,
    }
}

fn name(ssrc: u32, cname: &str) -> impl RtcpPacketWriter {
    let item = SdesItem::builder(SdesItem::CNAME, cut(cname));
    Sdes::builder().add_chunk(SdesChunk::builder(ssrc).add_item(item))
}

fn bye(ssrc: u32, reason: &str) -> impl RtcpPacketWriter {
    Bye::builder().add_source(ssrc).reason(cut(reason))
}

/// What fits where the length is one byte.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(255)).rfind(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

fn write(packet: &impl RtcpPacketWriter) -> Vec<u8> {
    let bytes = packet
        .calculate_size()
        .expect("names and reasons are cut to their limits");
    let mut buffer = vec![0; bytes];
    packet.write_into_unchecked(&mut buffer);
    buffer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SENDING: Sending<'_> = Sending {
        ssrc: 0xdead_beef,
        cname: "onrush@host",
        ntp: 0x0102_0304_8000_0000,
        timestamp: 90_000,
        packets: (1 << 32) + 7,
        payload_bytes: 9212,
    };

    #[test]
    fn a_report_by_the_byte() {
        let bytes = SENDING.report();
        let header = [
            0x80, 200, 0, 6, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 0x80, 0, 0, 0,
        ];
        assert_eq!(bytes[..16], header);
        assert_eq!(
            bytes[16..28],
            [0, 1, 0x5f, 0x90, 0, 0, 0, 7, 0, 0, 0x23, 0xfc]
        );
        assert_eq!(bytes[28..36], [0x81, 202, 0, 5, 0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(&bytes[36..], b"\x01\x0bonrush@host\0\0\0");
    }

    #[test]
    fn goodbye_comes_last_with_its_reason() {
        let bytes = SENDING.goodbye("the end");
        let report = SENDING.report().len();
        assert_eq!(bytes[..report], SENDING.report());
        assert_eq!(
            &bytes[report..],
            b"\x81\xcb\x00\x03\xde\xad\xbe\xef\x07the end"
        );
        let long = "é".repeat(200);
        assert_eq!(SENDING.goodbye(&long)[report + 8], 254);
    }

    #[test]
    fn who_knows_no_timestamp_says_none() {
        let waiting = Waiting {
            ssrc: SENDING.ssrc,
            cname: SENDING.cname,
        };
        let bytes = waiting.report();
        assert_eq!(bytes[..8], [0x80, 201, 0, 1, 0xde, 0xad, 0xbe, 0xef]);
        // The name, as a sender report has it behind it.
        assert_eq!(bytes[8..], SENDING.report()[28..]);
        assert_eq!(sender_line(&bytes), None);
        let goodbye = waiting.goodbye("the end");
        assert_eq!(goodbye[..bytes.len()], bytes);
        assert_eq!(
            &goodbye[bytes.len()..],
            b"\x81\xcb\x00\x03\xde\xad\xbe\xef\x07the end"
        );
        assert!(read(&goodbye, 1, 0).bye);
    }

    #[test]
    fn fractions_are_of_what_was_expected() {
        for (expected, lost, fraction) in [
            (0, 0, 0),
            (0, 7, 0),
            (256, 0, 0),
            (256, 1, 1),
            (1000, 250, 64),
            (100, 100, u8::MAX),
            (u32::MAX, u32::MAX, u8::MAX),
        ] {
            assert_eq!(
                lost_fraction(expected, lost),
                fraction,
                "{lost} of {expected}"
            );
        }
    }

    fn report(lost: u32, last: u32, delay: u32) -> Vec<u8> {
        let block = |ssrc| {
            ReportBlock::builder(ssrc)
                .fraction_lost(3)
                .cumulative_lost(lost)
                .extended_sequence_number(0x1_0005)
                .interarrival_jitter(450)
                .last_sender_report_timestamp(last)
                .delay_since_last_sender_report_timestamp(delay)
        };
        let report = ReceiverReport::builder(1)
            .add_report_block(block(2))
            .add_report_block(block(SENDING.ssrc));
        let item = SdesItem::builder(SdesItem::CNAME, "player");
        let name = Sdes::builder().add_chunk(SdesChunk::builder(1).add_item(item));
        write(&Compound::builder().add_packet(report).add_packet(name))
    }

    #[test]
    fn a_receiver_report_is_understood() {
        // Sent in the middle of second 0x304, held there for 1 s, back after 1.25 s.
        let arrival = 0x0102_0305_c000_0000;
        let heard = read(&report(9, 0x0304_8000, 0x1_0000), SENDING.ssrc, arrival);
        let reception = Reception {
            lost_fraction: 3,
            lost: 9,
            sequence_max: 0x1_0005,
            jitter: 450,
            round_trip: Some(Duration::from_millis(250)),
        };
        assert_eq!(
            heard,
            Heard {
                alive: true,
                reception: Some(reception),
                bye: false
            }
        );
        let reception = |lost, last, delay| {
            read(&report(lost, last, delay), SENDING.ssrc, arrival)
                .reception
                .unwrap()
        };
        assert_eq!(reception(0xff_ffff, 0, 0).lost, -1);
        assert_eq!(reception(0, 0, 0).round_trip, None);
        assert_eq!(reception(0, 0x0304_8000, 0x8_0000).round_trip, None);
        let other = read(&report(0, 0, 0), 3, arrival);
        assert_eq!(
            other,
            Heard {
                alive: true,
                ..Heard::default()
            }
        );
    }

    #[test]
    fn goodbyes_are_heard_and_the_rest_says_nothing() {
        assert!(read(&SENDING.goodbye(""), 1, 0).bye);
        assert_eq!(read(&SENDING.report(), 1, 0), Heard::default());
        assert_eq!(read(b"", 1, 0), Heard::default());
        assert_eq!(read(b"GET / HTTP/1.1", 1, 0), Heard::default());
        // An empty report is legal, and a sign of life. What follows it is cut off.
        assert!(!read(b"\x80\xc9\x00\x01\x00\x00\x00\x01\x81\xcb\x00\x07", 1, 0).alive);
        assert!(read(b"\x80\xc9\x00\x01\x00\x00\x00\x01", 1, 0).alive);
    }

    #[test]
    fn a_sender_report_tells_a_line_and_ours_read_back() {
        let line = SenderLine {
            ssrc: SENDING.ssrc,
            ntp: SENDING.ntp,
            timestamp: SENDING.timestamp,
        };
        assert_eq!(sender_line(&SENDING.report()), Some(line));
        assert_eq!(sender_line(&SENDING.goodbye("")), Some(line));
        let receiving = Receiving {
            ssrc: 9,
            cname: "onrush@host",
            sender: SENDING.ssrc,
            lost_fraction: 64,
            lost: u32::MAX,
            sequence_max: 0x1_0005,
            jitter: 7,
            last_report: (0, 0),
        };
        assert_eq!(sender_line(&receiving.report()), None);
        let reception = read(&receiving.report(), SENDING.ssrc, 0)
            .reception
            .unwrap();
        assert_eq!((reception.lost, reception.jitter), ((1 << 23) - 1, 7));
        assert_eq!(reception.lost_fraction, 64);
        assert_eq!(sender_line(b"GET"), None);
    }

    #[test]
    fn ntp_times() {
        // RFC 868 gives this second: 1 January 1970.
        assert_eq!(ntp(Duration::ZERO), 2_208_988_800 << 32);
        assert_eq!(
            ntp(Duration::from_millis(1500)),
            2_208_988_801 << 32 | 1 << 31
        );
        assert_eq!(ntp(Duration::from_secs(2_085_978_496)), 0);
    }

    #[test]
    fn intervals_are_spread_around_the_minimum() {
        let spread = [0, u32::MAX].map(|random| report_interval(random).as_secs_f64());
        assert!((spread[0] - 2.5 / 1.218).abs() < 0.01 && (spread[1] - 7.5 / 1.218).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn noise_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            kind in 192_u8..208,
            count in any::<u8>(),
        ) {
            let _any = read(&bytes, 1, 0);
            // The same, with a header that lets it in.
            let mut packet = vec![0x80 | count & 0x3f, kind, 0, 0];
            packet.extend_from_slice(&bytes[..bytes.len() / 4 * 4]);
            packet[3] = u8::try_from(packet.len() / 4 - 1).unwrap();
            let _any = read(&packet, 1, 0);
        }
    }
}
