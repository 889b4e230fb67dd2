//! `onrush ctl` and `onrush reload`: what can be asked of a server that runs, and done to it, by
//! the API at its metrics address.

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueHint};
use onrush_wire::auth::Answering;
use onrush_wire::rtsp::RedirectTarget;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use ureq::Body;
use ureq::http::{Request, Response};
use url::{Host, Position, Url};

/// Ask a server that runs, or tell it what to do
///
/// By the API at its --metrics address, for those with the right admin; without users for this
/// machine alone. Answers are printed as JSON. It ends with 1 where there is no such session or
/// publisher, or nothing was changed.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Ctl {
    #[command(flatten)]
    server: ServerArg,

    #[command(subcommand)]
    what: What,
}

/// Have a server take what its configuration file says now
///
/// All of it, or nothing: who may do what, certificates, channels that are pulled, and limits of
/// sessions and connections can change while it runs; what needs a restart is refused, and said.
/// Sessions that it is not about go on. Prints the keys that have changed; ends with 1 if nothing
/// could be. The same as SIGHUP.
#[derive(Args, Debug)]
pub(crate) struct Reload {
    #[command(flatten)]
    server: ServerArg,
}

#[derive(Args, Debug)]
pub(crate) struct ServerArg {
    /// The server's metrics address
    ///
    /// An URL, HOST:PORT, or a port of this machine. Where there are users,
    /// http://NAME@HOST:PORT names one; the password is that of the variable ONRUSH_PASSWORD. It is
    /// proven by Digest, or sent where the server takes it: from its own machine, or with
    /// --plain-passwords. Without a name, ONRUSH_TOKEN may have a token.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9554",
          value_hint = ValueHint::Url, value_parser = server_url)]
    at: Url,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List sessions
    Sessions {
        /// Those whose client or film has this in it
        find: Option<String>,
    },
    /// End a session
    End {
        /// As `sessions` tells it
        id: String,
    },
    /// List live channels
    Channels,
    /// Let the publisher of a channel go
    Dismiss {
        /// Its path, as in live/door
        channel: String,
    },
    /// Show the limits that a reload may change
    Limits,
    /// Take no session more, and say when the last has ended
    Drain {
        /// Take sessions again
        #[arg(long)]
        stop: bool,

        /// Wait until the last has ended
        #[arg(long, conflicts_with = "stop")]
        wait: bool,

        /// Send clients on to this server, as in rtsp://HOST:PORT/
        #[arg(long, conflicts_with = "stop", value_name = "URL", value_hint = ValueHint::Url)]
        to: Option<RedirectTarget>,
    },
    /// Take what the configuration file says now
    Reload,
    /// Print what the API can be asked, as OpenAPI says it
    Api,
}

const EXAMPLES: &str = "\
Examples:
  onrush ctl sessions               who plays what?
  onrush ctl end 1f8a70c3d2b14e96
  onrush ctl drain --wait           before a restart
  onrush ctl drain --to rtsp://192.0.2.8/
  onrush ctl --at 192.0.2.7:9554 channels";

pub(crate) fn run(arguments: &Ctl, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let server = &arguments.server;
    match &arguments.what {
        What::Sessions { find } => {
            let mut url = server.url(&["sessions"]);
            url.query_pairs_mut()
                .append_pair("find", find.as_deref().unwrap_or_default());
            server.tell("GET", &url, out)
        }
        What::End { id } => server.tell("DELETE", &server.url(&["sessions", id]), out),
        What::Channels => server.tell("GET", &server.url(&["channels"]), out),
        What::Dismiss { channel } => {
            let path: Vec<_> = ["publishers"]
                .into_iter()
                .chain(channel.split('/'))
                .collect();
            server.tell("DELETE", &server.url(&path), out)
        }
        What::Limits => server.tell("GET", &server.url(&["limits"]), out),
        What::Drain { stop, wait, to } => server.drain_command(*stop, *wait, to.as_ref(), out),
        What::Reload => server.tell("POST", &server.url(&["reload"]), out),
        What::Api => server.tell("GET", &server.url(&[]), out),
    }
}

pub(crate) fn reload(arguments: &Reload, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let server = &arguments.server;
    server.tell("POST", &server.url(&["reload"]), out)
}

