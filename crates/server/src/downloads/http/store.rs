//! PUT and DELETE: what is stored, replaced and removed, whichever version of HTTP asks for it.
//!
//! A file that was broken off is gone on with by a PUT with Content-Range, by the uploader whose it
//! is; HEAD tells that one from where on. It is in its place when the answer is 201 or 204.

use std::io;

use onrush_wire::auth::Action;
use onrush_wire::http::{
    Access, Answer, Content, Context, Method, Refusal, Request, Status, StoredPart, Target,
    Verdict, in_url,
};
use tokio::time::Instant;
use tracing::warn;

use super::film;
use super::responder::{Responder, Unfinished, not_allowed};
use crate::downloads::clock::Clock;
use crate::downloads::files::Found;
use crate::downloads::uploads::{Upload, UploadError, Uploads, Wanted};
use crate::transfer::{Control, Policy, StoreError, StoredTo, Transfers};
use crate::users::Login;

/// The content of a request.
pub(super) trait Incoming {
    /// Tells the client to send it, if it waits for that.
    async fn go_on(&mut self) -> io::Result<()>;

    /// Stores it.
    async fn store(
        &mut self,
        transfers: &Transfers,
        to: &StoredTo,
        how: (&Policy, &Control),
    ) -> Result<(), StoreError>;
}

/// An answer, and whether its connection may have another request: all of this one's content was
/// read then.
pub(super) struct Outcome {
    pub(super) answer: Answer,
    pub(super) keeps_alive: bool,
}

/// Why a request is not carried out: what it is answered with.
type Refused = (Status, String);

/// A request that changes something, for the access log. It has its line when this is dropped: also
/// where the client has gone, and with it the future that carried the request out (HTTP/2).
pub(super) struct Logged<'a> {
    responder: &'a Responder,
    request: &'a Request<'a>,
    /// As the log has it.
    line: &'a str,
    control: &'a Control,
    began: Instant,
    time_ms: u64,
    status: Status,
    is_whole: bool,
}

impl<'a> Logged<'a> {
    /// One that begins now; `control` counts what comes.
    pub(super) fn begin(
        responder: &'a Responder,
        (request, line): (&'a Request<'a>, &'a str),
        control: &'a Control,
    ) -> Self {
        Self {
            responder,
            request,
            line,
            control,
            began: Instant::now(),
            time_ms: Clock::now_ms(),
            status: Status::BadRequest,
            is_whole: false,
        }
    }

    /// It is answered so, and the answer was sent or not.
    pub(super) fn answered(&mut self, status: Status, is_sent: bool) {
        self.responder.site.stats.count_answer(status.code());
        self.status = status;
        self.is_whole = is_sent && status.code() < 300;
    }
}

impl Drop for Logged<'_> {
    fn drop(&mut self) {
        self.responder.site.log.add(&Access {
            peer: self.responder.client.address,
            time_ms: self.time_ms,
            line: self.line,
            status: self.status.code(),
            body_bytes: self.control.sent_bytes(),
            is_whole: self.is_whole,
            took: self.began.elapsed(),
            referer: self.request.referer,
            user_agent: self.request.user_agent,
        });
    }
}

impl Responder {
    /// Whether a request is one of those that change something, and that can be done here.
    pub(super) fn takes(&self, request: &Request<'_>) -> bool {
        self.site.uploads.is_some() && matches!(request.method, Method::Put | Method::Delete)
    }

