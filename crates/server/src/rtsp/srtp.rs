//! The keys of sessions whose packets are encrypted (SRTP), and who is told them.
//!
//! DESCRIBE tells a client the key that the server will encrypt with, and SETUP comes later, if it
//! comes at all. Nothing is kept between the two: the description has a random number in its URLs,
//! and a key is derived of that, of the track and of a secret of this process. So a key is told to
//! one client, and because each session has an SSRC of its own, no two have a key stream in common.
//!
//! What a client says is encrypted with the key that its `KeyMgmt` tells (RFC 4567), or with the
//! server's, if it tells none.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;

use hmac::{Hmac, KeyInit, Mac};
use onrush_wire::rtcp::ntp;
use onrush_wire::rtsp::{LowerTransport, Reply, Request, SrtpParameter, StatusCode, Transport};
use onrush_wire::srtp::{
    CryptoSession, MasterKey, MikeyMessage, RtcpReceiver, RtcpSender, Suite, parse_key_mgmt,
};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::presentation::Presentation;
use crate::channels::{ChannelKeys, ViewerSrtp};
use crate::library::{FilmKeys, is_marked, marked};
use crate::random::random;
use crate::store::FilmKey;
use crate::tls::{SrtpKeys, SrtpOffer, TlsConfig};

/// What keys are derived of. Wiped from memory when it is dropped.
pub(super) struct Secret(Zeroizing<[u8; 32]>);

/// The keys that a SETUP has agreed on.
#[derive(Clone, Debug)]
pub(super) struct AgreedKeys {
    /// What the server encrypts with.
    pub(super) server: MasterKey,
    /// What the client encrypts with; none if it has told none where all have the server's.
    client: Option<MasterKey>,
    /// The client does not know the server's yet.
    is_new: bool,
    /// Those that the server's is of, if all viewers share it.
    shared: Option<Shared>,
}

/// Keys that all viewers share.
#[derive(Clone, Debug)]
enum Shared {
    /// Of a file.
    Film(Arc<FilmKeys>),
    /// Of a channel.
    Channel(Arc<ChannelKeys>),
}

/// What the reports of a track are encrypted with, both ways.
#[derive(Debug)]
pub(super) struct TrackSrtp {
    /// Of reports under an SSRC of the session's own.
    sender: RefCell<RtcpSender>,
    /// None hears nothing: anybody who has the key of all could have said it.
    receiver: Option<RefCell<RtcpReceiver>>,
    /// Of those under the SSRC of what is shared, and what that is.
    shared: Option<(u32, Arc<FilmKey>)>,
}

/// Whether packets of a client are to be encrypted, and whether it may be told a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Its URL says so.
    pub(super) parameter: Option<SrtpParameter>,
    /// Nobody reads its connection along, or that does not matter.
    pub(super) may_know: bool,
    /// It may be told one that others have.
    may_share: bool,
}

impl Secret {
    pub(super) fn new() -> Self {
        Self(Zeroizing::new(random()))
    }

