//! MPEG-4 part 2: what comes back of packets, and what configurations tell.

use proptest::prelude::*;

use super::super::testing::{break_configuration, hex, packets};
use super::*;
use crate::media::packetizer::PAYLOAD_BYTES_MIN;

/// What ffmpeg's own encoder makes of 322 x 182, and libxvid of 720 x 576.
const SMALL: &str = "\
    000001b0f1000001b5a913000001000000012008d48d0800cd0a1416d4103f000001b2\
    4c61766335392e33372e313030";
const XVID: &str = "\
    000001b003000001b509000001000000012000bc0406c5d4c307d31684481463000001\
    b25876694430303639";

#[test]
fn configurations_of_ffmpeg_are_told_as_ffmpeg_does() {
    let codec_of = |text: &str| codec(&[&hex(text)]).unwrap();
    let small = codec_of(SMALL);
    assert_eq!((small.encoding, small.clock_hz), ("MP4V-ES", 90_000));
    assert_eq!(small.codec_string, "mp4v.20.241");
    assert_eq!(small.dimensions, Some((322, 182)));
    let expected = format!("profile-level-id=241; config={}", SMALL.to_uppercase());
    assert_eq!(small.format_parameters, Some(expected));
    let xvid = codec_of(XVID);
    assert_eq!(xvid.codec_string, "mp4v.20.3");
    assert_eq!(xvid.dimensions, Some((720, 576)));
}

#[test]
fn a_configuration_tells_whether_pictures_are_reordered() {
    let [small, xvid] = [SMALL, XVID].map(hex);
    assert!(is_in_order(&xvid) && !is_in_order(&small));
    assert!(!is_in_order(&[]) && !is_in_order(&xvid[..20]));
}

#[test]
fn headers_in_the_samples_need_none_in_sdp() {
    for none in [&[][..], &[&[][..]]] {
        let codec = codec(none).unwrap();
        assert_eq!(codec.format_parameters.unwrap(), "profile-level-id=1");
        assert_eq!(codec.dimensions, None);
    }
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let error = |configuration: &[u8]| codec(&[&[], configuration]).unwrap_err().to_string();
    let said = "MPEG-4 part 2: a configuration without a video object layer";
    assert_eq!(error(&[7]), said);
    assert_eq!(error(&hex(SMALL)[..10]), said);
    let mut long = hex(SMALL);
    long.resize(CONFIGURATION_BYTES_MAX, 0);
    codec(&[&long]).unwrap();
    long.push(0);
    assert_eq!(
        error(&long),
        "MPEG-4 part 2: a configuration of more than 1024 bytes"
    );
    for text in [SMALL, XVID] {
        break_configuration(&hex(text), |bytes| drop(codec(&[bytes])));
    }
}

proptest! {
    #[test]
    fn what_was_packetized_comes_back(
        bytes in 0..5000_usize,
        payload_bytes_max in PAYLOAD_BYTES_MIN..1500,
        is_sync in any::<bool>(),
        entry in 0..4_u16,
        same in any::<bool>(),
    ) {
        let sample: Vec<_> = (0..251_u8).cycle().take(bytes).collect();
        let (first, mut other) = (hex(SMALL), hex(XVID));
        other.extend(vec![0; 300]);
        let configurations = if same { [&first[..]; 3] } else { [&first[..], &other, &[]] };
        let packetizer = codec(&configurations).unwrap().packetizer;
        let found = packets(&*packetizer, &[&sample], is_sync, entry, payload_bytes_max);
        let (last, before) = found.split_last().unwrap();
        prop_assert!(last.marker && before.iter().all(|packet| !packet.marker));
        let found: Vec<_> = found.into_iter().flat_map(|packet| packet.payload).collect();
        let front = configurations.get(usize::from(entry)).filter(|_| is_sync && !same);
        let mut expected = front.map_or_else(Vec::new, |front| front.to_vec());
        expected.extend(sample);
        if expected.is_empty() {
            expected = hex("000001c3");
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn random_configurations_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..100), start in 0..40_usize,
    ) {
        drop(codec(&[&[&hex(SMALL)[..start], &bytes].concat()]));
        let _ = dimensions(&bytes);
    }
}
