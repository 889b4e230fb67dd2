//! What `onrush serve` can be told about files that come.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use onrush_server::downloads::{UploadSync, UploadsConfig};
use onrush_server::users::UsersConfig;

use crate::units::{Size, Time, within};
use crate::values::{YEAR, count};

/// The options of uploads.
#[derive(Args, Debug)]
pub(crate) struct UploadOptions {
    /// Take files by HTTP (PUT) and FTP (STOR), of users with the right `upload`
    ///
    /// Those may also replace, remove and rename files and make folders. Nobody has the right
    /// unless it is given to a group of users; docs/users.md tells how. A file is there when it is
    /// whole; one that was broken off can be gone on with.
    #[arg(long, hide_short_help = true)]
    pub(crate) uploads: bool,

    /// Size of one file that is taken
    #[arg(long, hide_short_help = true, value_name = "SIZE", requires = "uploads",
          default_value_t = Size(UploadsConfig::default().upload_bytes_max),
          value_parser = within(Size(1), Size(1 << 50)))]
    pub(crate) upload_max: Size,

    /// Files that are taken at once; one more is told 503 or 450
    #[arg(long, hide_short_help = true, value_name = "N", requires = "uploads",
          default_value_t = UploadsConfig::default().upload_files_max, value_parser = count)]
    pub(crate) upload_files_max: usize,

    /// Size of the disk that uploads leave free
    #[arg(long, hide_short_help = true, value_name = "SIZE", requires = "uploads",
          default_value_t = Size(UploadsConfig::default().free_bytes_min),
          value_parser = within(Size(0), Size(1 << 50)))]
    pub(crate) upload_free_min: Size,

    /// How long a file that was broken off can be gone on with; then what came of it is removed
    #[arg(long, hide_short_help = true, value_name = "TIME", requires = "uploads",
          default_value_t = Time(UploadsConfig::default().kept_time_max),
          value_parser = within(Time(Duration::ZERO), Time(YEAR)))]
    pub(crate) upload_kept_time_max: Time,

    /// What must be on the disk before a client hears that its file is there: off or all
    ///
    /// all: its bytes and its name, which costs the wait for the disk at the end of each file. off:
    /// nothing; a machine that loses power soon after may lose the file, or its end.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WHAT",
        requires = "uploads",
        default_value = "all",
        hide_possible_values = true
    )]
    pub(crate) upload_sync: UploadSyncOption,
}

/// The value of `--upload-sync`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum UploadSyncOption {
    /// Nothing.
    Off,
    /// The file and its name.
    All,
}

impl UploadOptions {
    /// The settings, if files are taken.
    ///
    /// # Errors
    ///
    /// Where nobody could have the right to it.
    pub(crate) fn settings(&self, users: &UsersConfig) -> anyhow::Result<Option<UploadsConfig>> {
        if !self.uploads {
            return Ok(None);
        }
        if users.is_open() {
            bail!(
                "--uploads is for users with the right upload, and there are no users: name them \
                 with --users FILE, as in `onrush user add FILE NAME`"
            );
        }
        Ok(Some(UploadsConfig {
            upload_bytes_max: self.upload_max.0,
            upload_files_max: self.upload_files_max,
            free_bytes_min: self.upload_free_min.0,
            kept_time_max: self.upload_kept_time_max.0,
            sync: match self.upload_sync {
                UploadSyncOption::Off => UploadSync::Off,
                UploadSyncOption::All => UploadSync::All,
            },
        }))
    }
}
