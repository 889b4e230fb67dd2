//! What every experiment keeps: where it ran, how, and each raw sample, in one JSON file.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use onrush_sys::thread::allowed_cores;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::machine;
use crate::plot::Unit;
use crate::stats::ratio;

/// The schema that is written and read. It grows by one whenever a reader of the one before would
/// be wrong.
pub const SCHEMA_VERSION: u32 = 1;

/// What a file of a record may have, in bytes.
pub const RECORD_BYTES_MAX: u64 = 256 << 20;

/// A record of any experiment, for those who only want what all have.
pub type AnyRecord = Record<serde_json::Value, serde_json::Value>;

/// Is given the record whenever a run has been added, so that what took hours is not lost with the
/// last of them.
pub type Keep<'a, S, R> = &'a mut (dyn FnMut(&Record<S, R>) + Send);

/// An experiment that was carried out. `S` are its settings, `R` is one run of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Record<S, R> {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Its name on the command line.
    pub experiment: String,
    /// Where and when.
    pub environment: Environment,
    /// What was asked for.
    pub settings: S,
    /// All that was seen, in the order it was taken; void runs too.
    pub runs: Vec<R>,
}

/// Where and when something was measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Environment {
    /// The program's version, with the commit it was built from where git knew.
    pub version: String,
    /// How to have it again.
    pub command: String,
    /// When it began, in UTC (RFC 3339).
    pub date: String,
    /// `uname -r`.
    pub kernel: String,
    /// The processor as it calls itself.
    pub cpu: String,
    /// Processors that the experiment could use.
    pub cores: Vec<usize>,
    /// Who sets the processor's frequency; `None` if that is out of the kernel's hands.
    pub governor: Option<String>,
    /// What virtual machine this is; `None` on a machine of metal.
    pub virtual_machine: Option<String>,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// The devices that were sent through and what they do in hardware; empty for experiments
    /// without.
    pub network: String,
    /// Runnable threads in the minute before, on average: what else the machine had to do.
    pub load_before: f64,
}

/// Why there is no record.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file cannot be read or written.
    #[error("{}: {source}; check the name, your rights, and the room on that disk", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file's name says that it is compressed, and it is not, or not whole.
    #[error("{}: {source}; what --json wrote under a name with .gz is gzip's", path.display())]
    Gzip {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The file is no record.
    #[error("{}: {source}; it takes a file that was written by --json", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The file is larger than any record.
    #[error("{}: has {bytes} bytes; a record has {RECORD_BYTES_MAX} at most", path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file is a record of something else.
    #[error(
        "{}: holds experiment {experiment:?} in schema {schema_version}; this reads {wanted:?} in \
         schema {SCHEMA_VERSION}", path.display()
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// What it holds.
        experiment: String,
        /// In which schema.
        schema_version: u32,
        /// What was asked for.
        wanted: String,
    },
}

/// What is read first, so that a record of something else is told as that.
#[derive(Deserialize)]
struct Head {
    schema_version: u32,
    experiment: String,
}

impl<S, R> Record<S, R> {
    /// A record without runs.
    #[must_use]
    pub fn new(experiment: &str, environment: Environment, settings: S) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            experiment: experiment.to_owned(),
            environment,
            settings,
            runs: Vec::new(),
        }
    }
}

impl<S: Serialize, R: Serialize> Record<S, R> {
    /// The same without its types.
    ///
    /// # Errors
    ///
    /// If it has what JSON has no place for.
    pub fn any(&self) -> serde_json::Result<AnyRecord> {
        let runs: Result<Vec<_>, _> = self.runs.iter().map(serde_json::to_value).collect();
        Ok(Record {
            schema_version: self.schema_version,
            experiment: self.experiment.clone(),
            environment: self.environment.clone(),
            settings: serde_json::to_value(&self.settings)?,
            runs: runs?,
        })
    }

    /// Writes it to a file, in place of what is there: all of it, or nothing. Compressed if the
    /// file's name ends with `.gz`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let json = self.to_json().map_err(|source| RecordError::Json {
            path: path.to_owned(),
            source,
        })?;
        let bytes = match is_compressed(path) {
            true => compressed(&json),
            false => Ok(json.into_bytes()),
        };
        let written = bytes.and_then(|bytes| replace(path, &bytes));
        written.map_err(|source| RecordError::File {
            path: path.to_owned(),
            source,
        })
    }

    /// What describes it in lines for people, then a line for each run.
    fn to_json(&self) -> serde_json::Result<String> {
        let described = [
            (
                "schema_version",
                serde_json::to_string(&self.schema_version)?,
            ),
            ("experiment", serde_json::to_string(&self.experiment)?),
            (
                "environment",
                serde_json::to_string_pretty(&self.environment)?,
            ),
            ("settings", serde_json::to_string_pretty(&self.settings)?),
        ];
        let mut json = "{\n".to_owned();
        for (name, value) in described {
            json += &format!("\"{name}\": {value},\n");
        }
        let runs: Result<Vec<_>, _> = self.runs.iter().map(serde_json::to_string).collect();
        Ok(json + "\"runs\": [\n" + &runs?.join(",\n") + "\n]\n}\n")
    }
}

