//! `onrush serve`: start, say how to play what is there, serve until a signal, say goodbye.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use onrush_lock::memory::Pages;
use onrush_lock::{Manager, Totals};
use onrush_server::config::{Config, DrainConfig};
use onrush_server::library::Library;
use onrush_server::server::Server;
use onrush_server::tls::KernelTlsState;
use onrush_sys::probe;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::addresses::{PLAYER, metrics_lines, reached_at};
use crate::channels;
use crate::cluster;
use crate::configuration::Reloads;
use crate::downloads;
use crate::libraries::Served;
use crate::log_queue::LOG_QUEUE;
use crate::remedy::with_remedy;
use crate::sandbox::{self, OwnFiles, Sandbox};
use crate::serve_options::Serve;
use crate::service_manager;
use crate::signals::{SignalName, Signals, log_to_stderr};
use crate::state::usable_default;
use crate::status_at_exit::StatusAtExit;
use crate::successor::{Launcher, Predecessor};
use crate::units::{Size, Time, ranges};

/// Serves by `arguments`, which `words` are.
pub(crate) fn run(
    arguments: &Serve,
    words: Vec<OsString>,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    log_to_stderr(arguments.log_format)?;
    let served = match arguments.library.served() {
        Some(served) => served,
        None => Served::One(
            demo_folder(Path::new(""), &env::current_exe().unwrap_or_default()).context(
                "no demo clip (media/demo.ts) here or above the program; say what to serve: \
                 onrush serve MEDIA_DIR",
            )?,
        ),
    };
    let predecessor = Predecessor::of_this_process()?;
    let inherited = service_manager::inherited()?;
    // Behind both: what they got is not for another process.
    let launcher = Launcher::start()?;
    // Before the server: a signal that comes while it starts must stop it, not kill it.
    let mut signals =
        Signals::listen(arguments.config.is_some()).context("cannot listen for signals")?;
    let at_exit = StatusAtExit::open(arguments.status_at_exit.as_deref())?;
    let media_root = arguments.objects.prepare(&served)?;
    let mut config = arguments.config(media_root)?;
    if arguments.state.is_none() {
        config.state = usable_default();
    }
    let (sockets, predecessor) = match predecessor {
        Some((predecessor, sockets)) => (sockets, Some(predecessor)),
        None => (inherited, None),
    };
    let registry = cluster::prepare(config.cluster.as_ref(), arguments.cluster.discovery())?;
    // There is one thread: those to come have no more than it.
    let given_up = sandbox::enter(arguments.sandbox.sandbox, &config, &OwnFiles::of(arguments))?;
    LOG_QUEUE.start();
    let objects = &arguments.objects;
    objects.connect(&served, predecessor.is_some(), &mut config)?;
    let mut server = Server::start_with(config.clone(), sockets).map_err(with_remedy)?;
    let registry = cluster::join(&server, registry)?;
    if let Some(predecessor) = predecessor {
        predecessor.tell_ready()?;
    }
    service_manager::tell_ready(&sending(&server, &config));
    let alive = service_manager::keep_alive(server.pulse());
    // The clients matter more than whoever read the first line and closed the pipe.
    if let Err(error) = welcome(&server, &config, &given_up, out) {
        tracing::debug!("cannot print how to play: {error}");
    }
    let drain = config.drain.clone();
    let mut reloads = Reloads::new(words, config, given_up, &mut server)?;
    let asked = (&mut signals, &mut reloads);
    // What it has registered goes as soon as its place is another's, or nobody's; and who has its
    // place says itself that it is alive.
    let leave = move || {
        alive.stop();
        let _gone = registry;
    };
    if let Some(name) = until_the_end(&mut server, asked, &launcher, (&drain, leave)) {
        tracing::info!("{name}: saying goodbye to all who play; once more ends at once");
    }
    thread::spawn(move || signals.exit_at_next());
    let held = locked(server.locked());
    let status = server.shutdown();
    let left = Manager::of_process().totals();
    tracing::info!("memory locked: {held}; at the end: {}", locked(left));
    at_exit.write(&status, out)?;
    Ok(ExitCode::SUCCESS)
}

