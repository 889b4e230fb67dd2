//! `--sandbox`: a server that has read its settings gives up what it has no use for, before it
//! starts a thread or hears a client. What it has a use for follows from its settings, here.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use onrush_server::config::Config;
use onrush_server::downloads::LogTarget;
use onrush_server::library::{indexes_folder, prepare_state};
use onrush_server::tls;
use onrush_server::users::JwtKeys;
use onrush_sys::sandbox::{self, CapabilitySet, Needs, Part};

use crate::objects::ObjectFiles;
use crate::sandbox_options::SandboxOption;
use crate::serve_options::Serve;

/// The files of a server beside those that its [`Config`] names.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnFiles {
    /// Those that it reads again when it is told to.
    pub(crate) read: Vec<PathBuf>,
    /// Those of an object store.
    pub(crate) objects: ObjectFiles,
    /// The status at its end.
    pub(crate) status_at_exit: Option<PathBuf>,
}

/// What a server gave up.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// What it may open, if there is anything that it may not.
    files: Option<Needs>,
    /// For the list of what was started.
    pub(crate) line: String,
}

/// Gives up what a server with these settings does not need.
///
/// # Errors
///
/// Where something that is required cannot be given up.
pub(crate) fn enter(
    how: SandboxOption,
    config: &Config,
    own: &OwnFiles,
) -> anyhow::Result<Sandbox> {
    if how == SandboxOption::Off {
        return Ok(Sandbox {
            files: None,
            line: "off".to_owned(),
        });
    }
    make_own(config);
    let needs = needs(config, own);
    let all = match sandbox::apply(&needs) {
        Ok(all) => all,
        Err(error) if how == SandboxOption::Require => {
            return Err(error).context(REQUIRED);
        }
        Err(error) => {
            tracing::warn!("sandbox: nothing is given up: {error}");
            return Ok(Sandbox {
                files: None,
                line: format!("none: {error}"),
            });
        }
    };
    let (mut files, mut words) = (None, Vec::new());
    for given_up in all {
        let part = given_up.part;
        match given_up.result {
            Ok(left) => {
                if part == Part::Files {
                    files = Some(needs.clone());
                }
                words.push(format!("{part}: {left}"));
            }
            Err(error) if how == SandboxOption::Require => {
                return Err(error).with_context(|| format!("{REQUIRED}: {part}"));
            }
            Err(error) => {
                tracing::warn!("sandbox: {part} are as before: {error}");
                words.push(format!("{part}: all"));
            }
        }
    }
    let line = words.join(", ");
    Ok(Sandbox { files, line })
}

impl OwnFiles {
    /// Those of a server that is told this.
    pub(crate) fn of(arguments: &Serve) -> Self {
        let read = arguments.config.iter();
        let read = read.chain(arguments.of_channels.token_file());
        let read = read.chain(arguments.of_channels.descriptions());
        let status = arguments.status_at_exit.as_ref();
        Self {
            read: read.cloned().collect(),
            objects: arguments.objects.files(arguments.library.served().as_ref()),
            status_at_exit: status.filter(|file| file.as_os_str() != "-").cloned(),
        }
    }
}

impl Sandbox {
    /// Whether a server with these settings finds its files.
    ///
    /// # Errors
    ///
    /// Names one that it could not open any more: what was given up stays so.
    pub(crate) fn check(&self, config: &Config, own: &OwnFiles) -> anyhow::Result<()> {
        let Some(had) = &self.files else {
            return Ok(());
        };
        // Where the resolver's links lead follows from no setting, and keeps nobody from changing
        // one.
        let new = needs_of_settings(config, own);
        let readable = || had.read.iter().chain(&had.write);
        let refused = first_outside(&new.read, readable())
            .or_else(|| first_outside(&new.write, had.write.iter()));
        if let Some(path) = refused {
            bail!(
                "this server gave up what it did not need at its start (--sandbox), and {} with \
                 it: SIGUSR2 starts a successor that may use it, and no session is lost",
                path.display()
            );
        }
        let folders: Vec<_> = resolver_files()
            .filter_map(|file| linked_folder(&file))
            .collect();
        if let Some(folder) = first_outside(&folders, readable().chain(&had.read_files)) {
            tracing::warn!(
                "sandbox: names may not be found: a file of the resolver's is a link to {} now, \
                 which this server may not read; SIGUSR2 starts a successor that may",
                folder.display()
            );
        }
        Ok(())
    }
}

