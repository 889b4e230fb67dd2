//! RTSP 1.0 (RFC 2326), from the server's side: requests in, intents and replies out.
//!
//! A connection's bytes go through a [`Decoder`], which yields requests and the [frames](Frame)
//! between them. What a request asks for is judged by [`Intent::of`], in one place and without side
//! effects: whatever the protocol itself refuses is refused there, and what remains are requests
//! that the session's [`State`] allows, with everything in them understood. Carrying them out, and
//! what only that can show (no such file, no port left), is the caller's.
//!
//! What publishers ask for is judged by [`Publish::of`] likewise. RTSP 2.0 is refused as the RFC
//! says.

mod decode;
mod incoming;
mod intent;
mod interleaved;
mod live_start;
mod publish;
mod range;
mod redirect;
mod reply;
mod request;
mod session;
mod setup_url;
mod transport;
mod tunnel;
mod units;
pub(crate) mod url;

pub use self::decode::{Decoder, Event, Limits, Refused};
pub use self::incoming::{
    Incoming, Looked, NoResponse, RESPONSE_BYTES_MAX, RESPONSE_HEADERS_MAX, Response,
    ServerRequest, take_incoming,
};
pub use self::intent::{Intent, Known};
pub use self::interleaved::{Channels, FRAME_PREFIX_BYTES, Frame, frame_prefix};
pub use self::live_start::LiveStart;
pub use self::publish::{Publication, Publish};
pub use self::range::{Range, RangeError, Span, npt};
pub use self::redirect::{Redirect, RedirectTarget, RedirectTargetError, is_rtsps};
pub use self::reply::{Reply, RtpInfo};
pub use self::request::{ClientAnswer, Malformed, Request};
pub use self::session::{SessionId, State};
pub use self::setup_url::{SETUP_URL_BYTES_MAX, kept_setup_url};
pub use self::transport::{Group, LowerTransport, Served, ServedAt, Transport, TransportError};
pub use self::tunnel::{
    NotBase64, TUNNEL_COOKIE_BYTES_MAX, TUNNEL_OPEN, TUNNEL_REFUSED, TunnelDecoder, TunnelSide,
};
pub use self::units::{AskedRange, Units};
pub use self::url::{
    ELEMENTARY, SrtpParameter, Target, UrlError, base, take_srtp, track, track_behind_query,
    track_name,
};
pub use rtsp_types::{Method, StatusCode, headers};