impl ServerArg {
    pub(crate) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.at.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().extend(["api", "v1"]).extend(path);
        }
        url
    }

    /// Asks, and prints the answer.
    pub(crate) fn tell(
        &self,
        method: &str,
        url: &Url,
        out: &mut dyn Write,
    ) -> anyhow::Result<ExitCode> {
        match self.ask(method, url)? {
            Ok(answer) if answer.is_null() => {}
            Ok(answer) => writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?,
            Err(error) => {
                writeln!(out, "{error}")?;
                return Ok(ExitCode::from(1));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Begins to drain, and waits for the end of it if that is asked, or ends it.
    pub(crate) fn drain_command(
        &self,
        stop: bool,
        wait: bool,
        to: Option<&RedirectTarget>,
        out: &mut dyn Write,
    ) -> anyhow::Result<ExitCode> {
        let mut url = self.url(&["drain"]);
        if let Some(to) = to {
            url.query_pairs_mut().append_pair("to", &to.to_string());
        }
        match (stop, wait) {
            (true, _) => self.tell("DELETE", &url, out),
            (false, true) => self.drain(&url, out),
            (false, false) => self.tell("PUT", &url, out),
        }
    }

    /// Begins to drain, and waits until nobody is left. A server that has too much to do to say so
    /// is asked again.
    fn drain(&self, begin: &Url, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let url = self.url(&["drain"]);
        if let Err(error) = self.ask("PUT", begin)? {
            writeln!(out, "{error}")?;
            return Ok(ExitCode::from(1));
        }
        let mut answered = Instant::now();
        loop {
            match self.ask("GET", &url) {
                Ok(Ok(answer)) if answer["is_empty"] == true => {
                    writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
                    return Ok(ExitCode::SUCCESS);
                }
                Ok(Ok(_)) => answered = Instant::now(),
                _ if answered.elapsed() < UNANSWERED_TIME_MAX => {}
                Ok(Err(error)) => {
                    writeln!(out, "{error}")?;
                    return Ok(ExitCode::from(1));
                }
                Err(error) => return Err(error),
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// What the server answers: null if nothing is to be said; the inner error is what it refuses.
    pub(crate) fn ask(&self, method: &str, url: &Url) -> anyhow::Result<Result<Value, String>> {
        let mut plain = url.clone();
        // Neither is told to anybody who reads what is printed; both can be left out of such a URL.
        let (Ok(()), Ok(())) = (plain.set_username(""), plain.set_password(None)) else {
            bail!("{url}: no URL of a server");
        };
        let mut user = user_of(url)?;
        let token = env::var("ONRUSH_TOKEN").ok();
        let token = token.filter(|token| user.is_none() && !token.is_empty());
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut answer = send(method, &plain, bearer.as_deref())?;
        if let Some(user) = &mut user
            && answer.status() == 401
            && is_challenged(user, &plain, &answer)
        {
            let target = &plain[Position::BeforePath..Position::AfterQuery];
            let cnonce = format!("{:016x}", RandomState::new().build_hasher().finish());
            let authorization = user.authorization(method, target, &cnonce);
            answer = send(method, &plain, authorization.as_deref())?;
        }
        let status = answer.status();
        let text = answer.body_mut().read_to_string();
        let text = text.with_context(|| plain.to_string())?;
        let said = serde_json::from_str(&text).unwrap_or(Value::Null);
        match (status.is_success(), said["error"].as_str()) {
            (true, _) => Ok(Ok(said)),
            (false, Some(error)) => Ok(Err(error.to_owned())),
            (false, None) => bail!("{plain}: {status}: {}", text.trim()),
        }
    }
}

/// Who asks, if the URL names a user.
fn user_of(url: &Url) -> anyhow::Result<Option<Answering>> {
    if url.username().is_empty() {
        return Ok(None);
    }
    let name = percent_decode_str(url.username()).decode_utf8();
    let name = name.context("the user's name is not UTF-8")?;
    let password = env::var("ONRUSH_PASSWORD");
    let password = password.context("set ONRUSH_PASSWORD to the password of this user")?;
    Ok(Some(Answering::new(&name, &password)))
}

/// Whether a user can answer what a server asks for.
fn is_challenged(user: &mut Answering, url: &Url, answer: &Response<Body>) -> bool {
    let challenges = answer.headers().get_all("WWW-Authenticate").iter();
    let challenges: Vec<_> = challenges.filter_map(|it| it.to_str().ok()).collect();
    let chosen = chosen(&challenges, is_of_this_machine(url));
    user.challenged(chosen.iter().copied())
}

/// Those of a server's challenges of which the best is answered. Where a server of this machine
/// takes a password itself it gets that: users that are known by Argon2 have nothing else. On a
/// network others read it, and it goes there only if no proof of it is asked for.
fn chosen<'a>(challenges: &'a [&'a str], is_of_this_machine: bool) -> &'a [&'a str] {
    let is_basic = |it: &&str| it.to_ascii_lowercase().starts_with("basic ");
    let basic = challenges.iter().position(is_basic);
    match basic.filter(|_| is_of_this_machine) {
        Some(at) => &challenges[at..=at],
        None => challenges,
    }
}

fn is_of_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Sends a request, and waits for the answer.
fn send(method: &str, url: &Url, authorization: Option<&str>) -> anyhow::Result<Response<Body>> {
    let request = Request::builder().method(method).uri(url.as_str());
    // As pages of other sites cannot.
    let request = request.header("X-Onrush", "ctl");
    let request = match authorization {
        Some(authorization) => request.header("Authorization", authorization),
        None => request,
    };
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .http_status_as_error(false)
        // A server of one's own is not asked through somebody else's.
        .proxy(None)
        .build();
    let answer = ureq::Agent::from(config).run(request.body(())?);
    answer.map_err(|error| {
        anyhow::anyhow!(
            "{url}: {error}; is `onrush serve` running there, with this --metrics address?"
        )
    })
}

/// Reads what was typed: an URL, HOST:PORT, or a port of this machine.
fn server_url(text: &str) -> Result<Url, String> {
    let with_scheme = match text.parse::<u16>() {
        Ok(port) => format!("http://127.0.0.1:{port}"),
        Err(_) if text.contains("://") => text.to_owned(),
        Err(_) => format!("http://{text}"),
    };
    let hint = "write http://HOST:PORT, HOST:PORT or PORT, as in 127.0.0.1:9554";
    let url = Url::parse(&with_scheme).map_err(|error| format!("{error}; {hint}"))?;
    match url.scheme() == "http" && url.has_host() && url.password().is_none() {
        true => Ok(url),
        false => Err(hint.to_owned()),
    }
}

/// Longer than a reload may take.
const PATIENCE: Duration = Duration::from_secs(65);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// While a server drains: how long it may not say who is left.
const UNANSWERED_TIME_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    use super::*;

    /// A server that gives these answers, one after the other, and its address.
    fn answering(answers: &'static [(&'static str, &'static str)]) -> (ServerArg, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = server_url(&listener.local_addr().unwrap().to_string()).unwrap();
        let answer = move || {
            for (status, body) in answers {
                let (mut client, _) = listener.accept().unwrap();
                let lines = BufReader::new(&client).lines().map(Result::unwrap);
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n");
                write!(client, "{head}Connection: close\r\n\r\n{body}").unwrap();
            }
        };
        (ServerArg { at }, thread::spawn(answer))
    }

    #[test]
    fn a_password_is_proven_to_servers_elsewhere() {
        let digest = "Digest realm=\"films\", nonce=\"abc\", qop=\"auth\"";
        for (url, challenges, is_proven) in [
            (
                "192.0.2.1:9554",
                &["Basic realm=\"films\"", digest][..],
                true,
            ),
            (
                "films.example:9554",
                &[digest, "Basic realm=\"films\""],
                true,
            ),
            ("192.0.2.1:9554", &["Basic realm=\"films\""], false),
            ("[::1]:9554", &[digest, "Basic realm=\"films\""], false),
            ("localhost:9554", &[digest], true),
        ] {
            let is_here = is_of_this_machine(&server_url(url).unwrap());
            let mut anna = Answering::new("anna", "secret");
            assert!(anna.challenged(chosen(challenges, is_here).iter().copied()));
            let answer = anna.authorization("GET", "/", "c").unwrap();
            assert_eq!(answer.starts_with("Digest "), is_proven, "{url}");
        }
    }

    /// A refusal is no end: neither one of the API nor one of what stands before it.
    #[test]
    fn a_drain_is_over_when_nobody_is_left() {
        let (server, answering) = answering(&[
            ("200 OK", r#"{"is_empty": false}"#),
            ("503 Service Unavailable", r#"{"error": "busy; ask again"}"#),
            ("429 Too Many Requests", "slower"),
            ("200 OK", r#"{"is_empty": true}"#),
        ]);
        let mut out = Vec::new();
        let code = server.drain_command(false, true, None, &mut out).unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
        let said: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(said["is_empty"], true);
        answering.join().unwrap();
    }

    #[test]
    fn a_refused_drain_is_told() {
        let (server, answering) = answering(&[("403 Forbidden", r#"{"error": "no admin"}"#)]);
        let mut out = Vec::new();
        let code = server.drain_command(false, true, None, &mut out).unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(1)));
        assert_eq!(out, b"no admin\n");
        answering.join().unwrap();
    }
}
