//! The servers that are compared: two programs, and a loop on a thread.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::clock::{cpu_ns_of_process, thread_cpu_ns};
use onrush_testkit::ports::free_tcp_port;
use onrush_testkit::process::Process;
use rustix::param::clock_ticks_per_second;

use super::tls::Identity;
use super::{Contestant, Serving};
use crate::counters::Counting;
use crate::error::ExperimentError;
use crate::machine::{Background, threads_named};
use crate::setup::system;

/// The kernel keeps 15 bytes of it.
const LOOP_THREAD: &str = "sendfile-loop";

/// A server that runs, and ends when it is dropped.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) contestant: Contestant,
    pub(super) address: SocketAddr,
    /// Where the same is served over TLS, if it is.
    pub(super) tls_address: Option<SocketAddr>,
    server: Server,
}

/// Processor time of a process so far, as far as it is told apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessorTime {
    pub(super) cpu_ns: u64,
    /// In user and in kernel mode, in steps of a clock tick; `None` for a thread of this process.
    pub(super) user_and_system_ns: Option<[u64; 2]>,
}

#[derive(Debug)]
enum Server {
    Program {
        process: Process,
        _folder: tempfile::TempDir,
    },
    Loop {
        cpu_ns: Arc<AtomicU64>,
        thread: Background,
    },
}

