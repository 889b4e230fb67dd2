//! A receive window that stays as it is, so that equals are equal; and one that takes all that
//! comes.
//!
//! Left alone, TCP lets each connection's window grow with what its reader takes. Of many over
//! loopback some stay at 64 KiB and some come to megabytes; whoever reads in turn then takes a
//! piece of the latter and a crumb of the former, and the shares tell of the windows and nothing of
//! who sends.

use std::io;
use std::net::{TcpListener, TcpStream};

use rustix::net::sockopt;

/// Bytes of the receive buffer; half of them, or more, are the window.
const BUFFER_BYTES: usize = 2 << 20;

/// The same if nobody reads until all is there.
const BUFFER_BYTES_WIDE: usize = 512 << 20;

/// Gives connections that this listener will accept a window for all that a turn sends: how far
/// windows can be scaled is said when they connect.
///
/// # Errors
///
/// What the system says; it takes CAP_NET_ADMIN.
pub(crate) fn widen(listener: &TcpListener) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(listener, BUFFER_BYTES_WIDE).map_err(Into::into)
}

/// Whether this account may give such a window.
pub(crate) fn may_widen() -> bool {
    TcpListener::bind(("127.0.0.1", 0)).is_ok_and(|listener| widen(&listener).is_ok())
}

/// Keeps the window of this connection; where it may not be as large as all that, all are smaller
/// alike.
///
/// # Errors
///
/// What the system says.
pub(crate) fn keep(stream: &TcpStream) -> io::Result<()> {
    // Only root may go beyond net.core.rmem_max.
    if sockopt::set_socket_recv_buffer_size_force(stream, BUFFER_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(stream, BUFFER_BYTES)?;
    }
    Ok(())
}