/// Serves until a signal, which it is; or until a successor has the server's place or clients have
/// been sent on to another server, and nobody is left here.
fn until_the_end(
    server: &mut Server,
    (signals, reloads): (&mut Signals, &mut Reloads),
    launcher: &Launcher,
    (drain, leave): (&DrainConfig, impl FnOnce()),
) -> Option<SignalName> {
    loop {
        match reloads.next(signals, server) {
            SignalName::HandOver => {}
            SignalName::Terminate if drain.to.is_some() => {
                service_manager::tell_sending_on(drain.time_max);
                tracing::info!("SIGTERM: sending clients on; once more says goodbye to all");
                reloads.refuse();
                server.send_on();
                return until_nobody_is_left(server, signals, drain.time_max);
            }
            name => {
                service_manager::tell_stopping();
                return Some(name);
            }
        }
        if launcher.replace(server.offer_sockets()) {
            break;
        }
    }
    leave();
    server.drain();
    until_nobody_is_left(server, signals, drain.time_max)
}

/// Serves who is there to the end, to a signal, which it is, or for so long.
fn until_nobody_is_left(
    server: &Server,
    signals: &mut Signals,
    drain_time_max: Duration,
) -> Option<SignalName> {
    let began = Instant::now();
    while began.elapsed() < drain_time_max {
        let left = server.left();
        let is_asking = left.connections > 0 && began.elapsed() < ASKING_TIME_MAX;
        if left.sessions == 0 && left.downloads == 0 && !is_asking {
            tracing::info!("nobody is left here");
            return None;
        }
        match signals.next_within(LOOK_EVERY) {
            None => {}
            Some(name @ (SignalName::HandOver | SignalName::Hangup)) => {
                tracing::warn!("{name}: ignored, because this server ends when nobody is left");
            }
            name => return name,
        }
    }
    tracing::warn!(
        "{:?} are left here, and --drain-time-max is over",
        server.left()
    );
    None
}

/// A line for each address, one for each of the first files with the command that plays it, those
/// of the channels, and one for what it is sent with.
fn welcome(
    server: &Server,
    config: &Config,
    sandbox: &Sandbox,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let host = probe::addresses().unwrap_or_default();
    let reached = |&address| reached_at(address, &host);
    let listening: Vec<_> = server.addresses().iter().flat_map(reached).collect();
    for address in &listening {
        writeln!(out, "listening  rtsp://{address}/")?;
    }
    for (scheme, addresses) in [
        ("rtsps", server.rtsps_addresses()),
        ("http", server.http_addresses()),
        ("https", server.https_addresses()),
        ("ftp", server.ftp_addresses()),
    ] {
        for address in addresses
            .iter()
            .flat_map(|&address| reached_at(address, &host))
        {
            writeln!(out, "listening  {scheme}://{address}/")?;
        }
    }
    tls_lines(server, out)?;
    let http = server.http_addresses().first();
    let http = http.map(|&address| reached_at(address, &host));
    let http = http.as_deref().and_then(<[_]>::first);
    watch_line(http, out)?;
    let root = shown_root(config);
    let (names, files) = names_shown(config, NAMES_TIME_MAX)?;
    for (name, address) in names.iter().zip(listening.first().into_iter().cycle()) {
        // Some shells take brackets for a pattern.
        let quote = if address.is_ipv6() { "'" } else { "" };
        writeln!(
            out,
            "play       {PLAYER} {quote}rtsp://{address}/{}{quote}",
            in_url(name)
        )?;
        downloads::curl_line(out, http, in_url(name))?;
    }
    let first = listening.first().map_or(&[][..], std::slice::from_ref);
    channels::welcome(server.channels(), first, &host, out)?;
    channels::control_line(server.api_address(), &config.channels.token, out)?;
    match files {
        Some(0) => writeln!(
            out,
            "play       nothing yet: {root} holds no *.mp4, *.mkv, *.ts or other media file"
        )?,
        Some(all) if all > FILES_SHOWN_MAX => {
            writeln!(
                out,
                "           and {} more under {root}",
                all - FILES_SHOWN_MAX
            )?;
        }
        _ => {}
    }
    last_lines(server, config, sandbox, &host, out)
}

