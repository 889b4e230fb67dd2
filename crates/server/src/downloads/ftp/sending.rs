//! What is sent on a data connection, and how.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use onrush_wire::ftp::{Reply, quoted};
use onrush_wire::name::shown;
use tokio::net::TcpStream;
use tracing::warn;

use super::data::Data;
use crate::downloads::Site;
use crate::downloads::memory::Reserved;
use crate::downloads::send::{To, abort};
use crate::remote::FilmFile;
use crate::tls::Tls;
use crate::transfer::{Control, Policy, TransferError};

/// What is sent on a data connection.
pub(super) enum Body {
    File {
        name: String,
        file: FilmFile,
        start: u64,
        end: u64,
    },
    Text {
        name: String,
        text: Vec<u8>,
        /// There is more than that.
        is_cut: bool,
        /// What holds its memory.
        _memory: Reserved,
    },
}

/// What became of a transfer.
pub(super) enum Outcome {
    /// All of it has gone, or come.
    Done,
    Aborted,
    Failed(Reply),
}

impl Body {
    /// The text of its 150.
    pub(super) fn announced(&self) -> String {
        match self {
            Self::File {
                name, start, end, ..
            } => {
                format!("sending {} ({} bytes) as it is", quoted(name), end - start)
            }
            Self::Text { name, .. } => format!("listing {}", quoted(name)),
        }
    }

    /// For the log.
    pub(super) fn line(&self) -> String {
        match self {
            Self::File { name, .. } => format!("RETR /{} FTP", shown(name)),
            Self::Text { name, .. } => format!("LIST /{} FTP", shown(name)),
        }
    }

    /// Whether there is more than is sent.
    pub(super) const fn is_cut(&self) -> bool {
        matches!(self, Self::Text { is_cut: true, .. })
    }

    pub(super) fn text_bytes(&self) -> u64 {
        match self {
            Self::File { .. } => 0,
            Self::Text { text, .. } => text.len() as u64,
        }
    }
}

/// Makes the data connection, and sends all of the body on it, or fails. Here an end of the
/// connection is the end of the file: so one that is cut short ends with a reset.
pub(super) async fn send(
    (site, policy): (&Site, &Policy),
    (data, peer, tls): (Data, IpAddr, Option<Arc<Tls>>),
    body: &Body,
    control: &Control,
) -> Outcome {
    let stream = match data.open(peer, tls).await {
        Ok(stream) => stream,
        Err(reply) => return Outcome::Failed(reply),
    };
    let cut = Cut(stream.socket());
    let (to, stall_time_max) = (
        To::Connection(&stream),
        site.settings.limits.download_stall_time_max,
    );
    let broken = |error: io::Error| Reply::new(426, error.to_string());
    let sent = async {
        match body {
            Body::File {
                file, start, end, ..
            } => {
                let asked = to.ask_kernel(end - start, stall_time_max).await;
                asked.map_err(broken)?;
                let part = *start..*end;
                let sent = site.transfers.cue(file, part, &stream, policy, control);
                sent.await.map_err(|error| not_sent(peer, &error))?;
            }
            Body::Text { text, .. } => {
                let sent = to.send(text, false, stall_time_max).await;
                sent.map_err(broken)?;
            }
        }
        stream.end(stall_time_max).await.map_err(broken)
    };
    match sent.await {
        Ok(()) => {
            std::mem::forget(cut);
            Outcome::Done
        }
        Err(reply) => Outcome::Failed(reply),
    }
}

fn not_sent(peer: IpAddr, error: &TransferError) -> Reply {
    let is_of_the_file = matches!(
        error,
        TransferError::Truncated { .. } | TransferError::File { .. }
    );
    if is_of_the_file {
        warn!("download of {peer}: {error}");
    }
    let code = if is_of_the_file { 451 } else { 426 };
    Reply::new(code, error.to_string())
}

/// A data connection that ends with a reset, also if its transfer is dropped.
struct Cut<'a>(&'a TcpStream);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        abort(self.0);
    }
}
