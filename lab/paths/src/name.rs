//! The catalogue's names, and what is to be known of each path before it is used.

use std::fmt;

use onrush_sys::path::PathName;

/// A path of the catalogue. Its name is the same in the module, on the command line, in files and
/// in plots.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(
    missing_docs,
    reason = "each is described by its facts, and in its module"
)]
pub enum Name {
    ReadWrite,
    MmapSend,
    SendfileTcp,
    SendfileUdp,
    MmapMsend,
    Kmsend,
    Ksendfile,
    ReadSendRtp,
    ReadWritev,
    MmapSendRtp,
    MmapWritev,
    RtpSendfile,
    MmapRtpmsend,
    MmapSendMsend,
    Rtpsendfile,
    Krtpsendfile,
    Krtpmsend,
    Sendto,
    Sendmmsg,
    SendmmsgGso,
    Gso,
    GsoSendfile,
    GsoZerocopy,
    Uring,
    UringZc,
    UringRegistered,
    UringSqpoll,
    UringVectoredZc,
}

/// Which table of the paper a path is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// Table 1-A: a file as it is.
    Download,
    /// Table 1-B: with RTP headers, by calls that existed.
    Rtp,
    /// Table 1-C: with RTP headers, by the paper's new calls.
    Enhanced,
    /// Not in the paper: what has come since.
    Modern,
}

/// What becomes of the payload on its way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Payload {
    /// The processor copies it.
    Copied,
    /// It goes by reference, and nobody is told if it was copied after all (splice).
    Referenced,
    /// It goes by reference, and the kernel says of each send if it copied after all.
    Reported,
}

/// What is to be known of a path.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Its name.
    pub as_str: &'static str,
    /// Its place in the paper.
    pub family: Family,
    /// The paper's copies and switches (two a crossing), in n packets; empty for the modern.
    pub paper: (&'static str, &'static str),
    /// Our copies of payload in n packets, once the path is ready.
    pub copies: &'static str,
    /// Our entries into the kernel: n packets, in t trains, a batch of them b.
    pub crossings: &'static str,
    /// How it is done here.
    pub mechanism: &'static str,
    /// What it needs beyond sockets and files.
    pub needs: &'static str,
    /// What becomes of the payload.
    pub payload: Payload,
    /// Whether several packets leave as one send where they fit the path MTU.
    pub is_train: bool,
    /// Whether it sends packet images, made once for all clients of a file; else headers may differ
    /// per client.
    pub is_image: bool,
}

impl Name {
    /// All, in the order of the paper's table, then the modern ones.
    pub const ALL: [Self; 28] = [
        Self::ReadWrite,
        Self::MmapSend,
        Self::SendfileTcp,
        Self::SendfileUdp,
        Self::MmapMsend,
        Self::Kmsend,
        Self::Ksendfile,
        Self::ReadSendRtp,
        Self::ReadWritev,
        Self::MmapSendRtp,
        Self::MmapWritev,
        Self::RtpSendfile,
        Self::MmapRtpmsend,
        Self::MmapSendMsend,
        Self::Rtpsendfile,
        Self::Krtpsendfile,
        Self::Krtpmsend,
        Self::Sendto,
        Self::Sendmmsg,
        Self::SendmmsgGso,
        Self::Gso,
        Self::GsoSendfile,
        Self::GsoZerocopy,
        Self::Uring,
        Self::UringZc,
        Self::UringRegistered,
        Self::UringSqpoll,
        Self::UringVectoredZc,
    ];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.facts().as_str
    }

    /// Whether it sends over TCP.
    #[must_use]
    pub fn takes_tcp(self) -> bool {
        matches!(self, Self::ReadWrite | Self::MmapSend | Self::SendfileTcp)
    }

    /// Whether it sends over UDP.
    #[must_use]
    pub fn takes_udp(self) -> bool {
        self != Self::SendfileTcp
    }

    /// Whether it sends plans with headers, or without.
    #[must_use]
    pub fn takes_headers(self, has_headers: bool) -> bool {
        match self.facts().family {
            Family::Download => !has_headers,
            Family::Rtp | Family::Enhanced => has_headers,
            Family::Modern => has_headers || self != Self::UringVectoredZc,
        }
    }

    /// The path of the server's engine that does it, if one does.
    #[must_use]
    pub fn engine(self) -> Option<PathName> {
        match self {
            Self::Ksendfile | Self::Krtpsendfile | Self::UringVectoredZc => {
                Some(PathName::UringRegisteredZc)
            }
            Self::SendmmsgGso => Some(PathName::SendmmsgGso),
            Self::Sendmmsg => Some(PathName::Sendmmsg),
            Self::Sendto => Some(PathName::Sendto),
            _ => None,
        }
    }

    /// What is to be known of it.
    #[must_use]
    pub fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|n| n.as_str() == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|n| n.as_str()).collect();
            format!("no path is named {name:?}; there are {}", names.join(", "))
        })
    }
}

const PLAIN: Facts = Facts {
    as_str: "",
    family: Family::Download,
    paper: ("", ""),
    copies: "n",
    crossings: "n",
    mechanism: "",
    needs: "",
    payload: Payload::Copied,
    is_train: false,
    is_image: false,
};