/// The first files, and how many there are, unless nobody knows within so long. On a thread of its
/// own: of a file server that is gone a folder is waited for without end, and no signal is heard
/// meanwhile.
fn names_shown(
    config: &Config,
    time_max: Duration,
) -> anyhow::Result<(Vec<PathBuf>, Option<usize>)> {
    // To look for names: another has its indexes.
    let looked_through = Config {
        state: None,
        ..config.clone()
    };
    let (tell, told) = channel();
    thread::spawn(move || {
        let library = Library::new(&looked_through);
        // By then nobody may want to know.
        tell.send(library.map(|it| it.names(FILES_SHOWN_MAX))).ok();
    });
    // In steps: while the whole machine stands still no more than one of them is over.
    let step = time_max / NAMES_STEPS;
    match (0..NAMES_STEPS).find_map(|_| told.recv_timeout(step).ok()) {
        Some(names) => Ok(names?),
        None => {
            let root = shown_root(config);
            tracing::warn!("{root}: what can be played is not shown: no answer in {time_max:?}");
            Ok((Vec::new(), None))
        }
    }
}

/// Where the files are, for people.
fn shown_root(config: &Config) -> String {
    match (&config.libraries[..], &config.remote) {
        ([], Some(remote)) => format!("{remote:?}"),
        ([], None) => config.media_root.display().to_string(),
        (several, _) => {
            let names = several.iter().map(|it| it.name.as_str());
            names.collect::<Vec<_>>().join(", ")
        }
    }
}

/// What it sends with, what it keeps, and how it is watched and stopped.
fn last_lines(
    server: &Server,
    config: &Config,
    sandbox: &Sandbox,
    host: &[IpAddr],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(out, "{}", sending(server, config))?;
    writeln!(out, "locked     {}", locked(server.locked()))?;
    if let Some(state) = &config.state {
        writeln!(out, "state      {}", state.display())?;
    }
    metrics_lines(server.metrics_address(), host, out)?;
    writeln!(out, "sandbox    {}", sandbox.line)?;
    writeln!(out, "stopping   with Ctrl-C")?;
    Ok(out.flush()?)
}

/// Where a browser plays what is there.
fn watch_line(http: Option<&SocketAddr>, out: &mut dyn Write) -> io::Result<()> {
    match http {
        Some(address) => writeln!(out, "watch      http://{address}/ in a browser"),
        None => Ok(()),
    }
}

/// Whom to trust, where the server has signed its certificate itself; and who encrypts films over
/// HTTPS.
fn tls_lines(server: &Server, out: &mut dyn Write) -> io::Result<()> {
    if let Some(fingerprint) = server.tls_fingerprint() {
        writeln!(out, "TLS        self-signed, SHA-256 {fingerprint}")?;
    }
    let https = server.https_addresses().first();
    let by = match server.kernel_tls().filter(|_| https.is_some()) {
        None => return Ok(()),
        Some(KernelTlsState::Used(_)) => "the kernel (HTTP/1.1), else by the server".to_owned(),
        Some(KernelTlsState::Off) => "the server (--ktls off)".to_owned(),
        Some(KernelTlsState::Refused(refused)) => {
            format!("the server, for the kernel has no TLS ({refused}; modprobe tls)")
        }
    };
    writeln!(out, "TLS        films over HTTPS are encrypted by {by}")
}

fn locked(totals: Totals) -> String {
    let Totals {
        areas,
        resident_bytes,
        pinned_bytes,
    } = totals;
    format!(
        "{} pinned, {} resident, by {areas} handles",
        Size(pinned_bytes as u64),
        Size(resident_bytes as u64)
    )
}

