//! AAC: what comes back of packets, and what configurations tell.

use proptest::prelude::*;

use super::super::testing::receivers::aac as depacketize;
use super::super::testing::{Packet, break_configuration, packets, packets_of_all};
use super::*;

proptest! {
    #[test]
    fn access_units_come_back_in_order(
        units in prop::collection::vec((1..9000_usize, any::<u8>()), 1..20),
        small in any::<bool>(),
        payload_bytes_max in 64..1500_usize,
    ) {
        let bytes_max = if small { 200 } else { UNIT_BYTES_MAX as usize };
        let units: Vec<Vec<u8>> = units
            .into_iter()
            .map(|(bytes, seed)| {
                let bytes = (0..=255).cycle().take(bytes.min(bytes_max));
                bytes.map(|at: u8| seed ^ at).collect()
            })
            .collect();
        let slices: Vec<_> = units.iter().map(Vec::as_slice).collect();
        let packets = packets_of_all(&AacHbr, &slices, payload_bytes_max);
        prop_assert_eq!(depacketize(&packets), units);
    }

    #[test]
    fn any_bytes_as_configuration_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        drop(codec(&bytes));
        drop(from_adts(&bytes));
        // What begins as the usual profiles do comes further.
        let begin = |byte: u8| [&[byte][..], &bytes].concat();
        for byte in [0x11, 0x12, 0x2b, 0x88, 0xeb, 0xf8] {
            drop(codec(&begin(byte)));
        }
    }
}

#[test]
fn the_payload_is_as_the_format_says() {
    let packets = packets(&AacHbr, &[&[1, 2, 3], &[4]], true, 0, 64);
    let payload = vec![0, 32, 0, 3 << 3, 0, 1 << 3, 1, 2, 3, 4];
    let marker = true;
    assert_eq!(packets, [Packet { payload, marker }]);
}

#[test]
fn fragments_say_the_size_of_the_whole() {
    // 150 in 13 bits is 4 * 256 + 176 in 16.
    let unit = [7; 150];
    let packets = packets(&AacHbr, &[&unit], true, 0, 100);
    let heads: Vec<_> = packets.iter().map(|it| &it.payload[..4]).collect();
    assert_eq!(heads, [[0, 16, 4, 176]; 2]);
    let told: Vec<_> = packets
        .iter()
        .map(|it| (it.payload.len(), it.marker))
        .collect();
    assert_eq!(told, [(100, false), (58, true)]);
}

