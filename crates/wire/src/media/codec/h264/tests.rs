//! H.264: what comes back of packets, and what configurations tell.

use proptest::prelude::*;

use super::super::nal::PARAMETER_SETS_BYTES_MAX;
use super::super::testing::receivers::h264 as depacketized;
use super::super::testing::{break_configuration, hex, nal_sample, packets, parts};
use super::*;
use crate::media::colour::VideoRange;
use crate::media::packetizer::{PAYLOAD_BYTES_MIN, Part};

/// What libx264 and ffmpeg make of 1280 x 720 in profile High, of 322 x 182 in Constrained Baseline
/// and of 720 x 576, interlaced, in High 4:2:2.
const HIGH: &str = "\
    0164001fffe1001a6764001facd9405005bb011000000300100000030320f183196001\
    000668eae3cb22c0fdf8f800";
const BASELINE: &str = "\
    0142c00dffe100186742c00dd901519e226c0440000003004000000c83c50a92010005\
    68cb83cb20";
const INTERLACED: &str = "\
    017a001effe1001a677a001eb6cd940b424d808800000300080000030190f8a14cb001\
    000668fbe3cb22c0fefafa00";

/// A configuration with these parameter sets.
fn configuration(length_bytes: u8, sps: &[&[u8]], pps: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![1, 0x64, 0, 0x1f, 0xfc | (length_bytes - 1)];
    for (reserved, sets) in [(0xe0, sps), (0, pps)] {
        bytes.push(reserved | u8::try_from(sets.len()).unwrap());
        for set in sets {
            bytes.extend(u16::try_from(set.len()).unwrap().to_be_bytes());
            bytes.extend(*set);
        }
    }
    bytes
}

#[test]
fn configurations_of_ffmpeg_are_told_as_ffmpeg_does() {
    let told = |text: &str| {
        let codec = codec(&[&hex(text)]).unwrap();
        assert_eq!((codec.encoding, codec.clock_hz), ("H264", 90_000));
        let parameters = codec.format_parameters.unwrap();
        (parameters, codec.codec_string, codec.dimensions.unwrap())
    };
    let (parameters, name, size) = told(HIGH);
    assert_eq!(
        parameters,
        "packetization-mode=1; profile-level-id=64001F; \
         sprop-parameter-sets=Z2QAH6zZQFAFuwEQAAADABAAAAMDIPGDGWA=,aOrjyyLA"
    );
    assert_eq!((name.as_str(), size), ("avc1.64001f", (1280, 720)));
    let (parameters, name, size) = told(BASELINE);
    assert_eq!(
        parameters,
        "packetization-mode=1; profile-level-id=42C00D; \
         sprop-parameter-sets=Z0LADdkBUZ4ibARAAAADAEAAAAyDxQqS,aMuDyyA="
    );
    assert_eq!((name.as_str(), size), ("avc1.42c00d", (322, 182)));
    assert_eq!(told(INTERLACED).2, (720, 576));
}

/// What libx264 makes of 320 x 180 with pixels of 16:11, overscan and scaling lists.
const PQ: &str = "676e000ca6cd941419f9f04b50910094000003000400000300c83c50a658";

#[test]
fn usability_information_tells_the_dynamic_range() {
    let range = |sps: &[u8]| {
        let codec = codec(&[&configuration(4, &[sps], &[&[0x68]])]).unwrap();
        (codec.dimensions, codec.video_range)
    };
    let pq = hex(PQ);
    assert_eq!(range(&pq), (Some((320, 180)), Some(VideoRange::Pq)));
    assert_eq!(pictures(&pq).and_then(|it| it.pixel), Some((16, 11)));
    // What is not whole tells no range, and the size as long as it has it.
    let told = (0..pq.len()).map(|end| pictures(&pq[..end]));
    let told: Vec<_> = told.flatten().map(|it| it.video_range).collect();
    assert_eq!(told.first(), Some(&None));
    assert_eq!(told.last(), Some(&Some(VideoRange::Pq)));
    assert!(told.is_sorted(), "{told:?}");
    // Of several the highest, in whichever sample entry it is.
    let plain = codec(&[&hex(HIGH)]).unwrap();
    assert_eq!(plain.video_range, None);
    let [plain, high] = [hex(HIGH), configuration(4, &[&pq], &[&[0x68]])];
    let both = codec(&[&plain, &high]).unwrap();
    assert_eq!(both.dimensions, Some((1280, 720)));
    assert_eq!(both.video_range, Some(VideoRange::Pq));
}

