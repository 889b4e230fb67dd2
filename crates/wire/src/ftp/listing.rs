//! Listings: for people (LIST), for scripts (NLST), for programs (MLSD, RFC 3659).

use std::borrow::Cow;
use std::fmt::Write;

use crate::auth::Pattern;
use crate::calendar::Utc;
use crate::http::Entry;

/// How a listing is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Style {
    /// LIST: as `ls -l` does.
    Long,
    /// NLST: names only.
    Names,
    /// MLSD: these facts and the name.
    Machine(Facts),
}

/// What whoever asks may do with what is listed. It is told, and each command is judged all the
/// same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rights {
    /// Read it.
    Read,
    /// Also store, remove and rename files and folders.
    Change,
}

/// Which facts a client wants to hear (OPTS MLST).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "they are facts, each of its own"
)]
pub struct Facts {
    file_type: bool,
    size: bool,
    modify: bool,
    perm: bool,
}

impl Facts {
    /// All there are.
    pub const ALL: Self = Self {
        file_type: true,
        size: true,
        modify: true,
        perm: true,
    };

    /// For FEAT: an asterisk is behind those that are told.
    #[must_use]
    pub fn to_feature(self) -> String {
        let star = |is_told| if is_told { "*" } else { "" };
        format!(
            "MLST Type{};Size{};Modify{};Perm{};",
            star(self.file_type),
            star(self.size),
            star(self.modify),
            star(self.perm)
        )
    }

    /// Those of a list that exist (RFC 3659, section 7.9).
    pub(super) fn chosen(list: &str) -> Self {
        let has = |name: &str| {
            list.split(';')
                .any(|fact| fact.trim().eq_ignore_ascii_case(name))
        };
        Self {
            file_type: has("Type"),
            size: has("Size"),
            modify: has("Modify"),
            perm: has("Perm"),
        }
    }

    /// Their names, for the reply to OPTS.
    pub(super) fn names(self) -> String {
        let names = [
            (self.file_type, "Type;"),
            (self.size, "Size;"),
            (self.modify, "Modify;"),
            (self.perm, "Perm;"),
        ];
        let shown = names.into_iter().filter(|(is_told, _)| *is_told);
        shown.map(|(_, name)| name).collect()
    }

    /// An entry's facts, each with its semicolon.
    #[must_use]
    pub fn of(self, entry: &Entry, rights: Rights) -> String {
        let mut facts = String::new();
        if self.file_type {
            facts += if entry.is_folder {
                "Type=dir;"
            } else {
                "Type=file;"
            };
        }
        if self.size && !entry.is_folder {
            facts += &format!("Size={};", entry.file_bytes);
        }
        if self.modify {
            facts += &format!("Modify={};", time_val(entry.modified_s));
        }
        if self.perm {
            // RFC 3659, section 7.5.5.
            facts += match (entry.is_folder, rights) {
                (true, Rights::Read) => "Perm=el;",
                (true, Rights::Change) => "Perm=cdeflmp;",
                (false, Rights::Read) => "Perm=r;",
                (false, Rights::Change) => "Perm=adfrw;",
            };
        }
        facts
    }
}

impl Style {
    /// The lines of a folder's listing, each with its end. `now_s` decides which dates have a year.
    #[must_use]
    pub fn write(self, entries: &[Entry], now_s: i64, rights: Rights) -> String {
        let mut text = String::with_capacity(entries.len() * 80);
        // No name makes two lines of one.
        let single_line = entries
            .iter()
            .filter(|entry| !entry.name.contains(['\r', '\n']));
        for entry in single_line {
            let name = &entry.name;
            let written = match self {
                Self::Names => write!(text, "{name}\r\n"),
                Self::Machine(facts) => {
                    write!(text, "{} {name}\r\n", facts.of(entry, rights))
                }
                Self::Long => write!(text, "{}\r\n", long(entry, now_s, rights)),
            };
            written.expect("memory takes all");
        }
        text
    }
}

/// What stands in front of each name that NLST lists, so that a client can use it as it is (RFC
/// 1123, section 4.1.2.7). `name` was asked for as `argument`, and is a folder, or what is listed
/// is beside it.
#[must_use]
pub fn names_before(name: &str, argument: &str, is_folder: bool) -> String {
    // It is repeated for each name, and may have been written at any length.
    let path = match argument.len() > name.len() + ARGUMENT_BYTES_MORE_MAX {
        true => Cow::Owned(format!("/{name}")),
        false => Cow::Borrowed(argument),
    };
    match is_folder {
        true if path.is_empty() || path.ends_with('/') => path.into_owned(),
        true => format!("{path}/"),
        false => {
            let path = path.trim_end_matches('/');
            path[..path.rfind('/').map_or(0, |at| at + 1)].to_owned()
        }
    }
}

/// The folder and the pattern of a name whose last part has `*` or `?` in it: some clients leave it
/// to the server which files these are (`mget`).
#[must_use]
pub fn wildcard(name: &str) -> Option<(&str, Pattern)> {
    let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
    let pattern = last.contains(['*', '?']).then(|| last.parse::<Pattern>());
    Some((folder, pattern?.ok()?))
}

