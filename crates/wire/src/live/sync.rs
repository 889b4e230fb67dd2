//! Where a decoder can start: told by the headers of RTP payloads, which are read and not decoded.

use crate::media::h264::is_recovery_point;
use crate::media::vp9::{Payload, is_key_frame};
use crate::media::{Medium, SYNC_BYTE, TS_PACKET_BYTES, Track};

/// How a track's payloads tell that a sync sample begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SyncRule {
    /// H.264 (RFC 6184): a NAL unit of an IDR picture, alone, in an aggregate or as a fragment; or
    /// one that tells of a recovery point, alone or in an aggregate: some streams have no IDR
    /// pictures. Some cameras put parameter sets and the picture behind them into one unit, as a
    /// byte stream (annex B): then that of a parameter set, which else is never fragmented.
    H264,
    /// H.265 (RFC 7798): one of an intra random access point, likewise.
    H265,
    /// AV1 (AV1 RTP specification, section 4.4): the aggregation header's N.
    Av1,
    /// VP8 (RFC 7741, sections 4.2 and 4.3): the first partition of a key frame.
    Vp8,
    /// VP9 (RFC 9628, section 4.2): the beginning of a key frame, which its own header says,
    /// because some senders never say that a frame is predicted from others.
    Vp9,
    /// MPEG-TS (RFC 2250): a video PES packet with random_access_indicator.
    TransportStream,
    /// Each packet, as of sound.
    Every,
}

impl SyncRule {
    /// That of a track. Pictures of another format are taken to be all sync samples, because nobody
    /// here can tell.
    #[must_use]
    pub fn of(track: &Track) -> Self {
        if track.medium == Medium::Audio {
            return Self::Every;
        }
        let rules = [
            ("H264", Self::H264),
            ("H265", Self::H265),
            ("AV1", Self::Av1),
            ("VP8", Self::Vp8),
            ("VP9", Self::Vp9),
            ("MP2T", Self::TransportStream),
        ];
        let named = |(name, _): &&(&str, Self)| name.eq_ignore_ascii_case(&track.encoding);
        rules
            .iter()
            .find(named)
            .map_or(Self::Every, |(_, rule)| *rule)
    }

    /// Whether a decoder can start at any packet.
    #[must_use]
    pub fn is_everywhere(self) -> bool {
        self == Self::Every
    }

    /// Whether the access unit that this payload belongs to is a sync sample, as far as this
    /// payload tells: one of a sync sample's does.
    #[must_use]
    pub fn is_sync(self, payload: &[u8]) -> bool {
        match self {
            Self::H264 => h264(payload),
            Self::H265 => h265(payload),
            Self::Av1 => payload.first().is_some_and(|header| header & 0x08 != 0),
            Self::Vp8 => vp8(payload).unwrap_or(false),
            Self::Vp9 => vp9(payload),
            Self::TransportStream => transport_packets(payload).any(is_random_access),
            Self::Every => true,
        }
    }

    /// Whether what a decoder wants first can begin with this payload: with another timestamp an
    /// access unit does; in a transport stream the program association table does.
    #[must_use]
    pub fn begins_unit(self, is_other_timestamp: bool, payload: &[u8]) -> bool {
        match self {
            Self::TransportStream => transport_packets(payload).any(is_program_table),
            _ => is_other_timestamp,
        }
    }
}

/// The transport packet of a payload with which a picture begins that a decoder can start at: how
/// many are in front of it, and its PID.
pub(super) fn random_access(payload: &[u8]) -> Option<(usize, u16)> {
    let at = transport_packets(payload).position(is_random_access)?;
    let ts = transport_packets(payload).nth(at)?;
    Some((at, pid(ts)))
}

