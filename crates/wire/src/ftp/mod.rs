//! FTP (RFC 959, 2428, 3659, 4217), from the side of a server that is read from by many and written
//! to by few.
//!
//! A [`Lines`] cuts what a client sends into commands; a [`Session`] decides what each gets: a
//! [`Reply`], or an [`Act`] whose outcome only the file system or the network knows. Names are
//! resolved here, against the client's folder, and cannot climb out of the root by their own words.
//!
//! Files are sent as they are, in whatever type: the only text here are listings. Only where
//! that is switched on ([`Session::taking_uploads`]) something can be changed; by whom is not
//! decided here.

mod act;
mod command;
mod listing;
mod protection;
mod reply;
mod session;

pub use self::act::{Act, Change, Store};
pub use self::command::{COMMAND_BYTES_MAX, Command, Lines};
pub use self::listing::{Facts, Rights, Style, names_before, wildcard};
pub use self::reply::{Reply, passive, quoted};
pub use self::session::Session;