#[test]
fn parameter_sets_in_the_samples_need_none_in_sdp() {
    let codec = codec(&[&configuration(4, &[], &[])]).unwrap();
    let parameters = codec.format_parameters.unwrap();
    assert_eq!(parameters, "packetization-mode=1; profile-level-id=64001F");
    assert_eq!(codec.codec_string, "avc3.64001f");
    assert_eq!(codec.dimensions, None);
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let error = |configurations: &[&[u8]]| codec(configurations).unwrap_err().to_string();
    assert_eq!(error(&[]), "H.264: no configuration");
    assert_eq!(error(&[&[]]), "H.264: the configuration is cut short");
    let good = configuration(4, &[&[0x67, 1, 2, 3]], &[&[0x68]]);
    for end in 0..good.len() {
        assert_eq!(
            error(&[&good[..end]]),
            "H.264: the configuration is cut short"
        );
    }
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        error(&[&bytes])
    };
    assert_eq!(changed(0, 0), "H.264: a configuration of version 0");
    assert_eq!(changed(4, 0xfe), "H.264: lengths of NAL units of 3 bytes");
    assert_eq!(changed(5, 0xff), "H.264: the configuration is cut short");
    assert_eq!(
        changed(8, 0x66),
        "H.264: a NAL unit of type 6 among those of 7"
    );
    assert_eq!(changed(11, 0), "H.264: level 0");
    let other = configuration(2, &[], &[]);
    assert_eq!(
        error(&[&good, &other]),
        "H.264: sample entries whose NAL units have lengths of different sizes"
    );
    assert_eq!(
        error(&[&configuration(4, &[&[]], &[])]),
        "H.264: a parameter set without bytes"
    );
    let half = [&[0x67, 1, 2, 3][..], &[0; PARAMETER_SETS_BYTES_MAX / 2 - 4]].concat();
    codec(&[&configuration(4, &[&half, &half], &[])]).unwrap();
    assert_eq!(
        error(&[&configuration(4, &[&half, &half], &[&[0x68]])]),
        "H.264: parameter sets of more than 8192 bytes"
    );
}

#[test]
fn broken_configurations_never_panic() {
    for text in [HIGH, BASELINE, INTERLACED] {
        break_configuration(&hex(text), |bytes| drop(codec(&[bytes])));
    }
}

/// NAL units of any header, most of them small.
fn nals() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let bytes = prop_oneof![
        1 => Just(0_usize),
        4 => 1..10_usize,
        4 => 1..100_usize,
        2 => 1..5000_usize,
    ];
    let first = prop_oneof![4 => any::<u8>(), 1 => Just(0x09), 1 => Just(0x67), 2 => Just(0x41)];
    let one = (bytes, first, any::<u8>()).prop_map(|(bytes, first, fill)| {
        let fill = (0..251_u8).cycle().map(|at| fill.wrapping_add(at));
        let mut nal: Vec<_> = fill.take(bytes).collect();
        nal.iter_mut().take(1).for_each(|byte| *byte = first);
        nal
    });
    prop::collection::vec(one, 0..12)
}