/// Makes null packets (ISO/IEC 13818-1, table 2-3) of those of the `before` first transport packets
/// that carry that PID; whether there are any.
pub(super) fn blank(payload: &mut [u8], of: u16, before: usize) -> bool {
    let mut is_changed = false;
    let packets = payload.chunks_exact_mut(TS_PACKET_BYTES);
    let packets = packets.filter(|ts| ts[0] == SYNC_BYTE).take(before);
    for ts in packets.filter(|ts| pid(ts) == of) {
        ts[1..4].copy_from_slice(&[0x1f, 0xff, 0x10]);
        is_changed = true;
    }
    is_changed
}

fn pid(ts: &[u8]) -> u16 {
    u16::from_be_bytes([ts[1], ts[2]]) & 0x1fff
}

fn h264(payload: &[u8]) -> bool {
    const IDR: u8 = 5;
    const SEI: u8 = 6;
    const SPS: u8 = 7;
    let Some((&first, rest)) = payload.split_first() else {
        return false;
    };
    let begins = |unit: &[u8]| match unit[0] & 0x1f {
        IDR => true,
        SEI => is_recovery_point(unit),
        SPS => behind_start_codes(unit).any(|first| first & 0x1f == IDR),
        _ => false,
    };
    match first & 0x1f {
        // STAP-A, STAP-B (behind a decoding order number).
        24 => units(rest).any(begins),
        25 => units(rest.get(2..).unwrap_or_default()).any(begins),
        // FU-A, FU-B: the start of one.
        28 | 29 => rest
            .first()
            .is_some_and(|header| [0x80 | IDR, 0x80 | SPS].contains(&(header & 0x9f))),
        _ => begins(payload),
    }
}

fn h265(payload: &[u8]) -> bool {
    const VPS: u8 = 32;
    const SPS: u8 = 33;
    // BLA, IDR and CRA (ITU-T H.265, table 7-1).
    let is_random_access = |kind: u8| (16..=21).contains(&kind);
    let begins = |unit: &[u8]| match unit[0] >> 1 & 0x3f {
        VPS | SPS => behind_start_codes(unit).any(|first| is_random_access(first >> 1 & 0x3f)),
        kind => is_random_access(kind),
    };
    let (Some(&first), Some(rest)) = (payload.first(), payload.get(2..)) else {
        return false;
    };
    match first >> 1 & 0x3f {
        48 => units(rest).any(begins),
        49 => rest.first().is_some_and(|header| {
            let kind = header & 0x3f;
            header & 0x80 != 0 && (is_random_access(kind) || matches!(kind, VPS | SPS))
        }),
        _ => begins(payload),
    }
}

/// The first bytes of the NAL units that a byte stream in place of one has behind the first. No
/// unit has a start code in it.
fn behind_start_codes(unit: &[u8]) -> impl Iterator<Item = u8> {
    unit.windows(4).filter_map(|four| match four {
        [0, 0, 1, first] => Some(*first),
        _ => None,
    })
}

/// The NAL units of an aggregate, none of them empty.
fn units(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let (unit, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
        rest = behind;
        (!unit.is_empty()).then_some(unit)
    })
}

fn vp8(payload: &[u8]) -> Option<bool> {
    let first = *payload.first()?;
    let mut at = 1;
    if first & 0x80 != 0 {
        let extension = *payload.get(at)?;
        at += 1;
        if extension & 0x80 != 0 {
            // A picture ID of 7 or 15 bits.
            at += if payload.get(at)? & 0x80 != 0 { 2 } else { 1 };
        }
        at += usize::from(extension & 0x40 != 0);
        at += usize::from(extension & 0x30 != 0);
    }
    let is_start = first & 0x10 != 0 && first & 0x07 == 0;
    Some(is_start && payload.get(at)? & 0x01 == 0)
}

/// Of several spatial layers the lowest is what counts.
fn vp9(payload: &[u8]) -> bool {
    Payload::read(payload).is_some_and(|it| {
        it.is_start && !it.is_predicted && it.layer == 0 && is_key_frame(it.bytes)
    })
}

