//! H.265: what comes back of packets, and what configurations tell.

use proptest::prelude::*;

use super::super::nal::PARAMETER_SETS_BYTES_MAX;
use super::super::testing::receivers::h265 as depacketized;
use super::super::testing::{break_configuration, hex, nal_sample, packets, parts};
use super::*;
use crate::media::colour::VideoRange;
use crate::media::packetizer::{PAYLOAD_BYTES_MIN, Part};

/// What libx265 and ffmpeg make of 1280 x 720 in profile Main, and of 1282 x 722 in Main 10, tier
/// High, with three temporal layers; without the array of supplemental information.
const MAIN: &str = "\
    0101600000009000000000005df000fcfdf8f800000f03a00001001840010c01ffff01\
    600000030090000003000003005d959409a10001002b42010101600000030090000003\
    000003005da00280802d16595952930bc05a020000030002000003003210a200010006\
    4401c073c189";
const MAIN_10: &str = "\
    01222000000090000000000099f000fcfdfafa00000f03a00001001840010c01ffff22\
    2000000300900000030000030099959409a10001002d42010122200000030090000003\
    0000030099a00288802e1c44436595952930bc05a02000000300200000030321a20001\
    00064401c073c189";

/// A configuration with these arrays.
fn configuration(length_bytes: u8, arrays: &[(u8, &[&[u8]])]) -> Vec<u8> {
    let mut bytes = hex(&MAIN[..42]);
    bytes.push(0x0c | (length_bytes - 1));
    bytes.push(u8::try_from(arrays.len()).unwrap());
    for (array_type, nals) in arrays {
        bytes.push(0x80 | array_type);
        bytes.extend(u16::try_from(nals.len()).unwrap().to_be_bytes());
        for nal in *nals {
            bytes.extend(u16::try_from(nal.len()).unwrap().to_be_bytes());
            bytes.extend(*nal);
        }
    }
    bytes
}

#[test]
fn configurations_of_ffmpeg_are_told_as_ffmpeg_does() {
    let codec_of = |text: &str| codec(&[&hex(text)]).unwrap();
    let main = codec_of(MAIN);
    assert_eq!((main.encoding, main.clock_hz), ("H265", 90_000));
    assert_eq!(
        main.format_parameters.unwrap(),
        "profile-space=0; profile-id=1; tier-flag=0; level-id=93; \
         interop-constraints=900000000000; \
         sprop-vps=QAEMAf//AWAAAAMAkAAAAwAAAwBdlZQJ; \
         sprop-sps=QgEBAWAAAAMAkAAAAwAAAwBdoAKAgC0WWVlSkwvAWgIAAAMAAgAAAwAyEA==; \
         sprop-pps=RAHAc8GJ"
    );
    assert_eq!(main.codec_string, "hvc1.1.6.L93.90");
    assert_eq!(main.dimensions, Some((1280, 720)));
    let main_10 = codec_of(MAIN_10);
    let parameters = main_10.format_parameters.unwrap();
    let start = "profile-space=0; profile-id=2; tier-flag=1; level-id=153; ";
    assert!(parameters.starts_with(start), "{parameters}");
    assert_eq!(main_10.codec_string, "hvc1.2.4.H153.90");
    assert_eq!(main_10.dimensions, Some((1282, 722)));
}

#[test]
fn parameter_sets_in_the_samples_need_none_in_sdp() {
    let codec = codec(&[&configuration(4, &[])]).unwrap();
    let parameters = codec.format_parameters.unwrap();
    assert!(!parameters.contains("sprop"), "{parameters}");
    assert_eq!(codec.codec_string, "hev1.1.6.L93.90");
    assert_eq!(codec.dimensions, None);
}

/// By a sub-layer's own profile and level what follows moves by 96 bits.
#[test]
fn sizes_are_found_behind_sub_layers() {
    let sps = |sub_layers: u8, flags: &[u8], told: usize| {
        // Number 0; 4:2:0; 16 x 8; no window.
        let rest = [0b1010_0000, 0b1000_1000, 0b1001_0000];
        let start = [&[0x42, 1, sub_layers << 1][..], &[0xff; 12], flags].concat();
        pictures(&[&start[..], &vec![0xff; told], &rest].concat()).map(|it| it.dimensions)
    };
    assert_eq!(sps(0, &[], 0), Some((16, 8)));
    assert_eq!(sps(1, &[0b1100_0000, 0], 12), Some((16, 8)));
    assert_eq!(sps(2, &[0b0110_0000, 0], 12), Some((16, 8)));
    assert_eq!(sps(2, &[0b1111_0000, 0], 24), Some((16, 8)));
    assert_eq!(sps(2, &[0b1111_0000, 0], 12), None);
}

