//! The file of users: who they are, by which hashes their passwords are known, and what groups may
//! do.
//!
//! It is text, a statement a line, to be edited by hand or by `onrush user`:
//!
//! ```text
//! realm onrush
//! group viewers play,download /**
//! group everybody play /trailers/*
//! user anna viewers sha256=... md5=...
//! user bert viewers argon2=$argon2id$v=19$m=19456,t=2,p=1$...
//! ```
//!
//! A password is kept in one of two ways. The hashes of Digest let a user log in without sending
//! it; whoever steals them can log in here too, and can try passwords quickly. That of Argon2 tells
//! least, and serves Basic and FTP alone.

use std::collections::HashMap;
use std::fmt::Write;

use onrush_wire::auth::{Action, Algorithm, Pattern, Rights, ha1};
use thiserror::Error;

use super::password;

/// Bytes of a file of users.
pub const USERS_FILE_BYTES_MAX: usize = 4 << 20;
/// Users of a file.
pub const USERS_MAX: usize = 16_384;
const _: () = assert!(password::PASSWORDS_MAX >= USERS_MAX);
/// Lines of groups in it.
pub const GROUP_RULES_MAX: usize = 1024;
/// Bytes of a user's, a group's or a realm's name.
pub const USER_NAME_BYTES_MAX: usize = 128;

/// The group to which all belong, also who has not logged in.
const EVERYBODY: &str = "everybody";
/// What a password is for, where the file does not say.
pub const REALM: &str = "onrush";

/// What a file of users says.
#[derive(Debug, Default)]
pub struct UserFile {
    realm: Option<String>,
    rules: Vec<Rule>,
    users: HashMap<String, User>,
    digests: Vec<Algorithm>,
}

/// A line of a group.
#[derive(Debug)]
struct Rule {
    group: String,
    rights: Rights,
    pattern: Pattern,
}

#[derive(Debug)]
pub(super) struct User {
    groups: Vec<String>,
    pub(super) secret: Secret,
}

/// By what a password is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Secret {
    /// The hashes of Digest (HA1), by the functions that there are hashes of.
    Digest(Vec<(Algorithm, String)>),
    /// A hash that is slow to make, as a PHC string.
    Argon2(String),
}

/// Where a file of users is not understood.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line}: {what}")]
pub struct UserFileError {
    /// From 1 on.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl UserFile {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// The first line that is not understood.
    pub fn parse(text: &str) -> Result<Self, UserFileError> {
        let mut file = Self::default();
        for (number, line) in text.lines().enumerate() {
            file.take(line.trim()).map_err(|what| UserFileError {
                line: number + 1,
                what,
            })?;
        }
        Ok(file)
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (statement, rest) = word(line);
        match statement {
            "realm" => self.take_realm(rest),
            "group" => self.take_rule(rest),
            "user" => self.take_user(rest),
            other => Err(format!(
                "\"{}\" is no statement; there are realm, group and user",
                other.escape_debug()
            )),
        }
    }

    fn take_realm(&mut self, realm: &str) -> Result<(), String> {
        // It stands between quotes in headers that old players read by a fixed form.
        let is_plain = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\' || b == b' ';
        if realm.is_empty() || realm.len() > USER_NAME_BYTES_MAX || !realm.bytes().all(is_plain) {
            return Err("a realm is ASCII without quotes and backslashes".to_owned());
        }
        match self.realm.replace(realm.to_owned()) {
            None if self.users.is_empty() => Ok(()),
            None => Err("the realm stands before the users, whose hashes are for it".to_owned()),
            Some(_) => Err("there is a realm already".to_owned()),
        }
    }

    fn take_rule(&mut self, rest: &str) -> Result<(), String> {
        let (group, rest) = word(rest);
        let (rights, pattern) = word(rest);
        check_name(group)?;
        if pattern.is_empty() {
            return Err("write group NAME RIGHTS PATTERN, as in group a play /films/**".to_owned());
        }
        if self.rules.len() == GROUP_RULES_MAX {
            return Err(format!("at most {GROUP_RULES_MAX} lines of groups"));
        }
        let rights: Rights = rights.parse().map_err(|error| format!("{error}"))?;
        if group == EVERYBODY && rights.allow(Action::Upload) {
            return Err(format!(
                "{EVERYBODY} cannot upload: give that right to a group of users"
            ));
        }
        self.rules.push(Rule {
            group: group.to_owned(),
            rights,
            pattern: pattern.parse().map_err(|error| format!("{error}"))?,
        });
        Ok(())
    }