#[test]
fn an_access_unit_beyond_13_bits_is_refused() {
    assert_eq!(AacHbr.check_sample(8191), Ok(()));
    let error = AacHbr.check_sample(8192).unwrap_err();
    assert_eq!(
        error.to_string(),
        "AAC: a sample of 8192 bytes, more than 8191"
    );
    // Whoever does not ask gets packets that hold its bytes.
    let unit = [7; 9000];
    assert_eq!(packets(&AacHbr, &[&unit], true, 0, 1000).len(), 10);
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

const SIDE: &str = "1200050844002000C40D4C61766335392E33372E31303056E500";
const SIX_ONE: &str = "1200050848002000C4400D4C61766335392E33372E31303056E500";
const TWO_ONE: &str = "12000504010020000D4C61766335392E33372E31303056E500";

/// What is told of a stream: clock, channels, profile and level, ticks of an access unit, name.
fn told(hex: &str) -> (u32, u8, String, String, String) {
    let codec = codec(&bytes_of(hex)).unwrap();
    let parameters = codec.format_parameters.unwrap();
    let value = |name: &str| {
        let mut of_all = parameters.split("; ").filter_map(|it| it.split_once('='));
        of_all.find(|it| it.0 == name).unwrap().1.to_owned()
    };
    assert_eq!(value("config"), hex);
    (
        codec.clock_hz,
        codec.channels.unwrap(),
        value("profile-level-id"),
        value("constantduration"),
        codec.codec_string,
    )
}

#[test]
fn the_parameters_are_those_of_rfc_3640() {
    // ffmpeg's native encoder, 48 kHz stereo: it says behind it that there is no SBR.
    let codec = codec(&[0x11, 0x90, 0x56, 0xe5, 0x00]).unwrap();
    let expected = "streamtype=5; profile-level-id=41; mode=AAC-hbr; sizelength=13; indexlength=3; \
                    indexdeltalength=3; constantduration=1024; config=119056E500";
    assert_eq!(codec.format_parameters.as_deref(), Some(expected));
    assert_eq!(
        (codec.encoding, codec.payload_type),
        ("mpeg4-generic", None)
    );
}

#[test]
fn configurations_are_understood() {
    let cases = [
        // ffmpeg: 5.1 at 44.1 kHz, mono at 22.05 kHz, 7.1 at 48 kHz.
        ("123056E500", 44_100, 6, "42", "1024", "mp4a.40.2"),
        ("138856E500", 22_050, 1, "40", "1024", "mp4a.40.2"),
        ("11B856E500", 48_000, 8, "80", "1024", "mp4a.40.2"),
        // HE-AAC, explicit and hierarchical: 24 kHz to 48 kHz; PS as well; behind LC, for old
        // decoders; that with PS.
        ("2B118800", 24_000, 2, "44", "1024", "mp4a.40.5"),
        ("EB098800", 24_000, 1, "48", "1024", "mp4a.40.29"),
        ("131056E598", 24_000, 2, "44", "1024", "mp4a.40.5"),
        ("130856E59D4880", 24_000, 1, "48", "1024", "mp4a.40.29"),
        // Implicit: nothing is said of it, and it looks like LC of a low rate.
        ("1310", 24_000, 2, "40", "1024", "mp4a.40.2"),
        // 96 kHz; a rate of 24 bits, 47,128 Hz; 960 samples; Main; ER AAC LD; ER AAC ELD.
        ("1010", 96_000, 2, "43", "1024", "mp4a.40.2"),
        ("17805C0C10", 47_128, 2, "41", "1024", "mp4a.40.2"),
        ("1194", 48_000, 2, "41", "960", "mp4a.40.2"),
        ("0990", 48_000, 2, "254", "1024", "mp4a.40.1"),
        ("B9900000", 48_000, 2, "254", "512", "mp4a.40.23"),
        ("F8E64000", 48_000, 2, "254", "512", "mp4a.40.39"),
        // ffmpeg, channels listed: 5.1(side), 6.1, 2.1; the encoder's name is the comment.
        (SIDE, 44_100, 6, "42", "1024", "mp4a.40.2"),
        (SIX_ONE, 44_100, 7, "80", "1024", "mp4a.40.2"),
        (TWO_ONE, 44_100, 3, "42", "1024", "mp4a.40.2"),
    ];
    for (hex, clock_hz, channels, level, ticks, name) in cases {
        let expected = (clock_hz, channels, level.into(), ticks.into(), name.into());
        assert_eq!(told(hex), expected, "{hex}");
    }
}

#[test]
fn what_aac_hbr_cannot_carry_is_refused_in_words() {
    let cases = [
        ("", "AAC: 0 bytes are too few for what they begin with"),
        ("1280", "AAC: 2 bytes are too few for what they begin with"),
        (
            "F94640",
            "AAC: xHE-AAC (USAC) has no place in RFC 3640's mode AAC-hbr",
        ),
        (
            "3190",
            "AAC: audio object type 6 has no place in RFC 3640's mode AAC-hbr",
        ),
        ("1690", "AAC: sampling frequency index 13 is reserved"),
        ("178000000010", "AAC: a sampling frequency of 0"),
        ("11C8", "AAC: channel configuration 9 is reserved"),
        ("118000000000000000", "AAC: its list of channels is empty"),
        (
            "8990A0",
            "AAC: error protection has no place in RFC 3640's mode AAC-hbr",
        ),
    ];
    for (hex, words) in cases {
        assert_eq!(
            codec(&bytes_of(hex)).unwrap_err().to_string(),
            words,
            "{hex}"
        );
    }
    let long = [&[0x11, 0x90][..], &[0; 511]].concat();
    assert!(codec(&long[..512]).is_ok());
    let words = codec(&long).unwrap_err().to_string();
    assert_eq!(words, "AAC: a configuration of 513 bytes, more than 512");
}

#[test]
fn broken_configurations_are_answered() {
    let hexes = ["130856E59D4880", "EB098800", "17805C0C10", SIDE, "F8E64000"];
    for hex in hexes {
        break_configuration(&bytes_of(hex), |broken| drop(codec(broken)));
    }
    break_configuration(&ADTS, |broken| drop(from_adts(broken)));
}

/// Of ffmpeg: LC, 44.1 kHz, stereo, a frame of 371 bytes, without a checksum.
const ADTS: [u8; 7] = [0xff, 0xf1, 0x50, 0x80, 0x2e, 0x7f, 0xfc];

#[test]
fn a_header_of_adts_tells_what_a_configuration_does() {
    let header = AdtsHeader::parse(&ADTS).unwrap();
    assert_eq!((header.header_bytes, header.frame_bytes), (7, 371));
    assert_eq!(header.rate_hz(), 44_100);
    let codec = from_adts(&ADTS).unwrap();
    assert_eq!((codec.clock_hz, codec.channels), (44_100, Some(2)));
    assert!(codec.format_parameters.unwrap().ends_with("; config=1210"));
    assert_eq!(codec.codec_string, "mp4a.40.2");
}

#[test]
fn headers_of_adts_that_cannot_be_used_are_refused() {
    let with = |at: usize, byte: u8| {
        let mut header = ADTS;
        header[at] = byte;
        from_adts(&header).unwrap_err().to_string()
    };
    assert_eq!(
        with(0, 0xfe),
        "AAC: a frame of ADTS does not begin with its sync word"
    );
    assert_eq!(
        with(1, 0xf3),
        "AAC: a frame of ADTS is said to be of another layer"
    );
    assert_eq!(
        with(2, 0x74),
        "AAC: sampling frequency index 13 is reserved"
    );
    assert_eq!(with(3, 0x00), "AAC: ADTS does not tell the channels");
    assert_eq!(
        with(6, 0xfd),
        "AAC: a frame of ADTS has several access units"
    );
    let mut short = ADTS;
    (short[4], short[5]) = (0, 0xff);
    let words = from_adts(&short).unwrap_err().to_string();
    assert_eq!(words, "AAC: a frame of ADTS is said to end in its header");
}
