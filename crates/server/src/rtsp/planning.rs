//! Films are planned before control is asked for their packets: of a long one that takes seconds,
//! in which it would serve nobody.
//!
//! How a track is cut depends on the path to the client. What that carries is asked here of its
//! connection; should it be other than what the track's own socket says, control makes the plan.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsFd;

use onrush_sys::socket::path_mtu;
use onrush_wire::rtsp::{LowerTransport, Transport};

use super::Control;
use super::client::Client;
use super::ports::local_address;
use super::presentation::Presentation;
use super::srtp::AgreedKeys;
use crate::library::planned;

/// Has a track planned, if it is of a film, for a client that takes it by that transport, encrypted
/// or not, and whose connection is `stream`.
pub(super) async fn plan_for(
    control: &Control,
    (presentation, track): (&Presentation, usize),
    (transport, is_encrypted): (&Transport, bool),
    (client, stream): (&Client, &impl AsFd),
) {
    if !matches!(presentation, Presentation::Stored(_)) {
        return;
    }
    if matches!(transport.lower, LowerTransport::Multicast) {
        return plan_for_group(control, presentation, client.local).await;
    }
    // Datagrams go the way that this connection goes.
    let mtu_bytes = match &client.interleaving {
        Some(interleaving) => Ok(interleaving.mtu_bytes),
        None => path_mtu(stream),
    };
    let is_sealed = is_encrypted && matches!(transport.lower, LowerTransport::Udp { .. });
    let mtu_bytes = match is_sealed {
        true => mtu_bytes.map(AgreedKeys::mtu_bytes),
        false => mtu_bytes,
    };
    // Whoever opens the track says what is wrong.
    if let Ok(mtu_bytes) = mtu_bytes {
        plan(presentation, track..track + 1, client, mtu_bytes).await;
    }
}

/// Has all tracks planned, if they are of a film, for the group that it is sent to for those who
/// have spoken to `local`.
pub(super) async fn plan_for_group(
    control: &Control,
    presentation: &Presentation,
    local: SocketAddr,
) {
    if !matches!(presentation, Presentation::Stored(_)) {
        return;
    }
    let Some((from, to)) = control.groups.way(local) else {
        return;
    };
    if let Ok(mtu_bytes) = mtu_between(from, to) {
        let group = Client::new((from, to), None, None);
        plan(presentation, 0..presentation.tracks(), &group, mtu_bytes).await;
    }
}

async fn plan(presentation: &Presentation, tracks: Range<usize>, client: &Client, mtu_bytes: u32) {
    if let Presentation::Stored(media) = presentation {
        for track in tracks {
            planned(media, track, client.payload_bytes_max(mtu_bytes)).await;
        }
    }
}

/// The path MTU for datagrams from an address of ours.
fn mtu_between(local: SocketAddr, to: SocketAddr) -> io::Result<u32> {
    let socket = UdpSocket::bind(local_address(local))?;
    socket.connect(to)?;
    path_mtu(&socket)
}
