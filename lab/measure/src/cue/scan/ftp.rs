//! The paper's table 8: what FTP clients get at once of servers of several kinds.
//!
//! Servers are programs of their own on one processor; clients are threads on another, which count
//! and throw away.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::clock::{cpu_ns_of_process, monotonic_ns};
use onrush_sys::thread::pin_to;
use onrush_testkit::connection::{DISCARD_BYTES_MAX, WAIT_MAX, discard, uninterrupted};
use onrush_testkit::process::Process;
use rustix::net::RecvFlags;

use super::run::{Stage, apart, miscounted, ticks};
use super::{Cell, Run};
use crate::cue::Contestant;
use crate::error::ExperimentError;
use crate::setup::system;

/// Servers that run until this is dropped.
#[derive(Debug)]
pub(super) struct Servers(Vec<Server>);

#[derive(Debug)]
struct Server {
    contestant: Contestant,
    process: Process,
    address: SocketAddr,
}

impl Servers {
    /// Starts those that the cells need and that there are: vsftpd may not be installed, and starts
    /// as root alone.
    pub(super) fn start(
        program: &Path,
        stage: &Stage,
        cells: &[Cell],
    ) -> Result<Self, ExperimentError> {
        let mut servers: Vec<Server> = Vec::new();
        for cell in cells {
            let contestant = cell.contestant;
            if servers.iter().any(|it| it.contestant == contestant) {
                continue;
            }
            let started = match contestant {
                Contestant::Vsftpd { sendfile } if has_vsftpd() => vsftpd(stage, sendfile),
                Contestant::Vsftpd { .. } => continue,
                _ => onrush(program, stage, contestant),
            };
            let (process, address) = started.map_err(system("start an FTP server"))?;
            servers.push(Server {
                contestant,
                process,
                address,
            });
        }
        Ok(Self(servers))
    }

    /// One set; none of a server that there is not.
    pub(super) fn run(
        &self,
        stage: &Stage,
        cell: Cell,
        repeat: u32,
    ) -> Result<Option<Run>, ExperimentError> {
        let server = self.0.iter().find(|it| it.contestant == cell.contestant);
        match server {
            Some(server) => server.run(stage, cell, repeat).map(Some),
            None => Ok(None),
        }
    }
}

impl Server {
    fn run(&self, stage: &Stage, cell: Cell, repeat: u32) -> Result<Run, ExperimentError> {
        let (files, file_bytes) = stage.settings.extent(cell.contestant, cell.transfers);
        stage.warm().map_err(system("read a file"))?;
        let (address, core) = (self.address, stage.cores.1);
        let begin = self.used();
        let begin_ns = monotonic_ns();
        let clients = (0..cell.transfers).map(|_| {
            thread::spawn(move || {
                pin_to(core)?;
                let mut client = Client::log_in(address)?;
                let mut received = 0;
                for _ in 0..files {
                    received += client.retrieve("0.ts", file_bytes)?;
                }
                let done_ns = monotonic_ns();
                client.command("QUIT").ok();
                Ok((received, done_ns))
            })
        });
        let (mut counts, mut done_ns, mut void) = (Vec::new(), Vec::new(), None);
        for client in clients.collect::<Vec<_>>() {
            let ended = client.join();
            let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a client panicked")));
            match ended {
                Ok((received, at_ns)) => {
                    counts.push(received);
                    done_ns.push(at_ns - begin_ns);
                }
                Err(error) => void = Some(error.to_string()),
            }
        }
        let end = self.used();
        let received = counts.iter().sum();
        let promised = u64::from(files * cell.transfers) * file_bytes;
        Ok(Run {
            wall_ns: done_ns.iter().max().copied().unwrap_or(0),
            done_ns,
            cpu_ns: (end.0.saturating_sub(begin.0), end.1.saturating_sub(begin.1)),
            received_bytes: counts,
            total_bytes: (promised, received),
            void: void.or_else(|| miscounted(promised, promised, received)),
            ..Run::of(cell, repeat, (files, file_bytes))
        })
    }

    /// Processor time in user mode and in the kernel, in ns. Of a server that has a process for
    /// each client it says nothing, since nobody waits for these.
    fn used(&self) -> (u64, u64) {
        let process = self.process.id();
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let [user, system] = ticks(&stat).unwrap_or_default();
        apart(cpu_ns_of_process(process).unwrap_or(0), user, system)
    }
}

/// Whether there is vsftpd, and this process may start it.
fn has_vsftpd() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&paths).any(|path| path.join("vsftpd").is_file());
    is_there && rustix::process::geteuid().is_root()
}

type Started = io::Result<(Process, SocketAddr)>;

/// Starts a program on the senders' processor, where its children are, too.
fn start(core: usize, mut command: Command) -> io::Result<Process> {
    let start = move || {
        pin_to(core)?;
        Process::start(&mut command)
    };
    let started = thread::spawn(start).join();
    started.unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))
}

