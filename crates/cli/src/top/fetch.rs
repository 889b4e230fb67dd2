//! Fetching a server's status, again and again.

use std::fmt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use onrush_server::admin::status::{SCHEMA_VERSION, Status};
use url::Url;

/// How long the server may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Where the status is.
#[derive(Clone, Debug)]
pub(crate) struct Source(Url);

/// A status, or why there is none.
pub(crate) type Fetched = Result<Box<Status>, String>;

/// Reads what was typed: an URL, HOST:PORT, or a port of this machine.
pub(crate) fn status_url(text: &str) -> Result<Source, String> {
    let with_scheme = match text.parse::<u16>() {
        Ok(port) => format!("http://127.0.0.1:{port}"),
        Err(_) if text.contains("://") => text.to_owned(),
        Err(_) => format!("http://{text}"),
    };
    let hint = "write http://HOST:PORT, HOST:PORT or PORT, as in 127.0.0.1:9554";
    let mut url = Url::parse(&with_scheme).map_err(|error| format!("{error}; {hint}"))?;
    if url.scheme() != "http" || !url.has_host() {
        return Err(hint.to_owned());
    }
    if url.port().is_none() && !with_scheme.trim_end_matches('/').ends_with(":80") {
        // Nobody tells metrics at port 80.
        url.set_port(Some(PORT)).map_err(|()| hint.to_owned())?;
    }
    url.set_path("/status");
    url.set_query(None);
    Ok(Source(url))
}

impl Source {
    /// The status now.
    ///
    /// # Errors
    ///
    /// In words that say what to do.
    pub(crate) fn fetch(&self) -> anyhow::Result<Status> {
        self.get(&agent())
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// The status each `interval`, from a thread that ends when nobody listens any more.
    pub(crate) fn follow(&self, interval: Duration) -> Receiver<Fetched> {
        // Whoever is slow misses looks: he gets the newest ones late instead of all of them later.
        let (send, receive) = sync_channel(1);
        let source = self.clone();
        thread::spawn(move || {
            let agent = agent();
            let mut next = Instant::now() + interval;
            loop {
                thread::sleep(next.saturating_duration_since(Instant::now()));
                next = (next + interval).max(Instant::now());
                if send.send(source.get(&agent).map(Box::new)).is_err() {
                    return;
                }
            }
        });
        receive
    }

    fn get(&self, agent: &ureq::Agent) -> Result<Status, String> {
        let url = &self.0;
        let answer = agent.get(url.as_str()).call();
        let mut answer = answer.map_err(|error| {
            format!("{url}: {error}; is `onrush serve` running there, with this --metrics address?")
        })?;
        let text = answer
            .body_mut()
            .read_to_string()
            .map_err(|error| format!("{url}: {error}"))?;
        let stranger = |error| {
            format!(
                "{url}: this is not the status of an onrush server ({error}); give its --metrics \
                 address"
            )
        };
        let status: Status = serde_json::from_str(&text).map_err(stranger)?;
        if status.schema_version != SCHEMA_VERSION {
            let (theirs, ours) = (status.schema_version, SCHEMA_VERSION);
            return Err(format!(
                "{url}: its status has form {theirs}, this program reads {ours}; use the server's \
                 own onrush"
            ));
        }
        Ok(status)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (
            self.0.host_str().unwrap_or_default(),
            self.0.port().unwrap_or(80),
        );
        write!(f, "{host}:{port}")
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        // A server of one's own is not asked through somebody else's.
        .proxy(None)
        .build();
    config.into()
}

const PORT: u16 = 9554;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_as_people_write_them() {
        let url = |text: &str| status_url(text).map(|source| source.0.to_string());
        for text in [
            "http://127.0.0.1:9554",
            "127.0.0.1:9554",
            "9554",
            "127.0.0.1",
            "http://127.0.0.1/metrics?x",
        ] {
            assert_eq!(url(text).unwrap(), "http://127.0.0.1:9554/status", "{text}");
        }
        assert_eq!(url("[::1]:80").unwrap(), "http://[::1]/status");
        assert_eq!(url("a.example:7").unwrap(), "http://a.example:7/status");
        for wrong in ["", "https://127.0.0.1", "rtsp://h", "http://", "a b"] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_is_not_there_is_told_with_what_to_do() {
        // A port that is taken, so that nobody else comes to listen there, and where nobody does.
        let taken =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        taken.bind(&any.into()).unwrap();
        let address = taken.local_addr().unwrap().as_socket().unwrap().to_string();
        let error = status_url(&address)
            .unwrap()
            .fetch()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&address) && error.contains("--metrics"),
            "{error}"
        );
    }
}
