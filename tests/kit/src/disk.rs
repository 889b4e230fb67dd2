//! A disk of which a part cannot be read.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over a file that has become shorter: what lies beyond reads as an input/output
/// error, as a bad sector does. Needs root and util-linux.
#[derive(Debug)]
pub struct FailingDisk {
    device: PathBuf,
    backing: tempfile::NamedTempFile,
}

impl FailingDisk {
    /// A disk that holds `content`, of which the bytes from `good_bytes` on cannot be read; both
    /// are multiples of 4096.
    ///
    /// # Errors
    ///
    /// If there is no loop device to be had.
    pub fn new(content: &[u8], good_bytes: u64) -> io::Result<Self> {
        let disk = Self::over(content, &["--read-only"])?;
        // After the device knows its length, and before anything of it is in memory.
        disk.backing.as_file().set_len(good_bytes)?;
        Ok(disk)
    }

    /// A disk that holds `content`, and can be written until it [ends](Self::end_at).
    ///
    /// # Errors
    ///
    /// If there is no loop device to be had.
    pub fn writable(content: &[u8]) -> io::Result<Self> {
        Self::over(content, &[])
    }

    fn over(content: &[u8], options: &[&str]) -> io::Result<Self> {
        let mut backing = tempfile::NamedTempFile::new_in("/var/tmp")?;
        backing.write_all(content)?;
        backing.as_file().sync_all()?;
        let said = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(backing.path())
            .output()?;
        let device = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        if !said.status.success() || device.is_empty() {
            let why = String::from_utf8_lossy(&said.stderr);
            return Err(io::Error::other(format!("losetup: {why}")));
        }
        Ok(Self {
            device: device.into(),
            backing,
        })
    }

    /// Lets the bytes from `good_bytes` on, a multiple of 4096, fail from now on, reads and writes,
    /// but reads of what is in memory.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn end_at(&self, good_bytes: u64) -> io::Result<()> {
        self.fail_from(good_bytes)?;
        let mut command = Command::new("losetup");
        let told = command.arg("--set-capacity").arg(&self.device).output()?;
        match told.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "losetup --set-capacity: {}",
                String::from_utf8_lossy(&told.stderr)
            ))),
        }
    }

    /// Lets the bytes from `good_bytes` on, a multiple of 4096, fail from now on, but what of them
    /// is in memory.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn fail_from(&self, good_bytes: u64) -> io::Result<()> {
        self.backing.as_file().set_len(good_bytes)
    }

    /// The device, open.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open(&self) -> io::Result<File> {
        File::open(&self.device)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.device
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        // One that is still open goes when it is closed.
        drop(Command::new("losetup").arg("-d").arg(&self.device).output());
    }
}