    fn key(&self, suite: Suite, nonce: [u8; 16], (path, track): (&str, usize)) -> MasterKey {
        let mut hmac = Hmac::<Sha256>::new_from_slice(&*self.0).expect("any length is a key");
        hmac.update(&nonce);
        hmac.update(&u64::try_from(track).unwrap_or(u64::MAX).to_be_bytes());
        hmac.update(path.as_bytes());
        let derived = Zeroizing::<[u8; 32]>::new(hmac.finalize().into_bytes().into());
        let key = MasterKey::new(suite, &derived[..suite.master_bytes()]);
        key.expect("a digest is longer than a key")
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl Wish {
    /// Of a client that asks so, over a connection with TLS or without.
    pub(super) fn new(
        parameter: Option<SrtpParameter>,
        is_encrypted: bool,
        config: &TlsConfig,
    ) -> Self {
        Self {
            parameter,
            may_know: is_encrypted || config.srtp == SrtpOffer::Plain,
            may_share: is_encrypted && config.srtp_keys == SrtpKeys::Shared,
        }
    }

    /// Whether packets by this transport would be encrypted.
    pub(super) fn is_for(self, transport: &Transport) -> bool {
        let is_udp = matches!(transport.lower, LowerTransport::Udp { .. });
        transport.is_secure() || (is_udp && self.parameter.is_some())
    }

    /// Why packets of that presentation cannot be encrypted, if they cannot.
    pub(super) fn refusal(self, presentation: &Presentation) -> Option<&'static str> {
        match presentation {
            _ if !self.may_know => Some("SRTP needs a key that nobody reads along: ask over rtsps"),
            Presentation::Multicast(_) => Some("groups are not sent as SRTP; ask for unicast"),
            _ if presentation.live().is_some_and(|it| !it.has_frames()) => Some(
                "this channel is replicated in the kernel, where nothing is encrypted: ask without \
                 srtp, or let the server replicate it itself",
            ),
            _ => None,
        }
    }

    /// What the tracks of a presentation are encrypted with, for its description, and what its URLs
    /// have in them then; nothing if they are not encrypted.
    pub(super) fn describe(
        self,
        presentation: &Presentation,
        (secret, offer): (&Secret, SrtpOffer),
    ) -> Result<Option<(SrtpParameter, Vec<MikeyMessage>)>, Reply> {
        let suite = match self.parameter {
            Some(parameter) => parameter.suite,
            None if offer == SrtpOffer::Always && self.refusal(presentation).is_none() => {
                Suite::default()
            }
            None => return Ok(None),
        };
        if let Some(note) = self.refusal(presentation) {
            return Err(Reply::refusal(StatusCode::UnsupportedTransport, note));
        }
        let tracks = 0..presentation.tracks();
        let shared = self.shared(presentation, suite);
        let nonce = shared.as_ref().map_or_else(own_nonce, Shared::nonce);
        let path = presentation.path();
        let messages = tracks.map(|track| match &shared {
            Some(shared) => message(shared.key(track).master().clone(), 0),
            None => message(secret.key(suite, nonce, (&path, track)), 0),
        });
        let parameter = SrtpParameter {
            suite,
            nonce: Some(nonce),
        };
        Ok(Some((parameter, messages.collect())))
    }

    /// The keys of a track that is sent by that transport; none if it is not encrypted.
    pub(super) fn agree(
        self,
        secret: &Secret,
        (presentation, track): (&Presentation, usize),
        (transport, request): (&Transport, &Request),
    ) -> Result<Option<Box<AgreedKeys>>, Reply> {
        if !self.is_for(transport) {
            return Ok(None);
        }
        let named = self.parameter.and_then(|it| Some((it.suite, it.nonce?)));
        let shared = named.and_then(|named| self.shared_named(presentation, named));
        // Of another file by now, or told over TLS: the client is given one of its own.
        let known = named.filter(|(_, nonce)| !is_marked(*nonce));
        let told = request.header("KeyMgmt").map(parse_key_mgmt).transpose();
        let told = told
            .map_err(|error| Reply::refusal(StatusCode::KeyManagementError, &error.to_string()))?;
        let told = told.map(|message| message.key);
        // Who has no description is given a key of the kind that it has itself.
        let suite = self.parameter.map(|it| it.suite);
        let suite = suite
            .or_else(|| told.as_ref().map(MasterKey::suite))
            .unwrap_or_default();
        if let Some(shared) = shared {
            return Ok(Some(Box::new(AgreedKeys {
                server: shared.key(track).master().clone(),
                client: told,
                is_new: false,
                shared: Some(shared),
            })));
        }
        let (suite, nonce) = known.unwrap_or_else(|| (suite, own_nonce()));
        let server = secret.key(suite, nonce, (&presentation.path(), track));
        Ok(Some(Box::new(AgreedKeys {
            client: Some(told.unwrap_or_else(|| server.clone())),
            server,
            is_new: known.is_none(),
            shared: None,
        })))
    }

    /// The keys that new viewers share, if they do.
    fn shared(self, presentation: &Presentation, suite: Suite) -> Option<Shared> {
        if !self.may_share {
            return None;
        }
        if let Presentation::Stored(media) = presentation {
            return media.film_keys(suite).map(Shared::Film);
        }
        let channel = presentation.live()?;
        let keys = channel.shared_keys().current(suite, presentation.tracks());
        Some(Shared::Channel(keys))
    }

    /// The shared keys that a description has named so.
    fn shared_named(
        self,
        presentation: &Presentation,
        (suite, nonce): (Suite, [u8; 16]),
    ) -> Option<Shared> {
        if !self.may_share {
            return None;
        }
        if let Presentation::Stored(media) = presentation {
            return media.film_keys_named(suite, nonce).map(Shared::Film);
        }
        let channel = presentation.live()?;
        let keys = channel.shared_keys().named(suite, nonce);
        keys.map(Shared::Channel)
    }
}

impl Shared {
    /// What a description names them by.
    fn nonce(&self) -> [u8; 16] {
        match self {
            Self::Film(keys) => keys.nonce(),
            Self::Channel(keys) => keys.nonce(),
        }
    }

    /// That of a track.
    fn key(&self, track: usize) -> &Arc<FilmKey> {
        match self {
            Self::Film(keys) => keys.track(track),
            Self::Channel(keys) => keys.track(track).key(),
        }
    }
}

impl AgreedKeys {
    /// What a client is told in the answer to SETUP, if it does not know the key: a `KeyMgmt`.
    pub(super) fn answer(&self, ssrc: u32) -> Option<MikeyMessage> {
        self.is_new.then(|| message(self.server.clone(), ssrc))
    }