/// The first of the paths that lies in none of those `had`.
fn first_outside<'a>(
    paths: &'a [PathBuf],
    had: impl Iterator<Item = &'a PathBuf>,
) -> Option<&'a PathBuf> {
    let had: Vec<_> = had.map(|path| real(path)).collect();
    let is_inside = |path: &Path| had.iter().any(|it| path.starts_with(it));
    paths.iter().find(|path| !is_inside(&real(path)))
}

/// Without links, as far as that is known.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Makes the folders and files that a server makes at its start: rules are for what is there. What
/// cannot be made the server itself complains of.
fn make_own(config: &Config) {
    if let Some(state) = &config.state {
        drop(prepare_state(state));
        drop(tls::prepare(&config.tls, state));
    }
    if let Some(store) = &config.downloads.hls.hls_store {
        drop(fs::create_dir_all(store));
    }
    if let Some(log) = access_log(config)
        && !log.exists()
    {
        drop(OpenOptions::new().create(true).append(true).open(log));
    }
}

/// What a server with these settings uses.
fn needs(config: &Config, own: &OwnFiles) -> Needs {
    let mut needs = needs_of_settings(config, own);
    let has_permissions = permissions_hold(needs.capabilities);
    add_resolver(&mut needs, resolver_files(), has_permissions);
    needs
}

/// Adds what the resolver reads: its files, where they lead, and where permissions of files hold
/// all that they let it read beside them.
fn add_resolver(needs: &mut Needs, files: impl Iterator<Item = PathBuf>, permissions_hold: bool) {
    for file in files {
        needs.read.extend(linked_folder(&file));
        needs.read.push(file);
    }
    if permissions_hold {
        needs.read_files.push(RESOLVER_FOLDER.into());
    }
}

/// What it uses for these settings, without what the resolver reads.
fn needs_of_settings(config: &Config, own: &OwnFiles) -> Needs {
    let mut read: BTreeSet<PathBuf> = SYSTEM_FILES.iter().map(PathBuf::from).collect();
    read.extend(
        CERTIFICATE_VARIABLES
            .iter()
            .filter_map(|it| Some(std::env::var_os(it)?.into())),
    );
    read.extend(config.folders().map(Path::to_owned));
    // Films may lie below it, as the package's do, so that not all of it is written.
    read.extend(config.state.clone());
    let files = files_read(config);
    for file in files.chain(&own.read).chain(&own.objects.read) {
        // They are replaced as a whole; a link leads elsewhere then, in the folder where it led.
        read.extend([folder_of(file), folder_of(&real(file))]);
    }
    let mut write: BTreeSet<PathBuf> = BTreeSet::new();
    write.extend(own.objects.write.clone());
    write.extend(config.state.as_deref().map(indexes_folder));
    if config.downloads.uploads.is_some() {
        write.extend(config.folders().map(Path::to_owned));
    }
    write.extend(config.downloads.hls.hls_store.clone());
    write.extend(access_log(config).map(Into::into));
    write.extend(
        own.status_at_exit
            .as_deref()
            .map(|file| folder_of(&real(file))),
    );
    let (read, write) = (read.into_iter().collect(), Vec::from_iter(write));
    Needs {
        read,
        read_files: Vec::new(),
        capabilities: capabilities(config, &write),
        write,
    }
}

/// The files of the C library's resolver.
fn resolver_files() -> impl Iterator<Item = PathBuf> {
    RESOLVER_FILES.iter().map(PathBuf::from)
}

/// The folder where a link of the resolver's leads, if that is another than its own. What is there
/// is replaced, and may be missing yet.
fn linked_folder(file: &Path) -> Option<PathBuf> {
    let mut led_to = file.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&led_to) {
            Ok(next) => led_to = folder_of(&led_to).join(next),
            Err(_) => break,
        }
    }
    let [own, folder] = [file, led_to.as_path()].map(|file| real(&folder_of(file)));
    (!own.starts_with(&folder)).then_some(folder)
}

