//! `--status-at-exit`: what a server has done in all, for whoever started it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, bail};
use serde::Serialize;

/// Where the status goes at the end.
#[derive(Debug)]
pub(crate) enum StatusAtExit {
    Nowhere,
    Stdout,
    File(PathBuf),
}

impl StatusAtExit {
    /// As it was asked for. `-` is stdout.
    ///
    /// # Errors
    ///
    /// If the file could not be written: it is better known now than at the end.
    pub(crate) fn open(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(file) = file else {
            return Ok(Self::Nowhere);
        };
        if file == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // What a symbolic link names is replaced, not the link.
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let shown = file.display();
        if fs::metadata(&file).is_ok_and(|there| !there.is_file()) {
            bail!("--status-at-exit {shown}: it is no regular file; name one, or - for stdout");
        }
        let next = "name a file in a directory that exists and may be written to, or - for stdout";
        let attempt = write_beside(&file, b"").and_then(fs::remove_file);
        attempt.map_err(|error| anyhow::anyhow!("--status-at-exit {shown}: {error}; {next}"))?;
        Ok(Self::File(file))
    }

    /// Writes it: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn write(&self, status: &impl Serialize, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut json = serde_json::to_vec(status)?;
        json.push(b'\n');
        match self {
            Self::Nowhere => Ok(()),
            Self::Stdout => Ok(out.write_all(&json).and_then(|()| out.flush())?),
            Self::File(file) => write_beside(file, &json)
                .and_then(|part| fs::rename(part, file))
                .with_context(|| format!("cannot write the status to {}", file.display())),
        }
    }
}

/// Writes `content` to a new file in the same directory, and says which.
fn write_beside(file: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut part = name.to_owned();
    part.push(format!(".{}.part", process::id()));
    let part = file.with_file_name(part);
    let written = fs::write(&part, content);
    if written.is_err() {
        // It may be there all the same, without all of its content.
        fs::remove_file(&part).ok();
    }
    written.map(|()| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_there_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status.json");
        let at_exit = StatusAtExit::open(Some(&file)).unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names(), 0, "nothing is there before the end");
        for said in ["once", "again"] {
            at_exit.write(&said, &mut Vec::new()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), format!("\"{said}\"\n"));
            assert_eq!(names(), 1, "no part is left");
        }
        let mut out = Vec::new();
        let at_exit = StatusAtExit::open(Some(Path::new("-"))).unwrap();
        at_exit.write(&7, &mut out).unwrap();
        assert_eq!(out, b"7\n");
    }

    #[test]
    fn what_cannot_be_written_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none/status.json");
        for (file, why) in [
            (&*none, "No such file"),
            (folder.path(), "no regular file"),
            (Path::new("/dev/null"), "no regular file"),
            (Path::new(""), "name a file"),
        ] {
            let error = StatusAtExit::open(Some(file)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.starts_with("--status-at-exit"), "{error}");
        }
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let at_exit = StatusAtExit::open(Some(&link)).unwrap();
        at_exit.write(&1, &mut Vec::new()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");
    }
}
