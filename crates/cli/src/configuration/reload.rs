//! What a server that runs takes of its file when that has changed: all that is said, or nothing.
//!
//! What changed is found key by key, in what the command line, the environment and the file say
//! together. A key that cannot change while a server runs refuses the whole.

use std::env;
use std::ffi::OsString;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use onrush_server::channels::input::Input;
use onrush_server::config::Config;
use onrush_server::server::{ReloadQueue, Server};

use super::keys::Keys;
use super::merge::{CONFIG, merged};
use crate::sandbox::{OwnFiles, Sandbox};
use crate::serve_options::Serve;
use crate::signals::{SignalName, Signals};

/// Options that a running server takes.
const TAKEN: &[&str] = &[
    "users",
    "url_keys",
    "auth_hook",
    "auth_hook_cache",
    "auth_hook_time_max",
    "jwt_keys",
    "jwt_audience",
    "jwt_issuer",
    "auth_ca",
    "plain_passwords",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "channels",
    "on_demand",
    "sessions_max",
    "sessions_per_address_max",
    "connections_max",
    "connections_per_address_max",
];

/// `onrush serve ...` as a program of its own.
#[derive(Debug, Parser)]
#[command(name = "onrush serve")]
struct Program {
    #[command(flatten)]
    serve: Serve,
}

/// What changes of a server's settings while it runs, and who asks for it: SIGHUP, and clients of
/// its API.
#[derive(Debug)]
pub(crate) struct Reloads {
    config: Config,
    told: Told,
    sandbox: Sandbox,
    /// None where there is no file that could be read again.
    requests: Option<ReloadQueue>,
}

/// What a server was told last.
#[derive(Debug)]
struct Told {
    matches: ArgMatches,
}

impl Reloads {
    /// Those of `server`, which `config` is of, as `words` said in all, and which has given up what
    /// `sandbox` says.
    ///
    /// # Errors
    ///
    /// If that is nothing that a server can be started with.
    pub(crate) fn new(
        words: Vec<OsString>,
        config: Config,
        sandbox: Sandbox,
        server: &mut Server,
    ) -> anyhow::Result<Self> {
        let requests = server.reload_requests();
        let told = Told::of(words)?;
        let has_file = told.matches.value_source(CONFIG) == Some(ValueSource::CommandLine);
        Ok(Self {
            config,
            told,
            sandbox,
            requests: requests.filter(|_| has_file),
        })
    }

    /// Hears nobody any more: clients of the API are refused at once, and do not wait.
    pub(crate) fn refuse(&mut self) {
        self.requests = None;
    }

    /// Reloads whenever it is asked to, until a signal that asks for something else.
    pub(crate) fn next(&mut self, signals: &mut Signals, server: &Server) -> SignalName {
        loop {
            let requests = &mut self.requests;
            let asked = async {
                match requests {
                    Some(requests) => requests.next().await,
                    None => std::future::pending().await,
                }
            };
            let request = match signals.next_or(asked) {
                Ok(SignalName::Hangup) => None,
                Ok(name) => return name,
                Err(Some(request)) => Some(request),
                // Without an address for metrics there is no API, and nobody will ask.
                Err(None) => {
                    self.requests = None;
                    continue;
                }
            };
            let reloaded = self.told.reload(server, &mut self.config, &self.sandbox);
            if let Err(error) = &reloaded {
                tracing::error!("reload: {error:#}");
            }
            if let Some(request) = request {
                request.answer(reloaded.map_err(|error| format!("{error:#}")));
            }
        }
    }
}

impl Told {
    /// What the command line, the environment and the file say now.
    ///
    /// # Errors
    ///
    /// If they say nothing that a server could be started with.
    fn now() -> anyhow::Result<Self> {
        let words = merged(env::args_os().collect(), |name| env::var_os(name))?;
        Self::of(words)
    }

    fn of(words: Vec<OsString>) -> anyhow::Result<Self> {
        let words = words.into_iter().skip(1);
        let matches = Program::command()
            .try_get_matches_from(words)
            .map_err(|error| {
                let text = error.to_string();
                anyhow::anyhow!("{}", text.lines().collect::<Vec<_>>().join(" "))
            })?;
        Ok(Self { matches })
    }

