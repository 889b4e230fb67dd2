//! Whether the kernel can encrypt for TLS (kTLS, Documentation/networking/tls.rst).

use std::ffi::CStr;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use super::Refused;

/// The name of the protocol above TCP.
const NAME: &CStr = c"tls";

/// Asks for it on a connection over loopback. No key is set, so nothing is encrypted.
pub(super) fn kernel_tls() -> Result<(), Refused> {
    let refused = |call| move |error| Refused::new(call, error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refused("bind"))?;
    let to = listener.local_addr().map_err(refused("getsockname"))?;
    let socket = TcpStream::connect(to).map_err(refused("connect"))?;
    let bytes = libc::socklen_t::try_from(NAME.to_bytes().len()).unwrap_or(0);
    // SAFETY: the descriptor is open for as long as `socket` lives; the name is readable for the
    // length given, and the kernel copies it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_ULP,
            NAME.as_ptr().cast(),
            bytes,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(Refused::last("TCP_ULP")),
    }
}