/// YYYYMMDDHHMMSS, as MDTM tells it too.
#[must_use]
pub(super) fn time_val(modified_s: i64) -> String {
    let Utc {
        year,
        month,
        day,
        hour,
        minute,
        second,
    } = Utc::at(modified_s);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

fn long(entry: &Entry, now_s: i64, rights: Rights) -> String {
    let at = Utc::at(entry.modified_s);
    let Utc {
        year,
        day,
        hour,
        minute,
        ..
    } = at;
    let mode = match (entry.is_folder, rights) {
        (true, Rights::Read) => "dr-xr-xr-x",
        (true, Rights::Change) => "drwxr-xr-x",
        (false, Rights::Read) => "-r--r--r--",
        (false, Rights::Change) => "-rw-r--r--",
    };
    let bytes = match entry.is_folder {
        true => 4096,
        false => entry.file_bytes,
    };
    // As ls has it: half a year back or in the future, the year says more than the hour.
    let is_recent = (now_s - HALF_A_YEAR_S..=now_s).contains(&entry.modified_s);
    let when = match is_recent {
        true => format!("{hour:02}:{minute:02}"),
        false => format!("{year:>5}"),
    };
    let (month, name) = (at.month_name(), &entry.name);
    format!("{mode} 1 ftp ftp {bytes:>13} {month} {day:02} {when} {name}")
}

const HALF_A_YEAR_S: i64 = 182 * 86_400;

/// By how much a client may write the path of a folder longer than it is.
const ARGUMENT_BYTES_MORE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let entry = |name: &str, is_folder| Entry {
            name: name.to_owned(),
            is_folder,
            file_bytes: 5_000_000_000,
            modified_s: 784_111_777,
        };
        vec![
            entry("a folder", true),
            entry("ü.ts", false),
            entry("two\r\nlines", false),
        ]
    }

    #[test]
    fn each_style_has_a_line_for_each() {
        let now_s = 784_111_777 + 60;
        let write = |style: Style, now_s| style.write(&entries(), now_s, Rights::Read);
        let long = write(Style::Long, now_s);
        let expected = "dr-xr-xr-x 1 ftp ftp          4096 Nov 06 08:49 a folder\r\n\
            -r--r--r-- 1 ftp ftp    5000000000 Nov 06 08:49 ü.ts\r\n";
        assert_eq!(long, expected);
        for not_recent_s in [now_s + HALF_A_YEAR_S, now_s - 120] {
            assert!(write(Style::Long, not_recent_s).contains("Nov 06  1994 ü.ts"));
        }
        assert_eq!(write(Style::Names, 0), "a folder\r\nü.ts\r\n");
        let machine = write(Style::Machine(Facts::ALL), 0);
        let expected = "Type=dir;Modify=19941106084937;Perm=el; a folder\r\n\
            Type=file;Size=5000000000;Modify=19941106084937;Perm=r; ü.ts\r\n";
        assert_eq!(machine, expected);
    }

    #[test]
    fn names_stand_behind_what_was_asked_for() {
        for (name, argument, is_folder, before) in [
            ("a", "", true, ""),
            ("", "/", true, "/"),
            ("a", "/a", true, "/a/"),
            ("a/b", "b/", true, "b/"),
            ("a", "..", true, "../"),
            ("a/film.ts", "film.ts", false, ""),
            ("film.ts", "/film.ts", false, "/"),
            ("a/*.ts", "a/*.ts", false, "a/"),
            ("a", &"./".repeat(40), true, "/a/"),
            ("*", &format!("{}*", "./".repeat(40)), false, "/"),
        ] {
            let found = names_before(name, argument, is_folder);
            assert_eq!(found, before, "{argument}");
        }
    }

    #[test]
    fn the_last_part_may_be_a_pattern() {
        let means = |name: &str, entry: &str| {
            wildcard(name).map(|(folder, pattern)| (folder.to_owned(), pattern.matches(entry)))
        };
        let found = |folder: &str, is_meant| Some((folder.to_owned(), is_meant));
        assert_eq!(means("*.ts", "a.ts"), found("", true));
        assert_eq!(means("a/b/?.ts", "a.ts"), found("a/b", true));
        assert_eq!(means("a/b/?.ts", "ab.ts"), found("a/b", false));
        assert_eq!(means("*/a.ts", "a.ts"), None);
        assert_eq!(means("a.ts", "a.ts"), None);
    }

    #[test]
    fn who_may_change_is_told_so() {
        let write = |style: Style| style.write(&entries(), 0, Rights::Change);
        let long = write(Style::Long);
        assert!(
            long.starts_with("drwxr-xr-x 1 ") && long.contains("\n-rw-r--r-- 1 "),
            "{long}"
        );
        let machine = write(Style::Machine(Facts::ALL));
        assert!(machine.contains(";Perm=cdeflmp; a folder\r\n"), "{machine}");
        assert!(machine.contains(";Perm=adfrw; ü.ts\r\n"), "{machine}");
    }

    #[test]
    fn facts_are_chosen() {
        let facts = Facts::chosen("size;TYPE;unix.mode;");
        assert_eq!(facts.names(), "Type;Size;");
        assert_eq!(facts.to_feature(), "MLST Type*;Size*;Modify;Perm;");
        let told = facts.of(&entries()[1], Rights::Read);
        assert_eq!(told, "Type=file;Size=5000000000;");
        assert_eq!(Facts::chosen("").names(), "");
    }
}