    fn take_user(&mut self, rest: &str) -> Result<(), String> {
        let (name, rest) = word(rest);
        let (groups, secrets) = word(rest);
        check_name(name)?;
        let groups: Vec<_> = groups.split(',').map(str::to_owned).collect();
        groups.iter().try_for_each(|group| check_name(group))?;
        if self.users.len() == USERS_MAX {
            return Err(format!("at most {USERS_MAX} users"));
        }
        let secret = Secret::parse(secrets)?;
        if let Secret::Digest(hashes) = &secret {
            for (algorithm, _) in hashes {
                if !self.digests.contains(algorithm) {
                    self.digests.push(*algorithm);
                }
            }
        }
        let user = User { groups, secret };
        match self.users.insert(name.to_owned(), user) {
            None => Ok(()),
            Some(_) => Err(format!("user {name} stands twice")),
        }
    }

    /// What passwords are for.
    #[must_use]
    pub fn realm(&self) -> &str {
        self.realm.as_deref().unwrap_or(REALM)
    }

    /// The users' names, sorted, with their groups.
    #[must_use]
    pub fn users(&self) -> Vec<(&str, &[String])> {
        let users = self.users.iter();
        let mut users: Vec<_> = users.map(|(name, user)| (&**name, &*user.groups)).collect();
        users.sort_unstable();
        users
    }

    pub(super) fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// An Argon2 hash of anybody, with which somebody who is unknown costs the same time.
    pub(super) fn any_argon2(&self) -> Option<&str> {
        self.users.values().find_map(|user| match &user.secret {
            Secret::Argon2(hash) => Some(&**hash),
            Secret::Digest(_) => None,
        })
    }

    /// The functions by which anybody can log in with Digest.
    pub(super) fn digests(&self) -> &[Algorithm] {
        &self.digests
    }

    /// Whether there is a user at all.
    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Whether a user, or somebody who is none, may do that.
    #[must_use]
    pub fn allows(&self, user: Option<&str>, action: Action, path: &str) -> bool {
        let user = user.and_then(|name| self.users.get(name));
        let groups = user.map_or(&[][..], |user| &user.groups);
        let has = |group: &String| group == EVERYBODY || groups.contains(group);
        self.rules
            .iter()
            .any(|rule| rule.rights.allow(action) && has(&rule.group) && rule.pattern.matches(path))
    }

    /// Whether somebody who is no user may do that anywhere.
    #[must_use]
    pub fn allows_everybody(&self, action: Action) -> bool {
        let of_all = |rule: &Rule| rule.group == EVERYBODY && rule.rights.allow(action);
        self.rules.iter().any(of_all)
    }
}

impl Secret {
    /// The hashes of Digest by these functions.
    #[must_use]
    pub fn digest(algorithms: &[Algorithm], user: &str, realm: &str, password: &str) -> Self {
        let hash = |&algorithm| (algorithm, ha1(algorithm, user, realm, password));
        Self::Digest(algorithms.iter().map(hash).collect())
    }

