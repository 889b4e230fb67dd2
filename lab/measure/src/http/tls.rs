//! TLS for servers that are compared: one certificate for all, made by the run, and one cipher.
//!
//! The client offers TLS 1.3 with AES-128-GCM alone, which is what browsers ask for first: so that
//! no server is measured with another cipher than the rest.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};

/// The name that the certificate is for.
pub(super) const NAME: &str = "localhost";

/// The files that a server shows itself with, as PEM.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A certificate that was made for this run, its key, and a client that trusts it.
#[derive(Debug)]
pub(super) struct Identity {
    _folder: tempfile::TempDir,
    files: IdentityFiles,
    client: Arc<ClientConfig>,
}

impl Identity {
    /// Makes one, in files that are gone when it is.
    pub(super) fn make() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]);
        let made = made.map_err(io::Error::other)?;
        let files = IdentityFiles {
            certificate: folder.path().join("certificate.pem"),
            key: folder.path().join("key.pem"),
        };
        fs::write(&files.certificate, made.cert.pem())?;
        fs::write(&files.key, made.signing_key.serialize_pem())?;
        let mut roots = RootCertStore::empty();
        roots
            .add(made.cert.der().clone())
            .map_err(io::Error::other)?;
        let provider = CryptoProvider {
            cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
            ..default_provider()
        };
        let client = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            _folder: folder,
            files,
            client: Arc::new(client),
        })
    }

    pub(super) fn files(&self) -> IdentityFiles {
        self.files.clone()
    }

    pub(super) fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }
}