/// Sequence parameter sets of 320 x 180. The first three libx265 has made: plain; of three temporal
/// layers, with the default scaling lists; with scaling lists of its own. The last is made to
/// order, and ffmpeg's `trace_headers` reads it so: two sub-layers with profiles and levels of
/// their own, PCM, sets of reference pictures of which two are predicted from those before, and
/// long-term ones.
const RANGES: [(&str, VideoRange); 4] = [
    (
        "42010102200000030090000003000003003ca00a080b9f6d96566924caf016a12201208000000300\
         8000000c84",
        VideoRange::Pq,
    ),
    (
        "42010102200000030090000003000003003ca00a080b9f6d96662a491bb5e20d4244824100000300\
         01000003001908",
        VideoRange::Hlg,
    ),
    (
        "42010102200000030090000003000003003ca00a080b9f6d96566924f853fc70ffc29fffca18ff14\
         2ff0c7fff2853fc70ffffffffffffffc29fffffffffffffffca18ff142ffffffffffffff0c7fffff\
         ffffffffff28497f8e1ffffffffffffff8497fffffffffffffff2848dfe285fffffffffffffe1237\
         fffffffffffffff28497f8e1ffffffffffffff848dfe285fffffffffffffd5e02d42448241000003\
         0001000003001908",
        VideoRange::Hlg,
    ),
    (
        "42010502200000030090000003000003003c70003c02200000030090000003000003003ca00a080b\
         9f6d96572b95e4912bbbf2916b2fc73865ec4791fff0040002db5091209008",
        VideoRange::Hlg,
    ),
];

#[test]
fn usability_information_tells_the_dynamic_range() {
    let pixels = [(1, 1), (2, 1), (1, 1), (64, 45)];
    for ((text, range), pixel) in RANGES.into_iter().zip(pixels) {
        let sps = hex(text);
        let told = pictures(&sps).unwrap();
        assert_eq!(told.dimensions, (320, 180), "{text}");
        assert_eq!(told.pixel, Some(pixel), "{text}");
        assert_eq!(told.video_range, Some(range), "{text}");
        let codec = codec(&[&configuration(4, &[(33, &[&sps])])]).unwrap();
        assert_eq!(codec.video_range, Some(range));
        break_configuration(&sps, |broken| {
            let _ = pictures(broken);
        });
        // What is cut short tells no other range.
        for end in 0..sps.len() {
            let cut = pictures(&sps[..end]).and_then(|it| it.video_range);
            assert!(cut.is_none_or(|it| it == range), "{end} bytes of {text}");
        }
    }
    assert_eq!(codec(&[&hex(MAIN)]).unwrap().video_range, None);
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let error = |configurations: &[&[u8]]| codec(configurations).unwrap_err().to_string();
    assert_eq!(error(&[]), "H.265: no configuration");
    let good = hex(MAIN);
    for end in 0..good.len() {
        assert_eq!(
            error(&[&good[..end]]),
            "H.265: the configuration is cut short"
        );
    }
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        error(&[&bytes])
    };
    assert_eq!(changed(0, 2), "H.265: a configuration of version 2");
    assert_eq!(changed(12, 0), "H.265: level 0");
    assert_eq!(changed(21, 0x0e), "H.265: lengths of NAL units of 3 bytes");
    assert_eq!(changed(22, 4), "H.265: the configuration is cut short");
    assert_eq!(changed(25, 2), "H.265: the configuration is cut short");
    assert_eq!(
        changed(28, 0x42),
        "H.265: a parameter set that is not of type 32"
    );
    assert_eq!(
        error(&[&configuration(4, &[(33, &[&[0x42]])])]),
        "H.265: a parameter set that is not of type 33"
    );
    let other = configuration(2, &[]);
    assert_eq!(
        error(&[&good, &other]),
        "H.265: sample entries whose NAL units have lengths of different sizes"
    );
    let half = [&[0x42, 1][..], &[0; PARAMETER_SETS_BYTES_MAX / 2 - 2]].concat();
    codec(&[&configuration(4, &[(33, &[&half, &half])])]).unwrap();
    assert_eq!(
        error(&[&configuration(
            4,
            &[(33, &[&half, &half]), (34, &[&[0x44, 1]])]
        )]),
        "H.265: parameter sets of more than 8192 bytes"
    );
}

#[test]
fn broken_configurations_never_panic() {
    for text in [MAIN, MAIN_10] {
        break_configuration(&hex(text), |bytes| drop(codec(&[bytes])));
    }
}

/// Arrays may come in any order; supplemental information is left out.
#[test]
fn parameter_sets_are_put_in_order() {
    let sei = [&[0x4e, 1][..], &[5; 9000]].concat();
    let arrays: [(u8, &[&[u8]]); 4] = [
        (39, &[&sei, &[]]),
        (34, &[&[0x44, 1, 3]]),
        (33, &[&[0x42, 1, 2], &[0x42, 1, 4]]),
        (32, &[&[0x40, 1, 1]]),
    ];
    let codec = codec(&[&configuration(4, &arrays)]).unwrap();
    let parameters = codec.format_parameters.unwrap();
    let expected = "; sprop-vps=QAEB; sprop-sps=QgEC,QgEE; sprop-pps=RAED";
    assert!(parameters.ends_with(expected), "{parameters}");
    let sample = nal_sample(&[vec![0x26, 1, 0]], 4);
    let found = packets(&*codec.packetizer, &[&sample], true, 0, 64);
    let aggregate = hex("600100034001010003420102000342010400034401030003260100");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].payload, aggregate);
}