/// Whether permissions of files hold for this process once it has no capabilities but those: then
/// they keep it from the keys and passwords that lie beside what it reads.
fn permissions_hold(kept: CapabilitySet) -> bool {
    let passing = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE;
    let has = rustix::thread::capabilities(None);
    let passes = has.map_or(true, |it| (it.permitted & kept).intersects(passing));
    !rustix::process::geteuid().is_root() && !passes
}

/// The files of the settings that are read again.
fn files_read(config: &Config) -> impl Iterator<Item = &PathBuf> {
    let certificates = config.tls.certificates.iter();
    let certificates = certificates.flat_map(|pair| [&pair.certificate, &pair.key]);
    let users = &config.users;
    let keys = users.jwt.as_ref().and_then(|jwt| match &jwt.keys {
        JwtKeys::File(file) => Some(file),
        _ => None,
    });
    let of_users = [
        &users.file,
        &users.url_keys,
        &users.ca,
        &config.tls.client_ca,
    ];
    let members = config.channels.sources.iter();
    certificates
        .chain(of_users.into_iter().flatten())
        .chain(keys)
        .chain(members.filter_map(|source| source.members_file.as_ref()))
}

fn access_log(config: &Config) -> Option<&Path> {
    match &config.downloads.access_log.as_ref()?.target {
        LogTarget::File(file) => Some(file),
        LogTarget::Stdout => None,
    }
}

/// The folder that a file is in; `.` of one that is named without.
fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Those that pay: memory beyond RLIMIT_MEMLOCK, send buffers beyond net.core.wmem_max, channels by
/// an eBPF program at the device, films of other accounts; and those without which something that
/// was asked for is refused.
fn capabilities(config: &Config, write: &[PathBuf]) -> CapabilitySet {
    let mut kept = ALWAYS_KEPT;
    if ports(config).any(|port| (1..PORT_UNPRIVILEGED).contains(&port)) {
        kept |= CapabilitySet::NET_BIND_SERVICE;
    }
    let account = rustix::process::geteuid().as_raw();
    let is_anothers = |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.uid() != account);
    if write.iter().any(is_anothers) {
        kept |= CapabilitySet::DAC_OVERRIDE;
    }
    kept
}

/// The ports at which a server listens, and the first of each range that it takes ports of.
fn ports(config: &Config) -> impl Iterator<Item = u16> {
    let downloads = &config.downloads;
    let listening = [
        &config.rtsp_addresses,
        &config.rtsps_addresses,
        &downloads.http_addresses,
        &downloads.https_addresses,
        &downloads.ftp_addresses,
    ];
    let others = [config.metrics_address, config.channels.api_address];
    let addresses = listening.into_iter().flatten().copied();
    let addresses = addresses.chain(others.into_iter().flatten());
    let inputs = config.channels.sources.iter();
    let inputs = inputs.map(|source| source.input.address.port());
    let ranges = [config.rtp_ports.first, downloads.ftp_ports.first];
    addresses
        .map(|it: SocketAddr| it.port())
        .chain(inputs)
        .chain(ranges)
}

const ALWAYS_KEPT: CapabilitySet = CapabilitySet::IPC_LOCK
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// The first port for which no capability is needed, unless net.ipv4.ip_unprivileged_port_start
/// says otherwise.
const PORT_UNPRIVILEGED: u16 = 1024;

const REQUIRED: &str = "--sandbox require: something cannot be given up here; --sandbox on starts \
    all the same";

/// What the C library's resolver reads. Others replace it while the server runs, and a rule is for
/// the file that there is at the start.
const RESOLVER_FILES: &[&str] = &[
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
];

/// Where all of that is, and much that is for nobody else.
const RESOLVER_FOLDER: &str = "/etc";

/// Links that are followed, as many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// What the C library, TLS and the probes of the kernel read.
const SYSTEM_FILES: &[&str] = &[
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/lib",
    "/lib64",
    "/proc",
    "/run/systemd/resolve",
    "/sys",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
];

