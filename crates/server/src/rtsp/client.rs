//! Who asks: the two ends of its connection, and what that carries beside requests.

use std::net::SocketAddr;
use std::rc::Rc;

use onrush_wire::rtp;

use super::interleaving::Interleaving;
use super::srtp::AgreedKeys;

/// Who asks for a track.
pub(super) struct Client {
    /// The address that it spoke to.
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Its connection, if it wants packets there.
    pub(super) interleaving: Option<Rc<Interleaving>>,
    /// What its packets are encrypted with, if they are.
    pub(super) srtp: Option<Box<AgreedKeys>>,
    /// What it wants packets to carry at the most, if it says so.
    blocksize: Option<usize>,
}

impl Client {
    pub(super) fn new(
        (local, peer): (SocketAddr, SocketAddr),
        interleaving: Option<Rc<Interleaving>>,
        srtp: Option<Box<AgreedKeys>>,
    ) -> Self {
        Self {
            local,
            peer,
            interleaving,
            srtp,
            blocksize: None,
        }
    }

    /// The same, who wants packets to carry no more than so many bytes behind their RTP headers.
    pub(super) fn with_blocksize(self, blocksize: Option<usize>) -> Self {
        Self { blocksize, ..self }
    }

    /// How many bytes a packet may carry behind its RTP header so that it goes unfragmented on a
    /// path to the client, and is no longer than the client wants, as far as media can be cut so
    /// small.
    pub(super) fn payload_bytes_max(&self, mtu_bytes: u32) -> usize {
        let fits = payload_bytes_that_fit(mtu_bytes, self.peer.is_ipv4());
        let wanted = self.blocksize.unwrap_or(usize::MAX);
        fits.min(wanted.max(PAYLOAD_BYTES_MIN))
    }
}

/// All media can be cut to packets of this: one packet of a transport stream.
const PAYLOAD_BYTES_MIN: usize = 188;

/// How many bytes a packet may carry behind its RTP header so that it goes unfragmented.
fn payload_bytes_that_fit(mtu_bytes: u32, is_ipv4: bool) -> usize {
    let (ip_header_bytes, udp_header_bytes) = (if is_ipv4 { 20 } else { 40 }, 8);
    let mtu_bytes = usize::try_from(mtu_bytes).unwrap_or(usize::MAX);
    mtu_bytes.saturating_sub(ip_header_bytes + udp_header_bytes + rtp::HEADER_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_its_headers_fits_the_path() {
        for (mtu_bytes, v4, v6) in [(1500, 1460, 1440), (60, 20, 0), (41, 1, 0), (40, 0, 0)] {
            assert_eq!(payload_bytes_that_fit(mtu_bytes, true), v4, "{mtu_bytes}");
            assert_eq!(payload_bytes_that_fit(mtu_bytes, false), v6, "{mtu_bytes}");
        }
    }

    #[test]
    fn packets_are_no_longer_than_path_and_client_want() {
        let ends = (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into());
        for (mtu_bytes, blocksize, expected) in [
            (1500, None, 1460),
            (1500, Some(1400), 1400),
            (1500, Some(usize::MAX), 1460),
            (1500, Some(1), 188),
            (60, Some(1), 20),
        ] {
            let client = Client::new(ends, None, None).with_blocksize(blocksize);
            assert_eq!(
                client.payload_bytes_max(mtu_bytes),
                expected,
                "{blocksize:?}"
            );
        }
    }
}