const RING_ZC: &str = "io_uring with SEND_ZC (Linux 6.0)";
const RING_MSG_ZC: &str = "io_uring with SENDMSG_ZC (Linux 6.1), UDP_SEGMENT";
const RING_REGISTERED: &str = "io_uring with SEND_ZC (Linux 6.0), lockable memory, UDP_SEGMENT";
const RING_VECTORED: &str =
    "io_uring with vectored registered buffers (Linux 6.15), lockable memory, UDP_SEGMENT";
const ZEROCOPY: &str = "MSG_ZEROCOPY for UDP (Linux 5.0)";
const ZEROCOPY_GSO: &str = "MSG_ZEROCOPY for UDP (Linux 5.0), UDP_SEGMENT (4.18)";
const SPLICE: &str = "splice to UDP by reference (Linux 6.5; before, by sendpage)";
const GSO: &str = "UDP_SEGMENT (Linux 4.18)";

/// By number of the name; a test sees that each is at its place.
static FACTS: [Facts; 28] = [
    Facts {
        as_str: "read_write",
        paper: ("2n", "4n"),
        copies: "2n",
        crossings: "2n",
        mechanism: "pread and write of each packet",
        ..PLAIN
    },
    Facts {
        as_str: "mmap_send",
        paper: ("n", "2+2n"),
        crossings: "n+2",
        mechanism: "mmap; send of each packet; munmap",
        ..PLAIN
    },
    Facts {
        as_str: "sendfile_tcp",
        paper: ("0", "2"),
        copies: "0",
        crossings: "1",
        mechanism: "one sendfile of all that lies together, up to 2 GiB a call",
        payload: Payload::Referenced,
        ..PLAIN
    },
    Facts {
        as_str: "sendfile_udp",
        paper: ("0", "2n"),
        copies: "0",
        crossings: "n",
        mechanism: "sendfile of each packet",
        needs: SPLICE,
        payload: Payload::Referenced,
        ..PLAIN
    },
    Facts {
        as_str: "mmap_msend",
        paper: ("0", "2+2n"),
        copies: "0",
        crossings: "n+4 and more to be told of the end",
        mechanism: "mmap; send with MSG_ZEROCOPY of each packet; munmap",
        needs: ZEROCOPY,
        payload: Payload::Reported,
        ..PLAIN
    },
    Facts {
        as_str: "kmsend",
        paper: ("0", "2+2n"),
        copies: "0",
        crossings: "t/b+5",
        mechanism: "mmap; a ring's SENDMSG_ZC of trains from the mapped file; munmap",
        needs: RING_MSG_ZC,
        payload: Payload::Reported,
        is_train: true,
        ..PLAIN
    },
    Facts {
        as_str: "ksendfile",
        paper: ("0", "2"),
        copies: "0",
        crossings: "t/b+2",
        mechanism: "the engine's uring_registered_zc: SEND_ZC of trains from registered memory",
        needs: RING_REGISTERED,
        payload: Payload::Reported,
        is_train: true,
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "read_send_rtp",
        family: Family::Rtp,
        paper: ("2n", "4n"),
        copies: "2n",
        crossings: "2n",
        mechanism: "pread behind the header, send of both",
        ..PLAIN
    },
    Facts {
        as_str: "read_writev",
        family: Family::Rtp,
        paper: ("3n", "4n"),
        copies: "2n",
        crossings: "2n",
        mechanism: "pread; writev of header and payload",
        ..PLAIN
    },
    Facts {
        as_str: "mmap_send_rtp",
        family: Family::Rtp,
        paper: ("2n", "2+8n"),
        crossings: "4n+2",
        mechanism: "mmap; UDP_CORK, send of the header, send of the payload, uncork; munmap",
        ..PLAIN
    },
    Facts {
        as_str: "mmap_writev",
        family: Family::Rtp,
        paper: ("2n", "2+2n"),
        crossings: "n+2",
        mechanism: "mmap; writev of header and payload; munmap",
        ..PLAIN
    },
    Facts {
        as_str: "rtp_sendfile",
        family: Family::Rtp,
        paper: ("n", "8n"),
        copies: "0",
        crossings: "4n",
        mechanism: "UDP_CORK, send of the header, sendfile of the payload, uncork",
        needs: SPLICE,
        payload: Payload::Referenced,
        ..PLAIN
    },
    Facts {
        as_str: "mmap_rtpmsend",
        family: Family::Enhanced,
        paper: ("n", "2+2n"),
        copies: "0",
        crossings: "t+5 and more to be told of the end",
        mechanism: "mmap; sendmsg with MSG_ZEROCOPY of headers and payloads of up to 8 packets; \
         munmap",
        needs: ZEROCOPY_GSO,
        payload: Payload::Reported,
        is_train: true,
        ..PLAIN
    },
    Facts {
        as_str: "mmap_send_msend",
        family: Family::Enhanced,
        paper: ("n", "2+8n"),
        copies: "0",
        crossings: "5n+2",
        mechanism: "mmap; UDP_CORK, send of the header, vmsplice and splice of the payload, \
         uncork; munmap",
        needs: SPLICE,
        payload: Payload::Referenced,
        ..PLAIN
    },
    Facts {
        as_str: "rtpsendfile",
        family: Family::Enhanced,
        paper: ("n", "2n"),
        copies: "0",
        crossings: "2n+2t+1",
        mechanism: "for up to 7 packets: UDP_CORK, send of a header and sendfile of its payload \
         each, uncork",
        needs: SPLICE,
        payload: Payload::Referenced,
        is_train: true,
        ..PLAIN
    },
    Facts {
        as_str: "krtpsendfile",
        family: Family::Enhanced,
        paper: ("0", "2"),
        copies: "0",
        crossings: "t/b+2",
        mechanism: "the engine's uring_registered_zc: SEND_ZC of trains of packet images from \
         registered memory",
        needs: RING_REGISTERED,
        payload: Payload::Reported,
        is_train: true,
        is_image: true,
    },
    Facts {
        as_str: "krtpmsend",
        family: Family::Enhanced,
        paper: ("0", "2"),
        copies: "0",
        crossings: "t/b+5",
        mechanism: "mmap; a ring's SENDMSG_ZC of headers and payloads of up to 8 packets; munmap",
        needs: RING_MSG_ZC,
        payload: Payload::Reported,
        is_train: true,
        ..PLAIN
    },
    Facts {
        as_str: "sendto",
        family: Family::Modern,
        crossings: "n+2",
        mechanism: "the engine's sendto: each packet image by itself",
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "sendmmsg",
        family: Family::Modern,
        crossings: "t+2",
        mechanism: "the engine's sendmmsg: as many packet images a call as a train would have",
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "sendmmsg_gso",
        family: Family::Modern,
        crossings: "t+2",
        mechanism: "the engine's sendmmsg_gso: a train of packet images a call",
        needs: GSO,
        is_train: true,
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "gso",
        family: Family::Modern,
        crossings: "t+3",
        mechanism: "mmap; sendmsg of a train's headers and payloads; munmap",
        needs: GSO,
        is_train: true,
        ..PLAIN
    },
    Facts {
        as_str: "gso_sendfile",
        family: Family::Modern,
        copies: "0",
        crossings: "t+1",
        mechanism: "sendfile of a train of packet images that lie in a memfd",
        needs: GSO,
        payload: Payload::Referenced,
        is_train: true,
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "gso_zerocopy",
        family: Family::Modern,
        copies: "0",
        crossings: "t+3 and more to be told of the end",
        mechanism: "send with MSG_ZEROCOPY of a train of packet images",
        needs: ZEROCOPY_GSO,
        payload: Payload::Reported,
        is_train: true,
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "uring",
        family: Family::Modern,
        crossings: "n/b+3",
        mechanism: "mmap; a ring's SENDMSG of each packet; munmap",
        needs: "io_uring (Linux 5.11)",
        ..PLAIN
    },
    Facts {
        as_str: "uring_zc",
        family: Family::Modern,
        copies: "0",
        crossings: "n/b+2",
        mechanism: "a ring's SEND_ZC of each packet image",
        needs: RING_ZC,
        payload: Payload::Reported,
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "uring_registered",
        family: Family::Modern,
        copies: "0",
        crossings: "n/b+2",
        mechanism: "a ring's SEND_ZC of each packet image from registered memory",
        needs: RING_REGISTERED,
        payload: Payload::Reported,
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "uring_sqpoll",
        family: Family::Modern,
        copies: "0",
        crossings: "t/b+2, or fewer",
        mechanism: "as krtpsendfile, but a thread of the kernel takes the entries (SQPOLL)",
        needs: RING_REGISTERED,
        payload: Payload::Reported,
        is_train: true,
        is_image: true,
        ..PLAIN
    },
    Facts {
        as_str: "uring_vectored_zc",
        family: Family::Modern,
        copies: "0",
        crossings: "t/b+2",
        mechanism: "the engine's, after a jump: SENDMSG_ZC of headers from a slab and payloads of \
                    packet images, up to 8 packets, from registered memory",
        needs: RING_VECTORED,
        payload: Payload::Reported,
        is_train: true,
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_by_itself_and_has_facts() {
        for (number, name) in Name::ALL.into_iter().enumerate() {
            assert_eq!(name as usize, number);
            assert_eq!(name.as_str().parse(), Ok(name));
            let facts = name.facts();
            assert!(!facts.mechanism.is_empty() && !facts.crossings.is_empty());
            assert_eq!(facts.family == Family::Modern, facts.paper.0.is_empty());
        }
        assert_eq!(Name::Krtpsendfile.as_str(), "krtpsendfile");
        assert_eq!(Name::UringSqpoll.as_str(), "uring_sqpoll");
        let paper = Name::ALL
            .iter()
            .filter(|n| n.facts().family != Family::Modern);
        assert_eq!(paper.count(), 17);
        let wrong = "sendfile".parse::<Name>().unwrap_err();
        assert!(wrong.contains("sendfile_udp"), "{wrong}");
    }
}
