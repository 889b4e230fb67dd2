//! The client's side of TLS in loads and experiments: it takes any certificate, because what is
//! asked is what a server costs and not who it is.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

/// What all clients of a load share.
///
/// # Errors
///
/// If the library of ciphers has none for any version of TLS.
pub(crate) fn client_config() -> io::Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = builder.dangerous();
    let config = builder.with_custom_certificate_verifier(Arc::new(AnyServer));
    Ok(Arc::new(config.with_no_client_auth()))
}

/// Opens what came from a server, all of it, and puts the data behind `plain`.
///
/// # Errors
///
/// If it is no TLS of that connection's, or the server has said why it ends.
pub(crate) fn open(
    session: &mut ClientConnection,
    mut sealed: &[u8],
    plain: &mut Vec<u8>,
) -> io::Result<()> {
    // A session takes about a record at a time.
    while !sealed.is_empty() {
        session.read_tls(&mut sealed)?;
        let state = session.process_new_packets().map_err(io::Error::other)?;
        let (before, bytes) = (plain.len(), state.plaintext_bytes_to_read());
        plain.resize(before + bytes, 0);
        io::Read::read_exact(&mut session.reader(), &mut plain[before..])?;
    }
    Ok(())
}

#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = default_provider().signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