/// NAL units of any header, most of them small.
fn nals() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let bytes = prop_oneof![
        2 => 0..2_usize,
        4 => 2..10_usize,
        4 => 2..100_usize,
        2 => 2..5000_usize,
    ];
    let first = prop_oneof![
        4 => any::<u8>(), 1 => Just(0x46), 1 => Just(0x42), 2 => Just(0x02), 1 => Just(0x60),
    ];
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
        sets_bytes in (2..200_usize, 2..400_usize, 2..80_usize),
        entry in 0..3_u16,
    ) {
        if length_bytes == 1 {
            nals.iter_mut().for_each(|nal| nal.truncate(255));
        }
        let sets = [(0x40, sets_bytes.0), (0x42, sets_bytes.1), (0x44, sets_bytes.2)];
        let sets = sets.map(|(first, bytes)| [&[first, 1][..], &vec![first; bytes - 2]].concat());
        let size = u8::try_from(length_bytes).unwrap();
        let arrays: [(u8, &[&[u8]]); 3] =
            [(32, &[&sets[0]]), (33, &[&sets[1]]), (34, &[&sets[2]])];
        let some = configuration(size, &arrays);
        let codec = codec(&[&configuration(size, &[]), &some]).unwrap();
        let sample = nal_sample(&nals, length_bytes);
        let found = packets(&*codec.packetizer, &[&sample], is_sync, entry, payload_bytes_max);
        let nal_type = |nal: &Vec<u8>| nal.first().map(|first| first >> 1 & 0x3f);
        let mut expected = nals.clone();
        expected.retain(|nal| nal.len() > 1 && !matches!(nal_type(nal), Some(48..=50)));
        let own = nals.iter().any(|nal| nal_type(nal) == Some(33) && nal.len() > 1);
        if is_sync && entry == 1 && !own {
            let is_delimiter = |nal: &Vec<u8>| nal_type(nal) == Some(35) && nal.len() > 1;
            let at = nals.iter().position(|nal| !is_delimiter(nal)).unwrap_or(nals.len());
            expected.splice(at..at, sets);
        }
        if expected.is_empty() {
            expected.push(vec![0x4c, 1, 0x80]);
        }
        prop_assert_eq!(depacketized(&found, payload_bytes_max), expected);
    }

    #[test]
    fn a_sample_of_one_slice_has_the_usual_part(bytes in 1..5000_usize) {
        let codec = codec(&[&hex(MAIN)]).unwrap();
        let sample = nal_sample(&[vec![0x02; bytes]], 4);
        let usual = codec.packetizer.only_part(u32::try_from(sample.len()).unwrap());
        prop_assert_eq!(parts(&*codec.packetizer, &sample), Ok(vec![(usual.unwrap(), 0)]));
    }

    #[test]
    fn random_configurations_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300), start in 0..80_usize,
    ) {
        drop(codec(&[&[&hex(MAIN)[..start], &bytes].concat()]));
        let _ = pictures(&bytes);
        let _ = pictures(&[&hex(MAIN)[57..57 + start.min(43)], &bytes[..]].concat());
    }

    #[test]
    fn random_parameter_sets_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        (number, start) in (0..4_usize, 0..170_usize),
    ) {
        let sps = hex(RANGES[number].0);
        let _ = pictures(&[&sps[..start.min(sps.len())], &bytes].concat());
    }

    #[test]
    fn random_samples_are_parted_or_refused(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 1..300),
    ) {
        let codec = codec(&[&hex(MAIN)]).unwrap();
        if parts(&*codec.packetizer, &bytes).is_ok() {
            drop(packets(&*codec.packetizer, &[&bytes], true, 0, 64));
        }
    }
}

#[test]
fn a_length_beyond_its_sample_is_refused() {
    let codec = codec(&[&hex(MAIN)]).unwrap();
    let part = |head: &[u8], left| codec.packetizer.part(head, left);
    let beyond = |bytes, left| Err(CodecError::PartBeyondSample { bytes, left });
    assert_eq!(
        part(&[0, 0, 0, 6, 2], 10),
        Ok(Part {
            number: 24,
            bytes: 10
        })
    );
    assert_eq!(part(&[0, 0, 0, 7, 2], 10), beyond(11, 10));
}

/// A usual sync sample: parameter sets go in front as one packet, the picture follows as one train.
#[test]
fn a_sync_sample_is_one_aggregate_and_one_train() {
    let codec = codec(&[&hex(MAIN)]).unwrap();
    let picture = [&[0x26, 1][..], &[7; 5000]].concat();
    let found = packets(
        &*codec.packetizer,
        &[&nal_sample(&[picture], 4)],
        true,
        0,
        1400,
    );
    let lengths: Vec<_> = found.iter().map(|it| it.payload.len()).collect();
    // 2 + (2 + 24) + (2 + 43) + (2 + 6); 5000 = 3 * 1397 + 809.
    assert_eq!(lengths, [81, 1400, 1400, 1400, 812]);
    assert_eq!(found[1].payload[..3], [0x62, 1, 0x93]);
    assert_eq!(found[4].payload[..3], [0x62, 1, 0x53]);
}
