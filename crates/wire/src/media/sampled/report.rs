//! What was understood of a file of samples, in numbers that can be shown or stored.
//!
//! A transport stream has a report of its own, `media::ts::report`. As JSON both are one kind of
//! document: they begin with the version of their fields, the format, the file's bytes and its
//! duration, and `format` says which fields follow.

use serde::Serialize;

use super::{LeftOut, SampledTrack};
use crate::media::container::{Container, Index};
use crate::media::plan::{Burst, Plan};
use crate::media::track::Medium;

/// The version of the fields of reports; it rises when one changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 3;

/// What a path of Ethernet frames carries behind the RTP header, by IPv4.
const ETHERNET_PAYLOAD_BYTES: usize = 1500 - 20 - 8 - 12;

/// All that is worth telling about an indexed file.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// `MP4`, which QuickTime is too, `fragmented MP4`, `Matroska` or `WebM`.
    pub format: &'static str,
    /// The file's length.
    pub file_bytes: u64,
    /// From its start to the end of the track that ends last, in ns.
    pub duration_ns: u64,
    /// Mean rate of all tracks that are played, in bit/s.
    pub rate_mean_bps: u64,
    /// Those that are played, the one that seeks go by first.
    pub tracks: Vec<TrackReport>,
    /// The others.
    pub left_out: Vec<LeftOut>,
}

/// A track that is played.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TrackReport {
    /// Its number in the file.
    pub id: u64,
    /// What kind of media it is.
    pub medium: Medium,
    /// How it is coded, as in RFC 6381.
    pub codec: String,
    /// Its language, as the container spells it.
    pub language: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Pixels as they are shown: width and height, before they are turned.
    pub dimensions: Option<(u32, u32)>,
    /// By how many degrees pictures are turned clockwise to be shown.
    pub rotation_degrees: u16,
    /// How often pictures come; of two of them at least.
    pub frame_rate: Option<FrameRate>,
    /// Moments of sound a second.
    pub sample_rate_hz: Option<u32>,
    /// Channels of sound.
    pub channels: Option<u32>,
    /// When its first sample is due, in ns from the start of the file.
    pub start_ns: u64,
    /// From the decoding of its first sample to the end of its last, in ns.
    pub duration_ns: u64,
    /// Mean rate, in bit/s, without headers.
    pub rate_mean_bps: u64,
    /// Rate of the busiest second, in bit/s; the mean if it is shorter.
    pub rate_peak_bps: u64,
    /// Its samples: frames.
    pub samples: usize,
    /// Bytes of the largest.
    pub sample_bytes_max: u64,
    /// Where a decoder can start.
    pub sync: Sync,
    /// How it is sent; `None` if paths of Ethernet frames are too narrow for it.
    pub sent: Option<Sent>,
    /// What is not as it should be, and what was made of it.
    pub problems: Vec<String>,
}

/// How often pictures come, in the order in which they are decoded.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FrameRate {
    /// Pictures a second in the mean.
    pub mean: f64,
    /// Whether all come at one distance, by a ms or by what the file's clock can tell.
    pub is_constant: bool,
    /// The least distance from one to the next, in ns.
    pub interval_min_ns: u64,
    /// The largest, in ns.
    pub interval_max_ns: u64,
}

/// Sync samples.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sync {
    /// How many there are.
    pub samples: usize,
    /// Mean distance from one to the next (from the last to the end), in ns.
    pub distance_mean_ns: u64,
    /// The largest such distance, in ns.
    pub distance_max_ns: u64,
}

/// How a track is sent on a path of Ethernet frames.
#[derive(Clone, Debug, Serialize)]
pub struct Sent {
    /// Its payload format and the clock of its timestamps, as in `a=rtpmap`.
    pub encoding: String,
    /// What a player is told of its coding, as in `a=fmtp`.
    pub format_parameters: Option<String>,
    /// Bytes behind the RTP header of a packet, at most.
    pub payload_bytes_max: usize,
    /// RTP packets in all.
    pub rtp_packets: u64,
    /// Sends that they take where all goes together that can: trains, and packets that are alone.
    pub sends: u64,
    /// What is due together, in ns.
    pub burst_ns: u64,
    /// The most RTP packets that are due together.
    pub burst_packets_max: u64,
    /// Bytes of the most that is due together, RTP headers included.
    pub burst_bytes_max: u64,
}