/// They say where else the system's certificates are.
const CERTIFICATE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use onrush_server::config::{LibraryConfig, LibraryPlace};
    use onrush_server::tls::CertificateFiles;
    use rustix::thread::{Gid, Uid, set_thread_gid, set_thread_groups, set_thread_uid};

    fn config() -> Config {
        Config {
            media_root: "/srv/films".into(),
            ..Config::default()
        }
    }

    fn with_certificate(file: &Path) -> Config {
        let mut config = config();
        config.tls.certificates = vec![CertificateFiles {
            certificate: file.to_owned(),
            key: file.to_owned(),
        }];
        config
    }

    #[test]
    fn what_is_needed_follows_from_the_settings() {
        let needs = needs(&config(), &OwnFiles::default());
        assert!(needs.read.contains(&"/srv/films".into()), "{needs:?}");
        assert!(needs.write.is_empty(), "{needs:?}");
        assert!(!needs.read.iter().any(|path| path == Path::new("/etc")));
        assert_eq!(needs.capabilities, ALWAYS_KEPT);
    }

    #[test]
    fn each_library_is_read_and_no_folder_else() {
        let library = |name: &str| LibraryConfig {
            name: name.to_owned(),
            place: LibraryPlace::Folder(Path::new("/srv").join(name)),
        };
        let several = Config {
            libraries: vec![library("a"), library("b")],
            ..config()
        };
        let needs = needs(&several, &OwnFiles::default());
        for (path, is_read) in [("/srv/a", true), ("/srv/b", true), ("/srv/films", false)] {
            assert_eq!(needs.read.contains(&path.into()), is_read, "{path}");
        }
        assert!(needs.write.is_empty(), "{needs:?}");
    }

    #[test]
    fn films_below_the_state_folder_are_read_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().to_owned();
        let mut config = Config {
            state: Some(state.clone()),
            ..config()
        };
        config.tls.self_signed = Some(vec!["localhost".to_owned()]);
        let needs = needs(&config, &OwnFiles::default());
        assert_eq!(needs.write, [state.join("indexes")]);
        assert!(needs.read.contains(&state), "{needs:?}");
        // What else is written in it is there before.
        make_own(&config);
        assert!(state.join("tls-key.pem").exists());
    }

    #[test]
    fn films_are_written_where_files_are_taken_alone() {
        let films = PathBuf::from("/srv/films");
        let mut config = config();
        assert!(!needs(&config, &OwnFiles::default()).write.contains(&films));
        config.downloads.uploads = Some(onrush_server::downloads::UploadsConfig::default());
        assert!(needs(&config, &OwnFiles::default()).write.contains(&films));
    }

    #[test]
    fn a_low_port_keeps_its_capability() {
        let mut low = config();
        low.rtsp_addresses = vec!["0.0.0.0:554".parse().unwrap()];
        assert!(capabilities(&low, &[]).contains(CapabilitySet::NET_BIND_SERVICE));
        low.rtsp_addresses = vec!["0.0.0.0:1024".parse().unwrap()];
        assert!(!capabilities(&low, &[]).contains(CapabilitySet::NET_BIND_SERVICE));
        // Any free port is none of those.
        low.rtsp_addresses = vec!["0.0.0.0:0".parse().unwrap()];
        let kept = capabilities(&low, &[]);
        assert!(!kept.contains(CapabilitySet::SYS_ADMIN), "{kept:?}");
        assert!(!kept.contains(CapabilitySet::NET_BIND_SERVICE), "{kept:?}");
    }

    #[test]
    fn a_certificates_folder_and_where_its_link_leads_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (live, archive) = (folder.path().join("live"), folder.path().join("archive"));
        for made in [&live, &archive] {
            fs::create_dir(made).unwrap();
        }
        fs::write(archive.join("1.pem"), "").unwrap();
        let link = live.join("full.pem");
        std::os::unix::fs::symlink("../archive/1.pem", &link).unwrap();
        let needs = needs(&with_certificate(&link), &OwnFiles::default());
        assert!(needs.read.contains(&live), "{needs:?}");
        assert!(needs.read.contains(&real(&archive)), "{needs:?}");
    }

    #[test]
    fn the_folder_of_a_token_is_read() {
        let mut own = OwnFiles::default();
        own.objects.read = vec!["/run/pods/token".into()];
        let needs = needs(&config(), &own);
        assert!(needs.read.contains(&"/run/pods".into()), "{needs:?}");
    }

    #[test]
    fn where_a_link_of_the_resolver_leads_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let [etc, run] = ["etc", "run"].map(|name| real(folder.path()).join(name));
        for made in [&etc, &run] {
            fs::create_dir(made).unwrap();
        }
        let linked = |name: &str, to: &str| {
            let link = etc.join(name);
            std::os::unix::fs::symlink(to, &link).unwrap();
            linked_folder(&link)
        };
        // Before the network is up nothing is there.
        assert_eq!(linked("early", "../run/resolv.conf"), Some(run.clone()));
        fs::write(run.join("resolv.conf"), "").unwrap();
        assert_eq!(linked("late", "../run/resolv.conf"), Some(run.clone()));
        assert_eq!(linked("twice", "late"), Some(run.clone()));
        // Neither all that it is in is read, nor what a folder above it has.
        assert_eq!(linked("beside", "hosts"), None);
        assert_eq!(linked("above", "../hosts"), None);
        assert_eq!(linked("round", "round"), None);
        fs::write(etc.join("hosts"), "").unwrap();
        assert_eq!(linked_folder(&etc.join("hosts")), None);
        let mut needs = needs_of_settings(&config(), &OwnFiles::default());
        let before = needs.read.len();
        let files = ["twice", "hosts"].map(|name| etc.join(name));
        add_resolver(&mut needs, files.clone().into_iter(), false);
        let [twice, hosts] = files;
        assert_eq!(needs.read[before..], [run, twice, hosts]);
    }

    #[test]
    fn files_of_etc_are_read_where_permissions_hold_alone() {
        for holds in [true, false] {
            let mut needs = needs_of_settings(&config(), &OwnFiles::default());
            add_resolver(&mut needs, resolver_files(), holds);
            assert_eq!(needs.read_files.contains(&"/etc".into()), holds);
            assert!(needs.read.contains(&"/etc/resolv.conf".into()), "{needs:?}");
        }
        let is_root = rustix::process::geteuid().is_root();
        assert!(!is_root || !permissions_hold(CapabilitySet::empty()));
        // Of root's threads one goes on as another account does from its start.
        let as_another = thread::spawn(move || {
            if is_root {
                let nobody = 65534;
                set_thread_groups(&[]).unwrap();
                set_thread_gid(Gid::from_raw(nobody)).unwrap();
                set_thread_uid(Uid::from_raw(nobody)).unwrap();
            }
            let needs = needs(&config(), &OwnFiles::default());
            let is_read = needs.read_files.contains(&"/etc".into());
            // Who reads this file reads all of them.
            (is_read, fs::File::open("/etc/shadow").is_err())
        });
        assert_eq!(as_another.join().unwrap(), (true, true));
    }

    #[test]
    fn files_elsewhere_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let [here, there] = ["here", "there"].map(|name| folder.path().join(name));
        for made in [&here, &there] {
            fs::create_dir(made).unwrap();
        }
        // The resolver's files were elsewhere at the start, and are nothing that a reload is about.
        let had = needs_of_settings(&with_certificate(&here.join("a")), &OwnFiles::default());
        let sandbox = Sandbox {
            files: Some(had),
            line: String::new(),
        };
        let checked = |file: PathBuf| sandbox.check(&with_certificate(&file), &OwnFiles::default());
        assert!(checked(here.join("b")).is_ok());
        let error = checked(there.join("a")).unwrap_err().to_string();
        assert!(
            error.contains("there") && error.contains("SIGUSR2"),
            "{error}"
        );
        // Where nothing was given up anything goes.
        let open = Sandbox {
            files: None,
            line: String::new(),
        };
        assert!(
            open.check(&with_certificate(&there), &OwnFiles::default())
                .is_ok()
        );
    }
}