    /// Carries out a PUT or a DELETE.
    pub(super) async fn change(
        &self,
        request: &Request<'_>,
        keeps_alive: bool,
        (content, control): (&mut impl Incoming, &Control),
    ) -> io::Result<Outcome> {
        // What was not read makes the connection end.
        let is_empty = matches!(request.content, Content::None | Content::Length(0));
        let stays = keeps_alive && is_empty;
        let refuse = |(status, note): Refused| {
            let answer = |context: &Context<'_>| Answer::refusal(status, &note, context);
            Outcome {
                answer: self.with_context(request, stays, answer),
                keeps_alive: stays,
            }
        };
        let (Some(uploads), Target::Path { name, is_folder }) =
            (self.site.uploads.clone(), &request.target)
        else {
            return Ok(refuse((Status::NotFound, NOTHING.to_owned())));
        };
        let asked = self.asked(request, Action::Upload, name);
        let login = match self.site.authorizer.authorize_as(&asked).await {
            Ok(login) => login,
            Err(refusal) => {
                let answer = |context: &Context<'_>| not_allowed(&refusal, context);
                return Ok(Outcome {
                    answer: self.with_context(request, stays, answer),
                    keeps_alive: stays,
                });
            }
        };
        if *is_folder {
            let note = "a folder is there; name a file".to_owned();
            return Ok(refuse((Status::Conflict, note)));
        }
        if let Err(refused) = self.check(request, name).await {
            return Ok(refuse(refused));
        }
        if request.method == Method::Delete {
            return Ok(match self.remove(&uploads, name).await {
                Ok(()) => Outcome {
                    answer: self.with_context(request, stays, Answer::removed),
                    keeps_alive: stays,
                },
                Err(refused) => refuse(refused),
            });
        }
        let stored = self.store(request, (&uploads, name, &login), (content, control));
        match stored.await? {
            Ok(done) => Ok(Outcome {
                answer: self.with_context(request, keeps_alive, |context| done.answer(context)),
                keeps_alive,
            }),
            Err(Failed::At(offset)) => {
                let note = UploadError::Offset(offset).note();
                let answer =
                    |c: &Context<'_>| Answer::unfinished(offset, Status::Conflict, &note, c);
                Ok(Outcome {
                    answer: self.with_context(request, stays, answer),
                    keeps_alive: stays,
                })
            }
            Err(Failed::Refused(refused)) => Ok(refuse(refused)),
        }
    }

    /// Whether what is there now is what the request says that it is.
    async fn check(&self, request: &Request<'_>, name: &str) -> Result<(), Refused> {
        // Not what was looked up a moment ago: it is about to change.
        self.site.files.forget(name);
        let found = self.site.files.find(name).await;
        let failed = || {
            let note = "the file is not the one that is meant; look again".to_owned();
            Err((Status::PreconditionFailed, note))
        };
        match found {
            Ok(Found::File(file)) => {
                let resource = file.resource(name, None, false);
                match resource.validators.judge(request) {
                    Verdict::Proceed => Ok(()),
                    // Of what is only for reading nothing follows here.
                    Verdict::NotModified if request.if_none_match.is_none() => Ok(()),
                    Verdict::NotModified | Verdict::Failed => failed(),
                }
            }
            Ok(Found::Folder { .. }) => Err((
                Status::Conflict,
                "a folder is there; name a file".to_owned(),
            )),
            Ok(_) if request.if_match.is_some() => failed(),
            Ok(Found::Nothing) if request.method == Method::Delete => {
                Err((Status::NotFound, NOTHING.to_owned()))
            }
            Ok(_) => Ok(()),
            Err(error) => {
                warn!("{name:?}: {error}");
                let note = "the server is short of something".to_owned();
                Err((Status::ServiceUnavailable, note))
            }
        }
    }

    async fn remove(&self, uploads: &Uploads, name: &str) -> Result<(), Refused> {
        let removed = uploads.remove(name).await;
        self.site.files.forget(name);
        removed.map_err(refused)
    }

    async fn store(
        &self,
        request: &Request<'_>,
        (uploads, name, login): (&Uploads, &str, &Login),
        (content, control): (&mut impl Incoming, &Control),
    ) -> io::Result<Result<Done, Failed>> {
        let part = match StoredPart::of(request) {
            Ok(part) => part,
            Err(Refusal { status, note }) => {
                return Ok(Err(Failed::Refused((status, note.to_owned()))));
            }
        };
        let wanted = Wanted {
            uploader: &login.uploader(),
            name,
            start: Some(part.start),
            total_bytes: part.total,
            makes_folders: true,
        };
        let upload = match uploads.begin(&self.site, wanted).await {
            Ok(upload) => upload,
            Err(UploadError::Offset(offset)) => return Ok(Err(Failed::At(offset))),
            Err(error) => return Ok(Err(Failed::Refused(refused(error)))),
        };
        content.go_on().await?;
        let to = upload.to(part.end);
        let transfers = &self.site.transfers;
        let how = (self.policy(), control);
        match content.store(transfers, &to, how).await {
            Ok(()) if part.is_last() => Ok(self.finish(request, name, upload).await),
            Ok(()) => Ok(Ok(Done::Part(part.end.unwrap_or(0)))),
            Err(StoreError::Peer(error)) if error.kind() != io::ErrorKind::InvalidData => {
                Err(error)
            }
            Err(error) => Ok(Err(Failed::Refused(not_stored(name, error)))),
        }
    }

