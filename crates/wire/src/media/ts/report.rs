//! What was understood of a file, in numbers that can be shown or stored.

use std::sync::Arc;

use serde::Serialize;

use super::clock::PcrQuality;
use super::facts::ClockDoubt;
use super::index::{Index, TS_PACKET_BYTES};
use super::plan::{Packetisation, Plan};
pub use super::psi::{Kind, Program, Stream};
pub use super::seek::SeekKind;
use crate::media::sampled::report::SCHEMA_VERSION;
use crate::rtp;

/// All that is worth telling about an indexed file.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// `MPEG-TS`, or `M2TS` where each packet has four bytes in front.
    pub format: &'static str,
    /// The file's length.
    pub file_bytes: u64,
    /// Bytes from sync byte to sync byte: 188, 192 (M2TS) or 204 (Reed-Solomon).
    pub packet_stride_bytes: u16,
    /// From the first packet to the end of the last, in ns.
    pub duration_ns: u64,
    /// Mean rate of the transport stream, in bit/s.
    pub rate_mean_bps: u64,
    /// Rate of the busiest second, in bit/s.
    pub rate_peak_bps: u64,
    /// What the times are taken from.
    pub clock: ClockSource,
    /// What was seen of the clock, if the file has one.
    pub pcr: Option<Pcr>,
    /// Why that is not what the times are taken from, although it seems to be one.
    pub clock_doubt: Option<ClockDoubt>,
    /// Programs in the order of the PAT.
    pub programs: Vec<Program>,
    /// Transport packets and what is wrong with them.
    pub packets: Packets,
    /// Where playing can start.
    pub seek: Seek,
    /// How it is sent.
    pub bursts: Bursts,
}

/// What media time is taken from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockSource {
    /// The program clock references of one pid.
    Pcr,
    /// The decoding times of the stream on this pid, because the references contradict them:
    /// [`Report::clock_doubt`] says how.
    StreamTimes(u16),
    /// A constant rate, because there is no usable clock; in bit/s.
    ConstantRate(u64),
}

/// A program clock.
#[derive(Clone, Debug, Serialize)]
pub struct Pcr {
    /// The pid that carries it.
    pub pid: u16,
    /// How well it keeps the rules.
    #[serde(flatten)]
    pub quality: PcrQuality,
}

/// Counts of transport packets and of bytes that are none.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Packets {
    /// All of them; each is served.
    pub total: u64,
    /// Null packets: stuffing.
    pub nulls: u64,
    /// Those with `transport_error_indicator`: damaged before the file was written.
    pub transport_errors: u64,
    /// Scrambled ones. They are served as they are.
    pub scrambled: u64,
    /// Breaks of continuity counters over all pids.
    pub continuity_errors: u64,
    /// Pids in use.
    pub pids: usize,
    /// How often sync was lost.
    pub sync_losses: u64,
    /// Bytes before the first packet; not served.
    pub leading_bytes: u64,
    /// Bytes between packets where sync was lost; not served.
    pub garbage_bytes: u64,
    /// Bytes of a partial packet at the end; not served.
    pub trailing_bytes: u64,
}

/// Random access.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Seek {
    /// What makes a place to start at.
    pub kind: SeekKind,
    /// Places to start at, the start of the file included.
    pub points: usize,
    /// Mean distance from one to the next (from the last to the end), in ns.
    pub distance_mean_ns: u64,
    /// The largest such distance, in ns.
    pub distance_max_ns: u64,
}

/// Bursts at the packetisation asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bursts {
    /// The interval, in ns.
    pub burst_ns: u64,
    /// RTP packets in all.
    pub rtp_packets: u64,
    /// Transport packets in an RTP packet.
    pub ts_packets_per_rtp: u8,
    /// Bursts in all.
    pub count: u64,
    /// Mean number of RTP packets in one.
    pub packets_mean: f64,
    /// The most RTP packets in one.
    pub packets_max: u32,
    /// Bytes of the largest one, RTP headers included.
    pub bytes_max: u64,
}

impl Index {
    /// All that is worth telling about the file when it is cut as `packetisation` says.
    #[must_use]
    pub fn report(self: &Arc<Self>, packetisation: Packetisation) -> Report {
        Report::new(self, packetisation)
    }
}

impl Report {
    fn new(index: &Arc<Index>, packetisation: Packetisation) -> Self {
        let facts = &index.facts;
        let streams = &facts.streams;
        let duration_ns = index.duration_ns();
        Self {
            schema_version: SCHEMA_VERSION,
            format: match index.runs[0].packet_stride {
                192 => "M2TS",
                _ => "MPEG-TS",
            },
            file_bytes: facts.file_bytes,
            packet_stride_bytes: index.runs[0].packet_stride,
            duration_ns,
            rate_mean_bps: rate(index.ts_packets, duration_ns),
            rate_peak_bps: peak(index, duration_ns),
            clock: match (facts.fallback_bitrate, streams.doubt) {
                (Some(rate), _) => ClockSource::ConstantRate(rate),
                (None, Some(doubt)) => ClockSource::StreamTimes(doubt.pid),
                (None, None) => ClockSource::Pcr,
            },
            pcr: streams
                .pcr
                .clone()
                .map(|(pid, quality)| Pcr { pid, quality }),
            clock_doubt: streams.doubt,
            programs: streams.programs.clone(),
            packets: Packets {
                total: index.ts_packets,
                nulls: streams.nulls,
                transport_errors: streams.transport_errors,
                scrambled: streams.scrambled,
                continuity_errors: streams.continuity_errors,
                pids: streams.pids,
                sync_losses: facts.sync_losses,
                leading_bytes: facts.leading_bytes,
                garbage_bytes: facts.garbage_bytes,
                trailing_bytes: facts.trailing_bytes,
            },
            seek: seek(index, duration_ns),
            bursts: bursts(index, packetisation),
        }
    }
}