proptest! {
    #[test]
    fn what_was_packetized_comes_back(
        mut nals in nals(),
        length_bytes in prop_oneof![Just(1_usize), Just(2), Just(4)],
        payload_bytes_max in PAYLOAD_BYTES_MIN..1500,
        is_sync in any::<bool>(),
        sets_bytes in (4..400_usize, 1..80_usize),
        entry in 0..3_u16,
    ) {
        if length_bytes == 1 {
            nals.iter_mut().for_each(|nal| nal.truncate(255));
        }
        let sps = [&[0x47, 1, 2, 3][..], &vec![4; sets_bytes.0 - 4]].concat();
        let pps = [&[0x68][..], &vec![5; sets_bytes.1 - 1]].concat();
        let none = configuration(u8::try_from(length_bytes).unwrap(), &[], &[]);
        let some = configuration(u8::try_from(length_bytes).unwrap(), &[&sps], &[&pps]);
        let codec = codec(&[&none, &some]).unwrap();
        let sample = nal_sample(&nals, length_bytes);
        let found = packets(&*codec.packetizer, &[&sample], is_sync, entry, payload_bytes_max);
        let mut expected = nals.clone();
        expected.retain(|nal| nal.first().is_some_and(|first| (1..24).contains(&(first & 0x1f))));
        let own = expected.iter().any(|nal| nal[0] & 0x1f == 7);
        if is_sync && entry == 1 && !own {
            let at = nals.iter().position(|nal| nal.first().is_none_or(|it| it & 0x1f != 9));
            let at = at.unwrap_or(nals.len());
            expected.splice(at..at, [sps, pps]);
        }
        if expected.is_empty() {
            expected.push(vec![12, 0x80]);
        }
        prop_assert_eq!(depacketized(&found, payload_bytes_max), expected);
    }

    #[test]
    fn a_sample_of_one_slice_has_the_usual_part(bytes in 0..5000_usize, first in any::<u8>()) {
        let codec = codec(&[&hex(HIGH)]).unwrap();
        let nal = [vec![first & 0xe0 | 1], vec![0; bytes]].concat();
        let sample = nal_sample(&[nal], 4);
        let usual = codec.packetizer.only_part(u32::try_from(sample.len()).unwrap());
        prop_assert_eq!(parts(&*codec.packetizer, &sample), Ok(vec![(usual.unwrap(), 0)]));
    }

    #[test]
    fn random_configurations_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300), sps in any::<bool>(),
    ) {
        let start = hex(HIGH);
        let start = if sps { &start[..18] } else { &[][..] };
        drop(codec(&[&[start, &bytes].concat()]));
        let _ = pictures(&bytes);
        let _ = pictures(&[&start[start.len().min(8)..], &bytes[..]].concat());
    }

    #[test]
    fn random_samples_are_parted_or_refused(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 1..300),
        length_bytes in prop_oneof![Just(1_u8), Just(2), Just(4)],
    ) {
        let codec = codec(&[&configuration(length_bytes, &[&[0x67; 9]], &[&[0x68]])]).unwrap();
        if parts(&*codec.packetizer, &bytes).is_ok() {
            drop(packets(&*codec.packetizer, &[&bytes], true, 0, 64));
        }
    }
}

#[test]
fn a_length_beyond_its_sample_is_refused() {
    let codec = codec(&[&hex(HIGH)]).unwrap();
    let part = |head: &[u8], left| codec.packetizer.part(head, left);
    let beyond = |bytes, left| Err(CodecError::PartBeyondSample { bytes, left });
    assert_eq!(
        part(&[0, 0, 0, 6, 0x41], 10),
        Ok(Part {
            number: 24,
            bytes: 10
        })
    );
    assert_eq!(part(&[0, 0, 0, 7, 0x41], 10), beyond(11, 10));
    assert_eq!(
        part(&[0xff, 0xff, 0xff, 0xff, 0x41], 10),
        beyond(0x1_0000_0003, 10)
    );
    assert_eq!(
        part(&[0xff, 0xff, 0xff, 0xff, 0x41], u32::MAX),
        beyond(0x1_0000_0003, 0xffff_ffff)
    );
    assert_eq!(part(&[0, 0, 0], 3), beyond(4, 3));
    assert_eq!(
        part(&[0, 0, 0, 0], 4),
        Ok(Part {
            number: 0,
            bytes: 4
        })
    );
    assert_eq!(codec.packetizer.only_part(3), None);
}

/// A usual sync sample: parameter sets and what is small go in front as one packet, the picture
/// follows as one train.
#[test]
fn a_sync_sample_is_one_aggregate_and_one_train() {
    let codec = codec(&[&hex(HIGH)]).unwrap();
    let nals = [vec![0x09, 0xf0], vec![0x06; 30], vec![0x65; 5000]];
    let found = packets(&*codec.packetizer, &[&nal_sample(&nals, 4)], true, 0, 1400);
    let lengths: Vec<_> = found.iter().map(|it| it.payload.len()).collect();
    // 1 + (2 + 2) + (2 + 26) + (2 + 6) + (2 + 30); 4999 = 3 * 1398 + 805.
    assert_eq!(lengths, [73, 1400, 1400, 1400, 807]);
    assert_eq!(found[0].payload[..5], [0x78, 0, 2, 0x09, 0xf0]);
    assert_eq!(found[1].payload[..2], [0x7c, 0x85]);
    assert_eq!(found[4].payload[..2], [0x7c, 0x45]);
}

/// Two NAL units that fill a packet go together, and with one byte more they do not.
#[test]
fn what_fits_a_packet_exactly_is_aggregated() {
    let codec = codec(&[&hex(HIGH)]).unwrap();
    for (second, expected) in [(29, &[64][..]), (30, &[30, 30])] {
        let sample = nal_sample(&[vec![0x41; 30], vec![0x41; second]], 4);
        let found = packets(&*codec.packetizer, &[&sample], false, 0, 64);
        let lengths: Vec<_> = found.iter().map(|it| it.payload.len()).collect();
        assert_eq!(lengths, expected);
    }
}
