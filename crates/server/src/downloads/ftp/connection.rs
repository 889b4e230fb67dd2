//! One session: commands in, replies out; during a transfer it listens for ABOR.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;

use onrush_wire::ftp::{Act, Command, Lines, Reply, Session, passive, quoted};
use onrush_wire::http::{Access, Entry};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

use super::data::Data;
use super::sending::{Body, Outcome, send};
use crate::byte_stream::ByteStream;
use crate::downloads::admission::ConnectionSlot;
use crate::downloads::clock::Clock;
use crate::downloads::files::{Found, OpenFile};
use crate::downloads::folder::FOLDER_ENTRIES_MAX;
use crate::downloads::send::To;
use crate::downloads::{Site, UnderWay};
use crate::tls::Tls;
use crate::transfer::{Control, Policy};
use crate::users::Login;
use crate::users::file::Secret;

/// Serves a session to its end. With `tls` it may ask to be encrypted.
///
/// # Errors
///
/// What broke its control connection.
pub(super) async fn serve(
    site: &Rc<Site>,
    tls: Option<Arc<Tls>>,
    socket: TcpStream,
    peer: SocketAddr,
    place: &ConnectionSlot,
) -> io::Result<()> {
    let mut local = socket.local_addr()?;
    // A link-local address keeps its scope.
    local.set_ip(local.ip().to_canonical());
    let policy = Policy {
        schedule: site.settings.schedule,
        limit: place.limit().cloned(),
    };
    let ip = peer.ip().to_canonical();
    let session = Session::new(ip, !site.authorizer.is_open())
        .taking_uploads(site.uploads.is_some())
        .offering_tls(tls.is_some());
    let mut connection = Connection {
        site,
        tls,
        socket: ByteStream::Plain(socket),
        peer: ip,
        local,
        policy,
        place,
        lines: Lines::default(),
        received: Vec::new(),
        session,
        login: Login::Nobody,
        secret: None,
        data: Data::Unknown,
    };
    connection.greet().await?;
    while let End::Encrypt { has_data } = connection.run().await? {
        connection = match connection.encrypt(peer, has_data).await {
            Some(encrypted) => encrypted,
            // The log has it already.
            None => return Ok(()),
        };
    }
    connection.socket.close().await
}

pub(super) struct Connection<'a> {
    pub(super) site: &'a Rc<Site>,
    tls: Option<Arc<Tls>>,
    pub(super) socket: ByteStream,
    pub(super) peer: IpAddr,
    /// Where the client came to.
    local: SocketAddr,
    pub(super) policy: Policy,
    pub(super) place: &'a ConnectionSlot,
    lines: Lines,
    /// Received and not taken yet.
    pub(super) received: Vec<u8>,
    pub(super) session: Session,
    pub(super) login: Login,
    /// By what its password was known when it logged in.
    pub(super) secret: Option<Secret>,
    pub(super) data: Data,
}

/// Why no more commands are read.
enum End {
    Closed,
    /// A handshake comes first; then data may have to be encrypted, too.
    Encrypt {
        has_data: bool,
    },
}