impl Running {
    /// Starts it on the processor of the caller.
    pub(super) fn start(
        contestant: Contestant,
        files: &Path,
        identity: Option<&Identity>,
        serve: &(dyn Fn(&Serving<'_>) -> Command + Sync),
    ) -> Result<Self, ExperimentError> {
        if contestant == Contestant::SendfileLoop {
            return Ok(Self::start_loop(files).map_err(system("listen on loopback"))?);
        }
        let address = free_address();
        let tls_address = identity.map(|_| free_address());
        let folder = tempfile::tempdir().map_err(system("make a folder"))?;
        let serving = Serving {
            files,
            address,
            tls: tls_address.zip(identity.map(Identity::files)),
        };
        let mut command = match contestant {
            Contestant::Nginx => {
                nginx(&serving, folder.path()).map_err(system("write the peer's configuration"))?
            }
            _ => serve(&serving),
        };
        let program = command.get_program().to_string_lossy().into_owned();
        let not_there = |said: String| {
            ExperimentError::subject(format!(
                "{program} does not answer at {address}: {said}; see that it is installed"
            ))
        };
        let process = Process::start(&mut command).map_err(|error| not_there(error.to_string()))?;
        let give_up = Instant::now() + START_TIME_MAX;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > give_up {
                return Err(not_there(process.log_tail()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let server = Server::Program {
            process,
            _folder: folder,
        };
        Ok(Self {
            contestant,
            address,
            tls_address,
            server,
        })
    }

    /// Processor time so far.
    pub(super) fn processor_time(&self) -> ProcessorTime {
        match &self.server {
            Server::Program { process, .. } => ProcessorTime {
                cpu_ns: cpu_ns_of_process(process.id()).unwrap_or(0),
                user_and_system_ns: user_and_system_ns(process.id()),
            },
            Server::Loop { cpu_ns, .. } => ProcessorTime {
                cpu_ns: cpu_ns.load(Ordering::Acquire),
                user_and_system_ns: None,
            },
        }
    }

    /// Counts what its threads do from now on, if that `is_asked` for.
    pub(super) fn counting(&self, is_asked: bool) -> Counting {
        match &self.server {
            Server::Program { process, .. } => Counting::of_process(is_asked, process.id()),
            Server::Loop { .. } => Counting::of_threads(is_asked, &threads_named(LOOP_THREAD)),
        }
    }

    fn start_loop(files: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let cpu_ns = Arc::new(AtomicU64::new(0));
        let (counted, files) = (Arc::clone(&cpu_ns), files.to_owned());
        // Inherits the processor that its maker is pinned to.
        let thread = Background::start(LOOP_THREAD, move |is_over| {
            serve_plainly(&listener, &files, &counted, is_over);
        })?;
        let server = Server::Loop { cpu_ns, thread };
        Ok(Self {
            contestant: Contestant::SendfileLoop,
            address,
            tls_address: None,
            server,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Server::Loop { thread, .. } = &self.server {
            thread.end();
            // Wakes it from its accept.
            drop(TcpStream::connect(self.address));
        }
    }
}

/// Accept, read the head, write one, `sendfile` until all is sent; one connection after the other.
fn serve_plainly(listener: &TcpListener, files: &Path, cpu_ns: &AtomicU64, stopping: &AtomicBool) {
    for stream in listener.incoming().flatten() {
        if stopping.load(Ordering::Relaxed) {
            return;
        }
        // A client that hangs up is the next one's gain; what it got shows at its end.
        drop(answer_plainly(stream, files, cpu_ns));
    }
}

fn answer_plainly(stream: TcpStream, files: &Path, cpu_ns: &AtomicU64) -> io::Result<()> {
    let mut lines = BufReader::new(&stream).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let name = first
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/');
    let file = File::open(files.join(name))?;
    let file_bytes = file.metadata()?.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {file_bytes}\r\nConnection: close\r\n\r\n");
    io::Write::write_all(&mut &stream, head.as_bytes())?;
    let mut offset = 0;
    while offset < file_bytes {
        let left = usize::try_from(file_bytes - offset).unwrap_or(usize::MAX);
        if rustix::fs::sendfile(&stream, &file, Some(&mut offset), left)? == 0 {
            break;
        }
    }
    // Before the client can see the end.
    cpu_ns.store(thread_cpu_ns(), Ordering::Release);
    Ok(())
}

/// What a process has used in user and in kernel mode (proc_pid_stat(5)).
fn user_and_system_ns(process: u32) -> Option<[u64; 2]> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may have spaces and brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ns = || -> Option<u64> {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(ticks * (1_000_000_000 / clock_ticks_per_second()))
    };
    Some([ns()?, ns()?])
}

/// As its manual has it for files: one process, `sendfile on`, no log; of TLS the versions that are
/// left.
fn nginx(serving: &Serving<'_>, folder: &Path) -> io::Result<Command> {
    let Serving {
        files,
        address,
        tls,
    } = serving;
    let path = |name: &str| folder.join(name).display().to_string();
    let tls = tls
        .as_ref()
        .map_or_else(String::new, |(address, identity)| {
            format!(
                "listen {address} ssl; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {};\n\
             ssl_certificate_key {};\n",
                identity.certificate.display(),
                identity.key.display()
            )
        });
    let text = format!(
        "daemon off; master_process off; worker_processes 1; pid {pid}; error_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         access_log off; sendfile on; keepalive_requests 1000000000; default_type video/mp2t;\n\
         client_body_temp_path {body}; proxy_temp_path {proxy}; fastcgi_temp_path {fastcgi};\n\
         uwsgi_temp_path {uwsgi}; scgi_temp_path {scgi};\n\
         server {{ listen {address}; {tls} root {root}; }}\n\
         }}\n",
        pid = path("pid"),
        body = path("body"),
        proxy = path("proxy"),
        fastcgi = path("fastcgi"),
        uwsgi = path("uwsgi"),
        scgi = path("scgi"),
        root = files.display(),
    );
    let configuration = folder.join("nginx.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(nginx_program());
    command.arg("-p").arg(folder).arg("-c").arg(configuration);
    Ok(command)
}

/// Where Debian has it, which is on nobody's but root's path.
pub(super) fn nginx_program() -> PathBuf {
    let debian = PathBuf::from("/usr/sbin/nginx");
    if debian.exists() {
        debian
    } else {
        "nginx".into()
    }
}

fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()))
}

const START_TIME_MAX: Duration = Duration::from_secs(20);
