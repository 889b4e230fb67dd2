//! A film as people have them, H.264 and AAC, at scales to and fro: in an MP4, and in a transport
//! stream whose elementary streams are asked for.

use std::process::Command;

use onrush_testkit::require_programs;

use super::*;

/// Ticks of the pictures' clock from one place to start to the next, at scale 1.
const SYNC_TICKS: u32 = 90_000;

/// Twenty seconds, with a place to start at each, and pictures that others refer to which are shown
/// before them.
pub(super) fn make_film(path: &std::path::Path) {
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i"])
        .arg("testsrc2=size=320x240:rate=25:duration=20")
        .args(["-f", "lavfi", "-i", "sine=duration=20"])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2"])
        .args(["-g", "25", "-keyint_min", "25", "-sc_threshold", "0"])
        .args(["-pix_fmt", "yuv420p", "-c:a", "aac"])
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success(), "ffmpeg makes a film");
}

/// The types of the NAL units in an RTP payload (RFC 6184, sections 5.6 to 5.8).
fn nal_types(payload: &[u8]) -> Vec<u8> {
    match payload[0] & 31 {
        24 => {
            let (mut types, mut rest) = (Vec::new(), &payload[1..]);
            while let Some((length, unit)) = rest.split_first_chunk::<2>() {
                types.push(unit[0] & 31);
                rest = &unit[usize::from(u16::from_be_bytes(*length))..];
            }
            types
        }
        28 => vec![payload[1] & 31],
        one => vec![one],
    }
}

#[test]
fn an_mp4_plays_at_scales_to_and_fro() {
    require_root!();
    require_programs!("ffmpeg");
    plays_at_scales("film.mp4", "", "");
}

/// The parameter is in the query, and in the base that URLs of tracks are relative to.
#[test]
fn elementary_streams_play_at_scales_to_and_fro() {
    require_root!();
    require_programs!("ffmpeg");
    plays_at_scales("film.ts", "?tracks=elementary", "/tracks=elementary");
}

fn plays_at_scales(name: &str, query: &str, in_base: &str) {
    let testbed = Testbed::new(Options::default()).unwrap();
    let root = TempDir::new().unwrap();
    let path = root.path().join(name);
    make_film(&path);
    age(&path).unwrap();
    let config = Config {
        media_root: root.path().to_owned(),
        rtsp_addresses: vec![(SND_IPV4, 0).into()],
        cache_bytes: 16 << 20,
        ..Config::default()
    };
    let server = testbed.snd.run(|| Server::start(config)).unwrap();
    let address = server.addresses()[0];
    let mut client = testbed.rcv.run(|| Client::connect(address)).unwrap();
    let asked = format!("rtsp://{address}/{name}{query}");
    let described = client.request("DESCRIBE", &asked, &[]).unwrap();
    let url = format!("rtsp://{address}/{name}{in_base}");
    let base = described.header("Content-Base");
    assert_eq!(base, Some(&*format!("{url}/")), "{described:?}");
    let description = String::from_utf8_lossy(&described.body);
    assert!(
        description.contains(&format!("s={name}\r\n")),
        "{description}"
    );
    assert_eq!(description.matches("m=").count(), 2, "{description}");
    let (mut receivers, mut id) = (Vec::new(), None);
    for track in 1..=2 {
        let receiver = Receiver::bind(&testbed.rcv, RCV_IPV4.into()).unwrap();
        let set_up = set_up(&mut client, &format!("{url}/track{track}"), &receiver, &id);
        id = Some(set_up.session().unwrap_or_else(|| panic!("{set_up:?}")).id);
        receivers.push(receiver);
    }
    let id = id.unwrap();
    let mut plays = Vec::new();
    for (scale, range) in [
        (None, Some("npt=5-")),
        (Some("4"), None),
        (Some("-2"), None),
        (Some("-8"), Some("npt=18.5-")),
        (None, None),
    ] {
        let mut headers = vec![("Session", id.as_str())];
        headers.extend(scale.map(|scale| ("Scale", scale)));
        headers.extend(range.map(|range| ("Range", range)));
        let answer = client.request("PLAY", &url, &headers).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("Scale"), scale, "{answer:?}");
        // The pictures come first, and at a scale alone.
        let infos: Vec<_> = answer.header("RTP-Info").unwrap().split(',').collect();
        assert_eq!(infos.len(), if scale.is_some() { 1 } else { 2 });
        let told = infos[0].strip_prefix(&format!("url={url}/track1;seq="));
        let sequence: u16 = told.unwrap().split(';').next().unwrap().parse().unwrap();
        plays.push((sequence, scale.map_or(1, |it| it.parse::<i32>().unwrap())));
        // A few pictures, however many packets each takes.
        let receiver = &receivers[0];
        let from = receiver_len(receiver);
        let came = receiver.wait_until(LONG, |capture| {
            let packets = capture.rtp.iter().skip(from);
            let markers = packets.filter(|it| Header::read(&it.bytes).unwrap().marker);
            markers.count() >= 5
        });
        assert!(came, "pictures at {scale:?}");
    }
    client
        .request("TEARDOWN", &url, &[("Session", &id)])
        .unwrap();
    let captures: Vec<_> = receivers.into_iter().map(Receiver::finish).collect();
    for capture in &captures {
        let headers = capture
            .rtp
            .iter()
            .map(|it| Header::read(&it.bytes).unwrap());
        let sequences: Vec<_> = headers.map(|it| it.sequence).collect();
        let is_run = |two: &[u16]| two[1] == two[0].wrapping_add(1);
        assert!(sequences.windows(2).all(is_run), "{sequences:?}");
    }
    let first = plays[0].0;
    let begins = |at: usize| usize::from(plays[at].0.wrapping_sub(first));
    for (at, &(_, scale)) in plays.iter().enumerate().filter(|(_, play)| play.1 != 1) {
        let packets = &captures[0].rtp[begins(at)..begins(at + 1)];
        let mut stamps = Vec::new();
        for packet in packets {
            let header = Header::read(&packet.bytes).unwrap();
            let types = nal_types(&packet.bytes[12..]);
            assert!(!types.contains(&1), "only whole pictures: {types:?}");
            stamps.extend(header.marker.then_some(header.timestamp));
        }
        assert!(stamps.len() >= 4, "{stamps:?}");
        for two in stamps.windows(2) {
            let step = two[1].wrapping_sub(two[0]);
            let expected = SYNC_TICKS / scale.unsigned_abs();
            assert!(step.abs_diff(expected) <= 2, "{step} ticks at {scale}");
        }
    }
}