impl Connection<'_> {
    async fn greet(&self) -> io::Result<()> {
        let greeting = match self.site.authorizer.is_open() {
            true => "onrush; anonymous is welcome",
            false => "onrush; log in, please",
        };
        self.reply(&Reply::new(220, greeting)).await
    }

    async fn run(&mut self) -> io::Result<End> {
        loop {
            // Until it is told that the server stops, if it waits for a command then.
            let mut stopping = self.site.stopping.subscribe();
            let command = match self.command(&mut stopping).await? {
                None => return Ok(End::Closed),
                Some(Ok(command)) => command,
                Some(Err(reply)) => {
                    self.reply(&reply).await?;
                    if reply.code == 421 {
                        return Ok(End::Closed);
                    }
                    continue;
                }
            };
            drop(stopping);
            let _under_way = UnderWay::begin(self.site);
            let reply = match self.session.decide(&command) {
                Act::Quit(reply) => {
                    self.reply(&reply).await?;
                    return Ok(End::Closed);
                }
                Act::Encrypt { reply, has_data } => {
                    self.reply(&reply).await?;
                    return Ok(End::Encrypt { has_data });
                }
                act => self.apply(act).await?,
            };
            self.reply(&reply).await?;
        }
    }

    /// Carries out the handshake that was asked for, and forgets what was said before it, also what
    /// came behind AUTH at once: somebody on the way may have said it. `None` if it comes to
    /// nothing.
    async fn encrypt(self, peer: SocketAddr, has_data: bool) -> Option<Self> {
        let (Some(tls), ByteStream::Plain(socket)) = (&self.tls, self.socket) else {
            return None;
        };
        let stream = Box::pin(tls.accept(socket, peer)).await?;
        let mut session = self.session;
        session.encrypted(has_data);
        Some(Self {
            socket: ByteStream::Tls(Box::new(stream)),
            session,
            lines: Lines::default(),
            received: Vec::new(),
            login: Login::Nobody,
            data: Data::Unknown,
            ..self
        })
    }

    /// What the next data connection is encrypted with, if it is to be.
    pub(super) fn data_tls(&self) -> Option<Arc<Tls>> {
        let tls = self.tls.as_ref();
        tls.filter(|_| self.session.encrypts_data()).cloned()
    }

    /// The next command; `None` once the client has closed. A client that is silent for too long
    /// gets a 421, and so does one that is when the server stops.
    async fn command(
        &mut self,
        stopping: &mut watch::Receiver<bool>,
    ) -> io::Result<Option<Result<Command, Reply>>> {
        let limits = &self.site.settings.limits;
        let mut deadline = None;
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            let now = Instant::now();
            let until = match self.lines.has_begun() {
                true => *deadline.get_or_insert(now + limits.download_head_time_max),
                // People type commands, and programs keep a session while they look elsewhere.
                false => now + 5 * limits.download_idle_time_max,
            };
            let received = tokio::select! {
                received = timeout_at(until, self.read()) => received,
                _ = stopping.wait_for(|it| *it) => {
                    return Ok(Some(Err(Reply::new(421, "the server stops; goodbye"))));
                }
            };
            match received {
                Ok(Ok(0)) => return Ok(None),
                Ok(received) => drop(received?),
                Err(_) => return Ok(Some(Err(Reply::new(421, "silent for too long; goodbye")))),
            }
        }
    }

    fn take_line(&mut self) -> Option<Result<Command, Reply>> {
        let (taken, line) = self.lines.take(&self.received);
        self.received.drain(..taken);
        line
    }

    /// Whether it is among the commands that came and are not carried out yet.
    pub(super) fn has_command(&self, verb: &str) -> bool {
        let (mut lines, mut rest) = (self.lines.clone(), &self.received[..]);
        while !rest.is_empty() {
            let (taken, line) = lines.take(rest);
            if line.is_some_and(|it| it.is_ok_and(|command| command.verb == verb)) {
                return true;
            }
            rest = &rest[taken..];
        }
        false
    }

    /// Receives some bytes; 0 at the end.
    pub(super) async fn read(&mut self) -> io::Result<usize> {
        loop {
            poll_fn(|context| self.socket.poll_read_ready(context)).await?;
            let mut bytes = [0; 512];
            match self.socket.try_read(&mut bytes) {
                Ok(received) => {
                    self.received.extend_from_slice(&bytes[..received]);
                    return Ok(received);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Does what a command asks for; its last reply.
    async fn apply(&mut self, act: Act) -> io::Result<Reply> {
        if let Err(reply) = self.is_logged_in_for(&act).await {
            return Ok(reply);
        }
        Ok(match act {
            Act::Reply(reply) | Act::Quit(reply) | Act::Encrypt { reply, .. } => reply,
            Act::LogIn { user, password } => self.log_in(user, &password).await,
            Act::Listen { is_extended } => self.listen(is_extended),
            Act::Connect(to) => {
                let local = self.local;
                self.data = Data::Connecting { local, to };
                Reply::new(200, "data goes there")
            }
            Act::ChangeFolder { name } => self.change_folder(name).await,
            Act::Size { name } => match self.size(&name).await {
                Ok(entry) => Session::size(&entry),
                Err(reply) => reply,
            },
            Act::Modified { name } => match self.file(&name).await {
                Ok(file) => Session::modified(&entry_of_file(&name, &file)),
                Err(reply) => reply,
            },
            Act::Facts { name } => match self.entry(&name).await {
                Ok(entry) => {
                    let rights = self.rights(&name).await;
                    self.session.facts(&name, &entry, rights)
                }
                Err(reply) => reply,
            },
            Act::Abort => {
                self.data = Data::Unknown;
                Reply::new(226, "there is nothing to abort")
            }
            Act::Status => self.status(None),
            Act::Retrieve { name, start_bytes } => {
                let body = self.retrieve(name, start_bytes).await;
                self.transfer(body).await?
            }
            Act::Store {
                name,
                how,
                announced_bytes,
            } => self.store(name, how, announced_bytes).await?,
            Act::Change { name, change } => self.change(name, change).await,
            Act::List {
                name,
                argument,
                style,
            } => {
                let body = self.list(name, &argument, style).await;
                self.transfer(body).await?
            }
        })
    }

    fn listen(&mut self, is_extended: bool) -> Reply {
        // PASV cannot name an IPv6 address.
        if !is_extended && self.local.is_ipv6() {
            return Reply::new(425, "PASV is of IPv4; use EPSV");
        }
        // The one that it has is given back first.
        self.data = Data::Unknown;
        match Data::listen(self.local, &self.site.settings, self.place.share()) {
            Ok((data, address)) => {
                self.data = data;
                let reply = passive(address, is_extended);
                reply.unwrap_or_else(|| Reply::new(425, "PASV is of IPv4; use EPSV"))
            }
            Err(error) => {
                debug!(
                    "FTP session of {}: no port to listen at: {error}",
                    self.peer
                );
                Reply::new(425, "no port is free; try later")
            }
        }
    }

    async fn retrieve(&self, name: String, start: u64) -> Result<Body, Reply> {
        let file = self.file(&name).await?;
        let end = file.identity.file_bytes;
        if start > end {
            return Err(Reply::new(554, format!("the file has {end} bytes")));
        }
        Ok(Body::File {
            name,
            file: file.file.clone(),
            start,
            end,
        })
    }

    /// Carries out a transfer from its 150 to its end; the reply to that.
    async fn transfer(&mut self, body: Result<Body, Reply>) -> io::Result<Reply> {
        let data = std::mem::take(&mut self.data);
        let body = match body {
            // The client's data connection is not made in vain: the next command may use it.
            Err(reply) => {
                self.data = data;
                return Ok(reply);
            }
            Ok(body) => body,
        };
        if matches!(data, Data::Unknown) {
            return Ok(Reply::new(425, "say PASV, EPSV, PORT or EPRT first"));
        }
        let (began, time_ms) = (Instant::now(), Clock::now_ms());
        self.reply(&Reply::new(150, body.announced())).await?;
        let control = Control::default();
        let (site, policy) = (Rc::clone(self.site), self.policy.clone());
        let data = (data, self.peer, self.data_tls());
        let sending = send((&site, &policy), data, &body, &control);
        let outcome = self.beside_commands(sending, &control).await;
        let is_aborted = matches!(outcome, Ok(Outcome::Aborted));
        let reply = match outcome {
            Ok(Outcome::Done) if body.is_cut() => {
                let text = format!("there are more than {FOLDER_ENTRIES_MAX} entries; some came");
                Ok(Reply::new(451, text))
            }
            Ok(Outcome::Done) => Ok(Reply::new(226, "that was all of it")),
            Ok(Outcome::Aborted) => self.aborted("aborted").await,
            Ok(Outcome::Failed(reply)) => Ok(reply),
            Err(error) => Err(error),
        };
        let status = logged_status(&reply, is_aborted);
        self.site.log.add(&Access {
            peer: self.peer,
            time_ms,
            line: &body.line(),
            status,
            body_bytes: control.sent_bytes() + body.text_bytes(),
            is_whole: status == 226,
            took: began.elapsed(),
            referer: b"",
            user_agent: b"",
        });
        reply
    }

    /// Says that a transfer is aborted; the reply to ABOR.
    pub(super) async fn aborted(&self, text: &'static str) -> io::Result<Reply> {
        let of_transfer = Reply::new(426, "the transfer is aborted");
        self.reply(&of_transfer).await?;
        Ok(Reply::new(226, text))
    }

    /// Sends or receives, and meanwhile listens: ABOR ends it, STAT and NOOP are answered, all else
    /// waits for its end.
    pub(super) async fn beside_commands(
        &mut self,
        moving: impl Future<Output = Outcome>,
        control: &Control,
    ) -> io::Result<Outcome> {
        let mut moving = pin!(moving);
        let mut listens = true;
        loop {
            let outcome = tokio::select! {
                // Commands first: who aborts closes the data connection, too, and the end of that
                // is the end of the file.
                biased;
                received = self.read(), if listens => {
                    if received? == 0 {
                        // Who has hung up wants nothing more.
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    None
                }
                outcome = &mut moving => Some(outcome),
            };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            while listens && !self.received.is_empty() {
                let before = (self.lines.clone(), self.received.clone());
                let reply = match self.take_line() {
                    Some(Ok(command)) if command.verb == "ABOR" => return Ok(Outcome::Aborted),
                    Some(Ok(command)) if command.verb == "NOOP" => Reply::new(200, "still at it"),
                    Some(Ok(command)) if command.verb == "STAT" => {
                        self.status(Some(control.sent_bytes()))
                    }
                    // It is carried out when this is done.
                    Some(_) => {
                        (self.lines, self.received) = before;
                        listens = false;
                        continue;
                    }
                    None => continue,
                };
                if let Some(outcome) = self.reply_beside(&reply, moving.as_mut()).await? {
                    return Ok(outcome);
                }
            }
            // It goes on between any two reads, however much there is to read.
            tokio::select! {
                biased;
                outcome = &mut moving => return Ok(outcome),
                () = yield_now() => {}
            }
        }
    }

    /// Replies, and goes on with a transfer while the client does not read that: it may be that
    /// one's turn, for which all others wait. What became of the transfer, if it has ended.
    async fn reply_beside(
        &self,
        reply: &Reply,
        mut moving: Pin<&mut impl Future<Output = Outcome>>,
    ) -> io::Result<Option<Outcome>> {
        let mut said = pin!(self.reply(reply));
        let outcome = tokio::select! {
            biased;
            done = &mut said => return done.map(|()| None),
            outcome = &mut moving => outcome,
        };
        said.await?;
        Ok(Some(outcome))
    }

    fn status(&self, sent_bytes: Option<u64>) -> Reply {
        let folder = self.session.folder();
        let doing = match sent_bytes {
            Some(bytes) => format!("moving a file; {bytes} bytes so far"),
            None => "no transfer".to_owned(),
        };
        Reply::new(211, format!("onrush\nin {folder}\n{doing}\nend"))
    }

    pub(super) async fn file(&self, name: &str) -> Result<Rc<OpenFile>, Reply> {
        match self.find(name).await? {
            Found::File(file) => Ok(file),
            _ => Err(no_such(name, "file")),
        }
    }

    pub(super) async fn entry(&self, name: &str) -> Result<Entry, Reply> {
        match self.find(name).await? {
            Found::File(file) => Ok(entry_of_file(name, &file)),
            Found::Folder { modified_s } => Ok(Entry {
                name: last(name),
                is_folder: true,
                file_bytes: 0,
                modified_s,
            }),
            Found::Nothing | Found::Denied => Err(no_such(name, "file or folder")),
        }
    }

    pub(super) async fn reply(&self, reply: &Reply) -> io::Result<()> {
        let stall_time_max = self.site.settings.limits.download_stall_time_max;
        let to = To::Connection(&self.socket);
        to.send(&reply.to_bytes(), false, stall_time_max).await
    }
}

pub(super) fn entry_of_file(name: &str, file: &OpenFile) -> Entry {
    Entry {
        name: last(name),
        is_folder: false,
        file_bytes: file.identity.file_bytes,
        modified_s: file.modified_s,
    }
}

pub(super) fn last(name: &str) -> String {
    name.rsplit('/').next().unwrap_or_default().to_owned()
}

pub(super) fn no_such(name: &str, what: &str) -> Reply {
    Reply::new(550, format!("{}: no such {what}", quoted(name)))
}

pub(super) fn not_for_reading(name: &str) -> Reply {
    Reply::new(550, format!("{}: not for reading", quoted(name)))
}

/// Nobody knows just now what is at a name.
pub(super) fn unanswered(name: &str, error: &io::Error) -> Reply {
    warn!("{name:?}: {error}");
    Reply::new(450, "the server is short of something; try later")
}

/// What the access log has of a transfer, also of one whose client has hung up.
pub(super) fn logged_status(reply: &io::Result<Reply>, is_aborted: bool) -> u16 {
    match reply {
        // 226 is of ABOR.
        Ok(reply) if !is_aborted => reply.code,
        _ => 426,
    }
}

#[cfg(test)]
mod tests;