impl Index {
    /// All that is worth telling about a file of samples that has `file_bytes`, sent in bursts of
    /// `burst_ns`; `None` if it is none. A transport stream has
    /// [another report](crate::media::ts::report).
    #[must_use]
    pub fn report(&self, file_bytes: u64, burst_ns: u64) -> Option<Report> {
        let index = self.as_sampled()?;
        let duration_ns = index.duration_ns();
        let tracks = index.sampled.iter().enumerate();
        let bytes = index.sampled.iter().map(|track| track.samples.bytes());
        Some(Report {
            schema_version: SCHEMA_VERSION,
            format: index.format,
            file_bytes,
            duration_ns,
            rate_mean_bps: rate(bytes.sum(), duration_ns),
            tracks: tracks
                .map(|(number, track)| TrackReport::new(track, self.sent(number, burst_ns)))
                .collect(),
            left_out: index.left_out.clone(),
        })
    }

    fn sent(&self, number: usize, burst_ns: u64) -> Option<Sent> {
        let cut = self.cut(number, ETHERNET_PAYLOAD_BYTES)?;
        let plan = self.plan(number, cut, burst_ns, false);
        let track = &self.tracks()[number];
        let (burst_packets_max, burst_bytes_max) = largest_burst(&plan);
        let channels = track.channels.map(|it| format!("/{it}"));
        Some(Sent {
            encoding: format!(
                "{}/{}{}",
                track.encoding,
                track.clock_hz,
                channels.unwrap_or_default()
            ),
            format_parameters: track.format_parameters.clone(),
            payload_bytes_max: cut.payload_bytes_max(),
            rtp_packets: plan.rtp_packets(),
            sends: plan.sends(packets_of_a_send(&plan)).unwrap_or(0),
            burst_ns,
            burst_packets_max,
            burst_bytes_max,
        })
    }
}

/// Packets of one send at the most: what a datagram carries (udp(7)), and 64.
fn packets_of_a_send(plan: &Plan) -> u32 {
    let packets = 65_507 / plan.image_bytes_max().max(1);
    u32::try_from(packets.min(64)).unwrap_or(64)
}

/// Packets and bytes of the most that is due together.
fn largest_burst(plan: &Plan) -> (u64, u64) {
    let (mut packets_max, mut bytes_max) = (0, 0);
    let (mut interval, mut packets, mut bytes) = (None, 0, 0);
    let mut bursts: Vec<Burst> = Vec::new();
    let all = plan.rtp_packets();
    for first in (0..all).step_by(PACKETS_AT_ONCE) {
        bursts.clear();
        plan.bursts(first..all.min(first + PACKETS_AT_ONCE as u64), &mut bursts);
        for burst in &bursts {
            let due = Some(burst.due_ns / plan.burst_ns());
            if interval != due {
                (interval, packets, bytes) = (due, 0, 0);
            }
            packets += u64::from(burst.packets);
            bytes += burst.bytes;
            packets_max = packets_max.max(packets);
            bytes_max = bytes_max.max(bytes);
        }
    }
    (packets_max, bytes_max)
}

/// Packets whose bursts are looked at in one go.
const PACKETS_AT_ONCE: usize = 4096;

impl TrackReport {
    fn new(track: &SampledTrack, sent: Option<Sent>) -> Self {
        let SampledTrack {
            codec,
            samples,
            facts,
            ..
        } = track;
        let is_sound = codec.medium == Medium::Audio;
        let (rate_hz, channels) = facts.sound.unwrap_or((0, 0));
        // MP4 files tend to say 2 of AAC that has more, and of Opus RTP says 2 always (RFC 7587).
        let of_codec = codec.channels.map(u32::from);
        let channels = match of_codec {
            Some(it) if channels == 0 || codec.encoding == "mpeg4-generic" => it,
            _ => channels,
        };
        let rate_hz = if rate_hz == 0 {
            codec.clock_hz
        } else {
            rate_hz
        };
        let ticks = samples.end_ticks().abs_diff(samples.decode_ticks(0));
        let duration_ns = ns(ticks, track.timescale);
        let rate_mean_bps = rate(samples.bytes(), duration_ns);
        let sizes = samples.times_and_bytes().map(|(_, bytes)| bytes);
        let problems = unsent(track).into_iter();
        let problems = problems.chain(facts.problems.iter().cloned());
        Self {
            id: facts.id,
            medium: codec.medium,
            codec: codec.codec_string.clone(),
            language: facts.language.clone(),
            name: facts.name.clone(),
            dimensions: facts.dimensions.or(codec.dimensions),
            rotation_degrees: facts.rotation_degrees,
            frame_rate: FrameRate::of(track).filter(|_| codec.medium == Medium::Video),
            sample_rate_hz: is_sound.then_some(rate_hz),
            channels: Some(channels).filter(|&it| is_sound && it > 0),
            start_ns: track.due_ns(0),
            duration_ns,
            rate_mean_bps,
            rate_peak_bps: peak_bps(track).max(rate_mean_bps),
            samples: samples.len(),
            sample_bytes_max: sizes.max().unwrap_or(0),
            sync: Sync::of(track),
            sent,
            problems: problems.collect(),
        }
    }
}

