//! What the tests of downloads share: a server on loopback, and a client that sends whatever it is
//! told.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(
    unreachable_pub,
    reason = "a module of test binaries is reached by nobody else"
)]

use std::fs::{self, File, FileTimes};
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onrush_testkit::connection::Connection;
use onrush_testkit::http_client::{Client, Response};
use onrush_testkit::process::{Process, onrush_program};
use tempfile::TempDir;

/// The built `onrush`.
pub const ONRUSH: &str = onrush_program(
    option_env!("CARGO_BIN_EXE_onrush"),
    option_env!("CARGO_BIN_EXE_onrush-lab"),
);
/// Bounds every wait for something that takes moments; never a measure.
pub const LONG: Duration = Duration::from_secs(60);

/// A server of an own directory, on loopback.
pub struct Site {
    pub server: Process,
    pub rtsp: SocketAddr,
    pub http: SocketAddr,
    pub ftp: SocketAddr,
    pub media: TempDir,
}

impl Site {
    /// Serves what `fill` puts into the directory.
    pub fn new(options: &[&str], fill: impl FnOnce(&Path)) -> Self {
        Self::by(Command::new(ONRUSH), options, fill)
    }

    /// The same, by a command that starts the server.
    pub fn by(mut command: Command, options: &[&str], fill: impl FnOnce(&Path)) -> Self {
        let media = TempDir::with_prefix("onrush-downloads-").unwrap();
        let root = media.path().join("root");
        fs::create_dir(&root).unwrap();
        fill(&root);
        command.arg("serve").arg(&root);
        command.args([
            "--rtsp=127.0.0.1:0",
            "--http=127.0.0.1:0",
            "--ftp=127.0.0.1:0",
            "--cache=1MiB",
            "--state=off",
        ]);
        let server = Process::start(command.args(options)).unwrap();
        let ready = server.wait_for_line("stopping ", LONG);
        assert!(ready.is_some(), "no server:\n{}", server.log_tail());
        let at = |scheme: &str| {
            let line = server
                .wait_for_line(&format!("listening  {scheme}://"), LONG)
                .unwrap();
            let address = line.rsplit("//").next().unwrap().trim_end_matches('/');
            address.parse().unwrap()
        };
        let (rtsp, http, ftp) = (at("rtsp"), at("http"), at("ftp"));
        Self {
            server,
            rtsp,
            http,
            ftp,
            media,
        }
    }

    /// A server of a file of 100,000 bytes and not much else.
    pub fn plain(options: &[&str]) -> Self {
        Self::new(options, |root| {
            fs::write(root.join("film.ts"), bytes(FILM_BYTES)).unwrap();
            set_modified(&root.join("film.ts"), FILM_MODIFIED_S);
            fs::write(root.join("empty"), []).unwrap();
            fs::create_dir(root.join("folder")).unwrap();
            fs::write(root.join("folder/a b#%ü.ts"), bytes(1000)).unwrap();
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.media.path().join("root").join(name)
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.http)
    }

    pub fn rtsp_url(&self, name: &str) -> String {
        format!("rtsp://{}/{name}", self.rtsp)
    }

    pub fn ftp_url(&self, name: &str) -> String {
        format!("ftp://{}/{name}", self.ftp)
    }

    pub fn connect(&self) -> Raw {
        Raw::connect(self.http)
    }

    /// One request on a connection of its own; `lines` are more header lines.
    pub fn get(&self, target: &str, lines: &str) -> Response {
        self.connect().request("GET", target, lines)
    }
}

/// A client of HTTP whose every failure is the test's; byte by byte also of FTP.
pub struct Raw(Client);

impl Deref for Raw {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0.connection
    }
}

impl DerefMut for Raw {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0.connection
    }
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        Self(Client::connect(address).unwrap())
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.connection.send(bytes).unwrap();
    }

    pub fn request(&mut self, method: &str, target: &str, lines: &str) -> Response {
        self.0.request(method, target, lines).unwrap()
    }

    /// The next answer.
    pub fn response(&mut self, is_head: bool) -> Response {
        self.0.response(is_head).unwrap()
    }

    /// How many bytes came; 0 at the end, however it came about.
    pub fn receive(&mut self) -> usize {
        match self.0.connection.receive() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            received => received.unwrap(),
        }
    }

    /// The next line of an FTP reply's last: its code and text.
    pub fn reply(&mut self) -> (u16, String) {
        let mut all = String::new();
        loop {
            while let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).into_owned();
                all.push_str(&line);
                let code = line.get(..3).and_then(|code| code.parse().ok());
                if let Some(code) = code.filter(|_| line.as_bytes()[3] == b' ') {
                    return (code, all);
                }
            }
            assert!(self.receive() > 0, "no reply after {all:?}");
        }
    }

    /// Sends an FTP command; the reply's code.
    pub fn command(&mut self, line: &str) -> u16 {
        self.send(format!("{line}\r\n"));
        self.reply().0
    }
}

/// A key, and tokens that openssl has signed with it.
pub struct Tokens {
    pub folder: TempDir,
    key: String,
}

impl Tokens {
    pub fn new() -> Self {
        let (folder, key) = (tempfile::tempdir().unwrap(), "k".repeat(32));
        let k = URL_SAFE_NO_PAD.encode(&key);
        let keys = format!(r#"{{"keys":[{{"kty":"oct","k":"{k}"}}]}}"#);
        fs::write(folder.path().join("keys.json"), keys).unwrap();
        Self { folder, key }
    }

    /// The option that tells a server to take them.
    pub fn option(&self) -> String {
        let keys = self.folder.path().join("keys.json");
        format!("--jwt-keys={}", keys.display())
    }

    /// A token of these claims.
    pub fn sign(&self, claims: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let file = self.folder.path().join("signed");
        fs::write(&file, &signed).unwrap();
        let mut command = Command::new("openssl");
        command.args(["dgst", "-sha256", "-hmac", &self.key, "-binary"]);
        let signature = command.arg(&file).output().unwrap().stdout;
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&signature))
    }
}

/// The length of `film.ts`.
pub const FILM_BYTES: usize = 100_000;
/// Sun, 06 Nov 1994 08:49:37 GMT
pub const FILM_MODIFIED_S: u64 = 784_111_777;
pub const FILM_DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// Bytes of which no two stretches are alike.
pub fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..count).map(|_| next()).collect()
}

pub fn set_modified(path: &Path, seconds: u64) {
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(seconds));
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_times(times)
        .unwrap();
}

/// Waits until so many lines of a log have that text.
pub fn wait_for_log(log: &Path, text: &str, count: usize) {
    let began = Instant::now();
    loop {
        let lines = fs::read_to_string(log).unwrap_or_default();
        if lines.lines().filter(|line| line.contains(text)).count() >= count {
            return;
        }
        assert!(
            began.elapsed() < LONG,
            "{count} of {text} are not in {lines}"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a program in `folder`; it must end well.
pub fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
