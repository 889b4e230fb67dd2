//! How the operator's services are asked: by HTTP or HTTPS, at one URL, without redirections.
//!
//! Certificates of services are checked always: by those whom the system trusts, or by those of a
//! file alone.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::tls::PEM_BYTES_MAX;

/// What asks at `url`, and waits at most for `time_max`. `ca` is a file of certificates (PEM) of
/// those who may have signed the service's, in place of the system's.
///
/// # Errors
///
/// If the URL is none of HTTP, or there is nobody who could have signed a certificate.
pub(super) fn agent(
    url: &str,
    time_max: Duration,
    ca: Option<&Path>,
) -> Result<ureq::Agent, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let builder = ureq::Agent::config_builder()
        .timeout_global(Some(time_max))
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("onrush/", env!("CARGO_PKG_VERSION")))
        // The environment's proxies are for what goes out, and this stays in the house.
        .proxy(None);
    let builder = match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) => builder,
        (Some("https"), Some(_)) => builder.https_only(true).tls_config(tls(ca)?),
        _ => {
            return Err(format!(
                "{url}: give a URL that begins with http:// or https://"
            ));
        }
    };
    Ok(builder.build().into())
}

/// Whether what is asked at this URL cannot be changed by others on its way.
pub(super) fn is_safe(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    uri.is_some_and(|uri| {
        let host = uri.host().unwrap_or_default();
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = ip
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        uri.scheme_str() == Some("https") || is_loopback || host == "localhost"
    })
}

fn tls(ca: Option<&Path>) -> Result<TlsConfig, String> {
    let roots = match ca {
        Some(path) => of_file(path).map_err(|error| format!("{}: {error}", path.display()))?,
        None => of_system()?,
    };
    let config = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        // Named, because a process may have several, and ureq would choose.
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()));
    Ok(config.build())
}

fn of_file(path: &Path) -> io::Result<Vec<Certificate<'static>>> {
    let mut text = Vec::new();
    File::open(path)?
        .take(PEM_BYTES_MAX + 1)
        .read_to_end(&mut text)?;
    let is_whole = text.len() as u64 <= PEM_BYTES_MAX;
    let items = parse_pem(&text).filter(|_| is_whole);
    let certificates = items.filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    match certificates.is_empty() {
        false => Ok(certificates),
        true => {
            let what = format!("there is no certificate (PEM) in its {PEM_BYTES_MAX} bytes");
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

fn of_system() -> Result<Vec<Certificate<'static>>, String> {
    let found = rustls_native_certs::load_native_certs().certs;
    let certificates = found.iter().map(|it| Certificate::from_der(it).to_owned());
    match found.is_empty() {
        false => Ok(certificates.collect()),
        true => Err(
            "this system has no certificates to check others with (Debian's package \
             ca-certificates has some); name a file of them"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_loopback_are_safe() {
        for (url, expected) in [
            ("https://id.example.org/keys", true),
            ("http://id.example.org/keys", false),
            ("http://127.0.0.1:9000/keys", true),
            ("http://[::1]:9000/keys", true),
            ("http://localhost/keys", true),
            ("http://localhost.example.org/keys", false),
            ("http://127.0.0.1.example.org/keys", false),
            ("http://127.0.0.1@example.org/", false),
            ("/keys", false),
        ] {
            assert_eq!(is_safe(url), expected, "{url}");
        }
    }

    #[test]
    fn a_service_needs_a_url_and_signers() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let time_max = Duration::from_secs(1);
        for url in ["", "ftp://host/", "/may", "http:", "host:80"] {
            assert!(agent(url, time_max, None).is_err(), "{url}");
        }
        assert!(
            agent("http://host/", time_max, Some(&file)).is_ok(),
            "it is not read"
        );
        let of_file = || agent("https://host/", time_max, Some(&file)).map(drop);
        assert!(of_file().is_err(), "it is not there");
        std::fs::write(&file, "nothing").unwrap();
        assert!(of_file().unwrap_err().contains("no certificate"));
        let own = rcgen::generate_simple_self_signed(["host".to_owned()]).unwrap();
        std::fs::write(&file, own.cert.pem()).unwrap();
        assert_eq!(of_file(), Ok(()));
        let filling = usize::try_from(PEM_BYTES_MAX).unwrap();
        std::fs::write(&file, own.cert.pem() + &"#".repeat(filling)).unwrap();
        assert!(of_file().is_err(), "it is too long");
    }
}