/// Gives a file another content, so that nobody ever finds half of it. What is no file, as a
/// terminal or a pipe, is written to; so is one in a folder that takes no other.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Through links, which are to stay.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return fs::write(path, bytes);
    }
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let replaced = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &path));
    replaced.or_else(|error| {
        drop(fs::remove_file(new));
        match error.kind() {
            // The last is what a file says that is mounted by itself, as into a container.
            ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::ResourceBusy => fs::write(path, bytes),
            // A full disk, say: the record before this one stays.
            _ => Err(error),
        }
    })
}

impl<S: DeserializeOwned, R: DeserializeOwned> Record<S, R> {
    /// Reads the record of `experiment` from a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or holds something else.
    pub fn read(path: &Path, experiment: &str) -> Result<Self, RecordError> {
        let text = text_of(path)?;
        let path = path.to_owned();
        let head: Head = match serde_json::from_str(&text) {
            Ok(head) => head,
            Err(source) => return Err(RecordError::Json { path, source }),
        };
        if head.schema_version != SCHEMA_VERSION || head.experiment != experiment {
            return Err(RecordError::Other {
                path,
                experiment: head.experiment,
                schema_version: head.schema_version,
                wanted: experiment.to_owned(),
            });
        }
        serde_json::from_str(&text).map_err(|source| RecordError::Json { path, source })
    }
}