    /// Whether these are hashes of Digest of that password.
    pub(super) fn is_of(&self, user: &str, realm: &str, password: &str) -> bool {
        let Self::Digest(hashes) = self else {
            return false;
        };
        let algorithms: Vec<_> = hashes.iter().map(|(algorithm, _)| *algorithm).collect();
        *self == Self::digest(&algorithms, user, realm, password)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut hashes = Vec::new();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let algorithm = match name {
                "md5" => Algorithm::Md5,
                "sha256" => Algorithm::Sha256,
                "argon2" => {
                    password::check(value)?;
                    return match text.split_whitespace().count() {
                        1 => Ok(Self::Argon2(value.to_owned())),
                        // It would be kept for nothing: the others can be tried quickly.
                        _ => Err("beside argon2= there is no other hash".to_owned()),
                    };
                }
                _ => return Err("a user has sha256=, md5= or argon2=".to_owned()),
            };
            let is_hash = value.len() == algorithm.hex_digits()
                && value.bytes().all(|b| b.is_ascii_hexdigit());
            if !is_hash || hashes.iter().any(|(known, _)| *known == algorithm) {
                let digits = algorithm.hex_digits();
                return Err(format!(
                    "{name}= takes one hash of {digits} hexadecimal digits"
                ));
            }
            hashes.push((algorithm, value.to_ascii_lowercase()));
        }
        match hashes.is_empty() {
            false => Ok(Self::Digest(hashes)),
            true => Err("write user NAME GROUP[,GROUP...] and sha256=, md5= or argon2=".to_owned()),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Argon2(hash) => format!("argon2={hash}"),
            Self::Digest(hashes) => {
                let words = hashes.iter().map(|(algorithm, hash)| match algorithm {
                    Algorithm::Md5 => format!("md5={hash}"),
                    Algorithm::Sha256 => format!("sha256={hash}"),
                });
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// The text of a file with this user in it, in the place of an older one of that name.
///
/// # Errors
///
/// If it would not be understood any more.
pub fn with_user(
    text: &str,
    name: &str,
    groups: &[String],
    secret: &Secret,
) -> Result<String, UserFileError> {
    let line = format!("user {name} {} {}", groups.join(","), secret.write());
    let mut is_there = false;
    let mut new = edited(text, name, |_| {
        is_there = true;
        Some(line.clone())
    });
    if !is_there {
        writeln!(new, "{line}").expect("writing to memory does not fail");
    }
    UserFile::parse(&new).map(|_| new)
}

/// The text of a file without that user; `None` if it is not in it.
#[must_use]
pub fn without_user(text: &str, name: &str) -> Option<String> {
    let mut is_there = false;
    let new = edited(text, name, |_| {
        is_there = true;
        None
    });
    is_there.then_some(new)
}

/// The text with the lines of that user passed through `edit`.
fn edited(text: &str, name: &str, mut edit: impl FnMut(&str) -> Option<String>) -> String {
    let mut new = String::with_capacity(text.len());
    for line in text.lines() {
        let (statement, rest) = word(line.trim());
        let is_meant = statement == "user" && word(rest).0 == name;
        let kept = if is_meant {
            edit(line)
        } else {
            Some(line.to_owned())
        };
        if let Some(line) = kept {
            new += &line;
            new.push('\n');
        }
    }
    new
}

/// The first word, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !",:#\"\\".contains(c);
    let is_bounded = (1..=USER_NAME_BYTES_MAX).contains(&name.len());
    match is_bounded && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "\"{}\" is no name: 1 to {USER_NAME_BYTES_MAX} bytes without space , : # \" and \\",
            name.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Algorithm; 2] = Algorithm::ALL;

    fn file(text: &str) -> UserFile {
        UserFile::parse(text).unwrap()
    }

    fn wrong(text: &str) -> (usize, String) {
        let error = UserFile::parse(text).unwrap_err();
        (error.line, error.what)
    }

    fn secret(name: &str) -> Secret {
        Secret::digest(&BOTH, name, REALM, "secret")
    }

    #[test]
    fn users_have_the_rights_of_their_groups() {
        let text = "# a comment\n\nrealm my films\n\
            group viewers play,download /films/**\n\
            group  crew publish /live/*\n group everybody play /trailers/my film.mp4\n";
        let groups = ["viewers".to_owned(), "crew".to_owned()];
        let text = with_user(text, "anna", &groups[..1], &secret("anna")).unwrap();
        let text = with_user(&text, "bert", &groups, &secret("bert")).unwrap();
        let file = file(&text);
        assert_eq!(file.realm(), "my films");
        assert_eq!(file.users(), [("anna", &groups[..1]), ("bert", &groups)]);
        let (anna, bert, nobody) = (Some("anna"), Some("bert"), None);
        for (user, action, path, expected) in [
            (anna, Action::Play, "films/a.mp4", true),
            (anna, Action::Download, "films/a.mp4", true),
            (anna, Action::Download, "films", true),
            (anna, Action::Play, "other/a.mp4", false),
            (anna, Action::Publish, "live/a", false),
            (bert, Action::Publish, "live/a", true),
            (bert, Action::Publish, "live/a/b", false),
            (bert, Action::Admin, "live/a", false),
            (nobody, Action::Play, "films/a.mp4", false),
            (nobody, Action::Play, "trailers/my film.mp4", true),
            (nobody, Action::Download, "trailers/my film.mp4", false),
            (anna, Action::Play, "trailers/my film.mp4", true),
            (Some("clara"), Action::Play, "trailers/my film.mp4", true),
            (Some("clara"), Action::Play, "films/a.mp4", false),
        ] {
            assert_eq!(
                file.allows(user, action, path),
                expected,
                "{user:?} {action:?} {path}"
            );
        }
        assert!(file.allows_everybody(Action::Play) && !file.allows_everybody(Action::Download));
    }

    #[test]
    fn a_user_is_replaced_and_removed_in_its_place() {
        let text = "# mine\nrealm onrush\n# anna\nuser anna a md5=0123\nuser bert a md5=1\n# end";
        assert!(with_user(text, "clara", &["a".to_owned()], &secret("c")).is_err());
        let text = text.replace("md5=0123", &secret("x").write());
        let text = text.replace("md5=1", &secret("y").write());
        let new = with_user(&text, "anna", &["b".to_owned()], &secret("z")).unwrap();
        let line = format!("user anna b {}", secret("z").write());
        assert_eq!(new.lines().nth(3), Some(&*line));
        assert_eq!(new.lines().count(), text.lines().count());
        let without = without_user(&new, "anna").unwrap();
        assert_eq!(without.lines().count(), 5);
        assert_eq!(file(&without).users().len(), 1);
        assert_eq!(without_user(&without, "anna"), None);
        assert_eq!(without_user("", "anna"), None);
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_line() {
        let good = secret("a").write();
        for (text, line, said) in [
            ("users a b", 1, "no statement"),
            ("\nrealm", 2, "realm is ASCII"),
            ("realm a\"b", 1, "realm is ASCII"),
            ("realm a\nrealm b", 2, "already"),
            (&format!("user a b {good}\nrealm c"), 2, "before the users"),
            ("group a play", 1, "group NAME RIGHTS PATTERN"),
            ("group a watch /**", 1, "no right"),
            ("group a play /../x", 1, "no path"),
            ("group a,b play /x", 1, "no name"),
            ("user a", 1, "no name"),
            ("user a b", 1, "user NAME GROUP"),
            ("user a b md5=xyz", 1, "32 hexadecimal"),
            ("user a b sha256=0123", 1, "64 hexadecimal"),
            ("user a b argon2=x", 1, "argon2"),
            ("user a b crypt=x", 1, "sha256=, md5= or argon2="),
            (&format!("user a:b c {good}"), 1, "no name"),
            (&format!("user a b {good}\nuser a b {good}"), 2, "twice"),
            (&format!("user a b {good} {good}"), 1, "one hash"),
        ] {
            let (at, what) = wrong(text);
            assert!(at == line && what.contains(said), "{text}: {at}: {what}");
        }
    }

    #[test]
    fn lines_are_counted_to_their_limits() {
        let rules = |count| "group a play /x\n".repeat(count);
        assert_eq!(file(&rules(GROUP_RULES_MAX)).rules.len(), GROUP_RULES_MAX);
        assert_eq!(wrong(&rules(GROUP_RULES_MAX + 1)).0, GROUP_RULES_MAX + 1);
        let hash = secret("a").write();
        let users = |count| {
            (0..count)
                .map(|n| format!("user u{n} g {hash}\n"))
                .collect::<String>()
        };
        assert!(users(USERS_MAX).len() <= USERS_FILE_BYTES_MAX);
        assert_eq!(file(&users(USERS_MAX)).users.len(), USERS_MAX);
        assert_eq!(wrong(&users(USERS_MAX + 1)).0, USERS_MAX + 1);
        let name = |bytes| format!("user {} g {hash}", "n".repeat(bytes));
        assert!(UserFile::parse(&name(USER_NAME_BYTES_MAX)).is_ok());
        assert_eq!(wrong(&name(USER_NAME_BYTES_MAX + 1)).0, 1);
    }
}