fn sending(server: &Server, config: &Config) -> String {
    let (ready_bytes, bytes) = server.cache_bytes();
    let pages = match server.cache_pages() {
        Pages::HugeReserved => "reserved huge pages",
        Pages::HugeTransparent => "huge pages",
        Pages::Base => "small pages",
    };
    let ready = match ready_bytes < bytes {
        true => format!(" ({} ready, the rest follows)", Size(ready_bytes as u64)),
        false => String::new(),
    };
    format!(
        "sending    by {}, in bursts of {}, from {} of {pages}{ready}, on processor {}",
        server.path_name(),
        Time(config.burst),
        Size(bytes as u64),
        ranges(server.cores()),
    )
}

/// The demo clip's directory: `media` here, or in a folder above the program.
fn demo_folder(here: &Path, program: &Path) -> Option<PathBuf> {
    let above = program
        .ancestors()
        .skip(1)
        .map(|folder| folder.join("media"));
    let mut candidates = [here.join("media")].into_iter().chain(above);
    candidates.find(|folder| folder.join(DEMO_NAME).is_file())
}

/// The name as it stands in a URL; its slashes stay.
fn in_url(name: &Path) -> impl fmt::Display + '_ {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    percent_encode(name.as_os_str().as_encoded_bytes(), KEPT)
}

const DEMO_NAME: &str = "demo.ts";

/// While a server drains: how often it looks whether anybody is left.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// So long a connection may take to ask for something, when the server takes nobody more.
const ASKING_TIME_MAX: Duration = Duration::from_secs(5);

/// So many files get a line of their own.
const FILES_SHOWN_MAX: usize = 5;

/// So long the other lines wait for the names of files, and in so many steps.
const NAMES_TIME_MAX: Duration = Duration::from_secs(2);
const NAMES_STEPS: u32 = 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onrush_server::remote::{RemoteEntry, RemoteFile, RemoteFiles, RemoteStats, Then};

    use super::*;

    /// A store that never answers.
    #[derive(Debug, Default)]
    struct Silent(RemoteStats);

    impl RemoteFiles for Silent {
        fn open(&self, _: &str, _: Then<RemoteFile>) {}

        fn names(&self, _: usize) -> io::Result<(Vec<PathBuf>, usize)> {
            loop {
                thread::park();
            }
        }

        fn list(&self, _: &str, _: usize, _: Then<(Vec<RemoteEntry>, bool)>) {}

        fn let_go_of_unused(&self) -> bool {
            false
        }

        fn stats(&self) -> &RemoteStats {
            &self.0
        }
    }

    #[test]
    fn names_that_nobody_tells_are_not_waited_for() {
        let config = Config {
            remote: Some(Arc::new(Silent::default())),
            ..Config::default()
        };
        let shown = names_shown(&config, Duration::from_millis(20)).unwrap();
        assert_eq!(shown, (Vec::new(), None));
    }

    #[test]
    fn names_are_shown_as_soon_as_they_are_known() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("film.ts"), "").unwrap();
        let config = Config {
            media_root: folder.path().to_owned(),
            ..Config::default()
        };
        let shown = names_shown(&config, Duration::from_secs(60)).unwrap();
        assert_eq!(shown, (vec!["film.ts".into()], Some(1)));
    }

    #[test]
    fn names_are_encoded_so_that_shells_and_urls_agree() {
        for (name, url) in [
            ("demo.ts", "demo.ts"),
            ("a folder/ä b.ts", "a%20folder/%C3%A4%20b.ts"),
            ("it's 100%?#&.ts", "it%27s%20100%25%3F%23%26.ts"),
        ] {
            assert_eq!(in_url(Path::new(name)).to_string(), url);
        }
    }

    #[test]
    fn the_demo_is_looked_for_here_and_above_the_program() {
        let tree = tempfile::tempdir().unwrap();
        let (here, program) = (tree.path().join("here"), tree.path().join("a/b/onrush"));
        assert_eq!(demo_folder(&here, &program), None);
        for found in [tree.path().join("a/media"), here.join("media")] {
            std::fs::create_dir_all(&found).unwrap();
            assert_ne!(
                demo_folder(&here, &program),
                Some(found.clone()),
                "no clip in it yet"
            );
            std::fs::write(found.join(DEMO_NAME), []).unwrap();
            assert_eq!(demo_folder(&here, &program), Some(found));
        }
    }
}
