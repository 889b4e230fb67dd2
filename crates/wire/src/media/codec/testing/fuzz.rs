//! All packetizers, by bytes that a fuzzer makes: what comes back of packets is what went in.

use super::super::super::packetizer::{Codec, CodecError, PAYLOAD_BYTES_MIN, Parts};
use super::super::{
    aac, ac3, av1, eac3, h264, h265, jpeg, mpeg_audio, mpeg_video, mpeg4_visual, opus, pcm, vp8,
    vp9,
};
use super::{packets, packets_of_all, parts, receivers};

/// Samples of one input, at the most.
const SAMPLES_MAX: usize = 32;

/// What an input says.
#[derive(Debug)]
struct Input<'a> {
    /// Which codec.
    kind: u8,
    is_sync: bool,
    entry: u16,
    payload_bytes_max: usize,
    /// Of one sample entry or two.
    configurations: Vec<&'a [u8]>,
    samples: Vec<&'a [u8]>,
}

impl<'a> Input<'a> {
    /// Five bytes (codec, flags, bytes of a packet, bytes of the configuration), the configuration,
    /// and samples, each behind its length in two bytes.
    fn read(input: &'a [u8]) -> Option<Self> {
        let (&[kind, flags, high, low, configuration_bytes], rest) = input.split_first_chunk()?;
        let (configuration, mut rest) = rest.split_at_checked(configuration_bytes.into())?;
        let (first, second) = configuration.split_at(configuration.len() / 2);
        let configurations = match flags & 2 {
            0 => vec![configuration],
            _ => vec![first, second],
        };
        let mut samples = Vec::new();
        while let Some((&length, behind)) = rest.split_first_chunk()
            && samples.len() < SAMPLES_MAX
        {
            let bytes = usize::from(u16::from_be_bytes(length)).min(behind.len());
            let sample;
            (sample, rest) = behind.split_at(bytes);
            // A table has none without bytes.
            samples.extend((bytes > 0).then_some(sample));
        }
        Some(Self {
            kind,
            is_sync: flags & 1 != 0,
            entry: u16::from(flags >> 2 & 3),
            payload_bytes_max: PAYLOAD_BYTES_MIN
                + usize::from(u16::from_be_bytes([high, low])) % 1437,
            configurations,
            samples,
        })
    }

    /// The codec that it configures.
    fn codec(&self) -> Result<Codec, CodecError> {
        let all = &self.configurations[..];
        let first = all[0];
        let byte = |at: usize| first.get(at).copied().unwrap_or(0);
        match self.kind {
            0 => h264::codec(all),
            1 => h265::codec(all),
            2 => av1::codec(all),
            3 => Ok(vp8::codec()),
            4 => vp9::codec(Some(first)),
            5 => aac::codec(first),
            6 => aac::from_adts(first),
            7 => ac3::from_dac3(first),
            8 => ac3::from_frame(first),
            9 => eac3::from_dec3(first),
            10 => eac3::from_frame(first),
            11 => mpeg_audio::from_frame(first),
            12 => opus::from_dops(first),
            13 => opus::from_opus_head(first),
            14 => pcm::mu_law(8000, byte(0)),
            15 => pcm::linear(16, pcm::ByteOrder::Big, 48_000, byte(0)),
            16 => pcm::linear(24, pcm::ByteOrder::Big, 48_000, byte(0)),
            17 => mpeg_video::codec(all),
            18 => mpeg4_visual::codec(all),
            _ => Ok(jpeg::codec()),
        }
    }

    /// Bytes of a moment of sound, packets of which are full of whole ones.
    fn moment_bytes(&self) -> usize {
        let channels = self.configurations[0].first().copied().unwrap_or(0);
        let bytes = match self.kind {
            14 => 1,
            15 => 2,
            16 => 3,
            _ => return 1,
        };
        bytes * usize::from(channels)
    }
}

/// Makes packets of an input's samples and takes them apart again.
///
/// # Panics
///
/// If a packetizer breaks one of its rules, or what comes back is not what went in.
pub fn packetize(input: &[u8]) {
    let Some(input) = Input::read(input) else {
        return;
    };
    let Ok(codec) = input.codec() else {
        return;
    };
    let packetizer = &*codec.packetizer;
    let is_well = |sample: &&[u8]| {
        let bytes = u32::try_from(sample.len()).unwrap_or(u32::MAX);
        packetizer.check_sample(bytes).is_ok() && parts(packetizer, sample).is_ok()
    };
    let samples: Vec<_> = input.samples.iter().copied().filter(is_well).collect();
    let payload_bytes_max = input.payload_bytes_max.max(packetizer.payload_bytes_min());
    let payload_bytes_max = payload_bytes_max.next_multiple_of(input.moment_bytes());
    if packetizer.parts() == Parts::None && packetizer.aggregation().is_some() {
        return sound(&input, &codec, &samples, payload_bytes_max);
    }
    for sample in samples {
        let (is_sync, entry) = (input.is_sync, input.entry);
        let made = packets(packetizer, &[sample], is_sync, entry, payload_bytes_max);
        let payloads = || made.iter().flat_map(|packet| &packet.payload);
        match codec.encoding {
            "H264" => {
                let found = receivers::h264(&made, payload_bytes_max);
                let is_sent = |nal: &&[u8]| (1..24).contains(&(nal[0] & 0x1f));
                assert_nals(found, nals(&input, sample, 4, is_sent), is_sync);
            }
            "H265" => {
                let found = receivers::h265(&made, payload_bytes_max);
                let is_sent =
                    |nal: &&[u8]| nal.len() > 1 && !(48..=50).contains(&(nal[0] >> 1 & 63));
                assert_nals(found, nals(&input, sample, 21, is_sent), is_sync);
            }
            "AV1" => {
                let (found, is_start) = receivers::av1(&made);
                assert_eq!(is_start, is_sync);
                assert_nals(found, obus(sample), is_sync);
            }
            "VP8" => assert_eq!(receivers::vp8(&made), sample),
            "VP9" => assert_eq!(receivers::vp9(&made), (sample.to_vec(), !is_sync)),
            "JPEG" => {
                let scan = receivers::jpeg(&made).scan;
                assert!(sample.ends_with(&scan) || scan.is_empty());
            }
            "MPV" => {
                let found: Vec<u8> = made
                    .iter()
                    .flat_map(|packet| &packet.payload[4..])
                    .copied()
                    .collect();
                assert!(found.ends_with(sample));
            }
            "MP4V-ES" => {
                let found: Vec<u8> = payloads().copied().collect();
                assert!(found.ends_with(sample));
            }
            "opus" => {
                let [packet] = &made[..] else {
                    panic!("an Opus packet cannot be cut");
                };
                let is_whole = packet.payload == sample;
                assert!(is_whole || packet.payload.len() == 2 && sample.len() > payload_bytes_max);
            }
            other => panic!("nobody receives {other}"),
        }
    }
}