/// What of a track is not sent by RTP, in words: Opus packets, which cannot be cut (RFC 7587).
fn unsent(track: &SampledTrack) -> Option<String> {
    if track.codec.encoding != "opus" {
        return None;
    }
    let bytes_max = ETHERNET_PAYLOAD_BYTES.saturating_sub(track.prefix.len()) as u64;
    let sizes = track.samples.times_and_bytes();
    let count = sizes.filter(|&(_, bytes)| bytes > bytes_max).count();
    (count > 0).then(|| {
        format!(
            "{count} of {} Opus packets have more than {ETHERNET_PAYLOAD_BYTES} bytes: RTP cannot \
             carry them and says that they are lost; HLS and DASH have them",
            track.samples.len()
        )
    })
}

impl FrameRate {
    fn of(track: &SampledTrack) -> Option<Self> {
        let mut times = track.samples.times_and_bytes().map(|(ticks, _)| ticks);
        let first = times.next()?;
        let (mut last, mut count) = (first, 0_u64);
        let (mut least, mut most) = (u64::MAX, 0);
        for ticks in times {
            let interval = ticks.abs_diff(last);
            (least, most) = (least.min(interval), most.max(interval));
            (last, count) = (ticks, count + 1);
        }
        let (all_ns, hz) = (ns(last.abs_diff(first), track.timescale), track.timescale);
        #[allow(clippy::cast_precision_loss, reason = "a mean for reading")]
        let mean = count as f64 * 1e9 / all_ns as f64;
        (all_ns > 0).then(|| Self {
            mean,
            is_constant: most - least <= u64::from(hz / 1000).max(1),
            interval_min_ns: ns(least, hz),
            interval_max_ns: ns(most, hz),
        })
    }
}

impl Sync {
    fn of(track: &SampledTrack) -> Self {
        let samples = &track.samples;
        let (first, end) = (samples.decode_ticks(0), samples.end_ticks());
        let (mut before, mut most) = (None, 0);
        for ticks in samples.sync_times().chain([end]) {
            most = most.max(before.map_or(0, |it| ticks.abs_diff(it)));
            before = Some(ticks);
        }
        let count = samples.syncs();
        let all_ns = ns(end.abs_diff(first), track.timescale);
        Self {
            samples: count,
            distance_mean_ns: all_ns / (count.max(1) as u64),
            distance_max_ns: ns(most, track.timescale),
        }
    }
}

/// The rate of the busiest second of a track.
fn peak_bps(track: &SampledTrack) -> u64 {
    let samples = &track.samples;
    let second = i64::from(track.timescale);
    let mut behind = samples.times_and_bytes().peekable();
    let (mut bytes, mut most) = (0, 0);
    for (ticks, more) in samples.times_and_bytes() {
        bytes += more;
        while let Some((_, less)) = behind.next_if(|&(old, _)| ticks - old >= second) {
            bytes -= less;
        }
        most = most.max(bytes);
    }
    rate(most, 1_000_000_000)
}

