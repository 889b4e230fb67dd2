//! The settings of users, each with its default.

use std::path::PathBuf;
use std::time::Duration;

/// Who may do what. [`UsersConfig::default`] lets everybody play and download, and publish from
/// this machine alone.
#[derive(Clone, Debug, Default)]
pub struct UsersConfig {
    /// The file of users: by default none, and everybody may play and download. With one nobody may
    /// do anything that it does not say. It is read again when it changes.
    pub file: Option<PathBuf>,
    /// The file of keys by which URLs are signed, one a line: by default none, and signatures are
    /// passed over. The first line is what new URLs are signed with, all are taken.
    pub url_keys: Option<PathBuf>,
    /// A service that is asked where the file of users does not say yes: by default none.
    pub hook: Option<HookConfig>,
    /// Whose tokens (JWT) are taken: by default nobody's.
    pub jwt: Option<JwtConfig>,
    /// Certificates (PEM) of those who may have signed that of a service that is asked by HTTPS: by
    /// default those whom the system trusts.
    pub ca: Option<PathBuf>,
    /// Whether passwords themselves (Basic, FTP) are taken from other machines over connections
    /// that are not encrypted: by default not, because everybody on the way can read them. Set it
    /// where the network is known, or an encrypting proxy stands in front.
    pub takes_plain_passwords: bool,
}

/// A service that says who may do what.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookConfig {
    /// Where it is asked, by HTTP or HTTPS.
    pub url: String,
    /// How long its answers are kept. Longer spares it questions, and lets somebody in so much
    /// longer who may not any more.
    pub cache_time: Duration,
    /// How long an answer is waited for: who gets none is not let in.
    pub time_max: Duration,
}

/// Whose tokens are taken, and for whom they must be.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    /// The keys by which they are signed.
    pub keys: JwtKeys,
    /// Whom they must be for (`aud`). By default those are taken that are for nobody in particular,
    /// and no others.
    pub audience: Option<String>,
    /// Who must have made them (`iss`): by default anybody who has one of the keys.
    pub issuer: Option<String>,
}

/// Where a JWK set (RFC 7517) is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JwtKeys {
    /// In a file, which is read again when it changes. Keys of both sides (HS256) are taken, too.
    File(PathBuf),
    /// At a URL.
    Url(String),
}

impl From<&str> for JwtKeys {
    /// A URL of HTTP, or else a file.
    fn from(text: &str) -> Self {
        let is_url = text.starts_with("http://") || text.starts_with("https://");
        match is_url {
            true => Self::Url(text.to_owned()),
            false => Self::File(text.into()),
        }
    }
}

impl UsersConfig {
    /// Whether nobody is asked who it is.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.file.is_none() && self.hook.is_none() && self.url_keys.is_none() && self.jwt.is_none()
    }
}

impl HookConfig {
    /// One at this URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            cache_time: Duration::from_secs(30),
            time_max: Duration::from_secs(3),
        }
    }
}
