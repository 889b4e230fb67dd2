//! HTTP/1.1 (RFC 9110, RFC 9112), from the side of a server of files.
//!
//! A connection's bytes are cut into heads by a [`HeadScanner`], a head is understood by
//! [`Request::parse`], which refuses whatever two readers could read in two ways, and
//! [`Answer::file`] decides all that a request for a file gets: status, head, and which pieces of
//! the file in which order. What a request carries as its content is counted off by [`Discard`].
//! What a PUT stores is a [`StoredPart`]. Whose a request is, also one that a proxy has passed on,
//! a [`Client`] says. Opening, sending, storing and waiting are the caller's.

mod answer;
mod condition;
mod content;
mod forwarded;
mod head;
mod listing;
mod log;
mod media_type;
mod method;
mod negotiate;
mod range;
mod status;
mod target;
mod upload;

pub use self::answer::{Answer, Context, PAGE_POLICY, Piece, Resource, page_policy_with};
pub use self::condition::{Validators, Verdict};
pub use self::content::{CHUNK_LINE_BYTES_MAX, Discard, Discarded};
pub use self::forwarded::{Client, Network, NetworkError};
pub use self::head::{
    Content, HEAD_BYTES_MAX, HEADERS_MAX, HeadScanner, Request, TARGET_BYTES_MAX, skip_empty_lines,
};
pub use self::listing::{ASSETS, Entry, ListedChannel, Listing, assets_from, in_url};
pub use self::log::{Access, LogFormat};
pub use self::media_type::{media_type, runs_scripts};
pub use self::method::Method;
pub use self::negotiate::{Coding, Codings};
pub use self::range::{RANGES_MAX, Ranges};
pub use self::status::{Refusal, Status};
pub use self::target::{HOST_BYTES_MAX, Target};
pub use self::upload::StoredPart;
