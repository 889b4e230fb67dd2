//! A session: who it is, where it is, and what its next transfer will be.

use std::net::{IpAddr, SocketAddr};

use zeroize::Zeroizing;

use super::act::{Act, Change, Store};
use super::listing::{Facts, Rights, Style, time_val};
use super::protection::Protection;
use super::reply::quoted;
use super::{Command, Reply};
use crate::http::Entry;

/// The state that commands change.
#[derive(Clone, Debug)]
pub struct Session {
    peer: IpAddr,
    /// Whether passwords are looked at; else anonymous is all there is.
    has_users: bool,
    /// Whether files are taken here, of those who have that right.
    takes_uploads: bool,
    login: Login,
    /// Below the root; empty for that itself.
    folder: String,
    /// Where the next RETR or STOR begins.
    restart_bytes: u64,
    /// How long the next STOR is to be, if ALLO has said so.
    allocated_bytes: Option<u64>,
    /// What the next RNTO is of.
    renamed: Option<String>,
    facts: Facts,
    /// After EPSV ALL.
    only_extended_passive: bool,
    protection: Protection,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Login {
    Nobody,
    /// Has said this name, and no password yet.
    Named(String),
    In,
}

impl Session {
    /// Of a client at this address, where everybody is let in as anonymous, or users are known.
    #[must_use]
    pub fn new(peer: IpAddr, has_users: bool) -> Self {
        Self {
            peer: peer.to_canonical(),
            has_users,
            takes_uploads: false,
            login: Login::Nobody,
            folder: String::new(),
            restart_bytes: 0,
            allocated_bytes: None,
            renamed: None,
            facts: Facts::ALL,
            only_extended_passive: false,
            protection: Protection::default(),
        }
    }

    /// The same where control and data connections can be encrypted, or not.
    #[must_use]
    pub fn offering_tls(mut self, is_offered: bool) -> Self {
        self.protection.is_offered = is_offered;
        self
    }

    /// After [`Act::Encrypt`] and its handshake. Nothing is left of what was said before: who could
    /// read it could have written it.
    pub fn encrypted(&mut self, has_data: bool) {
        let protection = self.protection.after_handshake(has_data);
        *self = Self {
            protection,
            ..Self::new(self.peer, self.has_users).taking_uploads(self.takes_uploads)
        };
    }

    /// Whether data connections are to be encrypted.
    #[must_use]
    pub fn encrypts_data(&self) -> bool {
        self.protection.has_data
    }

    /// The same where files are taken of those who have that right, or of nobody.
    #[must_use]
    pub fn taking_uploads(mut self, takes_uploads: bool) -> Self {
        self.takes_uploads = takes_uploads;
        self
    }

    /// Decides what a command gets.
    pub fn decide(&mut self, command: &Command) -> Act {
        let (verb, argument) = (&*command.verb, &*command.argument);
        match verb {
            "USER" => Act::Reply(self.user(argument)),
            "PASS" => self.password(argument),
            "QUIT" => Act::Quit(Reply::new(221, "goodbye")),
            "NOOP" => reply(200, "still here"),
            "SYST" => reply(215, "UNIX Type: L8"),
            "FEAT" => Act::Reply(self.features()),
            "HELP" => reply(214, HELP),
            "OPTS" => Act::Reply(self.options(argument)),
            "AUTH" if self.protection.is_offered => match self.protection.auth(argument) {
                Ok((reply, has_data)) => Act::Encrypt { reply, has_data },
                Err(reply) => Act::Reply(reply),
            },
            _ if self.protection.is_offered && Protection::is_asked(verb) => {
                Act::Reply(self.protection.decide(verb, argument))
            }
            // Whatever is refused to somebody who has logged in is refused to others as that.
            _ if self.login != Login::In && self.has_users => reply(530, "log in first"),
            _ if self.login != Login::In => reply(530, "log in first: USER anonymous"),
            "STAT" if argument.is_empty() => Act::Status,
            "ABOR" => Act::Abort,
            "TYPE" => Act::Reply(kind(argument)),
            "MODE" => Act::Reply(only("S", argument, "mode is stream")),
            "STRU" => Act::Reply(only("F", argument, "structure is file")),
            "ALLO" if self.takes_uploads => Act::Reply(self.allocate(argument)),
            "ALLO" | "ACCT" => reply(202, "not needed here"),
            "PWD" | "XPWD" => Act::Reply(Reply::new(257, quoted(&self.folder))),
            "REST" => Act::Reply(self.restart(argument)),
            "PASV" | "PORT" | "EPRT" if self.only_extended_passive => {
                reply(501, "after EPSV ALL there is only EPSV")
            }
            "PASV" => Act::Listen { is_extended: false },
            "EPSV" => self.extended_passive(argument),
            "PORT" => self.connect(port(argument)),
            "EPRT" => self.connect(extended_port(argument)),
            _ => self.decide_on_file(verb, argument),
        }
    }