fn ns(ticks: u64, timescale: u32) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(timescale.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Bytes in a time as bit/s, to the nearest.
fn rate(bytes: u64, time_ns: u64) -> u64 {
    let time_ns = u128::from(time_ns.max(1));
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    u64::try_from((bits + time_ns / 2) / time_ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::media::codec::{opus, vp8};
    use crate::media::packetizer::Codec;
    use crate::media::sampled::{SampledIndex, TrackFacts};
    use crate::media::samples::{Sample, Samples};

    /// Pictures of these bytes, each so many ms behind the one before; each 25th is a sync sample.
    fn report(pictures: impl IntoIterator<Item = (i64, u32)>) -> Report {
        report_of(vp8::codec(), pictures)
    }

    /// The same of samples that are coded so.
    fn report_of(codec: Codec, all: impl IntoIterator<Item = (i64, u32)>) -> Report {
        let mut samples = Samples::default();
        let (mut ticks, mut offset) = (0, 100);
        for (number, (later, bytes)) in all.into_iter().enumerate() {
            ticks += later;
            let sample = Sample {
                offset,
                bytes,
                decode_ticks: ticks,
                composition_ticks: 0,
                is_sync: number % 25 == 0,
                entry: 0,
            };
            samples.push(sample, 40).unwrap();
            offset += u64::from(bytes);
        }
        let track = SampledTrack {
            codec,
            config: None,
            timescale: 1000,
            shift_ticks: 0,
            samples,
            prefix: Arc::from(&b""[..]),
            carriage: None,
            facts: TrackFacts {
                id: 7,
                dimensions: Some((640, 360)),
                ..TrackFacts::default()
            },
        };
        let left_out = LeftOut {
            id: 8,
            what: "subtitles".to_owned(),
            reason: "neither pictures nor sound".to_owned(),
        };
        let index = SampledIndex::new("WebM", [track], vec![left_out]).unwrap();
        Index::of(index).report(200_000, 20_000_000).unwrap()
    }

    /// Four seconds; the third has the largest picture.
    fn four_seconds() -> impl Iterator<Item = (i64, u32)> {
        (0..100).map(|number| {
            let later = if number == 0 { 0 } else { 40 };
            match number {
                50 => (later, 9000),
                _ if number % 25 == 0 => (later, 5000),
                _ => (later, 1000),
            }
        })
    }

    #[test]
    fn numbers_follow_from_the_samples() {
        let report = report(four_seconds());
        assert_eq!((report.format, report.duration_ns), ("WebM", 4_000_000_000));
        let track = &report.tracks[0];
        assert_eq!((track.id, track.medium), (7, Medium::Video));
        assert_eq!((track.samples, track.sample_bytes_max), (100, 9000));
        assert_eq!(
            (track.rate_mean_bps, track.rate_peak_bps),
            (240_000, 264_000)
        );
        let sync = track.sync;
        assert_eq!((sync.samples, sync.distance_max_ns), (4, 1_000_000_000));
        assert_eq!(sync.distance_mean_ns, 1_000_000_000);
        let sent = track.sent.as_ref().unwrap();
        // Of a picture of 5000 bytes there are four packets, of 9000 seven; each is one train.
        assert_eq!((sent.rtp_packets, sent.sends), (96 + 3 * 4 + 7, 100));
        assert_eq!(
            (sent.burst_packets_max, sent.encoding.as_str()),
            (7, "VP8/90000")
        );
        // It is filled up, because it does not follow one that is.
        assert_eq!(sent.burst_bytes_max, 7 * (12 + 1460));
        assert_eq!(report.left_out[0].id, 8);
    }

    #[test]
    fn a_frame_rate_is_constant_within_a_ms() {
        let rate = |pictures: Vec<(i64, u32)>| report(pictures).tracks[0].frame_rate;
        let constant = rate(four_seconds().collect()).unwrap();
        assert!(constant.is_constant && (constant.mean - 25.0).abs() < 1e-9);
        // Of 29.97 a second, in ms.
        let rounded = rate(vec![(0, 9), (33, 9), (33, 9), (34, 9)]).unwrap();
        assert!(rounded.is_constant && (rounded.mean - 30.0).abs() < 1e-9);
        let variable = rate(vec![(0, 9), (33, 9), (66, 9)]).unwrap();
        assert!(!variable.is_constant);
        let ms = |ns: u64| ns / 1_000_000;
        let range = (ms(variable.interval_min_ns), ms(variable.interval_max_ns));
        assert_eq!(range, (33, 66));
        assert!(rate(vec![(0, 9)]).is_none(), "one picture has no rate");
        assert!(
            rate(vec![(0, 9), (0, 9)]).is_none(),
            "two at once have none"
        );
    }

    #[test]
    fn distances_of_sync_samples_reach_to_the_end() {
        let sync = report(four_seconds().take(40)).tracks[0].sync;
        assert_eq!((sync.samples, sync.distance_max_ns), (2, 1_000_000_000));
        assert_eq!(sync.distance_mean_ns, 800_000_000);
        let sync = report(four_seconds().take(20)).tracks[0].sync;
        assert_eq!((sync.samples, sync.distance_max_ns), (1, 800_000_000));
    }

    #[test]
    fn opus_packets_that_are_too_long_for_rtp_are_told() {
        let problems = |bytes: [u32; 3]| {
            let codec = opus::codec(2, 0).unwrap();
            let report = report_of(codec, bytes.map(|bytes| (60, bytes)));
            report.tracks[0].problems.join("; ")
        };
        assert_eq!(problems([700, 1460, 1460]), "");
        let told = problems([700, 1460, 1461]);
        assert!(told.starts_with("1 of 3 Opus packets"), "{told}");
        let pictures = report([(0, 9000)]);
        assert_eq!(pictures.tracks[0].problems, [""; 0]);
    }
}
