//! The certificates that a server shows: from files, read again when they change, or made by
//! itself.
//!
//! Which of several a client gets is decided by the name that it asks for (SNI, RFC 6066, section
//! 3), compared as clients compare it; without a name, or with one that none has, it is the first.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::config::{CertificateFiles, TlsConfig};

/// Bytes of a file of certificates or of a key.
pub const PEM_BYTES_MAX: u64 = 1 << 20;

/// Pairs of certificate and key.
pub const TLS_CERTIFICATES_MAX: usize = 64;

/// Why there is nothing to show.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("{}: {what}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// There are too many of them.
    #[error("more than {TLS_CERTIFICATES_MAX} certificates")]
    Many,
    /// None could be made.
    #[error("cannot make a certificate: {0}")]
    Made(String),
}

impl CertificateError {
    /// Whether files may be read later as they are now.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(self, Self::File { .. })
    }
}

/// What all connections of a moment are made with.
pub(super) fn server_config(
    tls: &TlsConfig,
    own: Option<&Arc<CertifiedKey>>,
) -> Result<ServerConfig, CertificateError> {
    let provider = Arc::new(default_provider());
    if tls.certificates.len() > TLS_CERTIFICATES_MAX {
        return Err(CertificateError::Many);
    }
    let mut pairs = Vec::new();
    for files in &tls.certificates {
        pairs.push(read_pair(files)?);
    }
    pairs.extend(own.map(Arc::clone));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| CertificateError::Made(error.to_string()))?;
    let builder = match &tls.client_ca {
        Some(path) => builder.with_client_cert_verifier(client_verifier(path, provider)?),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Pairs(pairs)));
    config.enable_secret_extraction = true;
    if let Ok(ticketer) = rustls::crypto::ring::Ticketer::new() {
        config.ticketer = ticketer;
    }
    // Two are for browsers that open two connections at once; each is sealed and sent.
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// What is looked at to see whether a file has changed.
pub(super) fn stamps(tls: &TlsConfig) -> Vec<Option<(u64, u64, i64, i64)>> {
    let pairs = tls.certificates.iter();
    let files = pairs.flat_map(|files| [&files.certificate, &files.key]);
    let stamp = |path: &PathBuf| {
        let there = fs::metadata(path).ok()?;
        Some((there.ino(), there.size(), there.ctime(), there.ctime_nsec()))
    };
    files.chain(&tls.client_ca).map(stamp).collect()
}

/// The certificate's fingerprint, as `openssl x509 -fingerprint -sha256` prints it.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest = Sha256::digest(certificate);
    let bytes: Vec<_> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// A pair of this server's own for these names, in memory alone.
pub(super) fn own_pair(names: &[String]) -> Result<Arc<CertifiedKey>, CertificateError> {
    let made = |error: &dyn std::fmt::Display| CertificateError::Made(error.to_string());
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names.to_vec()).map_err(|error| made(&error))?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(|error| made(&error))?;
    let key = any_supported_type(&key).map_err(|error| made(&error))?;
    Ok(Arc::new(CertifiedKey::new(vec![cert.der().clone()], key)))
}

/// The files of a pair of this server's own in `folder`: made for these names if there are none.
pub(super) fn self_signed(
    folder: &Path,
    names: &[String],
) -> Result<CertificateFiles, CertificateError> {
    let files = CertificateFiles {
        certificate: folder.join("tls-certificate.pem"),
        key: folder.join("tls-key.pem"),
    };
    let is_there = files.certificate.exists() && files.key.exists();
    if is_there && read_pair(&files).is_ok() {
        return Ok(files);
    }
    let made = |error: rcgen::Error| CertificateError::Made(error.to_string());
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names.to_vec()).map_err(made)?;
    let write = |path: &PathBuf, text: String| {
        let open = || {
            let mut options = File::options();
            // The key is for this account alone.
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(path)
        };
        let written = open().and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|source| CertificateError::File {
            path: path.clone(),
            source,
        })
    };
    fs::create_dir_all(folder).map_err(|source| CertificateError::File {
        path: folder.to_owned(),
        source,
    })?;
    write(&files.key, signing_key.serialize_pem())?;
    write(&files.certificate, cert.pem())?;
    Ok(files)
}

/// The pairs that a client may get.
#[derive(Debug)]
struct Pairs(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Pairs {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello
            .server_name()
            .and_then(|it| ServerName::try_from(it).ok());
        let names_it = |pair: &&Arc<CertifiedKey>| {
            let (Some(name), Some(certificate)) = (&name, pair.cert.first()) else {
                return false;
            };
            let parsed = ParsedCertificate::try_from(certificate);
            parsed.is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
        };
        let pair = self.0.iter().find(names_it).or_else(|| self.0.first());
        pair.map(Arc::clone)
    }
}

pub(super) fn read_pair(files: &CertificateFiles) -> Result<Arc<CertifiedKey>, CertificateError> {
    let chain = read_chain(&files.certificate)?;
    let text = read(&files.key)?;
    let wrong = |what: String| CertificateError::Content {
        path: files.key.clone(),
        what,
    };
    let key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| wrong(format!("no private key in PEM ({error})")))?;
    let key = any_supported_type(&key)
        .map_err(|error| wrong(format!("a private key of no known kind ({error})")))?;
    let pair = CertifiedKey::new(chain, key);
    pair.keys_match()
        .map_err(|_| wrong(format!("not the key of {}", files.certificate.display())))?;
    Ok(Arc::new(pair))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = read(path)?;
    let wrong = |what: String| CertificateError::Content {
        path: path.to_owned(),
        what,
    };
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| wrong(format!("no certificates in PEM ({error})")))?;
    let first = chain
        .first()
        .ok_or_else(|| wrong("no certificate in it".to_owned()))?;
    ParsedCertificate::try_from(first)
        .map_err(|error| wrong(format!("a certificate that cannot be read ({error})")))?;
    Ok(chain)
}

fn client_verifier(
    path: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let wrong = |what: String| CertificateError::Content {
        path: path.to_owned(),
        what,
    };
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| wrong(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| wrong(error.to_string()))
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let mut text = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(PEM_BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(|source| CertificateError::File {
        path: path.to_owned(),
        source,
    })?;
    match text.len() as u64 > PEM_BYTES_MAX {
        true => Err(CertificateError::Content {
            path: path.to_owned(),
            what: format!("longer than {PEM_BYTES_MAX} bytes"),
        }),
        false => Ok(text),
    }
}
