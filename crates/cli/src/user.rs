//! `onrush user`: adds users to a file, removes and lists them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use onrush_server::users::argon2;
use onrush_server::users::file::{Secret, UserFile, with_user, without_user};
use onrush_wire::auth::Algorithm;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Add, remove and list the users of a file
///
/// The file is text, for `onrush serve --users FILE`: groups, what they may do with which paths,
/// and users with hashes of their passwords. Groups are edited by hand; docs/users.md tells how. A
/// server that runs reads it again within a second or two.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct UserCommand {
    #[command(subcommand)]
    command: Edit,
}

#[derive(Debug, Subcommand)]
enum Edit {
    /// Add a user, or give one another password
    ///
    /// The password is asked for, or is the first line of stdin. A file that is not there is made,
    /// with a group "viewers" that may play and download everything.
    Add {
        /// The file of users
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The user's name
        name: String,
        /// Its groups, with commas between [default: those it has, or viewers]
        #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
        groups: Vec<String>,
        /// How the password is kept
        ///
        /// digest: so that players can log in without sending it; the file is a secret then.
        /// sha256: likewise, but not for the many players that know MD5 alone. argon2: as a hash
        /// that is slow to try, for passwords that come themselves, by FTP and Basic.
        #[arg(long, value_name = "HOW", default_value = "digest")]
        keep: Keep,
    },
    /// Remove a user
    Remove {
        /// The file of users
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The user's name
        name: String,
    },
    /// List users with their groups, and check the file
    List {
        /// The file of users
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Keep {
    Digest,
    Sha256,
    Argon2,
}

pub(crate) fn run(arguments: &UserCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        Edit::Add {
            file,
            name,
            groups,
            keep,
        } => {
            // Before a password is asked for in vain.
            parse(file, &read(file)?.unwrap_or_default())?;
            let password = password(name)?;
            edit(file, |text| {
                add(file, text, name, groups, (*keep, &password))
            })?;
        }
        Edit::Remove { file, name } => edit(file, |text| {
            let text = text.with_context(|| format!("{}: there is no file", file.display()))?;
            let without = without_user(&text, name);
            without.with_context(|| format!("{}: there is no user {name:?}", file.display()))
        })?,
        Edit::List { file } => {
            let text = read(file)?;
            let text = text.with_context(|| format!("{}: there is no file", file.display()))?;
            for (name, groups) in parse(file, &text)?.users() {
                writeln!(out, "{name}\t{}", groups.join(","))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(
    file: &Path,
    text: Option<String>,
    name: &str,
    groups: &[String],
    (keep, password): (Keep, &str),
) -> anyhow::Result<String> {
    let text = text.unwrap_or_else(|| FIRST.to_owned());
    let known = parse(file, &text)?;
    let users = known.users();
    let own = users.iter().find(|(known, _)| *known == name);
    let groups = match (groups, own) {
        ([], Some((_, own))) => own.to_vec(),
        ([], None) => vec![VIEWERS.to_owned()],
        (groups, _) => groups.to_vec(),
    };
    let digest = |algorithms| Secret::digest(algorithms, name, known.realm(), password);
    let secret = match keep {
        Keep::Digest => digest(&Algorithm::ALL[..]),
        Keep::Sha256 => digest(&[Algorithm::Sha256]),
        Keep::Argon2 => Secret::Argon2(argon2(password)),
    };
    with_user(&text, name, &groups, &secret)
        .with_context(|| format!("{}: this user cannot be added", file.display()))
}

fn parse(file: &Path, text: &str) -> anyhow::Result<UserFile> {
    UserFile::parse(text).with_context(|| file.display().to_string())
}

/// The text of a file, if there is one.
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some).with_context(|| file.display().to_string()),
    }
}

/// Passes a file's text through `edit`. A server that reads meanwhile sees the old one or the new
/// one, and of two who edit the second is told.
fn edit(
    file: &Path,
    edit: impl FnOnce(Option<String>) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    // What a symbolic link names is replaced, not the link.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut part = file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let shown = part.display();
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part);
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{shown} is there: another change is under way, or was cut off; if so, remove it")
        }
        opened => opened.with_context(|| shown.to_string())?,
    };
    let written = replace(&file, &part, opened, edit);
    if written.is_err() {
        fs::remove_file(&part).ok();
    }
    written
}