    /// After [`Act::LogIn`], if the password is right.
    pub fn logged_in(&mut self) -> Reply {
        self.login = Login::In;
        match self.has_users {
            true => Reply::new(230, "welcome"),
            false => Reply::new(230, "welcome; all here can be read"),
        }
    }

    /// After [`Act::LogIn`], if it is not; `note` says why.
    #[must_use]
    pub fn refused(note: String) -> Reply {
        Reply::new(530, note)
    }

    /// After [`Change::Rename`], if there is such a thing and it may be renamed.
    pub fn may_rename(&mut self, name: String) -> Reply {
        let reply = Change::Rename.done(&name);
        self.renamed = Some(name);
        reply
    }

    /// After [`Act::ChangeFolder`], if it is a folder.
    pub fn enter(&mut self, name: String) -> Reply {
        self.folder = name;
        Reply::new(250, format!("now in {}", quoted(&self.folder)))
    }

    /// After [`Act::Size`].
    #[must_use]
    pub fn size(entry: &Entry) -> Reply {
        Reply::new(213, entry.file_bytes.to_string())
    }

    /// After [`Act::Modified`].
    #[must_use]
    pub fn modified(entry: &Entry) -> Reply {
        Reply::new(213, time_val(entry.modified_s))
    }

    /// After [`Act::Facts`]. `name` is the entry's below the root.
    #[must_use]
    pub fn facts(&self, name: &str, entry: &Entry, rights: Rights) -> Reply {
        let facts = self.facts.of(entry, rights);
        Reply::new(250, format!("begin\n{facts} /{name}\nend"))
    }

    /// The session's folder, as a client writes it.
    #[must_use]
    pub fn folder(&self) -> String {
        quoted(&self.folder)
    }

    /// The commands that name a file or a folder.
    fn decide_on_file(&mut self, verb: &str, argument: &str) -> Act {
        let argument = match verb {
            // What stands there of `ls` is no name.
            "LIST" | "NLST" | "STAT" if argument.starts_with('-') => {
                argument.split_once(' ').map_or("", |(_, name)| name)
            }
            _ => argument,
        };
        let name = self.resolve(argument);
        let needs_name = ["RETR", "SIZE", "MDTM", "CWD", "XCWD"].contains(&verb);
        let changes = self.takes_uploads && CHANGING.contains(&verb);
        if (needs_name || changes) && argument.is_empty() {
            return reply(501, "which? Give a name");
        }
        if changes {
            return self.decide_on_change(verb, (name, argument));
        }
        let list = |style| Act::List {
            name: name.clone(),
            argument: argument.to_owned(),
            style,
        };
        match verb {
            "RETR" => Act::Retrieve {
                name,
                start_bytes: std::mem::take(&mut self.restart_bytes),
            },
            "LIST" => list(Style::Long),
            "NLST" => list(Style::Names),
            "MLSD" => list(Style::Machine(self.facts)),
            "CWD" | "XCWD" => Act::ChangeFolder { name },
            "CDUP" | "XCUP" => Act::ChangeFolder {
                name: self.resolve(".."),
            },
            "SIZE" => Act::Size { name },
            "MDTM" => Act::Modified { name },
            "MLST" => Act::Facts { name },
            "STAT" => reply(504, "STAT of a file is MLST here"),
            "SITE" | "STOU" if self.takes_uploads => reply(502, "not here"),
            "STOR" | "STOU" | "APPE" | "DELE" | "RMD" | "XRMD" | "MKD" | "XMKD" | "RNFR"
            | "RNTO" | "SITE" => reply(550, "nothing can be changed here"),
            "SMNT" | "REIN" => reply(502, "not here"),
            _ if Protection::is_asked(verb) => reply(502, "not here: this server has no TLS"),
            _ => reply(500, "no such command; HELP lists those there are"),
        }
    }