impl AnyRecord {
    /// Reads a record of whatever experiment from a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no record of this schema.
    pub fn read_any(path: &Path) -> Result<Self, RecordError> {
        let head: Result<Head, _> = serde_json::from_str(&text_of(path)?);
        match head {
            Ok(head) => Self::read(path, &head.experiment),
            Err(source) => Err(RecordError::Json {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// The same, as what it is a record of.
    ///
    /// # Errors
    ///
    /// If it is of something else.
    pub fn typed<S: DeserializeOwned, R: DeserializeOwned>(
        &self,
    ) -> serde_json::Result<Record<S, R>> {
        let runs: Result<Vec<R>, _> = self.runs.iter().map(R::deserialize).collect();
        Ok(Record {
            schema_version: self.schema_version,
            experiment: self.experiment.clone(),
            environment: self.environment.clone(),
            settings: S::deserialize(&self.settings)?,
            runs: runs?,
        })
    }
}

impl Environment {
    /// This machine, now. `version` is the program's, `command` its command line.
    #[must_use]
    pub fn here(version: &str, command: &str) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            version: version.to_owned(),
            command: command.to_owned(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            cpu: processor(&cpuinfo).unwrap_or_else(unknown),
            cores: allowed_cores(),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            virtual_machine: virtual_machine(),
            memory_bytes: memory_bytes(),
            network: String::new(),
            load_before: machine::load(),
        }
    }

    /// The machine, the programs and the moment, for people.
    #[must_use]
    pub fn told(&self) -> String {
        let on = match &self.virtual_machine {
            Some(host) => format!("a virtual machine ({host})"),
            None => "metal".to_owned(),
        };
        let memory = Unit::Bytes.tell(ratio(self.memory_bytes, 1));
        format!(
            "{}, {} processors, {memory}, on {on}, load {:.1}; Linux {}; onrush {}; {}",
            self.cpu,
            self.cores.len(),
            self.load_before,
            self.kernel,
            self.version,
            self.date
        )
    }
}

/// The same text without what in its URLs lets somebody in, for records, which are shown to others:
/// `rtsp://HOST/film?token=***` of `rtsp://NAME:PASSWORD@HOST/film?token=TOKEN`.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_end = |c: char| c.is_whitespace() || "/?#".contains(c);
        let authority = part.split(is_end).next().unwrap_or_default();
        let host = authority.rfind('@').map_or(0, |at| at + 1);
        shown += "://";
        shown += &without_values(&part[host..]);
    }
    shown
}

/// The same without the values of such parameters.
fn without_values(url: &str) -> String {
    let mut shown = String::new();
    let mut rest = url;
    while let Some(at) = rest.find(['?', '&']) {
        let (before, parameter) = rest.split_at(at + 1);
        shown += before;
        rest = parameter;
        if let Some(name) = SECRET_PARAMETERS.iter().find(|it| rest.starts_with(**it)) {
            let is_end = |c: char| c.is_whitespace() || "&#".contains(c);
            shown += &format!("{name}***");
            rest = &rest[rest.find(is_end).unwrap_or(rest.len())..];
        }
    }
    shown + rest
}

/// Of a token, and of a signed URL.
const SECRET_PARAMETERS: [&str; 2] = ["token=", "signature="];

/// Writes URLs of settings into a record.
pub(crate) fn urls_without_secrets<S: Serializer>(
    urls: &[String],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(urls.iter().map(|url| without_secrets(url)))
}

fn text_of(path: &Path) -> Result<String, RecordError> {
    let refused = |source| RecordError::File {
        path: path.to_owned(),
        source,
    };
    let large = |bytes| RecordError::Large {
        path: path.to_owned(),
        bytes,
    };
    let file = File::open(path).map_err(refused)?;
    let bytes = file.metadata().map_err(refused)?.len();
    if bytes > RECORD_BYTES_MAX {
        return Err(large(bytes));
    }
    let text = if is_compressed(path) {
        let text = io::read_to_string(GzDecoder::new(file).take(RECORD_BYTES_MAX + 1));
        text.map_err(|source| RecordError::Gzip {
            path: path.to_owned(),
            source,
        })?
    } else {
        io::read_to_string(file.take(RECORD_BYTES_MAX + 1)).map_err(refused)?
    };
    match text.len() as u64 {
        bytes if bytes > RECORD_BYTES_MAX => Err(large(bytes)),
        _ => Ok(text),
    }
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

fn compressed(text: &str) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// The processor as it calls itself; on arm64, where it has no name, the numbers of who made it.
fn processor(cpuinfo: &str) -> Option<String> {
    let by_numbers = || {
        let [implementer, part] = ["CPU implementer", "CPU part"].map(|it| field(cpuinfo, it));
        Some(format!("implementer {}, part {}", implementer?, part?))
    };
    let name = field(cpuinfo, "model name").map(str::to_owned);
    name.or_else(by_numbers)
}

fn virtual_machine() -> Option<String> {
    machine::is_virtual().then(|| {
        line("/sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "of an unnamed host".to_owned())
    })
}

fn memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = field(&meminfo, "MemTotal").and_then(|value| value.split(' ').next());
    total.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use onrush_testkit::{require_programs, require_root};

    use super::*;

    fn record() -> Record<u8, u64> {
        let mut record = Record::new(
            "nothing",
            Environment::here("1", "onrush-lab bench nothing"),
            7,
        );
        record.runs = vec![1, 2, 3];
        record
    }

    #[test]
    fn a_record_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let written = record();
        written.write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("\"runs\": [\n1,\n2,\n3\n]\n}\n"), "{text}");
        let back: Record<u8, u64> = Record::read(&path, "nothing").unwrap();
        assert_eq!(back, written);
        assert!(!back.environment.cores.is_empty());
        assert!(back.environment.memory_bytes > 0);
        assert!(back.environment.date.ends_with('Z'));
    }

