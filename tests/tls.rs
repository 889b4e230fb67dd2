//! TLS, by other people's programs: players of `rtsps://` and `https://`, downloaders, and openssl
//! for what a handshake may be.

#![allow(
    clippy::print_stdout,
    reason = "what players say is for whoever reads the test's output"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use onrush_testkit::interleaved::{InterleavedClient, Received};
use onrush_testkit::media::age;
use onrush_testkit::process::Process;
use onrush_testkit::require_programs;
use onrush_testkit::rtsp_client::Client;
use onrush_wire::rtp::Header;

use download_site::{LONG, Site, bytes};

mod download_site;

const DEMO_MP4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.mp4");

/// Pictures that a player must get; the clip has more.
const PICTURES: usize = 60;

/// A server with TLS, and where that is.
struct TlsSite {
    site: Site,
    rtsps: SocketAddr,
    https: SocketAddr,
}

impl TlsSite {
    fn new(options: &[&str]) -> Self {
        let all = ["--rtsps=127.0.0.1:0", "--https=127.0.0.1:0"];
        let site = Site::new(&[&all, options].concat(), |root| {
            fs::copy(DEMO_MP4, root.join("demo.mp4")).unwrap();
            age(&root.join("demo.mp4")).unwrap();
            fs::write(root.join("data"), bytes(3_000_000)).unwrap();
        });
        let at = |scheme: &str| {
            let begin = format!("listening  {scheme}://");
            let line = site.server.wait_for_line(&begin, LONG).unwrap();
            let address = line.rsplit("//").next().unwrap().trim_end_matches('/');
            address.parse().unwrap()
        };
        let (rtsps, https) = (at("rtsps"), at("https"));
        Self { site, rtsps, https }
    }

    fn self_signed() -> Self {
        Self::new(&["--tls=self-signed"])
    }

    fn https_url(&self, name: &str) -> String {
        format!("https://{}/{name}", self.https)
    }