    /// Those of a file that its viewers share, if they do.
    pub(super) fn film(&self) -> Option<&Arc<FilmKeys>> {
        match &self.shared {
            Some(Shared::Film(keys)) => Some(keys),
            _ => None,
        }
    }

    /// What encrypts a track of a channel for this client.
    pub(super) fn of_viewer(&self, track: usize) -> Arc<ViewerSrtp> {
        match &self.shared {
            Some(Shared::Channel(keys)) => ViewerSrtp::shared(Arc::clone(keys.track(track))),
            _ => ViewerSrtp::own(&self.server),
        }
    }

    /// What a path's packets may be, at most, so that they fit it with their tags: those of an
    /// Ethernet, also where more would fit, because they are copied to where they are encrypted.
    pub(super) fn mtu_bytes(mtu_bytes: u32) -> u32 {
        const ETHERNET: u32 = 1500;
        const TAG_BYTES_MAX: u32 = 16;
        mtu_bytes.min(ETHERNET).saturating_sub(TAG_BYTES_MAX)
    }
}

impl TrackSrtp {
    /// Of a track whose packets have that SSRC at first.
    pub(super) fn new(keys: &AgreedKeys, (track, ssrc): (u8, u32)) -> Box<Self> {
        let receiver = keys.client.as_ref().map(RtcpReceiver::new);
        let shared = keys.shared.as_ref();
        Box::new(Self {
            sender: RefCell::new(RtcpSender::new(&keys.server)),
            receiver: receiver.map(RefCell::new),
            shared: shared.map(|shared| (ssrc, Arc::clone(shared.key(track.into())))),
        })
    }

    /// The key that others have, too, if it has.
    pub(super) fn film_key(&self) -> Option<&Arc<FilmKey>> {
        self.shared.as_ref().map(|(_, key)| key)
    }

    /// A report, encrypted; nothing once its key is used up, which takes 340 years.
    pub(super) fn protect(&self, report: &[u8]) -> Option<Vec<u8>> {
        // All sessions that share images report under one SSRC, so the key numbers what they say.
        match &self.shared {
            Some((shared, key)) if report.get(4..8) == Some(&shared.to_be_bytes()) => {
                key.protect_report(report)
            }
            _ => self.sender.borrow_mut().protect(report).ok(),
        }
    }

    /// What a client's datagram says, if it is from the client.
    pub(super) fn unprotect(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut receiver = self.receiver.as_ref()?.borrow_mut();
        receiver.unprotect(datagram).ok()
    }
}

/// A number for keys that nobody shares.
fn own_nonce() -> [u8; 16] {
    marked(random(), false)
}

/// A message with that key, for numbers that have not wrapped. An SSRC that is not known yet is 0.
fn message(key: MasterKey, ssrc: u32) -> MikeyMessage {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    MikeyMessage {
        bundle: u32::from_be_bytes(random()),
        sessions: vec![CryptoSession { ssrc, rollover: 0 }],
        ntp: ntp(unix.unwrap_or_default()),
        random: random::<16>().to_vec(),
        key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_description_track_and_file_has_a_key_of_its_own() {
        let (one, two) = (Secret::new(), Secret::new());
        let suite = Suite::default();
        let key = |secret: &Secret, nonce, of| secret.key(suite, [nonce; 16], of);
        let first = key(&one, 1, ("a.mp4", 0));
        assert_eq!(first, key(&one, 1, ("a.mp4", 0)));
        for other in [
            key(&two, 1, ("a.mp4", 0)),
            key(&one, 2, ("a.mp4", 0)),
            key(&one, 1, ("a.mp4", 1)),
            key(&one, 1, ("b.mp4", 0)),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn reports_are_encrypted_both_ways() {
        let keys = |server, client| AgreedKeys {
            server: MasterKey::new(Suite::default(), &[server; 30]).unwrap(),
            client: MasterKey::new(Suite::default(), &[client; 30]),
            is_new: false,
            shared: None,
        };
        let (here, there) = (keys(1, 2), keys(2, 1));
        let (here, there) = (
            TrackSrtp::new(&here, (0, 1)),
            TrackSrtp::new(&there, (0, 1)),
        );
        let report = b"report of a receiver";
        let sealed = there.protect(report).unwrap();
        assert_eq!(here.unprotect(&sealed).as_deref(), Some(&report[..]));
        assert!(here.unprotect(&sealed).is_none(), "it comes once");
        assert!(here.unprotect(report).is_none(), "it is in the clear");
        let sealed = here.protect(report).unwrap();
        assert!(here.unprotect(&sealed).is_none(), "it is its own");
        assert!(there.unprotect(&sealed).is_some());
    }
}
