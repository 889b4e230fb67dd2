//! Rules, as settings say them: credentials are judged here, and rights looked up.

mod basic;
mod bearer;
mod digest;
mod signed;
mod standing;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onrush_wire::auth::{Action, Algorithm, Challenge, Credentials};
use tracing::info;

use super::attempts::Attempts;
use super::config::UsersConfig;
use super::error::OpenError;
use super::file::{REALM, USERS_FILE_BYTES_MAX, UserFile};
use super::hook::{Hook, Question, Verdict, told_query};
use super::keys::{URL_KEYS_BYTES_MAX, UrlKeys};
use super::login::Login;
use super::nonces::Nonces;
use super::password::Passwords;
use super::tokens::Tokens;
use super::watched::Watched;

/// Says who may do what.
#[derive(Debug)]
pub(super) struct Rules {
    is_open: bool,
    takes_plain_passwords: bool,
    file: Option<Watched<UserFile>>,
    url_keys: Option<Watched<UrlKeys>>,
    tokens: Option<Tokens>,
    hook: Option<Hook>,
    /// Who may have signed certificates of services.
    ca: Option<PathBuf>,
    nonces: Arc<Nonces>,
    attempts: Arc<Attempts>,
    /// Of what locks no password out: tokens, and what pages send. A page of anybody can have a
    /// browser send either.
    apart_attempts: Arc<Attempts>,
    passwords: Arc<Passwords>,
    started: Instant,
    stats: Arc<Stats>,
}

/// What became of requests.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Allowed, where not everything is.
    pub(crate) allowed: AtomicU64,
    /// Asked for a password, none having come.
    pub(crate) challenged: AtomicU64,
    /// Their nonce was too old, or was used before.
    pub(crate) stale: AtomicU64,
    /// Wrong users and passwords, expired and forged signatures.
    pub(crate) wrong: AtomicU64,
    /// Not looked at, because too many were wrong before.
    pub(crate) slowed: AtomicU64,
    /// Known, and without that right.
    pub(crate) forbidden: AtomicU64,
    /// The hook, or a slow hash, had no answer in time.
    pub(crate) unanswered: AtomicU64,
}

/// What a request is asked by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    Rtsp,
    Http,
    Ftp,
}

/// A request, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) protocol: Protocol,
    /// Whose it is.
    pub(crate) peer: IpAddr,
    /// Whether nobody on the way can read it.
    pub(crate) is_encrypted: bool,
    /// Whether a proxy has passed it on: its peer is then of this machine in name alone, if at all.
    pub(crate) is_behind_proxy: bool,
    /// Whether a page of another site has a browser send it, which its user may know nothing of.
    pub(crate) is_of_page: bool,
    pub(crate) action: Action,
    /// What it is about, as names are.
    pub(crate) path: &'a str,
    /// The method, as it came.
    pub(crate) method: &'a str,
    /// The target, as it came.
    pub(crate) uri: &'a str,
    /// The Authorization header.
    pub(crate) authorization: Option<&'a str>,
}

/// Why a request may not be carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// Somebody must log in: 401, with these challenges.
    LogIn {
        challenges: Vec<String>,
        note: &'static str,
    },
    /// What it says of itself is malformed: 400.
    Malformed(String),
    /// It may not: 403.
    Forbidden(&'static str),
    /// There were too many wrong passwords; after so many seconds one is looked at again: 429, or
    /// 503 where there is no such status.
    Slowed { retry_s: u64 },
    /// Nobody knows just now: 503.
    Unanswered,
}

/// What was wrong with what came, that a challenge says.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Fault {
    None,
    /// A nonce that is too old, and nothing worse.
    Stale,
    /// A token.
    Token,
}

impl Refusal {
    /// Whether it is no more than how clients begin: they are asked to log in, and do.
    pub(crate) fn is_invitation(&self) -> bool {
        matches!(self, Self::LogIn { note, .. } if *note != WRONG)
    }

