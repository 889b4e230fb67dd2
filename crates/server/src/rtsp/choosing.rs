//! Which of the transports that a client takes it gets.

use std::net::SocketAddr;

use onrush_wire::rtsp::{LowerTransport, Reply, StatusCode, Transport};

use super::Control;
use super::presentation::Presentation;

/// Why a live channel has nothing else.
const UDP_ALONE: &str = "this live channel is sent over UDP only";

/// Which of the transports that a client takes it gets. Packets over UDP are not encrypted, and
/// whoever asks over TLS wants them to be (RFC 7826, section 19.2). All tracks of a session are on
/// a group, or none is.
pub(super) fn choose<'a>(
    control: &Control,
    (presentation, is_new): (&Presentation, bool),
    transports: &'a [Transport],
    (local, allows_udp): (SocketAddr, bool),
) -> Result<&'a Transport, Reply> {
    let has_engines = control.content.files.is_some();
    let serves_groups = control.groups.serve(local) && allows_udp;
    let is_on_group = matches!(presentation, Presentation::Multicast(_));
    let is_served = |transport: &&Transport| {
        if transport.lower == LowerTransport::Multicast {
            return serves_groups && (is_new || is_on_group);
        }
        let is_udp = matches!(transport.lower, LowerTransport::Udp { .. });
        match presentation {
            Presentation::Stored(_) => allows_udp || !is_udp,
            Presentation::Published(_) if has_engines => allows_udp || !is_udp,
            Presentation::Live(_) | Presentation::Published(_) => allows_udp && is_udp,
            Presentation::Multicast(_) => false,
        }
    };
    transports.iter().find(is_served).ok_or_else(|| {
        let mut asked = transports.iter().map(|transport| transport.lower);
        let note = match presentation {
            Presentation::Multicast(_) => "the session's other tracks are on a multicast group",
            _ if asked.all(|lower| lower == LowerTransport::Multicast) => match serves_groups {
                true => "the session's other tracks are not on a multicast group",
                false => "there are no multicast groups here",
            },
            Presentation::Published(_) if !has_engines => UDP_ALONE,
            Presentation::Live(_) => UDP_ALONE,
            _ => "over TLS packets are interleaved, not sent over UDP",
        };
        Reply::refusal(StatusCode::UnsupportedTransport, note)
    })
}