    /// The commands that change something, where that can be.
    fn decide_on_change(&mut self, verb: &str, (name, argument): (String, &str)) -> Act {
        let change = match verb {
            "STOR" | "APPE" => {
                let start_bytes = std::mem::take(&mut self.restart_bytes);
                return Act::Store {
                    name,
                    how: match verb {
                        "STOR" => Store::From(start_bytes),
                        _ => Store::Append,
                    },
                    announced_bytes: self.allocated_bytes.take(),
                };
            }
            "DELE" => Change::Remove,
            "MKD" | "XMKD" => Change::MakeFolder,
            "RMD" | "XRMD" => Change::RemoveFolder,
            "RNFR" => Change::Rename,
            "RNTO" => {
                let Some(from) = self.renamed.take() else {
                    return reply(503, "RNFR comes first");
                };
                let change = Change::RenameTo(name);
                return Act::Change { name: from, change };
            }
            // MFMT
            _ => {
                let (time, file) = argument.split_once(' ').unwrap_or((argument, ""));
                let Some(modified_s) = seconds(time).filter(|_| !file.is_empty()) else {
                    return reply(501, "write MFMT YYYYMMDDHHMMSS NAME");
                };
                return Act::Change {
                    name: self.resolve(file),
                    change: Change::SetModified(modified_s),
                };
            }
        };
        Act::Change { name, change }
    }

    /// `ALLO BYTES`, with what there was of records behind it.
    fn allocate(&mut self, argument: &str) -> Reply {
        let digits = argument.split(' ').next().unwrap_or_default();
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        match digits.parse().ok().filter(|_| is_number) {
            Some(bytes) => {
                self.allocated_bytes = Some(bytes);
                Reply::new(200, "it is looked at when the file comes")
            }
            None => Reply::new(501, "give a number of bytes"),
        }
    }

    fn user(&mut self, name: &str) -> Reply {
        self.login = Login::Named(name.to_owned());
        // The same for all: who is known here is told to nobody but by the password's answer.
        match self.has_users {
            true => Reply::new(331, "the password, please"),
            false => Reply::new(331, "any password will do, for anonymous"),
        }
    }

    fn password(&mut self, password: &str) -> Act {
        let named = std::mem::replace(&mut self.login, Login::Nobody);
        let user = match named {
            Login::Named(user) => user,
            // Said twice, it changes nothing.
            Login::In => return Act::Reply(self.logged_in()),
            Login::Nobody => return reply(503, "USER comes first"),
        };
        let is_anonymous = ["anonymous", "ftp"]
            .iter()
            .any(|known| user.eq_ignore_ascii_case(known));
        match self.has_users {
            true => Act::LogIn {
                user: (!is_anonymous).then_some(user),
                password: Zeroizing::new(password.to_owned()),
            },
            false if is_anonymous => Act::Reply(self.logged_in()),
            false => reply(530, "only anonymous is known here"),
        }
    }

    fn features(&self) -> Reply {
        let facts = self.facts.to_feature();
        let mfmt = if self.takes_uploads { "MFMT\n" } else { "" };
        let tls = match self.protection.is_offered {
            true => "AUTH TLS\nPBSZ\nPROT\n",
            false => "",
        };
        Reply::new(
            211,
            format!(
                "there are\n{tls}EPRT\nEPSV\nMDTM\n{mfmt}{facts}\n\
                 REST STREAM\nSIZE\nTVFS\nUTF8\nend"
            ),
        )
    }

    fn options(&mut self, argument: &str) -> Reply {
        let (of, value) = argument.split_once(' ').unwrap_or((argument, ""));
        if of.eq_ignore_ascii_case("UTF8") && value.eq_ignore_ascii_case("ON") {
            return Reply::new(200, "it always is");
        }
        if of.eq_ignore_ascii_case("MLST") {
            self.facts = Facts::chosen(value);
            return Reply::new(200, format!("MLST OPTS {}", self.facts.names()));
        }
        Reply::new(501, "there are OPTS MLST and OPTS UTF8 ON")
    }

    fn restart(&mut self, argument: &str) -> Reply {
        let is_number = !argument.is_empty() && argument.bytes().all(|b| b.is_ascii_digit());
        match argument.parse().ok().filter(|_| is_number) {
            Some(bytes) => {
                self.restart_bytes = bytes;
                Reply::new(350, format!("the next transfer begins at byte {bytes}"))
            }
            None => Reply::new(501, "give a number of bytes"),
        }
    }

    fn extended_passive(&mut self, argument: &str) -> Act {
        match argument {
            "" => Act::Listen { is_extended: true },
            all if all.eq_ignore_ascii_case("ALL") => {
                self.only_extended_passive = true;
                reply(200, "only EPSV from now on")
            }
            // The data connection is of the family of the control connection (RFC 2428, section 3).
            "1" | "2" if (argument == "1") == self.peer.is_ipv4() => {
                Act::Listen { is_extended: true }
            }
            "1" => reply(522, "use (2)"),
            "2" => reply(522, "use (1)"),
            _ => reply(501, "write EPSV, EPSV 1, EPSV 2 or EPSV ALL"),
        }
    }