    /// Why, for whoever asked.
    pub(crate) fn note(&self) -> String {
        match self {
            Self::LogIn { note, .. } | Self::Forbidden(note) => (*note).to_owned(),
            Self::Malformed(note) => note.clone(),
            Self::Slowed { retry_s } => {
                format!("too many wrong passwords from your address; try again in {retry_s} s")
            }
            Self::Unanswered => "who may do this cannot be found out now; try later".to_owned(),
        }
    }
}

impl Rules {
    /// One by these settings.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or understood, or the hook cannot be asked.
    pub(super) fn open(config: &UsersConfig, stats: Arc<Stats>) -> Result<Self, OpenError> {
        let parse_file = |text: &str| UserFile::parse(text).map_err(|error| error.to_string());
        let file = config.file.as_ref();
        let file = file.map(|path| Watched::open(path, USERS_FILE_BYTES_MAX, parse_file));
        let keys = config.url_keys.as_ref();
        let keys = keys.map(|path| Watched::open(path, URL_KEYS_BYTES_MAX, UrlKeys::parse));
        let ca = config.ca.as_deref();
        let tokens = config.jwt.as_ref().map(|jwt| Tokens::open(jwt, ca));
        let hook = config.hook.clone().map(|hook| Hook::new(hook, ca));
        Ok(Self {
            is_open: config.is_open(),
            takes_plain_passwords: config.takes_plain_passwords,
            file: file.transpose()?,
            url_keys: keys.transpose()?,
            tokens: tokens.transpose()?,
            hook: hook.transpose().map_err(OpenError::Hook)?,
            ca: config.ca.clone(),
            nonces: Arc::new(Nonces::new()),
            attempts: Arc::new(Attempts::new()),
            apart_attempts: Arc::new(Attempts::new()),
            passwords: Arc::new(Passwords::new()),
            started: Instant::now(),
            stats,
        })
    }

    /// Rules by other settings, which know what those before knew: of passwords and nonces, and of
    /// services what they said, as far as these are asked still. A reload would else need those to
    /// be there.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`].
    pub(super) fn after(before: &Self, config: &UsersConfig) -> Result<Self, OpenError> {
        let mut rules = Self::open(config, Arc::clone(&before.stats))?;
        rules.nonces = Arc::clone(&before.nonces);
        rules.attempts = Arc::clone(&before.attempts);
        rules.apart_attempts = Arc::clone(&before.apart_attempts);
        rules.passwords = Arc::clone(&before.passwords);
        rules.started = before.started;
        // What was heard of others than those who are believed now is forgotten.
        if rules.ca == before.ca {
            if let (Some(tokens), Some(before)) = (&mut rules.tokens, &before.tokens) {
                tokens.go_on(before);
            }
            if let (Some(hook), Some(before)) = (&mut rules.hook, &before.hook) {
                hook.go_on(before);
            }
        }
        Ok(rules)
    }