    fn rtsps_url(&self, name: &str) -> String {
        format!("rtsps://{}/{name}", self.rtsps)
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", program]).args(arguments);
    let output = command.stdin(Stdio::null()).output().unwrap();
    println!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The hashes of the first pictures that ffmpeg finds.
fn pictures(input: &[&str]) -> Vec<String> {
    let mut arguments = vec!["-v", "error"];
    arguments.extend(input);
    let count = PICTURES.to_string();
    arguments.extend(["-map", "0:v:0", "-frames:v", &count, "-c", "copy"]);
    arguments.extend(["-f", "framemd5", "-"]);
    let output = run("ffmpeg", &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    // Behind it are those of side data: of live streams, clocks.
    let hash = |line: &str| line.split(',').nth(5).unwrap_or_default().to_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(hash).collect()
}

/// Whichever side connects, and whether data is encrypted, too.
#[test]
fn ftp_programs_fetch_over_tls() {
    require_programs!("curl", "lftp", "python3");
    let site = TlsSite::self_signed();
    let whole = bytes(3_000_000);
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("data");
    let (to_name, url) = (to.to_str().unwrap(), site.site.ftp_url("data"));
    let curl = [
        "-sSfk",
        "--max-time",
        "60",
        "--ssl-reqd",
        "-o",
        to_name,
        &url,
    ];
    for how in [&[][..], &["--tls-max", "1.2"], &["-C", "-"]] {
        let begun = how.first() == Some(&"-C");
        if begun {
            fs::write(&to, &whole[..1_000_000]).unwrap();
        }
        let output = run("curl", &[&curl, how].concat());
        assert!(output.status.success(), "{how:?}");
        assert!(fs::read(&to).unwrap() == whole, "{how:?}");
        fs::remove_file(&to).unwrap();
    }
    let script = format!(
        "set ftp:ssl-force true; set ftp:ssl-protect-data true; set ssl:verify-certificate no; \
         set net:max-retries 2; open ftp://{}; lcd {}; pget -n 3 data; ls; exit",
        site.site.ftp,
        folder.path().display()
    );
    let output = run("lftp", &["-c", &script]);
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && listed.contains(" demo.mp4"),
        "{listed}"
    );
    assert!(fs::read(&to).unwrap() == whole);
    let script = format!(
        "import ftplib, ssl\nc = ssl.create_default_context()\nc.check_hostname = False\n\
         c.verify_mode = ssl.CERT_NONE\nf = ftplib.FTP_TLS(context=c)\n\
         f.connect('127.0.0.1', {})\nf.login()\n\
         for protect, passive in ((f.prot_p, 1), (f.prot_c, 1), (f.prot_p, 0)):\n  \
           protect()\n  f.set_pasv(passive)\n  got = []\n  \
           f.retrbinary('RETR data', got.append)\n  \
           print(len(b''.join(got)), 'data' in f.nlst())\n\
         print(f.sendcmd('NOOP')[:3])\nf.quit()\n",
        site.site.ftp.port()
    );
    let output = run("python3", &["-c", &script]);
    let printed = String::from_utf8_lossy(&output.stdout);
    let expected = "3000000 True\n".repeat(3) + "200\n";
    assert_eq!(printed, expected);
}

/// What somebody on the way writes in front of the handshake is not carried out behind it; and
/// where the handshake fails, nothing is said in the clear.
// SPECIFICATION.md: 76
#[test]
fn nothing_that_came_before_a_handshake_is_heard_after_it() {
    require_programs!("python3");
    let site = TlsSite::self_signed();
    let script = format!(
        "import socket, ssl\nc = ssl.create_default_context()\nc.check_hostname = False\n\
         c.verify_mode = ssl.CERT_NONE\n\
         s = socket.create_connection(('127.0.0.1', {port}), 30)\nf = s.makefile('rb')\n\
         f.readline()\ns.sendall(b'USER anonymous\\r\\nPASS x\\r\\nAUTH TLS\\r\\nNOOP\\r\\n\
         NOOP\\r\\n')\n\
         print([f.readline()[:3].decode() for i in range(3)])\n\
         t = c.wrap_socket(s)\nt.sendall(b'PWD\\r\\nQUIT\\r\\n')\ng = t.makefile('rb')\n\
         print([line[:3].decode() for line in g])\n\
         s = socket.create_connection(('127.0.0.1', {port}), 30)\nf = s.makefile('rb')\n\
         f.readline()\ns.sendall(b'AUTH TLS\\r\\n')\nf.readline()\ns.sendall(b'PWD\\r\\n')\n\
         print(f.read())\n",
        port = site.site.ftp.port()
    );
    let output = run("python3", &["-c", &script]);
    let printed = String::from_utf8_lossy(&output.stdout);
    // The last is an alert: protocol_version.
    let expected = "['331', '230', '234']\n['530', '221']\nb'\\x15\\x03\\x03\\x00\\x02\\x02F'\n";
    assert_eq!(printed, expected);
}

#[test]
fn ffmpeg_gets_the_same_pictures_over_tls() {
    require_programs!("ffmpeg");
    let site = TlsSite::self_signed();
    let expected = pictures(&["-i", DEMO_MP4]);
    assert_eq!(expected.len(), PICTURES);
    assert_eq!(expected[0].trim().len(), 32);
    // With its sequence of NAL units in place of their lengths, as RTP has them.
    let url = site.site.rtsp_url("demo.mp4");
    let annex_b = pictures(&["-rtsp_transport", "tcp", "-i", &url]);
    assert_eq!(annex_b.len(), PICTURES);
    let url = site.rtsps_url("demo.mp4");
    assert_eq!(pictures(&["-i", &url]), annex_b, "rtsps");
    let url = site.https_url("demo.mp4");
    assert_eq!(pictures(&["-i", &url]), expected, "https");
    let url = site.https_url("demo.mp4/hls/index.m3u8");
    assert_eq!(pictures(&["-i", &url]).len(), PICTURES, "HLS");
}

/// Of a transport stream FFmpeg gives a picture out when it has the length that its PES packet
/// says, or when the next begins: what it loses at the end has no length. All of it is sent.
#[test]
fn ffmpeg_gets_the_last_picture_that_has_a_length() {
    require_programs!("ffmpeg");
    let site = TlsSite::self_signed();
    for (omits, name) in [("0", "length.ts"), ("1", "none.ts")] {
        let film = site.site.media.path().join("root").join(name);
        let film = film.to_str().unwrap();
        let remux = [
            "-v", "error", "-t", "2", "-i", DEMO_MP4, "-an", "-c", "copy",
        ];
        let of_pictures = ["-omit_video_pes_length", omits, "-f", "mpegts", film];
        let output = run("ffmpeg", &[&remux[..], &of_pictures].concat());
        assert!(output.status.success(), "{output:?}");
        age(Path::new(film)).unwrap();
        let expected = pictures(&["-i", film]);
        assert!((20..PICTURES).contains(&expected.len()), "all of the film");
        let shown = pictures(&["-i", &site.rtsps_url(name)]);
        let lost_max = usize::from(omits == "1");
        assert!(shown.len() + lost_max >= expected.len(), "{name}");
        assert_eq!(shown, expected[..shown.len()], "{name}");
    }
}

/// Whether GStreamer gets so many bytes of pictures. How it ends says nothing.
#[test]
fn gstreamer_plays_over_tls() {
    require_programs!("gst-launch-1.0");
    let site = TlsSite::self_signed();
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "rtspsrc", "tls-validation-flags=0"]);
    command.arg(format!("location={}", site.rtsps_url("demo.mp4")));
    command.args(["!", "rtph264depay", "!", "filesink", "buffer-mode=2"]);
    command.arg(format!("location={}", out.path().display()));
    let mut player = Process::start(&mut command).unwrap();
    let give_up = Instant::now() + LONG;
    while out.as_file().metadata().unwrap().len() < 50_000 {
        let is_running = player.is_running().unwrap();
        assert!(
            is_running && Instant::now() < give_up,
            "{}",
            player.log_tail()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// It takes the key from the description (MIKEY), and tells its own in SETUP.
#[test]
fn gstreamer_plays_srtp() {
    require_programs!("gst-launch-1.0");
    for keys in ["--srtp-keys=own", "--srtp-keys=shared"] {
        let site = TlsSite::new(&["--tls=self-signed", keys]);
        gstreamer_decrypts(&site);
    }
}

fn gstreamer_decrypts(site: &TlsSite) {
    for query in ["srtp", "srtp=gcm"] {
        gstreamer_gets(site, &format!("demo.mp4?{query}"));
    }
}

/// Whether GStreamer gets so many bytes of pictures by SRTP.
fn gstreamer_gets(site: &TlsSite, name: &str) {
    drop(gstreamer_reads(site, name, "rtph264depay"));
}

/// GStreamer by SRTP, when it has got so many bytes.
fn gstreamer_reads(site: &TlsSite, name: &str, depacketizer: &str) -> Process {
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("gst-launch-1.0");
    // However long the first packet takes on a slow machine, it does not try TCP.
    let source = [
        "rtspsrc",
        "tls-validation-flags=0",
        "protocols=udp",
        "timeout=0",
    ];
    command.arg("-q").args(source);
    command.arg(format!("location={}", site.rtsps_url(name)));
    command.args(["!", depacketizer, "!", "filesink", "buffer-mode=2"]);
    command.arg(format!("location={}", out.path().display()));
    let mut player = Process::start(&mut command).unwrap();
    let give_up = Instant::now() + LONG;
    while out.as_file().metadata().unwrap().len() < 50_000 {
        let is_running = player.is_running().unwrap();
        let (tail, is_late) = (player.log_tail(), Instant::now() >= give_up);
        assert!(is_running && !is_late, "{name}: {tail}");
        std::thread::sleep(Duration::from_millis(20));
    }
    player
}

/// FFmpeg publishes live/cam, once that can be watched.
fn publisher(site: &TlsSite) -> Process {
    let url = site.site.rtsp_url("live/cam");
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-stream_loop", "-1", "-re"]);
    command.args(["-i", DEMO_MP4, "-c", "copy", "-f", "rtsp"]);
    command.args(["-rtsp_transport", "tcp", &url]);
    let mut publisher = Process::start(&mut command).unwrap();
    let give_up = Instant::now() + LONG;
    while status_of(site, "DESCRIBE", &url) != 200 {
        let is_running = publisher.is_running().unwrap();
        assert!(
            is_running && Instant::now() < give_up,
            "{}",
            publisher.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    publisher
}

fn status_of(site: &TlsSite, method: &str, url: &str) -> u16 {
    let mut client = Client::connect(site.site.rtsp).unwrap();
    client.request(method, url, &[]).unwrap().status
}

#[test]
fn players_decrypt_a_channel() {
    require_programs!("ffmpeg", "gst-launch-1.0");
    for keys in ["--srtp-keys=own", "--srtp-keys=shared"] {
        let site = TlsSite::new(&["--tls=self-signed", "--srtp=plain", keys]);
        let _publisher = publisher(&site);
        for query in ["srtp", "srtp=gcm"] {
            gstreamer_gets(&site, &format!("live/cam?{query}"));
        }
        // Without TLS its key is its own.
        let url = format!("{}?srtp", site.site.rtsp_url("live/cam"));
        let decrypted = pictures(&["-rtsp_transport", "udp", "-i", &url]);
        assert_eq!(decrypted.len(), PICTURES);
        assert_eq!(decrypted[0].trim().len(), 32);
    }
}

/// It knows of no numbers that have wrapped, so it is told another key then.
#[test]
fn gstreamer_joins_after_numbers_have_wrapped() {
    require_programs!("gst-launch-1.0", "openssl");
    let site = TlsSite::new(&["--tls=self-signed", "--srtp-keys=shared"]);
    let mut client = InterleavedClient::connect(site.site.rtsp).unwrap();
    let url = site.site.rtsp_url("live/cam");
    let sdp = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 0 RTP/AVP 0\r\n\
               a=control:streamid=0\r\n";
    let length = sdp.len().to_string();
    let headers = [
        ("Content-Type", "application/sdp"),
        ("Content-Length", &length),
    ];
    client.send("ANNOUNCE", &url, &headers).unwrap();
    client.send_raw(sdp.as_bytes()).unwrap();
    let answer = client.receive().unwrap();
    assert!(matches!(answer, Received::Response(answer) if answer.status == 200));
    let transport = "RTP/AVP/TCP;unicast;interleaved=0-1;mode=record";
    let track = format!("{url}/streamid=0");
    client.set_up(&track, transport).unwrap();
    assert_eq!(client.request("RECORD", &url, &[]).unwrap().status, 200);
    let (leaps, is_over) = (AtomicU16::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Five minutes, should nobody say that it is over.
            for step in 0..60_000_u16 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let leapt = leaps.load(Ordering::Relaxed);
                if let 1..3 = leapt {
                    leaps.store(leapt + 1, Ordering::Relaxed);
                }
                let header = Header {
                    marker: false,
                    payload_type: 0,
                    sequence: step.wrapping_add(leapt.wrapping_mul(30_000)),
                    timestamp: u32::from(step) * 160,
                    ssrc: 7,
                };
                let packet = [&header.to_bytes()[..], &[0x55; 160]].concat();
                client.send_frame(0, &packet).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let name = "live/cam?srtp";
        let _first = gstreamer_reads(&site, name, "rtppcmudepay");
        let describe = format!("DESCRIBE {} RTSP/1.0\nCSeq: 1\n\n", site.rtsps_url(name));
        let key = || {
            let told = typed(site.rtsps, &[], &[(&describe, "a=crypto")]);
            let key = told.lines().find(|line| line.starts_with("a=crypto"));
            key.unwrap_or_else(|| panic!("{told}")).to_owned()
        };
        let (give_up, before) = (Instant::now() + LONG, key());
        leaps.store(1, Ordering::Relaxed);
        while key() == before {
            assert!(Instant::now() < give_up, "there is no other key");
        }
        drop(gstreamer_reads(&site, name, "rtppcmudepay"));
        is_over.store(true, Ordering::Relaxed);
    });
}

/// FFmpeg takes `rtsps` for TCP, so over UDP it reads the key without TLS, as `a=crypto`.
#[test]
fn ffmpeg_decrypts_srtp() {
    require_programs!("ffmpeg");
    let site = TlsSite::new(&["--tls=self-signed", "--srtp=plain"]);
    let url = site.site.rtsp_url("demo.mp4");
    let expected = pictures(&["-rtsp_transport", "tcp", "-i", &url]);
    let url = format!("{url}?srtp");
    let decrypted = pictures(&["-rtsp_transport", "udp", "-i", &url]);
    assert_eq!(decrypted, expected);
    assert_eq!(decrypted.len(), PICTURES);
}

#[test]
fn mpv_plays_over_tls() {
    require_programs!("mpv");
    let site = TlsSite::self_signed();
    for url in [site.rtsps_url("demo.mp4"), site.https_url("demo.mp4")] {
        let arguments = ["--vo=null", "--ao=null", "--frames=50", "--no-config", &url];
        assert!(run("mpv", &arguments).status.success(), "{url}");
    }
}

#[test]
fn curl_gets_every_byte_of_files_and_ranges() {
    require_programs!("curl", "openssl");
    let folder = tempfile::tempdir().unwrap();
    let options = pair_of(folder.path(), "localhost", None);
    let certificate = options[0].split_once('=').unwrap().1;
    let site = TlsSite::new(&options.each_ref().map(String::as_str));
    let url = site.https_url("data");
    let curl = |more: &[&str]| {
        let arguments = [&["-sS", "--cacert", certificate], more, &[&*url]].concat();
        let output = run("curl", &arguments);
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let data = bytes(3_000_000);
    assert!(curl(&[]) == data);
    assert!(curl(&["--tls-max", "1.2"]) == data);
    assert!(curl(&["-r", "1000000-2999998"]) == data[1_000_000..=2_999_998]);
    assert!(curl(&["-r", "0-0,2999999-"]).len() > 2);
    // Several on one connection, and slowly.
    assert!(curl(&["--limit-rate", "3M", &url]) == [&data[..], &data].concat());
}

#[test]
fn versions_and_names_are_as_openssl_sees_them() {
    require_programs!("openssl");
    let folder = tempfile::tempdir().unwrap();
    let pair = |name: &str| pair_of(folder.path(), name, None);
    let [one, two] = [pair("one.example"), pair("two.example")];
    let options: Vec<_> = [&one, &two]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let site = TlsSite::new(&options);
    let to = site.rtsps.to_string();
    let client = |more: &[&str]| {
        let arguments = [&["s_client", "-connect", &to], more].concat();
        let output = run("openssl", &arguments);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said + &String::from_utf8_lossy(&output.stderr)
    };
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        assert!(
            client(&[version]).contains(&format!("New, {name}")),
            "{name}"
        );
    }
    assert!(client(&["-tls1_1"]).contains("alert"), "TLS 1.1");
    for (asked, got) in [
        ("two.example", "CN = two.example"),
        ("one.example", "CN = one.example"),
        ("three.example", "CN = one.example"),
    ] {
        let said = client(&["-servername", asked]);
        assert!(said.contains(got), "{asked}: {said}");
    }
    assert!(client(&["-noservername"]).contains("CN = one.example"));
    // HTTP says what it speaks.
    let to = site.https.to_string();
    let arguments = ["s_client", "-connect", &to, "-alpn", "h2,http/1.1"];
    let said = run("openssl", &arguments).stdout;
    assert!(String::from_utf8_lossy(&said).contains("ALPN protocol: h2"));
    let arguments = ["s_client", "-connect", &to, "-alpn", "http/1.1"];
    let said = run("openssl", &arguments).stdout;
    assert!(String::from_utf8_lossy(&said).contains("ALPN protocol: http/1.1"));
}

/// Options for a certificate of that name, which `openssl` has signed by itself, or with the key of
/// another name.
fn pair_of(folder: &Path, name: &str, signer: Option<&str>) -> [String; 2] {
    let at = |name: &str, ending: &str| folder.join(format!("{name}.{ending}"));
    let at = |name: &str, ending: &str| at(name, ending).display().to_string();
    let (certificate, key) = (at(name, "pem"), at(name, "key"));
    let subject = format!("/CN={name}");
    let names = format!("subjectAltName=DNS:{name},IP:127.0.0.1");
    let mut arguments = vec![
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
    ];
    arguments.extend(["-subj", &subject, "-addext", &names]);
    arguments.extend(["-keyout", &key, "-out", &certificate]);
    let signed_by = signer.map(|signer| [at(signer, "pem"), at(signer, "key")]);
    if let Some([certificate, key]) = &signed_by {
        arguments.extend(["-addext", "basicConstraints=critical,CA:FALSE"]);
        arguments.extend(["-CA", certificate, "-CAkey", key]);
    }
    assert!(run("openssl", &arguments).status.success());
    [
        format!("--tls-certificate={certificate}"),
        format!("--tls-key={key}"),
    ]
}

#[test]
fn a_client_shows_its_certificate_where_one_is_asked_for() {
    require_programs!("openssl", "curl");
    let folder = tempfile::tempdir().unwrap();
    let [ca, _] = pair_of(folder.path(), "ca.example", None);
    let ca = ca.replace("--tls-certificate", "--tls-client-ca");
    let site = TlsSite::new(&["--tls=self-signed", &ca]);
    let url = site.https_url("data");
    let with = |signer| {
        let pair = pair_of(folder.path(), "client.example", signer);
        let [certificate, key] = pair.map(|it| it.split_once('=').unwrap().1.to_owned());
        run(
            "curl",
            &["-sSk", "--cert", &certificate, "--key", &key, &url],
        )
    };
    let known = with(Some("ca.example"));
    assert!(known.stdout == bytes(3_000_000), "{:?}", known.stderr);
    for unknown in [with(None), run("curl", &["-sSk", &url])] {
        assert!(!unknown.status.success());
        assert!(unknown.stdout.is_empty());
    }
}

#[test]
fn the_fingerprint_that_is_printed_is_that_of_the_certificate() {
    require_programs!("openssl");
    let site = TlsSite::self_signed();
    let line = site
        .site
        .server
        .wait_for_line("TLS        self-signed", LONG);
    let to = site.https.to_string();
    let shown = run("openssl", &["s_client", "-connect", &to]).stdout;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), shown).unwrap();
    let name = file.path().to_str().unwrap();
    let arguments = ["x509", "-in", name, "-noout", "-fingerprint", "-sha256"];
    let print = String::from_utf8(run("openssl", &arguments).stdout).unwrap();
    let print = print.trim().rsplit('=').next().unwrap();
    assert!(line.unwrap().ends_with(print), "{print}");
}

/// What `openssl s_client` says when it types lines, and waits for what each brings about; a line
/// of `K` asks the server for a new key, one of `R` wants to negotiate anew.
fn typed(to: SocketAddr, more: &[&str], lines: &[(&str, &str)]) -> String {
    let mut command = Command::new("timeout");
    command.args(["60", "openssl", "s_client", "-crlf", "-connect"]);
    command.arg(to.to_string()).args(more);
    let (mut reader, writer) = std::io::pipe().unwrap();
    command
        .stdin(Stdio::piped())
        .stdout(writer.try_clone().unwrap());
    let mut client = command.stderr(writer).spawn().unwrap();
    // Its ends of the pipe are its own alone.
    drop(command);
    let mut stdin = client.stdin.take().unwrap();
    let mut said = Vec::new();
    let mut wait_for = |what: &str| {
        let from = said.len();
        let mut piece = [0; 4096];
        // At its end there is nothing more to wait for.
        while !String::from_utf8_lossy(&said[from..]).contains(what) {
            match reader.read(&mut piece).unwrap() {
                0 => return,
                read => said.extend_from_slice(&piece[..read]),
            }
        }
    };
    wait_for("Verify return code");
    for (line, answer) in lines {
        // It may be gone.
        drop(stdin.write_all(line.as_bytes()));
        wait_for(answer);
    }
    drop(stdin);
    reader.read_to_end(&mut said).unwrap();
    client.wait().unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn a_client_may_ask_for_new_keys_and_not_negotiate_anew() {
    require_programs!("openssl");
    let site = TlsSite::self_signed();
    let options = "OPTIONS * RTSP/1.0\nCSeq: 7\n\n";
    let asked = (options, "RTSP/1.0 ");
    let renewed = ("K\n", "KEYUPDATE");
    let said = typed(site.rtsps, &["-tls1_3"], &[renewed, asked, renewed, asked]);
    assert_eq!(said.matches("RTSP/1.0 200 OK").count(), 2, "{said}");
    let said = typed(
        site.rtsps,
        &["-tls1_2"],
        &[asked, ("R\n", "no renegotiation")],
    );
    assert_eq!(said.matches("RTSP/1.0 200 OK").count(), 1, "{said}");
    assert!(said.contains("no renegotiation"), "{said}");
    // Nobody else minds.
    let said = typed(site.rtsps, &[], &[asked]);
    assert_eq!(said.matches("RTSP/1.0 200 OK").count(), 1, "{said}");
}

/// It would encrypt its packets itself, with a key in its description.
#[test]
fn a_publisher_of_srtp_is_told_what_is_taken() {
    require_programs!("gst-launch-1.0");
    let site = TlsSite::self_signed();
    let location = format!("location={}", site.rtsps_url("live/cam"));
    let publisher = |profile: &str| {
        let mut command = Command::new("gst-launch-1.0");
        command.args(["rtspclientsink", "name=out", &location]);
        command.args(["tls-validation-flags=0", "protocols=tcp"]);
        command.arg(format!("profiles={profile}"));
        command.args(["audiotestsrc", "is-live=true", "!", "alawenc", "!", "out."]);
        command
    };
    let (status, said) = Process::run(&mut publisher("savp"), LONG).unwrap();
    assert!(!status.success() && said.contains("461"), "{said}");
    assert!(said.contains("send RTP/AVP over TCP by rtsps"), "{said}");
    let published = Process::start(&mut publisher("avp")).unwrap();
    let line = site
        .site
        .server
        .wait_for_line("live/cam is published", LONG);
    assert!(line.is_some(), "{}", published.log_tail());
}

// SPECIFICATION.md: 47
#[test]
fn udp_is_refused_over_tls_unless_it_is_allowed() {
    require_programs!("openssl", "ffmpeg");
    let (to_client, to_group) = ("unicast;client_port=5000-5001", "multicast");
    let answer = |site: &TlsSite, name: &str, how: &str| {
        let setup =
            format!("SETUP rtsp://h/{name}/track1 RTSP/1.0\nCSeq: 1\nTransport: RTP/AVP;{how}\n\n");
        typed(site.rtsps, &[], &[(&*setup, "RTSP/1.0 ")])
    };
    let groups = "--multicast=239.77.20.0/24";
    let site = TlsSite::new(&["--tls=self-signed", groups]);
    let _publisher = publisher(&site);
    for name in ["demo.mp4", "live/cam"] {
        for how in [to_client, to_group] {
            let said = answer(&site, name, how);
            assert!(said.contains("RTSP/1.0 461"), "{name} {how}: {said}");
        }
    }
    let site = TlsSite::new(&["--tls=self-signed", "--tls-udp", groups]);
    let _publisher = publisher(&site);
    for name in ["demo.mp4", "live/cam"] {
        let said = answer(&site, name, to_client);
        assert!(said.contains("RTSP/1.0 200"), "{name}: {said}");
    }
}

#[test]
fn plain_bytes_on_a_port_for_tls_are_told_of() {
    let site = TlsSite::self_signed();
    for at in [site.rtsps, site.https] {
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // The reset of what was not read may overtake the alert.
        drop(client.read_to_end(&mut answer));
        let line = site.site.server.wait_for_line("it speaks no TLS", LONG);
        assert!(line.is_some());
    }
}