    /// To the client itself and to no service that is somebody else's: else a client could make
    /// this server knock at others' doors (RFC 2577, section 3).
    fn connect(&self, address: Option<Result<SocketAddr, Reply>>) -> Act {
        match address {
            None => reply(501, "no address that is understood"),
            Some(Err(refusal)) => Act::Reply(refusal),
            Some(Ok(address)) if address.ip().to_canonical() != self.peer => {
                reply(501, "data goes to your own address only")
            }
            Some(Ok(address)) if address.port() < 1024 => {
                reply(501, "data goes to ports from 1024 only")
            }
            Some(Ok(address)) => Act::Connect(address),
        }
    }

    /// The name below the root; `..` at the root stays there.
    fn resolve(&self, path: &str) -> String {
        let from = if path.starts_with('/') {
            ""
        } else {
            &*self.folder
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in from.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        parts.join("/")
    }
}

fn reply(code: u16, text: &'static str) -> Act {
    Act::Reply(Reply::new(code, text))
}

/// TYPE A is for listings; files are sent as they are all the same.
fn kind(argument: &str) -> Reply {
    match &*argument.to_ascii_uppercase() {
        "I" | "L 8" | "L8" => Reply::new(200, "type is image"),
        "A" | "A N" => Reply::new(200, "type is ASCII; files are sent as they are"),
        _ => Reply::new(504, "types are I and A"),
    }
}

fn only(known: &str, argument: &str, text: &'static str) -> Reply {
    match argument.eq_ignore_ascii_case(known) {
        true => Reply::new(200, text),
        false => Reply::new(504, format!("there is only {known}")),
    }
}

/// `h1,h2,h3,h4,p1,p2`
fn port(argument: &str) -> Option<Result<SocketAddr, Reply>> {
    let numbers: Option<Vec<u8>> = argument.split(',').map(|n| n.trim().parse().ok()).collect();
    let [a, b, c, d, high, low] = <[u8; 6]>::try_from(numbers?).ok()?;
    let port = u16::from_be_bytes([high, low]);
    Some(Ok(SocketAddr::from(([a, b, c, d], port))))
}

/// `|1|132.235.1.2|6275|`, with any delimiter.
fn extended_port(argument: &str) -> Option<Result<SocketAddr, Reply>> {
    let delimiter = argument.chars().next().filter(char::is_ascii)?;
    let parts: Vec<_> = argument.split(delimiter).collect();
    let ["", family, ip, port, ""] = parts[..] else {
        return None;
    };
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_port)?;
    let ip = match family {
        "1" => ip.parse().ok().map(IpAddr::V4)?,
        "2" => ip.parse().ok().map(IpAddr::V6)?,
        _ => return Some(Err(Reply::new(522, "use (1,2)"))),
    };
    Some(Ok(SocketAddr::new(ip, port)))
}

/// `YYYYMMDDHHMMSS`, with what there may be of a second behind it, in seconds since 1970.
fn seconds(time: &str) -> Option<i64> {
    let digits = time.split('.').next().unwrap_or_default();
    if digits.len() != 14 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let part = |from: usize, to: usize| digits[from..to].parse::<u8>().ok();
    crate::calendar::Utc {
        year: digits[..4].parse().ok()?,
        month: part(4, 6)?,
        day: part(6, 8)?,
        hour: part(8, 10)?,
        minute: part(10, 12)?,
        second: part(12, 14)?,
    }
    .seconds()
}

/// The commands that change something.
const CHANGING: &[&str] = &[
    "STOR", "APPE", "DELE", "RMD", "XRMD", "MKD", "XMKD", "RNFR", "RNTO", "MFMT",
];

const HELP: &str = "commands\n\
    USER PASS QUIT SYST FEAT OPTS HELP NOOP STAT ABOR\n\
    PWD CWD CDUP TYPE MODE STRU PASV EPSV PORT EPRT\n\
    REST RETR SIZE MDTM LIST NLST MLSD MLST\n\
    STOR APPE ALLO DELE MKD RMD RNFR RNTO MFMT, where files are taken\n\
    AUTH PBSZ PROT, where there is TLS\n\
    Write USER anonymous and any password.";

#[cfg(test)]
mod tests;