    /// Whether a request may be carried out.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(super) async fn authorize(&self, asked: &Asked<'_>) -> Result<(), Refusal> {
        self.authorize_known(asked, &mut None).await
    }

    /// As [`Self::authorize`]. Who asks is looked up only if that is not known, and kept.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(super) async fn authorize_known(
        &self,
        asked: &Asked<'_>,
        login: &mut Option<Login>,
    ) -> Result<(), Refusal> {
        if self.is_open {
            return self.open_to(asked);
        }
        if self.is_signed(asked)? || self.allows(&Login::Nobody, asked) {
            count(&self.stats.allowed);
            return Ok(());
        }
        let login = match login {
            Some(login) => login,
            None => login.insert(self.identify(asked).await?),
        };
        self.permit(login, asked).await
    }

    /// As [`Self::authorize`], and who it is that may: credentials are looked at also where nobody
    /// needs them.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(super) async fn authorize_as(&self, asked: &Asked<'_>) -> Result<Login, Refusal> {
        if self.is_open {
            return self.open_to(asked).map(|()| Login::Nobody);
        }
        if self.is_signed(asked)? {
            count(&self.stats.allowed);
            return Ok(Login::Nobody);
        }
        let login = self.identify(asked).await?;
        self.permit(&login, asked).await?;
        Ok(login)
    }

    /// Whether somebody who has logged in may do that.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(super) async fn permit(&self, login: &Login, asked: &Asked<'_>) -> Result<(), Refusal> {
        if self.is_open {
            return self.open_to(asked);
        }
        // The name of a file is where FTP has its URL's query.
        let is_signed = asked.protocol == Protocol::Ftp && self.is_signed(asked)?;
        if is_signed || self.allows(login, asked) || self.ask_hook(login, asked).await? {
            count(&self.stats.allowed);
            return Ok(());
        }
        if *login == Login::Nobody {
            count(&self.stats.challenged);
            return Err(self.challenge(asked, Fault::None, "log in"));
        }
        count(&self.stats.forbidden);
        Err(Refusal::Forbidden("this user may not do that here"))
    }

    /// Whether somebody who has logged in may do what it has not asked for: of that nothing is
    /// counted. `None` if nobody knows just now.
    pub(super) async fn could(&self, login: &Login, asked: &Asked<'_>) -> Option<bool> {
        if self.is_open {
            return Some(matches!(asked.action, Action::Play | Action::Download));
        }
        if self.allows(login, asked) {
            return Some(true);
        }
        match self.hear_hook(login, asked, self.started.elapsed()).await {
            None => Some(false),
            Some(verdict) => verdict.map(|it| it == Verdict::Yes),
        }
    }

    /// Logs somebody in by a password, or by a token in its place, for as long as that
    /// [stands](Self::stands).
    ///
    /// # Errors
    ///
    /// Why it cannot.
    pub(super) async fn log_in(
        &self,
        asked: &Asked<'_>,
        user: &str,
        password: &str,
    ) -> Result<Login, Refusal> {
        if user == TOKEN_USER && self.tokens.is_some() {
            return self.token(asked, password).await;
        }
        self.check_attempts(self.attempts_of(asked), asked.peer)?;
        self.password(asked, user, password).await
    }

    /// Whether anybody may log in as nobody: where there are no users, or some rights are
    /// everybody's, or only the hook can tell.
    pub(super) fn knows_nobody(&self, action: Action) -> bool {
        let file = self.file.as_ref().map(Watched::now);
        self.is_open
            || self.hook.is_some()
            || file.is_some_and(|file| file.allows_everybody(action))
    }

    /// Whether what is signed may be asked for by nobody.
    pub(super) const fn has_url_keys(&self) -> bool {
        self.url_keys.is_some()
    }

    /// Whether there is no configuration, and so all stays open.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Without configuration everybody may read, this machine alone may change something, and
    /// nobody may store files.
    pub(super) fn open_to(&self, asked: &Asked<'_>) -> Result<(), Refusal> {
        match asked.action {
            Action::Play | Action::Download => Ok(()),
            Action::Publish | Action::Admin if is_local(asked) => Ok(()),
            Action::Upload => {
                count(&self.stats.forbidden);
                let note = "files are taken of users who have that right, and there are no users";
                Err(Refusal::Forbidden(note))
            }
            Action::Publish | Action::Admin => {
                count(&self.stats.forbidden);
                let note = "without users this is for the machine itself";
                Err(Refusal::Forbidden(note))
            }
        }
    }

    /// Whether the file of users, or a token, allows it.
    fn allows(&self, login: &Login, asked: &Asked<'_>) -> bool {
        if is_for_users(login, asked) {
            return false;
        }
        let user = match login {
            Login::User(user) => Some(&**user),
            Login::Nobody | Login::Claimed { .. } | Login::Token { .. } => None,
        };
        if let Login::Token { claims, .. } = login
            && claims
                .as_ref()
                .is_some_and(|claims| claims.allow(asked.action, asked.path))
        {
            return true;
        }
        let file = self.file.as_ref().map(Watched::now);
        file.is_some_and(|file| file.allows(user, asked.action, asked.path))
    }

    /// What the hook says, if it has an answer; `None` if there is no hook for that.
    async fn hear_hook(
        &self,
        login: &Login,
        asked: &Asked<'_>,
        now: Duration,
    ) -> Option<Option<Verdict>> {
        let hook = self.hook.as_ref().filter(|_| !is_for_users(login, asked))?;
        let told = query(asked.uri).and_then(told_query);
        let question = Question {
            address: asked.peer.to_string(),
            protocol: asked.protocol.as_str(),
            action: asked.action.as_str(),
            path: asked.path,
            query: told.as_deref(),
            user: login.user(),
            verified: matches!(login, Login::User(_)),
            password: match login {
                Login::Claimed { password, .. } => Some(password),
                _ => None,
            },
            token: match login {
                Login::Token { token, .. } => Some(token),
                _ => None,
            },
        };
        Some(hook.ask(&question, now).await)
    }

    /// Whether the hook allows it, if there is one.
    async fn ask_hook(&self, login: &Login, asked: &Asked<'_>) -> Result<bool, Refusal> {
        let now = self.started.elapsed();
        let Some(verdict) = self.hear_hook(login, asked, now).await else {
            return Ok(false);
        };
        match (verdict, login) {
            (Some(Verdict::Yes), _) => Ok(true),
            (Some(Verdict::LogIn), Login::Claimed { .. }) => Err(self.wrong(asked, now)),
            (Some(Verdict::LogIn), Login::Token { .. }) => {
                self.apart_attempts.failed(asked.peer, now);
                Err(self.was_wrong(asked))
            }
            (Some(Verdict::LogIn), Login::Nobody) => Ok(false),
            (Some(Verdict::No | Verdict::LogIn), _) => {
                count(&self.stats.forbidden);
                Err(Refusal::Forbidden("that is not allowed here"))
            }
            (None, login) => {
                count(&self.stats.unanswered);
                // Users of the file need no hook to log in.
                let file = self.file.as_ref().map(Watched::now);
                match *login == Login::Nobody && file.is_some_and(|file| file.has_users()) {
                    true => Ok(false),
                    false => Err(Refusal::Unanswered),
                }
            }
        }
    }

    /// Who asks. The answer to a challenge (Digest) counts once.
    ///
    /// # Errors
    ///
    /// Why that is not known.
    pub(super) async fn identify(&self, asked: &Asked<'_>) -> Result<Login, Refusal> {
        let Some(authorization) = asked.authorization else {
            return match self.token_of_url(asked) {
                Some(token) => self.token(asked, token).await,
                None => Ok(Login::Nobody),
            };
        };
        let credentials = Credentials::parse(authorization);
        if !matches!(credentials, Ok(Credentials::Bearer(_))) {
            self.check_attempts(self.attempts_of(asked), asked.peer)?;
        }
        match credentials {
            Ok(Credentials::Digest(digest)) => self.digest(asked, &digest),
            Ok(Credentials::Basic { user, password }) => {
                self.password(asked, &user, &password).await
            }
            Ok(Credentials::Bearer(token)) => self.token(asked, &token).await,
            Err(error) if error.is_choice() => Err(self.unknown(asked)),
            Err(error) => Err(Refusal::Malformed(error.to_string())),
        }
    }

    /// What a wrong password of that request is counted among.
    fn attempts_of(&self, asked: &Asked<'_>) -> &Attempts {
        match asked.is_of_page {
            true => &self.apart_attempts,
            false => &self.attempts,
        }
    }

    fn check_attempts(&self, attempts: &Attempts, peer: IpAddr) -> Result<(), Refusal> {
        match attempts.wait(peer, self.started.elapsed()) {
            None => Ok(()),
            Some(wait) => {
                count(&self.stats.slowed);
                let retry_s = wait.as_secs() + 1;
                Err(Refusal::Slowed { retry_s })
            }
        }
    }

    /// Whether a password itself may be sent that way.
    fn takes_passwords(&self, asked: &Asked<'_>) -> bool {
        asked.is_encrypted || is_local(asked) || self.takes_plain_passwords
    }

    fn wrong(&self, asked: &Asked<'_>, now: Duration) -> Refusal {
        self.attempts_of(asked).failed(asked.peer, now);
        self.was_wrong(asked)
    }

    /// The same of what its address was charged for already.
    fn was_wrong(&self, asked: &Asked<'_>) -> Refusal {
        count(&self.stats.wrong);
        // An address cannot fill the log: after some it is slowed.
        let (peer, protocol) = (asked.peer, asked.protocol.as_str());
        info!(
            "{peer}: a wrong user or password, by {protocol}, for {:?}",
            asked.path
        );
        self.challenge(asked, Fault::None, WRONG)
    }

    fn stale(&self, asked: &Asked<'_>) -> Refusal {
        count(&self.stats.stale);
        let note = "the nonce is too old, or was used before; take this one";
        self.challenge(asked, Fault::Stale, note)
    }

    fn unknown(&self, asked: &Asked<'_>) -> Refusal {
        count(&self.stats.challenged);
        self.challenge(asked, Fault::None, "log in by one of the challenges")
    }

    /// What asks for a password, in every way that may be taken from there.
    fn challenge(&self, asked: &Asked<'_>, fault: Fault, note: &'static str) -> Refusal {
        let file = self.file.as_ref().map(Watched::now);
        let realm = file.as_ref().map_or(REALM, |file| file.realm());
        let nonce = self.nonces.make(self.started.elapsed(), asked.peer);
        let digests = file.as_ref().map_or(&[][..], |file| file.digests());
        let offered = Algorithm::ALL.into_iter();
        let offered = offered.filter(|algorithm| digests.contains(algorithm));
        let digest = |algorithm| Challenge::Digest {
            algorithm,
            realm,
            nonce: &nonce,
            is_stale: fault == Fault::Stale,
        };
        let has_passwords = self.hook.is_some() || file.as_ref().is_some_and(|f| f.has_users());
        let basic = has_passwords && self.takes_passwords(asked);
        let basic = basic.then_some(Challenge::Basic { realm });
        let is_invalid = fault == Fault::Token;
        let bearer = self.tokens.as_ref();
        let bearer = bearer.map(|_| Challenge::Bearer { realm, is_invalid });
        let challenges = bearer.into_iter().chain(offered.map(digest)).chain(basic);
        let challenges: Vec<_> = challenges.map(|challenge| challenge.to_string()).collect();
        match challenges.is_empty() {
            false => Refusal::LogIn { challenges, note },
            true if has_passwords => Refusal::Forbidden(PLAIN),
            true => Refusal::Forbidden("that is not allowed here"),
        }
    }
}

impl Protocol {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Rtsp => "rtsp",
            Self::Http => "http",
            Self::Ftp => "ftp",
        }
    }
}

/// Whether this machine itself asks.
const fn is_local(asked: &Asked<'_>) -> bool {
    asked.peer.is_loopback() && !asked.is_behind_proxy
}

fn query(uri: &str) -> Option<&str> {
    let before_fragment = uri.split('#').next().unwrap_or_default();
    before_fragment.split_once('?').map(|(_, query)| query)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Who logs in by this name has a token for a password, where tokens are taken.
const TOKEN_USER: &str = "token";

const WRONG: &str = "the user or the password is wrong";
const PLAIN: &str = "a password is not taken over a connection that others can read";

/// Whether nobody who has not logged in may do that, whatever anything says.
fn is_for_users(login: &Login, asked: &Asked<'_>) -> bool {
    asked.action == Action::Upload && *login == Login::Nobody
}

#[cfg(test)]
mod tests;