    /// Has `server`, which `config` is of, take what is said now, and says which keys have changed.
    ///
    /// # Errors
    ///
    /// What it cannot take; then nothing has changed.
    fn reload(
        &mut self,
        server: &Server,
        config: &mut Config,
        sandbox: &Sandbox,
    ) -> anyhow::Result<Vec<String>> {
        let now = Self::now().context("nothing is changed")?;
        let changed = self.changed(&now);
        if changed.is_empty() {
            tracing::info!("reload: what is said is as before");
            return Ok(Vec::new());
        }
        let paths = |ids: &[(String, String)]| {
            let paths: Vec<_> = ids.iter().map(|(_, path)| path.as_str()).collect();
            paths.join(", ")
        };
        let fixed = |it: &&(String, String)| !TAKEN.contains(&it.0.as_str());
        let fixed: Vec<_> = changed.iter().filter(fixed).cloned().collect();
        if !fixed.is_empty() {
            bail!(
                "nothing is changed: this needs a restart: {}",
                paths(&fixed)
            );
        }
        let serve = Program::from_arg_matches(&now.matches)?.serve;
        let mut new = serve.config(config.media_root.clone())?;
        new.state.clone_from(&config.state);
        new.remote.clone_from(&config.remote);
        new.libraries.clone_from(&config.libraries);
        if received(&new) != received(config) {
            bail!("nothing is changed: this needs a restart: channel.input of what comes by UDP");
        }
        sandbox
            .check(&new, &OwnFiles::of(&serve))
            .context("nothing is changed")?;
        server.reload(&new).context("nothing is changed")?;
        tracing::info!("reload: changed: {}", paths(&changed));
        *config = new;
        *self = now;
        Ok(changed.into_iter().map(|(_, path)| path).collect())
    }

    /// The options that say something else now, with their keys.
    fn changed(&self, now: &Self) -> Vec<(String, String)> {
        let keys = Keys::new();
        let differs = |id: &str| {
            let raw = |matches: &ArgMatches| -> Vec<OsString> {
                let values = matches.get_raw(id).into_iter().flatten();
                values.map(ToOwned::to_owned).collect()
            };
            raw(&self.matches) != raw(&now.matches)
        };
        let changed = keys.all().filter(|key| differs(key.id()));
        changed
            .map(|key| (key.id().to_owned(), key.path()))
            .collect()
    }
}

/// The channels that are sent to the server, each with its input.
fn received(config: &Config) -> Vec<(&str, &Input)> {
    let sources = config.channels.sources.iter();
    sources.map(|it| (it.name.as_str(), &it.input)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &str) -> Told {
        let words = ["onrush", "serve"]
            .into_iter()
            .chain(words.split_whitespace());
        Told::of(words.map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn what_changed_is_told_by_key() {
        let changed = |one: &str, other: &str| {
            let changed = told(one).changed(&told(other)).into_iter();
            changed.map(|(_, path)| path).collect::<Vec<_>>()
        };
        assert_eq!(changed("", ""), [""; 0]);
        assert_eq!(changed("", "--burst 20ms"), [""; 0], "it is the default");
        assert_eq!(changed("--burst 20ms", "--burst 5ms"), ["server.burst"]);
        assert_eq!(
            changed("a --rtsp 1", "b --rtsp 1 --rtsp 2"),
            ["library.folder", "listen.rtsp"]
        );
        assert_eq!(
            changed("--library a=/a", "--library a=/b"),
            ["library.path"]
        );
        assert!(!TAKEN.contains(&"libraries"));
        let certificate = "--tls-certificate a --tls-key b";
        assert_eq!(
            changed(certificate, &format!("{certificate} --tls-udp")),
            ["tls.udp"]
        );
    }

    #[test]
    fn what_is_taken_are_options() {
        let keys = Keys::new();
        for id in TAKEN {
            assert!(keys.all().any(|key| key.id() == *id), "{id}");
        }
    }
}
