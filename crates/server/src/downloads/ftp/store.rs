//! What changes files: STOR and APPE, and the commands that make, remove and rename. Only who has
//! logged in as a user may ask for any of it, with the right to that.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use onrush_wire::auth::Action;
use onrush_wire::ftp::{COMMAND_BYTES_MAX, Change, Reply, Rights, Store, quoted};
use onrush_wire::http::{Access, Entry};
use onrush_wire::name::shown;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::connection::{Connection, entry_of_file, last, logged_status};
use super::data::Data;
use super::sending::Outcome;
use crate::byte_stream::ByteStream;
use crate::downloads::clock::Clock;
use crate::downloads::files::Found;
use crate::downloads::receive::{poll_read, some_of};
use crate::downloads::uploads::{Upload, UploadError, Wanted};
use crate::transfer::{Control, Pieces, Policy, StoreError, StoredTo, Transfers};
use crate::users::{Asked, Login, Refusal};

impl Connection<'_> {
    /// Whether this user may change what is at a name.
    pub(super) async fn may_change(&self, name: &str) -> Result<(), Reply> {
        if self.login == Login::Nobody {
            return Err(Reply::new(532, "log in as a user to change something"));
        }
        let permitted = self.permit(Action::Upload, name).await;
        permitted.map_err(|refusal| not_permitted(name, &refusal))
    }

    /// Whether this user may do what it has not asked for: of that nothing is counted, and nobody
    /// is told.
    pub(super) async fn could(&self, action: Action, name: &str) -> Result<bool, Refusal> {
        let asked = Asked {
            action,
            ..self.asked(name)
        };
        let told = self.site.authorizer.could(&self.login, &asked).await;
        told.ok_or(Refusal::Unanswered)
    }

    pub(super) async fn permit(&self, action: Action, name: &str) -> Result<(), Refusal> {
        let asked = Asked {
            action,
            ..self.asked(name)
        };
        self.site.authorizer.permit(&self.login, &asked).await
    }

    /// As [`Self::may_change`], of what nobody has asked to change.
    async fn could_change(&self, name: &str) -> bool {
        self.could(Action::Upload, name).await.unwrap_or(false)
    }

    /// What this client may do with what is at a name.
    pub(super) async fn rights(&self, name: &str) -> Rights {
        match self.site.uploads.is_some() && self.could_change(name).await {
            true => Rights::Change,
            false => Rights::Read,
        }
    }

    /// Whether it is a folder that this user may store files in.
    pub(super) async fn takes_files(&self, name: &str) -> bool {
        if self.site.uploads.is_none() {
            return false;
        }
        // A right to what is in a folder need not be one to the folder.
        let within = match name {
            "" => "*".to_owned(),
            name => format!("{name}/*"),
        };
        (self.could_change(name).await || self.could_change(&within).await)
            && matches!(self.site.files.find(name).await, Ok(Found::Folder { .. }))
    }

    /// From which byte on what this client was sending is gone on with, if it was broken off.
    async fn unfinished(&self, name: &str) -> Option<u64> {
        let uploads = self.site.uploads.as_ref()?;
        let bytes = match self.login {
            Login::Nobody => None,
            _ => uploads.unfinished(&self.login.uploader(), name).await,
        }?;
        // The password of a user whom only the hook knows was not looked at yet.
        self.may_change(name).await.ok().map(|()| bytes)
    }

    /// A file; of one that this client was sending and that was broken off, as much as it need not
    /// send again.
    pub(super) async fn size(&self, name: &str) -> Result<Entry, Reply> {
        match self.unfinished(name).await {
            Some(file_bytes) => Ok(Entry {
                name: last(name),
                is_folder: false,
                file_bytes,
                modified_s: 0,
            }),
            None => self.file(name).await.map(|file| entry_of_file(name, &file)),
        }
    }

    /// Whether the client has closed its control connection: one that was killed closes all it has.
    async fn is_gone(&mut self) -> bool {
        loop {
            let read = timeout_at(Instant::now() + GONE_TIME_MAX, self.read()).await;
            match read {
                Ok(Ok(received)) if received > 0 && self.received.len() < COMMAND_BYTES_MAX => {}
                Ok(Ok(received)) => return received == 0,
                Ok(Err(_)) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Makes, removes or renames.
    pub(super) async fn change(&mut self, name: String, change: Change) -> Reply {
        if let Err(reply) = self.may_change(&name).await {
            return reply;
        }
        let Some(uploads) = self.site.uploads.clone() else {
            return Reply::new(550, "nothing can be changed here");
        };
        let changed = match &change {
            Change::Remove => uploads.remove(&name).await,
            Change::MakeFolder => uploads.make_folder(&name).await,
            Change::RemoveFolder => uploads.remove_folder(&name).await,
            Change::Rename => uploads.is_there(&name).await,
            Change::RenameTo(to) => match self.may_rename(&uploads, (&name, to)).await {
                Ok(moving) => moving.done().await,
                Err(reply) => return reply,
            },
            Change::SetModified(at_s) => uploads.set_modified(&name, *at_s).await,
        };
        self.site.files.forget(&name);
        if let Change::RenameTo(to) = &change {
            self.site.files.forget(to);
        }
        match (changed, &change) {
            (Err(error), _) => refused(&name, &error),
            (Ok(()), Change::Rename) => self.session.may_rename(name),
            (Ok(()), change) => change.done(&name),
        }
    }

    /// Takes a file, from its 150 to its end; the reply to that.
    pub(super) async fn store(
        &mut self,
        name: String,
        how: Store,
        announced_bytes: Option<u64>,
    ) -> io::Result<Reply> {
        let data = std::mem::take(&mut self.data);
        let upload = match self.begin(&name, how).await {
            // As of what is sent, the next command may use the data connection.
            Err(reply) => {
                self.data = data;
                return Ok(reply);
            }
            Ok(upload) => upload,
        };
        if matches!(data, Data::Unknown) {
            return Ok(Reply::new(425, "say PASV, EPSV, PORT or EPRT first"));
        }
        let (began, time_ms) = (Instant::now(), Clock::now_ms());
        let start = upload.start();
        let text = format!("send {} from byte {start} on", quoted(&name));
        self.reply(&Reply::new(150, text)).await?;
        let control = Control::default();
        let outcome = {
            let (to, policy) = (upload.to(None), self.policy.clone());
            let (site, peer, tls) = (Rc::clone(self.site), self.peer, self.data_tls());
            let receiving = async {
                let stall_time_max = site.settings.limits.download_stall_time_max;
                let mut stream = match data.open(peer, tls).await {
                    Ok(stream) => stream,
                    Err(reply) => return Outcome::Failed(reply),
                };
                let stored = receive(&site.transfers, &mut stream, &to, (&policy, &control)).await;
                match stored {
                    Ok(()) => {
                        // It has what it came for, whether it hears that or not.
                        drop(stream.end(stall_time_max).await);
                        Outcome::Done
                    }
                    Err(error) => Outcome::Failed(not_stored(&name, &to, &error)),
                }
            };
            self.beside_commands(receiving, &control).await
        };
        let is_aborted = matches!(outcome, Ok(Outcome::Aborted));
        let reply = match outcome {
            Ok(Outcome::Done) => {
                let received = (control.sent_bytes(), start);
                self.finish(&name, upload, received, announced_bytes).await
            }
            Ok(Outcome::Aborted) => {
                let text = "aborted; what came is kept to be gone on with";
                self.aborted(text).await
            }
            Ok(Outcome::Failed(reply)) => Ok(reply),
            Err(error) => Err(error),
        };
        let status = logged_status(&reply, is_aborted);
        self.log_stored((&name, how), status, &control, (began, time_ms));
        reply
    }

    /// Writes a line to the access log.
    fn log_stored(
        &self,
        (name, how): (&str, Store),
        status: u16,
        control: &Control,
        (began, time_ms): (Instant, u64),
    ) {
        let verb = match how {
            Store::From(_) => "STOR",
            Store::Append => "APPE",
        };
        self.site.log.add(&Access {
            peer: self.peer,
            time_ms,
            line: &format!("{verb} /{} FTP", shown(name)),
            status,
            body_bytes: control.sent_bytes(),
            is_whole: status == 226,
            took: began.elapsed(),
            referer: b"",
            user_agent: b"",
        });
    }

    async fn begin(&self, name: &str, how: Store) -> Result<Upload, Reply> {
        self.may_change(name).await?;
        let Some(uploads) = self.site.uploads.clone() else {
            return Err(Reply::new(550, "nothing can be changed here"));
        };
        let wanted = Wanted {
            uploader: &self.login.uploader(),
            name,
            start: match how {
                Store::From(start) => Some(start),
                Store::Append => None,
            },
            // ALLO tells no more than how much to look for: some clients say what is left.
            total_bytes: None,
            makes_folders: false,
        };
        let begun = uploads.begin(self.site, wanted).await;
        begun.map_err(|error| refused(name, &error))
    }

    /// The end of a data connection is the end of the file, unless its client was killed, aborts it
    /// (RFC 959, section 4.1.3), or has said before that there would be more. Who says QUIT was not
    /// killed: it need not stay to hear the reply (section 4.1.1).
    async fn finish(
        &mut self,
        name: &str,
        upload: Upload,
        (received, start): (u64, u64),
        announced_bytes: Option<u64>,
    ) -> io::Result<Reply> {
        let is_short = |announced| received < announced && start + received != announced;
        if announced_bytes.is_some_and(is_short) {
            let text = "less came than ALLO said; what came is kept to be gone on with";
            return Ok(Reply::new(426, text));
        }
        if announced_bytes.is_none()
            && !self.has_command("QUIT")
            && self.is_gone().await
            && !self.has_command("QUIT")
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // It is carried out next, and has its own reply.
        if self.has_command("ABOR") {
            let text = "the transfer is aborted; what came is kept to be gone on with";
            return Ok(Reply::new(426, text));
        }
        let finished = upload.finish(true).await;
        self.site.files.forget(name);
        Ok(match finished {
            Ok(_) => Reply::new(226, format!("{} is there", quoted(name))),
            Err(error) => refused(name, &error),
        })
    }
}

/// Moves what comes on a data connection to a file, to its end.
async fn receive(
    transfers: &Transfers,
    stream: &mut ByteStream,
    to: &StoredTo,
    (policy, control): (&Policy, &Control),
) -> Result<(), StoreError> {
    if let ByteStream::Plain(socket) = &*stream {
        return transfers.store(socket, to, policy, control).await;
    }
    let mut sealed = Sealed {
        stream,
        received: Bytes::new(),
    };
    let pieces: &mut dyn Pieces = &mut sealed;
    transfers.store(pieces, to, policy, control).await
}

/// What comes on a data connection that is encrypted.
#[derive(Debug)]
struct Sealed<'a> {
    stream: &'a mut ByteStream,
    received: Bytes,
}

impl Pieces for Sealed<'_> {
    /// Nobody but the client can say there that the file ends: without its word it was cut off.
    fn poll_piece(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        if self.received.is_empty() {
            let mut received = Vec::new();
            let bytes = ready!(poll_read(self.stream, &mut received, context))?;
            if bytes == 0 && !self.stream.has_ended() {
                let what = "it closed without close_notify";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
            }
            self.received = received.into();
        }
        Poll::Ready(Ok(some_of(&mut self.received, most)))
    }
}

