//! An object store that somebody else wrote (`s3s-fs`), and in front of it a proxy that does what
//! stores and networks do on bad days.

#![allow(
    unreachable_pub,
    reason = "a module of test binaries is reached by nobody else"
)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use onrush_testkit::netns::Netns;
use onrush_testkit::process::Process;
use tempfile::TempDir;

pub const BUCKET: &str = "films";
pub const KEY: &str = "a-key";
pub const SECRET: &str = "a-secret";

/// Until the server listens.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// What the proxy does with a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    Unavailable,
    Reset,
    Truncated,
    /// After two seconds.
    Late,
    /// As if it were another object's.
    WrongTag,
}

/// What the proxy was asked, and what it is to do.
#[derive(Debug, Default)]
pub struct State {
    /// Requests for bytes: the path and the range, in the order in which they came.
    pub asked: Vec<(String, String)>,
    /// Done with the first tries of each range, one after the other.
    pub faults: Vec<Fault>,
    /// Of ranges that are asked for first, one in so many is answered late; 0: none.
    pub late_every: usize,
    tries: HashMap<(String, String), usize>,
    /// Nobody is let in.
    pub is_gone: bool,
}

/// The store, with its proxy.
#[derive(Debug)]
pub struct Store {
    folder: TempDir,
    /// Ends when this is dropped.
    _server: Process,
    direct: SocketAddr,
    pub proxy: SocketAddr,
    pub state: Arc<Mutex<State>>,
}

impl Store {
    /// On loopback of a namespace. Its threads end with the process.
    pub fn start(netns: &Netns) -> Self {
        let folder = TempDir::with_prefix("onrush-s3-").unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut server = netns.command(program());
        server.arg(folder.path()).args([KEY, SECRET]);
        let server = Process::start(&mut server).unwrap();
        let line = server.wait_for_line("listening at ", START_TIME_MAX);
        let line = line.unwrap_or_else(|| panic!("no S3 server: {}", server.log()));
        let direct: SocketAddr = line.rsplit(' ').next().unwrap().parse().unwrap();
        let front = netns.run(|| TcpListener::bind(("127.0.0.1", 0)).unwrap());
        let proxy = front.local_addr().unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        // A socket stays in the namespace in which it was made.
        let (shared, netns) = (Arc::clone(&state), netns.clone());
        let root = folder.path().to_owned();
        thread::spawn(move || {
            let _inside = netns.enter().unwrap();
            for client in front.incoming() {
                let (state, netns) = (Arc::clone(&shared), netns.clone());
                let root = root.clone();
                let client = client.unwrap();
                thread::spawn(move || {
                    let _inside = netns.enter().unwrap();
                    // A connection that ends is no fault of a test.
                    drop(pass(client, (direct, &root), &state));
                });
            }
        });
        Self {
            folder,
            _server: server,
            direct,
            proxy,
            state,
        }
    }

    /// Stores an object as curl does.
    pub fn put(&self, netns: &Netns, name: &str, file: &Path) {
        let mut curl = netns.command("curl");
        curl.args([
            "-sS",
            "--fail-with-body",
            "--max-time",
            "60",
            "--noproxy",
            "*",
        ]);
        curl.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user"]);
        curl.arg(format!("{KEY}:{SECRET}")).arg("-T").arg(file);
        curl.args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        let in_url = name.replace(' ', "%20");
        curl.arg(format!("http://{}/{BUCKET}/{in_url}", self.direct));
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(self.folder.path().join(BUCKET).join(name).is_file());
    }

    /// An object that is there as if it had always been.
    pub fn plant(&self, name: &str) {
        let file = self.folder.path().join(BUCKET).join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, name).unwrap();
    }

    /// Changes what the proxy does.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Requests for bytes of an object so far.
    pub fn asked(&self, name: &str) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = state.asked.iter().filter(|(path, _)| path.ends_with(name));
        of_it.map(|(_, range)| range.clone()).collect()
    }
}

/// The server, which `./test` builds, and whoever runs this alone has built here once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let package = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/s3-server"
        ));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../s3-server");
        let program = target.join("debug/onrush-s3-server");
        let modified = |file: PathBuf| file.metadata().and_then(|it| it.modified()).ok();
        let sources = ["Cargo.lock", "src/main.rs"].map(|file| modified(package.join(file)));
        if modified(program.clone()) < sources.into_iter().max().flatten() {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--locked", "--quiet", "--manifest-path"]);
            cargo.arg(package.join("Cargo.toml"));
            cargo.arg("--target-dir").arg(&target);
            let built = cargo.output().unwrap();
            assert!(built.status.success(), "{cargo:?}: {built:?}");
        }
        program
    })
}

/// One request of a client, to which the connection belongs.
fn pass(
    client: TcpStream,
    (store, root): (SocketAddr, &Path),
    state: &Mutex<State>,
) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut reader = BufReader::new(&client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    // In S3 there are no folders; the store here has them, and takes them for objects.
    let asked = head.strip_prefix("HEAD /").unwrap_or_default();
    let asked = asked.split_whitespace().next();
    if asked.is_some_and(|path| root.join(path).is_dir()) {
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return (&client).write_all(answer.as_bytes());
    }
    let fault = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_gone {
            return reset(&client);
        }
        next(&mut state, &head)
    };
    match fault {
        Some(Fault::Unavailable) => {
            let answer = "HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            return (&client).write_all(answer.as_bytes());
        }
        Some(Fault::Reset) => return reset(&client),
        Some(Fault::Late) => thread::sleep(Duration::from_secs(2)),
        _ => {}
    }
    let mut behind = TcpStream::connect(store)?;
    let end = head.len() - 2;
    behind.write_all(format!("{}connection: close\r\n\r\n", &head[..end]).as_bytes())?;
    let mut answer = Vec::new();
    behind.read_to_end(&mut answer)?;
    let body = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
    match fault {
        Some(Fault::Truncated) => answer.truncate(body + (answer.len() - body) / 2),
        Some(Fault::WrongTag) => spoil_tag(&mut answer[..body]),
        _ => {}
    }
    (&client).write_all(&answer)?;
    client.shutdown(Shutdown::Both)
}

/// Notes a request for bytes. What is to be done with it.
fn next(state: &mut State, head: &str) -> Option<Fault> {
    let path = head.strip_prefix("GET ")?.split_whitespace().next()?;
    let range = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("range")
            .then(|| value.trim().to_owned())
    })?;
    let asked = (path.to_owned(), range);
    let tries = state.tries.entry(asked.clone()).or_default();
    let is_first = *tries == 0;
    let fault = state.faults.get(*tries).copied();
    *tries += 1;
    state.asked.push(asked);
    let is_late = is_first && state.tries.len().is_multiple_of(state.late_every);
    fault.or_else(|| is_late.then_some(Fault::Late))
}

/// Changes a letter of the entity tag in the head of an answer.
fn spoil_tag(head: &mut [u8]) {
    let at = head
        .windows(6)
        .position(|it| it.eq_ignore_ascii_case(b"etag: "));
    let letter = &mut head[at.expect("an entity tag") + 8];
    *letter = if *letter == b'0' { b'1' } else { b'0' };
}

fn reset(client: &TcpStream) -> std::io::Result<()> {
    rustix::net::sockopt::set_socket_linger(client, Some(Duration::ZERO))?;
    Ok(())
}