fn seek(index: &Index, duration_ns: u64) -> Seek {
    let points = index.seek_points();
    let ends = points[1..]
        .iter()
        .map(|point| point.time_ns)
        .chain([duration_ns]);
    let distance_max_ns = points
        .iter()
        .zip(ends)
        .map(|(point, end)| end - point.time_ns)
        .max()
        .unwrap_or(0);
    Seek {
        kind: index.facts.streams.seek_kind,
        points: points.len(),
        distance_mean_ns: duration_ns / points.len() as u64,
        distance_max_ns,
    }
}

fn bursts(index: &Arc<Index>, packetisation: Packetisation) -> Bursts {
    let plan = Plan::new(Arc::clone(index), packetisation);
    let rtp_packets = plan.rtp_packets();
    let (mut count, mut packets_max, mut bytes_max) = (0, 0, 0);
    plan.each_burst(0..rtp_packets, |burst| {
        count += 1;
        packets_max = packets_max.max(burst.packets);
        let last = burst.first + u64::from(burst.packets) - 1;
        let full = u64::from(burst.packets) - 1;
        let last_bytes = rtp::HEADER_BYTES + plan.payload_bytes(last);
        let bytes = full * plan.stride() as u64 + last_bytes as u64;
        bytes_max = bytes_max.max(bytes);
    });
    #[allow(clippy::cast_precision_loss, reason = "a mean for reading")]
    let packets_mean = rtp_packets as f64 / f64::max(count as f64, 1.0);
    Bursts {
        burst_ns: packetisation.burst_ns,
        rtp_packets,
        ts_packets_per_rtp: packetisation.ts_packets_per_rtp,
        count,
        packets_mean,
        packets_max,
        bytes_max,
    }
}

/// The rate of the busiest second; of the whole file if it is shorter.
fn peak(index: &Index, duration_ns: u64) -> u64 {
    let second = 1_000_000_000;
    if duration_ns < second {
        return rate(index.ts_packets, duration_ns);
    }
    rate(index.clock.packets_per_second_max(), second)
}

/// Packets in a time as bit/s, to the nearest: a round rate must not come out as one less.
fn rate(packets: u64, time_ns: u64) -> u64 {
    let time_ns = u128::from(time_ns.max(1));
    let bits = u128::from(packets) * (TS_PACKET_BYTES as u128) * 8 * 1_000_000_000;
    u64::try_from((bits + time_ns / 2) / time_ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::ts::synth::constant_rate;
    use crate::media::ts::{ScanOptions, Scanner};

    fn report(packets: u64, burst_ns: u64) -> Report {
        let mut scanner = Scanner::new(ScanOptions::default());
        // A packet a ms.
        scanner.push(&constant_rate(packets, 0, 27_000)).unwrap();
        let packetisation = Packetisation {
            ts_packets_per_rtp: 7,
            burst_ns,
        };
        Arc::new(scanner.finish().unwrap()).report(packetisation)
    }

    #[test]
    fn numbers_follow_from_the_file() {
        let report = report(5000, 20_000_000);
        assert_eq!(
            (report.schema_version, report.file_bytes),
            (SCHEMA_VERSION, 940_000)
        );
        assert_eq!(report.duration_ns, 5_000_000_000);
        assert_eq!(
            (report.rate_mean_bps, report.rate_peak_bps),
            (1_504_000, 1_504_000)
        );
        assert_eq!(report.clock, ClockSource::Pcr);
        let Seek {
            kind,
            points,
            distance_mean_ns,
            distance_max_ns,
        } = report.seek;
        assert_eq!((kind, points), (SeekKind::Flagged, 50));
        assert_eq!(
            (distance_mean_ns, distance_max_ns),
            (100_000_000, 100_000_000)
        );
        // 715 packets every 7 ms, the last of 2; two or three in 20 ms.
        let bursts = report.bursts;
        assert_eq!(
            (bursts.rtp_packets, bursts.count, bursts.packets_max),
            (715, 250, 3)
        );
        assert_eq!(bursts.bytes_max, 3 * 1328);
        assert!((bursts.packets_mean - 2.86).abs() < 1e-9);
    }

    #[test]
    fn a_file_of_one_short_packet_is_one_short_burst() {
        let report = report(5, 20_000_000);
        assert_eq!(
            (report.bursts.count, report.bursts.bytes_max),
            (1, 12 + 5 * 188)
        );
        assert_eq!(report.clock, ClockSource::ConstantRate(4_000_000));
        assert_eq!(report.rate_mean_bps, report.rate_peak_bps);
    }
}
