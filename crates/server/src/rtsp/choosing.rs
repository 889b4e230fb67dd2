//! Which of the transports that a client takes it gets.

use std::net::SocketAddr;

use onrush_wire::rtsp::{LowerTransport, Reply, StatusCode, Transport};

use super::Control;
use super::presentation::Presentation;
use super::srtp::Wish;

/// Which of the transports that a client takes it gets. Packets over UDP are not encrypted, and
/// whoever asks over TLS wants them to be (RFC 7826, section 19.2). All tracks of a session are on
/// a group, or none is.
pub(super) fn choose<'a>(
    control: &Control,
    (presentation, is_new): (&Presentation, bool),
    transports: &'a [Transport],
    ((local, allows_udp), srtp): ((SocketAddr, bool), Wish),
) -> Result<&'a Transport, Reply> {
    let asks_tcp = |transport: &Transport| matches!(transport.lower, LowerTransport::Tcp { .. });
    let has_frames = presentation.live().is_none_or(|it| it.has_frames());
    let allows_tcp =
        has_frames && transports.iter().any(asks_tcp) && control.content.sending.wanted().is_some();
    let serves_groups = control.groups.serve(local) && allows_udp;
    let is_on_group = matches!(presentation, Presentation::Multicast(_));
    let is_served = |transport: &&Transport| {
        if srtp.is_for(transport) {
            return srtp.refusal(presentation).is_none();
        }
        // The description says that packets are encrypted.
        if srtp.parameter.is_some() {
            return false;
        }
        if transport.lower == LowerTransport::Multicast {
            return serves_groups && (is_new || is_on_group);
        }
        !is_on_group
            && match transport.lower {
                LowerTransport::Udp { .. } => allows_udp,
                _ => allows_tcp,
            }
    };
    transports.iter().find(is_served).ok_or_else(|| {
        let mut asked = transports.iter().map(|transport| transport.lower);
        let is_encrypted = transports.iter().any(|it| srtp.is_for(it));
        let note = match presentation {
            _ if is_encrypted => srtp.refusal(presentation).unwrap_or_default(),
            _ if srtp.parameter.is_some() => "SRTP is sent over unicast UDP; ask without srtp",
            Presentation::Multicast(_) => "the session's other tracks are on a multicast group",
            _ if asked.all(|lower| lower == LowerTransport::Multicast) => match serves_groups {
                true => "the session's other tracks are not on a multicast group",
                false => "there are no multicast groups here",
            },
            _ if allows_udp => "this live channel is sent over UDP only",
            _ => "over TLS packets are interleaved, not sent over UDP",
        };
        Reply::refusal(StatusCode::UnsupportedTransport, note)
    })
}