/// Sound, of which several samples go into a packet.
fn sound(input: &Input<'_>, codec: &Codec, samples: &[&[u8]], payload_bytes_max: usize) {
    let made = packets_of_all(&*codec.packetizer, samples, payload_bytes_max);
    match codec.encoding {
        "mpeg4-generic" | "MPEG4-GENERIC" => assert_eq!(receivers::aac(&made), samples),
        "ac3" => {
            let mut left = samples;
            for (count, bytes) in receivers::ac3(&made) {
                let (frames, behind) = left.split_at(count);
                assert_eq!(frames.concat(), bytes);
                left = behind;
            }
            assert!(left.is_empty());
        }
        "eac3" => assert_eq!(receivers::eac3(&made).0, samples.concat()),
        "MPA" => {
            let lengths: Vec<_> = samples.iter().map(|it| it.len()).collect();
            assert_eq!(receivers::mpeg_audio(&made, &lengths), samples);
        }
        "PCMU" | "L16" | "L24" => {
            let moment_bytes = input.moment_bytes();
            let payloads: Vec<_> = made.iter().map(|it| &it.payload[..]).collect();
            assert_eq!(payloads.concat(), samples.concat());
            let is_whole = |sample: &&[u8]| sample.len().is_multiple_of(moment_bytes);
            if samples.iter().all(is_whole) {
                assert!(payloads.iter().all(is_whole), "a moment is cut");
            }
        }
        other => panic!("nobody receives {other}"),
    }
}

/// The NAL units of a sample that are sent. The configuration has their lengths' bytes at `at`.
fn nals(
    input: &Input<'_>,
    mut sample: &[u8],
    at: usize,
    is_sent: impl Fn(&&[u8]) -> bool,
) -> Vec<Vec<u8>> {
    let length_bytes = usize::from(input.configurations[0][at] & 3) + 1;
    let mut found = Vec::new();
    while let Some((length, behind)) = sample.split_at_checked(length_bytes) {
        let bytes = length
            .iter()
            .fold(0, |bytes, &byte| bytes << 8 | usize::from(byte));
        let nal;
        (nal, sample) = behind.split_at(bytes);
        found.extend(Some(nal).filter(|nal| !nal.is_empty()).filter(&is_sent));
    }
    assert!(sample.is_empty());
    found.into_iter().map(<[u8]>::to_vec).collect()
}

/// The OBUs of a sample that are sent, without size fields (RFC of the Alliance, section 4.5).
fn obus(mut sample: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(&first) = sample.first() {
        let header_bytes = if first & 4 == 0 { 1 } else { 2 };
        let (header, mut rest) = sample.split_at(header_bytes);
        let mut bytes = rest.len();
        if first & 2 != 0 {
            let end = rest.iter().position(|byte| byte & 0x80 == 0);
            let (size, behind) = rest.split_at(end.expect("a size ends") + 1);
            let number = |number: u64, &byte: &u8| number << 7 | u64::from(byte & 0x7f);
            let told = size.iter().rev().fold(0, number);
            (bytes, rest) = (usize::try_from(told).unwrap_or(usize::MAX), behind);
        }
        let (payload, behind) = rest.split_at(bytes);
        sample = behind;
        if ![2, 8, 15].contains(&(first >> 3 & 15)) {
            let header = [&[header[0] & !2], &header[1..]].concat();
            found.push([&header, payload].concat());
        }
    }
    found
}

/// Asserts that what came is what was sent; with a sync sample what configures a decoder may come
/// in one place, and of nothing a filler.
fn assert_nals(found: Vec<Vec<u8>>, sent: Vec<Vec<u8>>, is_sync: bool) {
    if found == sent || sent.is_empty() && found.len() == 1 {
        return;
    }
    let same = found
        .iter()
        .zip(&sent)
        .take_while(|(found, sent)| found == sent)
        .count();
    let more = found.len().checked_sub(sent.len());
    assert!(is_sync && more.is_some(), "{found:?} of {sent:?}");
    assert!(found.ends_with(&sent[same..]), "{found:?} of {sent:?}");
}