pub(super) fn not_permitted(name: &str, refusal: &Refusal) -> Reply {
    let code = match refusal {
        Refusal::Unanswered => 450,
        _ => 550,
    };
    Reply::new(code, format!("{}: {}", quoted(name), refusal.note()))
}

pub(super) fn refused(name: &str, error: &UploadError) -> Reply {
    let code = match error {
        UploadError::BadName | UploadError::LongName => 553,
        UploadError::NoPlace(_) => 550,
        UploadError::Busy(_) => 450,
        UploadError::Offset(_) => 554,
        UploadError::TooLarge(_) => 552,
        UploadError::NoSpace => 452,
        UploadError::System(error) => {
            warn!("{name:?} cannot be changed: {error}; look at the folder's owner");
            550
        }
    };
    Reply::new(code, format!("{}: {}", quoted(name), error.note()))
}

fn not_stored(name: &str, to: &StoredTo, error: &StoreError) -> Reply {
    let code = match error {
        StoreError::TooLarge { .. } => 552,
        StoreError::NoSpace => 452,
        StoreError::File { .. } => {
            warn!("upload of {name:?} from byte {}: {error}", to.offset);
            451
        }
        _ => 426,
    };
    Reply::new(code, error.to_string())
}

/// How long the end of a control connection may come behind that of its data connection.
const GONE_TIME_MAX: Duration = Duration::from_millis(20);