fn replace(
    file: &Path,
    part: &Path,
    mut opened: File,
    edit: impl FnOnce(Option<String>) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let new = edit(read(file)?)?;
    let write = || {
        // Whose it is and who may read it stays, so that a server's account still can.
        if let Ok(there) = fs::metadata(file) {
            fchown(&opened, Some(there.uid()), Some(there.gid()))?;
            opened.set_permissions(fs::Permissions::from_mode(there.mode() & 0o777))?;
        }
        opened.write_all(new.as_bytes())?;
        opened.sync_all()?;
        fs::rename(part, file)
    };
    let mut write = write;
    write().with_context(|| file.display().to_string())
}

/// Asks for a password on the terminal, twice, or takes the first line of stdin.
fn password(name: &str) -> anyhow::Result<String> {
    let stdin = io::stdin();
    let password = match stdin.is_terminal() {
        true => {
            let first = hidden(&format!("password of {name}: "))?;
            if first != hidden("once more: ")? {
                bail!("the two passwords differ");
            }
            first
        }
        false => line(&mut stdin.lock())?,
    };
    match password.is_empty() || password.chars().any(char::is_control) {
        true => bail!("a password is a line that is not empty, without control characters"),
        false => Ok(password),
    }
}

/// A line from the terminal that is not shown.
fn hidden(prompt: &str) -> anyhow::Result<String> {
    let stdin = io::stdin();
    write!(io::stderr(), "{prompt}")?;
    io::stderr().flush()?;
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let line = line(&mut stdin.lock());
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    writeln!(io::stderr())?;
    line
}

fn line(from: &mut dyn BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line).context("reading the password")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

const VIEWERS: &str = "viewers";

/// A file that nobody has written yet.
const FIRST: &str = "\
# Users of Onrush; `onrush user` adds and removes them. Keep this file to yourself.
# group NAME RIGHTS PATTERN: rights are play, publish, download, admin and upload, * is
# anything within a part of a path, /** anything below. The group \"everybody\" is
# also for those who have not logged in.
realm onrush
group viewers play,download /**
";

const EXAMPLES: &str = "\
Examples:
  onrush user add users anna            asks for the password
  onrush user add users tom --groups viewers,crew < password
  onrush user list users
  onrush serve /srv/films --users users

Exit codes:
  0  done, or the file is in order
  2  it could not be changed, or is not in order";

#[cfg(test)]
mod tests {
    use onrush_server::users::file::REALM;

    use super::*;

    #[test]
    fn a_user_is_added_to_a_new_file_and_keeps_its_groups() {
        assert!(FIRST.contains(&format!("realm {REALM}")) && FIRST.contains(VIEWERS));
        let file = Path::new("users");
        let add = |text: Option<String>, groups: &[&str], keep| {
            let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
            add(file, text, "anna", &groups, (keep, "secret")).unwrap()
        };
        let groups = |text: &str| UserFile::parse(text).unwrap().users()[0].1.join(",");
        let text = add(None, &[], Keep::Digest);
        assert_eq!(groups(&text), "viewers");
        let text = add(Some(text), &["a", "b"], Keep::Sha256);
        assert!(groups(&text) == "a,b" && !text.contains("md5="), "{text}");
        let text = add(Some(text), &[], Keep::Argon2);
        assert!(
            groups(&text) == "a,b" && text.contains("argon2=$argon2id$"),
            "{text}"
        );
    }

    #[test]
    fn a_file_is_changed_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        edit(&file, |text| {
            assert_eq!((text, names()), (None, 1));
            Ok("one\n".to_owned())
        })
        .unwrap();
        let mode = || fs::metadata(&file).unwrap().mode() & 0o777;
        assert_eq!((mode(), names()), (0o600, 1));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(edit(&file, |_| bail!("no")).is_err());
        edit(&file, |text| {
            assert_eq!(text.as_deref(), Some("one\n"));
            let second = edit(&file, |_| Ok("second".to_owned())).unwrap_err();
            assert!(second.to_string().contains("another change"), "{second}");
            Ok("two\n".to_owned())
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
        assert_eq!((mode(), names()), (0o640, 1));
    }
}