    #[test]
    fn a_compressed_record_is_read_and_has_the_same_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json.gz");
        record().write(&path).unwrap();
        assert!(fs::read(&path).unwrap().starts_with(&[0x1f, 0x8b]));
        assert_eq!(Record::read(&path, "nothing").unwrap(), record());
        let said = |path: &Path| AnyRecord::read_any(path).unwrap_err().to_string();
        let mut bomb = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        io::copy(&mut io::repeat(b' ').take(RECORD_BYTES_MAX + 1), &mut bomb).unwrap();
        bomb.finish().unwrap();
        assert!(said(&path).contains("at most"), "{}", said(&path));
        fs::write(&path, "{}").unwrap();
        assert!(said(&path).contains("gzip"), "{}", said(&path));
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_device_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("r.json"), folder.path().join("link"));
        fs::write(&path, "what was there").unwrap();
        let whoever_reads_it = File::open(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        record().write(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(Record::<u8, u64>::read(&path, "nothing").is_ok());
        let old = io::read_to_string(whoever_reads_it).unwrap();
        assert_eq!(old, "what was there");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        record().write(Path::new("/dev/null")).unwrap();
        assert!(!Path::new("/dev/null.new").exists());
    }

    /// What was mounted there, until this is dropped.
    struct Mount<'a>(&'a Path);

    impl<'a> Mount<'a> {
        fn of(options: &[&str], what: &Path, at: &'a Path) -> Self {
            let mounted = Command::new("mount")
                .args(options)
                .args([what, at])
                .status();
            assert!(mounted.unwrap().success());
            Self(at)
        }
    }

    impl Drop for Mount<'_> {
        fn drop(&mut self) {
            drop(Command::new("umount").arg("--lazy").arg(self.0).status());
        }
    }

    /// As into a container.
    #[test]
    fn a_file_that_is_mounted_by_itself_is_written_to() {
        require_root!();
        require_programs!("mount");
        let folder = tempfile::tempdir().unwrap();
        let [path, outside] = ["r.json", "outside"].map(|name| folder.path().join(name));
        for file in [&path, &outside] {
            fs::write(file, "").unwrap();
        }
        let mount = Mount::of(&["--bind"], &outside, &path);
        record().write(&path).unwrap();
        drop(mount);
        assert_eq!(Record::read(&outside, "nothing").unwrap(), record());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn on_a_full_disk_the_record_before_stays() {
        require_root!();
        require_programs!("mount");
        let folder = tempfile::tempdir().unwrap();
        let options = ["-t", "tmpfs", "-o", "size=64k"];
        let disk = Mount::of(&options, Path::new("none"), folder.path());
        let path = disk.0.join("r.json");
        record().write(&path).unwrap();
        let mut large = record();
        large.runs = vec![u64::MAX; 4096];
        let refused = large.write(&path).unwrap_err().to_string();
        assert!(refused.contains("the room on that disk"), "{refused}");
        assert_eq!(Record::read(&path, "nothing").unwrap(), record());
        assert_eq!(fs::read_dir(disk.0).unwrap().count(), 1);
    }

    #[test]
    fn processors_without_a_name_have_numbers() {
        let x86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(processor(x86).unwrap(), "AMD EPYC");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\n\
            CPU part\t: 0xd0c\nCPU revision\t: 1\n";
        assert_eq!(processor(arm).unwrap(), "implementer 0x41, part 0xd0c");
        assert_eq!(processor("processor\t: 0\n"), None);
    }

    #[test]
    fn urls_are_shown_without_secrets() {
        for (text, shown) in [
            ("rtsp://anna:pass@h:8554/x", "rtsp://h:8554/x"),
            ("rtsp://anna:p@ss@h", "rtsp://h"),
            ("http://anna@h?of=a@b#c@d", "http://h?of=a@b#c@d"),
            ("rtsp://h/a@b://c", "rtsp://h/a@b://c"),
            ("--peer rtsp://a:b@{address}/x", "--peer rtsp://{address}/x"),
            ("rtsp://h/x?token=e.y-J", "rtsp://h/x?token=***"),
            (
                "hls://h/x?rights=play&signature=q_0&a=b http://h/?token=x",
                "hls://h/x?rights=play&signature=***&a=b http://h/?token=***",
            ),
            (
                "http://h/?tokens=2&a=token=b",
                "http://h/?tokens=2&a=token=b",
            ),
            ("--rate 4Mbit/s a@b", "--rate 4Mbit/s a@b"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn what_is_no_record_of_it_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let said = |path: &Path| {
            Record::<u8, u64>::read(path, "something")
                .unwrap_err()
                .to_string()
        };
        assert!(said(&path).contains("No such file"), "{}", said(&path));
        record().write(&path).unwrap();
        assert!(
            said(&path).contains("experiment \"nothing\" in schema 1"),
            "{}",
            said(&path)
        );
        let mut newer = record();
        newer.experiment = "something".to_owned();
        newer.schema_version += 1;
        newer.write(&path).unwrap();
        assert!(said(&path).contains("in schema 2"), "{}", said(&path));
        fs::write(&path, "{}").unwrap();
        assert!(said(&path).contains("written by --json"), "{}", said(&path));
        assert!(AnyRecord::read_any(&path).is_err());
        let file = File::create(&path).unwrap();
        file.set_len(RECORD_BYTES_MAX + 1).unwrap();
        assert!(said(&path).contains("at most"), "{}", said(&path));
        file.set_len(RECORD_BYTES_MAX).unwrap();
        let at_the_bound = text_of(&path).map(|text| text.len());
        assert!(at_the_bound.is_ok_and(|bytes| bytes == 256 << 20));
    }

    #[test]
    fn any_record_is_read_and_becomes_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        record().write(&path).unwrap();
        let any = AnyRecord::read_any(&path).unwrap();
        assert_eq!(any.typed::<u8, u64>().unwrap().runs, record().runs);
        assert!(any.typed::<u8, String>().is_err());
    }
}
