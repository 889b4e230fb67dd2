//! Places in real films, named by time codes and by the clock on the wall.

use std::process::Command;

use onrush_testkit::require_programs;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

/// Pictures from one place to start to the next.
const SYNC_EVERY: u64 = 25;

/// Sixteen seconds at that rate, begun with 2020.
fn make_film(path: &std::path::Path, rate: &str, more: &[&str]) {
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i"])
        .arg(format!("testsrc2=size=160x120:rate={rate}:duration=16"))
        .args([
            "-c:v",
            "libx264",
            "-preset",
            "ultrafast",
            "-pix_fmt",
            "yuv420p",
        ])
        .args(["-g", "25", "-keyint_min", "25", "-sc_threshold", "0"])
        .args(["-metadata", "creation_time=2020-01-01T00:00:00Z"])
        .args(more)
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success(), "ffmpeg makes a film");
}

/// A server of the films, and a session of one of them.
struct Films {
    client: Client,
    url: String,
    _server: Server,
    _root: TempDir,
    testbed: Testbed,
}

impl Films {
    fn new(films: &[(&str, &str, &[&str])]) -> Self {
        let testbed = Testbed::new(Options::default()).unwrap();
        let root = TempDir::new().unwrap();
        for (name, rate, more) in films {
            let path = root.path().join(name);
            make_film(&path, rate, more);
            age(&path).unwrap();
        }
        let config = Config {
            media_root: root.path().to_owned(),
            rtsp_addresses: vec![(SND_IPV4, 0).into()],
            cache_bytes: 16 << 20,
            ..Config::default()
        };
        let server = testbed.snd.run(|| Server::start(config)).unwrap();
        let address = server.addresses()[0];
        Self {
            client: testbed.rcv.run(|| Client::connect(address)).unwrap(),
            url: format!("rtsp://{address}"),
            _server: server,
            _root: root,
            testbed,
        }
    }

    /// What PLAY answers to each of these ranges of a film: where it begins, or a status.
    fn play(&mut self, name: &str, ranges: &[&str]) -> Vec<Result<u64, u16>> {
        let receiver = Receiver::bind(&self.testbed.rcv, RCV_IPV4.into()).unwrap();
        let url = format!("{}/{name}", self.url);
        let set_up = set_up(&mut self.client, &format!("{url}/track1"), &receiver, &None);
        let id = set_up.session().unwrap_or_else(|| panic!("{set_up:?}")).id;
        let play = |range: &&str| {
            let headers = [("Session", id.as_str()), ("Range", *range)];
            let answer = self.client.request("PLAY", &url, &headers).unwrap();
            if answer.status != 200 {
                return Err(answer.status);
            }
            // The first packet is that of the picture that begins there.
            let info = answer.header("RTP-Info").unwrap();
            let number = |name: &str| info.split(name).nth(1).unwrap().split(';').next().unwrap();
            let sequence: u16 = number("seq=").parse().unwrap();
            let timestamp: u32 = number("rtptime=").parse().unwrap();
            let is_first = |bytes: &[u8]| {
                let header = Header::read(bytes).unwrap();
                let off = header.timestamp.wrapping_sub(timestamp).cast_signed();
                header.sequence == sequence && off.abs() <= 1
            };
            let is_there = |capture: &Capture| capture.rtp.iter().any(|it| is_first(&it.bytes));
            assert!(receiver.wait_until(LONG, is_there), "{name} {range}");
            let range = Range::parse(answer.header("Range").unwrap()).unwrap();
            Ok(range.start_ns.unwrap())
        };
        ranges.iter().map(play).collect()
    }
}

/// When that frame of 30000/1001 a second is shown, to a microsecond, as answers say it.
fn of_ntsc(frame: u64) -> Result<u64, u16> {
    Ok(frame * 1001 * SECOND_NS / 30_000)
}

#[test]
fn time_codes_name_the_frames_of_real_films() {
    require_root!();
    require_programs!("ffmpeg");
    let fragments: &[&str] = &["-movflags", "frag_keyframe+empty_moov"];
    let mut films = Films::new(&[
        ("ntsc.mp4", "30000/1001", &["-bf", "0"]),
        ("ntsc.mkv", "30000/1001", &["-bf", "0"]),
        ("pal.mp4", "25", &["-bf", "0"]),
        ("fragments.mp4", "25", &[&["-bf", "0"], fragments].concat()),
        ("pal.mkv", "25", &["-bf", "0"]),
    ]);
    // Frames 49 and 50, between which one can start; 75 and a half; and one near the end.
    let codes = [
        "smpte=0:00:01:19-",
        "smpte=0:00:01:20-",
        "smpte-30-drop=0:00:02:15.50-",
    ];
    for name in ["ntsc.mp4", "ntsc.mkv"] {
        let [before, at, half] = films.play(name, &codes)[..] else {
            panic!("three ranges");
        };
        assert_eq!(before, of_ntsc(SYNC_EVERY), "{name}");
        assert_eq!(at, of_ntsc(2 * SYNC_EVERY), "{name}");
        assert_eq!(half, of_ntsc(3 * SYNC_EVERY), "{name}");
        let others = [
            "smpte-25=0:00:02-",
            "smpte=0:01:00-",
            "smpte=0:00:04-0:00:03",
        ];
        assert_eq!(films.play(name, &others), [Err(457); 3], "{name}");
    }
    for name in ["pal.mp4", "fragments.mp4", "pal.mkv"] {
        let codes = [
            "smpte-25=0:00:01:24-",
            "smpte-25=0:00:02-",
            "smpte-25=0:00:13:07.25-",
        ];
        let expected = [1, 2, 13].map(|second| Ok(second * SECOND_NS));
        assert_eq!(films.play(name, &codes), expected, "{name}");
        assert_eq!(films.play(name, &["smpte=0:00:02-"]), [Err(457)], "{name}");
    }
}

#[test]
fn recordings_know_the_clock_on_the_wall() {
    require_root!();
    require_programs!("ffmpeg");
    let fragments: &[&str] = &["-bf", "0", "-movflags", "frag_keyframe+empty_moov"];
    let mut films = Films::new(&[
        ("recorded.mkv", "25", &["-bf", "0"]),
        ("recorded.mp4", "25", fragments),
        ("whole.mp4", "25", &["-bf", "0"]),
    ]);
    let ranges = [
        "clock=20200101T000007.5Z-",
        "clock=20200101T000000Z-",
        "clock=20191231T235959Z-",
        "clock=20200101T000100Z-",
    ];
    for name in ["recorded.mkv", "recorded.mp4"] {
        let answers = films.play(name, &ranges);
        assert_eq!(
            answers,
            [Ok(7 * SECOND_NS), Ok(0), Err(457), Err(457)],
            "{name}"
        );
    }
    // Nobody knows what the date of a file in one piece is.
    assert_eq!(films.play("whole.mp4", &ranges[..1]), [Err(457)]);
}