fn transport_packets(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    payload
        .chunks_exact(TS_PACKET_BYTES)
        .filter(|ts| ts[0] == SYNC_BYTE)
}

/// Whether a picture begins here that a decoder can start at. Sound has random access everywhere.
fn is_random_access(ts: &[u8]) -> bool {
    let has_start = ts[1] & 0x40 != 0;
    let has_field = ts[3] & 0x20 != 0 && ts[4] > 0;
    if !has_start || !has_field || ts[5] & 0x40 == 0 {
        return false;
    }
    let payload = ts.get(5 + usize::from(ts[4])..).unwrap_or_default();
    matches!(payload, [0, 0, 1, 0xe0..=0xef, ..])
}

fn is_program_table(ts: &[u8]) -> bool {
    ts[1] & 0x5f == 0x40 && ts[2] == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rtp::StaticPayload;

    #[test]
    fn sync_samples_are_told_by_payload_headers() {
        use SyncRule::{Av1, Every, H264, H265, Vp8, Vp9};
        for (rule, payload, is_sync) in [
            (H264, &[0x65, 0x88][..], true),
            (H264, &[0x41, 0x9a], false),
            (H264, &[0x67, 0x42], false),
            (H264, &[0x78, 0, 2, 0x67, 1, 0, 2, 0x65, 1], true),
            (H264, &[0x78, 0, 2, 0x67, 1, 0, 2, 0x41, 1], false),
            (H264, &[0x78, 0, 9, 0x65], false),
            (H264, &[0x79, 0, 0, 0, 2, 0x65, 1], true),
            // A parameter set with others and a picture behind it, as a byte stream.
            (H264, &[0x67, 1, 0, 0, 0, 1, 0x68, 0, 0, 1, 0x65, 1], true),
            (H264, &[0x67, 1, 0, 0, 0, 1, 0x68, 0, 0, 1, 0x41, 1], false),
            (H264, &[0x78, 0, 6, 0x67, 1, 0, 0, 1, 0x65], true),
            (H264, &[0x7c, 0x87, 1], true),
            (H264, &[0x7c, 0x07, 1], false),
            (H264, &[0x7c, 0x88, 1], false),
            (H265, &[64, 1, 0, 0, 1, 66, 1, 0, 0, 1, 38, 1], true),
            (H265, &[64, 1, 0, 0, 1, 66, 1, 0, 0, 1, 2, 1], false),
            (H265, &[49 << 1, 1, 0x80 | 32], true),
            (H265, &[49 << 1, 1, 0x80 | 33], true),
            (H265, &[49 << 1, 1, 0x80 | 34], false),
            (H265, &[49 << 1, 1, 32], false),
            // A recovery point, and what users add.
            (H264, &[0x06, 6, 1, 0xc4, 0x80], true),
            (H264, &[0x06, 5, 1, 0xc4, 0x80], false),
            (H264, &[0x78, 0, 1, 0x67, 0, 4, 0x06, 6, 1, 0xc4], true),
            (H264, &[0x7c, 0x85], true),
            (H264, &[0x7c, 0x05], false),
            (H264, &[0x7c, 0x45], false),
            (H264, &[0x7c, 0x81], false),
            (H264, &[0x7c], false),
            (H264, &[], false),
            (H265, &[19 << 1, 1, 0], true),
            (H265, &[21 << 1, 1, 0], true),
            (H265, &[32 << 1, 1, 0], false),
            (H265, &[1 << 1, 1, 0], false),
            (
                H265,
                &[48 << 1, 1, 0, 2, 32 << 1, 1, 0, 2, 20 << 1, 1],
                true,
            ),
            (H265, &[48 << 1, 1, 0, 2, 32 << 1, 1], false),
            (H265, &[49 << 1, 1, 0x80 | 19], true),
            (H265, &[49 << 1, 1, 19], false),
            (H265, &[38], false),
            (Av1, &[0x18], true),
            (Av1, &[0x10], false),
            (Vp8, &[0x10, 0x00], true),
            (Vp8, &[0x10, 0x01], false),
            (Vp8, &[0x00, 0x00], false),
            (Vp8, &[0x11, 0x00], false),
            (Vp8, &[0x90, 0x80, 0x81, 0x02, 0x00], true),
            (Vp8, &[0x90, 0x80, 0x01, 0x01], false),
            (Vp8, &[0x90, 0xe0, 0x01, 0x02, 0x03, 0x00], true),
            (Vp8, &[0x90, 0x80], false),
            (Vp9, &[0x08, 0x82], true),
            (Vp9, &[0x08, 0x86], false),
            (Vp9, &[0x08, 0x8a], false),
            (Vp9, &[0x08, 0xb0], true),
            (Vp9, &[0x08, 0xb2], false),
            (Vp9, &[0x08], false),
            (Vp9, &[0x48, 0x82], false),
            (Vp9, &[0x00, 0x82], false),
            (Vp9, &[0xa8, 0x80, 0x01, 0x00, 0x07, 0x82], true),
            (Vp9, &[0xb8, 0x01, 0x00, 0x82], true),
            (Vp9, &[0xa8, 0x01, 0x02, 0x07, 0x82], false),
            (Vp9, &[0x0a, 0x18, 1, 2, 3, 4, 2, 0x04, 9, 0x00, 0x82], true),
            (Vp9, &[0x0a, 0x18, 1, 2, 3, 4, 2, 0x04, 9], false),
            (Vp9, &[0xa8], false),
            (Every, &[], true),
        ] {
            assert_eq!(rule.is_sync(payload), is_sync, "{rule:?} {payload:x?}");
        }
    }

    fn ts(pid: u16, adaptation: &[u8], payload: &[u8]) -> Vec<u8> {
        let [high, low] = pid.to_be_bytes();
        let mut ts = vec![0x47, 0x40 | high, low, 0x30];
        ts.extend_from_slice(adaptation);
        ts.extend_from_slice(payload);
        ts.resize(TS_PACKET_BYTES, 0xff);
        ts
    }

    #[test]
    fn a_transport_stream_says_where_pictures_can_begin() {
        let rule = SyncRule::TransportStream;
        let video = ts(0x100, &[1, 0x40], &[0, 0, 1, 0xe0]);
        let sound = ts(0x101, &[1, 0x40], &[0, 0, 1, 0xc0]);
        let other = ts(0x100, &[1, 0x00], &[0, 0, 1, 0xe0]);
        let table = ts(0, &[1, 0x00], &[0, 0]);
        assert!(rule.is_sync(&[sound.clone(), video].concat()));
        assert!(!rule.is_sync(&[sound, other.clone()].concat()));
        assert!(rule.begins_unit(false, &[other.clone(), table].concat()));
        assert!(!rule.begins_unit(true, &other));
        // A field that is longer than the packet.
        assert!(!rule.is_sync(&ts(0x100, &[255, 0x40], &[])));
    }

    #[test]
    fn rules_follow_from_the_encoding() {
        let mut track: Track = StaticPayload::MP2T.into();
        assert_eq!(SyncRule::of(&track), SyncRule::TransportStream);
        track.encoding = "h264".into();
        assert_eq!(SyncRule::of(&track), SyncRule::H264);
        track.encoding = "JPEG".into();
        assert_eq!(SyncRule::of(&track), SyncRule::Every);
    }

    proptest! {
        #[test]
        fn no_payload_is_too_odd(payload in prop::collection::vec(any::<u8>(), 0..400)) {
            use SyncRule::{Av1, Every, H264, H265, TransportStream, Vp8, Vp9};
            for rule in [H264, H265, Av1, Vp8, Vp9, TransportStream, Every] {
                let _any = (rule.is_sync(&payload), rule.begins_unit(true, &payload));
            }
        }
    }
}
