//! What a command asks for, whose outcome only the file system or the network knows.

use std::net::SocketAddr;

use zeroize::Zeroizing;

use super::Reply;
use super::listing::{Style, time_val};
use super::reply::quoted;

/// What a command asks for. Names are below the root: decoded, `/` between their parts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Act {
    /// Only an answer.
    Reply(Reply),
    /// An answer, and the end.
    Quit(Reply),
    /// Ask whether that is the user's password:
    /// [`Session::logged_in`](super::Session::logged_in) or
    /// [`Session::refused`](super::Session::refused).
    LogIn {
        /// Who it is; `None` for anonymous, whose password is anything.
        user: Option<String>,
        /// The password.
        password: Zeroizing<String>,
    },
    /// Answer, and carry out a handshake of TLS: then
    /// [`Session::encrypted`](super::Session::encrypted).
    Encrypt {
        /// The answer, the last that is not encrypted.
        reply: Reply,
        /// Whether data connections are encrypted, too, without being asked for.
        has_data: bool,
    },
    /// Listen for a data connection; the reply is that of `passive`.
    Listen {
        /// EPSV instead of PASV.
        is_extended: bool,
    },
    /// Connect there for data. It is the client's own address.
    Connect(SocketAddr),
    /// Send a file from a byte on.
    Retrieve {
        /// The file.
        name: String,
        /// The first byte.
        start_bytes: u64,
    },
    /// Take a file.
    Store {
        /// The file.
        name: String,
        /// How what comes and what is there are joined.
        how: Store,
        /// How long it is to be, if the client has said so.
        announced_bytes: Option<u64>,
    },
    /// Change what is at a name.
    Change {
        /// The file or folder.
        name: String,
        /// How: [`Change::done`] says that it was.
        change: Change,
    },
    /// Send a folder's listing; a file's is one line.
    List {
        /// The folder.
        name: String,
        /// The same as the client wrote it.
        argument: String,
        /// How.
        style: Style,
    },
    /// Make it the session's folder, if it is one: [`Session::enter`](super::Session::enter).
    ChangeFolder {
        /// The folder.
        name: String,
    },
    /// Tell a file's length ([`Session::size`](super::Session::size)).
    Size {
        /// The file.
        name: String,
    },
    /// Tell when it last changed ([`Session::modified`](super::Session::modified)).
    Modified {
        /// The file.
        name: String,
    },
    /// Tell its facts on the control connection ([`Session::facts`](super::Session::facts)).
    Facts {
        /// The file or folder.
        name: String,
    },
    /// End the transfer that goes on, if one does.
    Abort,
    /// Tell how things stand.
    Status,
}

/// How a file that is taken and what is there of it are joined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Store {
    /// What comes begins at this byte of the file; what is there from it on is replaced.
    From(u64),
    /// It comes behind what is there; of what was broken off, from where SIZE says.
    Append,
}

/// A change of what is at a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// Remove a file.
    Remove,
    /// Make a folder.
    MakeFolder,
    /// Remove a folder that is empty.
    RemoveFolder,
    /// Tell whether it may be renamed: [`Session::may_rename`](super::Session::may_rename).
    Rename,
    /// Give it this name.
    RenameTo(String),
    /// Say that it last changed then, in seconds since 1970.
    SetModified(i64),
}

impl Change {
    /// The reply, if it is done; `name` is what it was done to.
    #[must_use]
    pub fn done(&self, name: &str) -> Reply {
        match self {
            Self::Remove | Self::RemoveFolder => Reply::new(250, "removed"),
            Self::MakeFolder => Reply::new(257, format!("{} is there", quoted(name))),
            Self::Rename => Reply::new(350, "and what is its new name?"),
            Self::RenameTo(to) => Reply::new(250, format!("renamed to {}", quoted(to))),
            Self::SetModified(modified_s) => {
                let time = time_val(*modified_s);
                Reply::new(213, format!("Modify={time}; {}", quoted(name)))
            }
        }
    }
}
