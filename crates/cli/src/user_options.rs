//! Who may do what, as options of `onrush serve` and `onrush relay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use onrush_server::users::{HookConfig, JwtConfig, UsersConfig};

use crate::units::{Time, within};
use crate::values::DAY;

#[derive(Args, Debug)]
pub(crate) struct UserOptions {
    /// File of users, groups and their rights
    ///
    /// Without it everybody may play and download. With it nobody may do anything that it does not
    /// say: `onrush user add FILE NAME` makes one whose users may play and download everything. It
    /// is read again when it changes. What it discloses if it is stolen stands in docs/users.md.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    users: Option<PathBuf>,

    /// File of keys by which URLs are signed
    ///
    /// One key a line, of 16 bytes at least; all are taken, and `onrush sign` signs with the first.
    /// A signed URL is a right for whoever has it, until it expires.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    url_keys: Option<PathBuf>,

    /// A service that says who may do what
    ///
    /// An http:// or https:// URL, which gets a POST with JSON (address, protocol, user, password,
    /// path, action) for what the file of users does not allow. 2xx lets it pass, 401 asks for a
    /// password, other answers refuse; so does none in time.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, hide_short_help = true)]
    auth_hook: Option<String>,

    /// How long the service's answers are kept
    #[arg(long, value_name = "TIME", hide_short_help = true,
          default_value_t = Time(HookConfig::new("").cache_time),
          value_parser = within(Time(Duration::ZERO), Time(DAY)))]
    auth_hook_cache: Time,

    /// How long an answer of it is waited for
    #[arg(long, value_name = "TIME", hide_short_help = true,
          default_value_t = Time(HookConfig::new("").time_max),
          value_parser = within(Time(Duration::from_millis(10)), Time(Duration::from_secs(60))))]
    auth_hook_time_max: Time,

    /// Keys by which tokens (JWT) are signed
    ///
    /// A file with a JWK set, or the https:// URL of one. What a token may, its claim onrush_rights
    /// says; docs/users.md tells how. It is sent as `Authorization: Bearer`, or behind `?token=`.
    #[arg(long, value_name = "FILE|URL", hide_short_help = true)]
    jwt_keys: Option<String>,

    /// Whom tokens must be for (`aud`)
    ///
    /// Without it those are taken that are for nobody in particular, and no others.
    #[arg(
        long,
        value_name = "NAME",
        hide_short_help = true,
        requires = "jwt_keys"
    )]
    jwt_audience: Option<String>,

    /// Who must have made tokens (`iss`)
    #[arg(
        long,
        value_name = "NAME",
        hide_short_help = true,
        requires = "jwt_keys"
    )]
    jwt_issuer: Option<String>,

    /// Who may have signed the certificates of --auth-hook and --jwt-keys
    ///
    /// A file of certificates (PEM), which are trusted in place of the system's.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    auth_ca: Option<PathBuf>,

    /// Take passwords in the clear from other machines
    ///
    /// Basic and FTP send the password itself, which everybody on the way can read. Without this
    /// they are for loopback, and other machines log in by Digest.
    #[arg(long, hide_short_help = true)]
    plain_passwords: bool,
}

impl UserOptions {
    /// The settings.
    pub(crate) fn settings(&self) -> UsersConfig {
        UsersConfig {
            file: self.users.clone(),
            url_keys: self.url_keys.clone(),
            hook: self.auth_hook.as_ref().map(|url| HookConfig {
                url: url.clone(),
                cache_time: self.auth_hook_cache.0,
                time_max: self.auth_hook_time_max.0,
            }),
            jwt: self.jwt_keys.as_deref().map(|keys| JwtConfig {
                keys: keys.into(),
                audience: self.jwt_audience.clone(),
                issuer: self.jwt_issuer.clone(),
            }),
            ca: self.auth_ca.clone(),
            takes_plain_passwords: self.plain_passwords,
        }
    }
}
