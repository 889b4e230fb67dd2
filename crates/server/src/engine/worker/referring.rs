//! Whether the kernel refers to the packets of a connection, or copies them.
//!
//! To refer is cheaper, but not where the receiver is on this machine, or behind a pair of virtual
//! devices on it: there the kernel copies all the same, and charges to the receiver what it was to
//! refer to, which is reckoned from the start of the huge page that it lies in (io_uring/net.c,
//! `io_sg_from_iter`): up to 2 MiB for each packet. A receiver's socket is full then after one or
//! two sends, what comes next is dropped and sent again after 200 ms, and some hundred viewers fill
//! all that TCP may take of the machine (tcp(7), `tcp_mem`). So the kernel copies first, is asked
//! once to refer, and goes on as it answered; but never to one of this machine's own addresses, nor
//! where this account may not widen the connection's own buffer, to which whole pages are charged
//! as well.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::net::{SocketAddrAny, getpeername, getsockname};

/// Sends that are copied before one is tried. They are those with which a client begins, behind one
/// another at once, where a full socket would be felt.
const COPIED_SENDS: u8 = 16;

/// What is known of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Referring {
    /// So many sends more are copied before one is tried.
    Untried(u8),
    /// The kernel has not let go of the one that is tried.
    Tried,
    Works,
    /// It would copy in any case, or the connection's buffer is too small for what it refers to.
    Fails,
}

impl Default for Referring {
    fn default() -> Self {
        Self::Untried(COPIED_SENDS)
    }
}

impl Referring {
    /// What is known of a connection on which nothing has been sent. One packet that the kernel was
    /// to refer to is enough to fill the socket of a receiver who does not read at that moment: TCP
    /// sends what was dropped behind it again after twice as long each time.
    pub(super) fn of(socket: BorrowedFd<'_>) -> Self {
        let ip = |address: SocketAddrAny| {
            let address = SocketAddr::try_from(address).ok()?;
            Some(address.ip().to_canonical())
        };
        let own = getsockname(socket).ok().and_then(ip);
        let peer = getpeername(socket).ok().flatten().and_then(ip);
        let is_here = peer.is_some_and(|peer| peer.is_loopback() || own == Some(peer));
        match is_here {
            true => Self::Fails,
            false => Self::default(),
        }
    }

    /// Whether the next send, of so many packets, is to be referred to.
    pub(super) fn next(&mut self, packets: usize) -> bool {
        match self {
            Self::Works => true,
            Self::Tried | Self::Fails => false,
            Self::Untried(0) => {
                // A lone packet is copied on every path, and says nothing.
                let is_told = packets > 1;
                if is_told {
                    *self = Self::Tried;
                }
                is_told
            }
            Self::Untried(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// The kernel has told whether it referred. Whether that is news.
    pub(super) fn told(&mut self, did: bool) -> bool {
        let now = match did {
            true => Self::Works,
            false => Self::Fails,
        };
        std::mem::replace(self, now) != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried() -> Referring {
        let mut referring = Referring::default();
        for _ in 0..COPIED_SENDS {
            assert!(!referring.next(8));
        }
        assert!(!referring.next(1), "a lone packet says nothing");
        assert!(referring.next(2));
        assert!(!referring.next(8), "one is tried");
        referring
    }

    #[test]
    fn what_the_kernel_can_refer_to_is_referred_to() {
        let mut referring = tried();
        assert!(referring.told(true));
        assert!(referring.next(8));
        assert!(!referring.told(true), "no news");
    }

    #[test]
    fn what_the_kernel_copies_anyway_is_copied() {
        let mut referring = tried();
        assert!(referring.told(false));
        assert!(!referring.next(8));
        // Its route was another's for a while.
        let mut referring = tried();
        referring.told(true);
        assert!(referring.told(false));
        assert!(!referring.next(8));
    }
}