fn onrush(program: &Path, stage: &Stage, contestant: Contestant) -> Started {
    let schedule = match contestant {
        Contestant::Fixed {
            blocks, pause_ms, ..
        } => format!("{blocks},{pause_ms}ms"),
        Contestant::Yielding {
            blocks, pause_ms, ..
        } => format!("yielding={blocks},{pause_ms}ms"),
        Contestant::Adaptive => "adaptive".to_owned(),
        _ => "fair".to_owned(),
    };
    let mut command = Command::new(program);
    command.arg("serve").arg(stage.folder()).args([
        "--http=off",
        "--rtsp=127.0.0.1:0",
        "--ftp=127.0.0.1:0",
        "--cache=1MiB",
        "--state=off",
        &format!("--cores={}", stage.cores.0),
        &format!("--download-schedule={schedule}"),
    ]);
    let process = start(stage.cores.0, command)?;
    let line = process.wait_for_line("listening  ftp://", WAIT_MAX);
    let address = line.as_deref().and_then(|line| line.rsplit("//").next());
    match address.and_then(|address| address.trim_end_matches('/').parse().ok()) {
        Some(address) => Ok((process, address)),
        None => Err(io::Error::other(process.log_tail())),
    }
}

fn vsftpd(stage: &Stage, sendfile: bool) -> Started {
    // It cannot be told to take any port.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let root = stage.folder().join("vsftpd");
    fs::create_dir_all(root.join("empty"))?;
    let first = stage.folder().join("0.ts");
    if !root.join("0.ts").exists() {
        fs::hard_link(first, root.join("0.ts"))?;
    }
    let sendfile = if sendfile { "YES" } else { "NO" };
    let file = stage.folder().join(format!("vsftpd-{sendfile}.conf"));
    // The root of those who log in is owned by root and they may not write to it, as it demands.
    let text = format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\n\
         anonymous_enable=YES\nanon_root={0}\nno_anon_password=YES\nuse_sendfile={sendfile}\n\
         seccomp_sandbox=NO\nsecure_chroot_dir={0}/empty\n",
        root.display()
    );
    fs::write(&file, text)?;
    for folder in [stage.folder(), &root, &root.join("empty")] {
        let may_be_read = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder, may_be_read)?;
    }
    let mut command = Command::new("vsftpd");
    command.arg(&file);
    let process = start(stage.cores.0, command)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let began = Instant::now();
    while Client::log_in(address).is_err() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(io::Error::other(format!("vsftpd: {}", process.log_tail())));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok((process, address))
}

/// An FTP client that throws away what it gets.
#[derive(Debug)]
struct Client {
    control: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Client {
    fn log_in(address: SocketAddr) -> io::Result<Self> {
        let control = TcpStream::connect_timeout(&address, WAIT_MAX)?;
        control.set_nodelay(true)?;
        control.set_read_timeout(Some(WAIT_MAX))?;
        let control = BufReader::new(control);
        let mut client = Self { control, address };
        client.reply()?;
        if client.command("USER anonymous")?.0 == 331 {
            client.expect("PASS none", 230)?;
        }
        client.expect("TYPE I", 200)?;
        Ok(client)
    }

    /// Gets a file, or its beginning: how many bytes came.
    fn retrieve(&mut self, name: &str, bytes_max: u64) -> io::Result<u64> {
        let passive = self.expect("EPSV", 229)?;
        let port = passive.rsplit('|').nth(1).and_then(|it| it.parse().ok());
        let port: u16 = port.ok_or_else(|| io::Error::other(passive.clone()))?;
        let data = TcpStream::connect_timeout(&SocketAddr::new(self.address.ip(), port), WAIT_MAX)?;
        data.set_read_timeout(Some(WAIT_MAX))?;
        self.expect(&format!("RETR {name}"), 150)?;
        let mut received = 0;
        while received < bytes_max {
            let most = (bytes_max - received).min(DISCARD_BYTES_MAX as u64);
            match uninterrupted(|| discard(&data, most, RecvFlags::empty()))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                some => received += some,
            }
        }
        // Of a file whose beginning is enough the rest is refused.
        drop(data);
        match self.reply()?.0 {
            226 | 426 | 451 => Ok(received),
            _ => Err(io::Error::other(format!("{name} did not end"))),
        }
    }

    fn expect(&mut self, command: &str, code: u16) -> io::Result<String> {
        match self.command(command)? {
            (found, line) if found == code || (code == 150 && found == 125) => Ok(line),
            (_, line) => Err(io::Error::other(format!("{command}: {line}"))),
        }
    }

    fn command(&mut self, command: &str) -> io::Result<(u16, String)> {
        let line = format!("{command}\r\n");
        self.control.get_mut().write_all(line.as_bytes())?;
        self.reply()
    }

    /// The code of the next reply, and its last line.
    fn reply(&mut self) -> io::Result<(u16, String)> {
        loop {
            let mut line = String::new();
            if self.control.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            let code = line.get(..3).and_then(|code| code.parse().ok());
            // Lines of a reply that has more have a hyphen there, or no code at all.
            if let Some(code) = code.filter(|_| line.as_bytes().get(3) == Some(&b' ')) {
                return Ok((code, line.to_owned()));
            }
        }
    }
}
