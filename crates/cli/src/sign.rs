//! `onrush sign`: a URL that is a right for a time.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use onrush_server::users::UrlKeys;
use onrush_wire::auth::{Grant, Rights};
use onrush_wire::hls;
use onrush_wire::rtsp::{ELEMENTARY, Target};
use url::Url;

use crate::units::{Time, within};

/// Sign a URL, with which anybody may play or download for a time
///
/// Prints the URL with rights, expiry and signature in its query. A server that was given the same
/// file by --url-keys lets it pass without a password, by RTSP, HTTP and FTP. It is for that one
/// path, however it is written; that of a film's playlist or page is for all of the film.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Sign {
    /// What to sign: rtsp://, http:// or ftp://
    #[arg(value_hint = ValueHint::Url)]
    url: String,

    /// File of keys; the first one signs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    keys: PathBuf,

    /// How long it holds from now
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(24 * 3600)),
          value_parser = within(Time(Duration::from_secs(1)), Time(EXPIRES_MAX)))]
    expires: Time,

    /// What it allows: play, download, publish, upload, with commas between
    #[arg(long, value_name = "RIGHTS", default_value_t = Rights::READ)]
    rights: Rights,
}

pub(crate) fn run(arguments: &Sign, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let keys = UrlKeys::open(&arguments.keys)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let expires_s = (now + arguments.expires.0).as_secs();
    let signed = signed(&arguments.url, keys.first(), arguments.rights, expires_s)?;
    writeln!(out, "{signed}")?;
    Ok(ExitCode::SUCCESS)
}

fn signed(text: &str, key: &[u8], rights: Rights, expires_s: u64) -> anyhow::Result<String> {
    let url = Url::parse(text).with_context(|| format!("{text:?} is no URL"))?;
    if !["rtsp", "rtsps", "http", "https", "ftp"].contains(&url.scheme()) {
        bail!("{text:?}: sign rtsp://, http:// or ftp://");
    }
    let Ok(Target::Path(path)) = Target::parse(url.path()) else {
        bail!("{text:?} has no path that a server could have");
    };
    if url.query_pairs().any(|(name, _)| name == "signature") {
        bail!("{text:?} is signed already");
    }
    // All that a film has by HLS and DASH is under its own right, and so are its streams.
    let path = hls::parse(&path).map_or(&*path, |(film, _)| film);
    let path = path.strip_suffix(ELEMENTARY).unwrap_or(path);
    let grant = Grant::sign(key, path, rights, expires_s);
    // As it was written: only the query grows.
    let plain = text.split('#').next().unwrap_or_default();
    let join = match (url.scheme(), plain.contains('?')) {
        // A URL of FTP has no query: it is the end of the file's name.
        ("ftp", false) => "%3F",
        ("ftp", true) => bail!("{text:?}: write a question mark of a file's name as %3F"),
        (_, true) => "&",
        (_, false) => "?",
    };
    Ok(format!("{plain}{join}{grant}"))
}

const EXPIRES_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

const EXAMPLES: &str = "\
Examples:
  openssl rand -hex 32 > keys
  onrush serve /srv/films --url-keys keys --users users
  onrush sign rtsp://films.example.org:8554/a.mp4 --keys keys --expires 2h
  onrush sign http://films.example.org:8080/a.mp4 --keys keys --rights download
  onrush sign http://films.example.org:8080/a.mp4/hls/index.html --keys keys

Exit codes:
  0  the URL is on stdout
  2  it could not be signed";

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"0123456789abcdef";

    #[test]
    fn a_url_is_signed_for_the_path_that_it_decodes_to() {
        for (url, path, join) in [
            ("rtsp://h:8554/a%20b/%C3%A9.ts", "a b/é.ts", "?"),
            ("http://h/a b/é.ts", "a b/é.ts", "?"),
            ("http://h/a.ts?x=y#z", "a.ts", "&"),
            ("rtsp://h/films/", "films", "?"),
            ("rtsp://h/a.ts?tracks=elementary", "a.ts", "&"),
            ("rtsp://h/a.ts/tracks=elementary", "a.ts", "?"),
            ("http://h/in/a.mp4/hls/index.html", "in/a.mp4", "?"),
            ("http://h/a.mp4/dash/manifest.mpd", "a.mp4", "?"),
            ("ftp://h/in/a.ts", "in/a.ts", "%3F"),
        ] {
            let signed = signed(url, KEY, Rights::READ, 1000).unwrap();
            let plain = url.split('#').next().unwrap();
            let query = signed
                .strip_prefix(plain)
                .unwrap()
                .strip_prefix(join)
                .unwrap();
            let grant = Grant::of_query(query).unwrap().unwrap();
            assert_eq!(grant.check([KEY], path, 999), Ok(()), "{url}");
        }
        for url in [
            "",
            "a.ts",
            "file:///h/a.ts",
            "ftp://h/a.ts?x",
            "http://h/a?signature=x",
            "http://h/%2e%2e%2fa",
        ] {
            assert!(signed(url, KEY, Rights::READ, 1000).is_err(), "{url}");
        }
    }
}