    async fn finish(
        &self,
        request: &Request<'_>,
        name: &str,
        upload: Upload,
    ) -> Result<Done, Failed> {
        let replaces = request.if_none_match.as_deref().map(str::trim) != Some("*");
        // What came meanwhile counts, too.
        let finished = match self.check(request, name).await {
            Ok(()) => upload.finish(replaces).await.map_err(|error| match error {
                UploadError::NoPlace(note) if !replaces => {
                    (Status::PreconditionFailed, note.to_owned())
                }
                error => refused(error),
            }),
            Err(refused) => Err(refused),
        };
        let is_new = finished.map_err(Failed::Refused)?;
        self.site.files.forget(name);
        let etag = match self.site.files.find(name).await {
            Ok(Found::File(file)) => file.etag().to_owned(),
            // Somebody has removed it already.
            _ => String::new(),
        };
        let path = format!("/{}", in_url(name));
        Ok(Done::Whole { is_new, path, etag })
    }

    /// From where on what whoever asks by HEAD was sending is gone on with, where there is no such
    /// file.
    pub(super) async fn unfinished(&self, request: &Request<'_>, name: &str) -> Unfinished {
        let Some(uploads) = self.site.uploads.clone() else {
            return Unfinished::Other(None);
        };
        let is_known = request.authorization.is_some() || request.query.is_some();
        if request.method != Method::Head
            || !is_known
            || !matches!(self.site.files.find(name).await, Ok(Found::Nothing))
        {
            return Unfinished::Other(None);
        }
        let asked = self.asked(request, Action::Upload, name);
        let authorizer = &self.site.authorizer;
        let tell = async |login: &Login| {
            let offset = uploads.unfinished(&login.uploader(), name).await?;
            let answer = |c: &Context<'_>| Answer::unfinished(offset, Status::Ok, "", c);
            Some(self.with_context(request, request.keeps_alive, answer))
        };
        // What follows takes from here who it is: the answer to a challenge (Digest) serves once,
        // and a wrong token counts once, whether there is such a file or not.
        let login = match authorizer.identify(&asked).await {
            Ok(login) => login,
            // Of a film that everybody may play it is not looked at.
            Err(_) if request.authorization.is_none() && film::of(name).is_some() => {
                return Unfinished::Other(None);
            }
            Err(refusal) => return Unfinished::Refused(refusal),
        };
        let told = tell(&login).await;
        let mut login = Some(login);
        match told {
            Some(answer) if authorizer.authorize_known(&asked, &mut login).await.is_ok() => {
                Unfinished::Told(answer)
            }
            _ => Unfinished::Other(login),
        }
    }
}

/// What was done.
enum Done {
    /// The file is in its place.
    Whole {
        is_new: bool,
        path: String,
        etag: String,
    },
    /// There is so much of it.
    Part(u64),
}

enum Failed {
    /// There is so much of it, and what came begins elsewhere.
    At(u64),
    Refused(Refused),
}

impl Done {
    fn answer(&self, context: &Context<'_>) -> Answer {
        match self {
            Self::Whole { is_new, path, etag } => Answer::stored(*is_new, path, etag, context),
            Self::Part(offset) => {
                let note = "go on from there";
                Answer::unfinished(*offset, Status::Accepted, note, context)
            }
        }
    }
}

fn refused(error: UploadError) -> Refused {
    let note = error.note();
    let status = match &error {
        UploadError::BadName | UploadError::LongName => Status::Forbidden,
        UploadError::NoPlace(_) | UploadError::Offset(_) => Status::Conflict,
        UploadError::Busy(_) => Status::ServiceUnavailable,
        UploadError::TooLarge(_) => Status::ContentTooLarge,
        UploadError::NoSpace => Status::InsufficientStorage,
        UploadError::System(error) => match error.kind() {
            io::ErrorKind::NotFound => Status::NotFound,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                warn!("an upload cannot be stored: {error}; look at the folder's owner");
                Status::Forbidden
            }
            _ => {
                warn!("an upload cannot be stored: {error}");
                Status::InternalServerError
            }
        },
    };
    (status, note)
}

fn not_stored(name: &str, error: StoreError) -> Refused {
    let note = error.to_string();
    let status = match error {
        StoreError::TooLarge { .. } => Status::ContentTooLarge,
        StoreError::NoSpace => Status::InsufficientStorage,
        StoreError::Stalled => Status::RequestTimeout,
        StoreError::File { .. } => {
            warn!("upload of {name:?}: {note}");
            Status::InternalServerError
        }
        _ => Status::BadRequest,
    };
    (status, note)
}

const NOTHING: &str = "there is nothing by this name";
