//! The catalogue's names, and what is to be known of each path before it is used.

use std::fmt;

use onrush_sys::path::PathName;

use super::touch::Touch;

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

    /// Why packets of this path cannot be touched so on their way; nothing if they can.
    #[must_use]
    pub fn cannot_touch(self, touch: Touch) -> Option<&'static str> {
        use Name::{RtpSendfile, Rtpsendfile, SendfileTcp, SendfileUdp};
        let sends_file = matches!(self, SendfileTcp | SendfileUdp | RtpSendfile | Rtpsendfile);
        (sends_file && touch.changes())
            .then_some("it sends the file's own pages, and a change would be in the file")
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

/// Names, and what is to be known of each, a row for each: its place in the paper, the copies
/// and switches of the paper, ours, what becomes of the payload, what it needs, how it is done.
macro_rules! catalogue {
    ($(
        $name:ident $as_str:literal $family:ident, ($paper_copies:literal, $paper_switches:literal),
        ($copies:literal, $crossings:literal), $payload:ident [$($flag:ident)*], $needs:expr,
        $mechanism:literal;
    )*) => {
        /// A path of the catalogue. Its name is the same in the code, on the command line, in files
        /// and in plots.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[allow(
            missing_docs,
            reason = "each is described by its facts, and where it is carried out"
        )]
        pub enum Name {
            $($name,)*
        }

        impl Name {
            /// All, in the order of the paper's table, then the modern ones.
            pub const ALL: [Self; 28] = [$(Self::$name,)*];
        }

        #[allow(clippy::needless_update, reason = "some rows have all flags")]
        static FACTS: [Facts; 28] = [$(Facts {
            as_str: $as_str,
            family: Family::$family,
            paper: ($paper_copies, $paper_switches),
            copies: $copies,
            crossings: $crossings,
            mechanism: $mechanism,
            needs: $needs,
            payload: Payload::$payload,
            $($flag: true,)*
            ..PLAIN
        },)*];
    };
}

catalogue! {
    ReadWrite "read_write" Download, ("2n", "4n"), ("2n", "2n"), Copied [], "",
        "pread and write of each packet";
    MmapSend "mmap_send" Download, ("n", "2+2n"), ("n", "n+2"), Copied [], "",
        "mmap; send of each packet; munmap";
    SendfileTcp "sendfile_tcp" Download, ("0", "2"), ("0", "1"), Referenced [], "",
        "one sendfile of all that lies together, up to 2 GiB a call";
    SendfileUdp "sendfile_udp" Download, ("0", "2n"), ("0", "n"), Referenced [], SPLICE,
        "sendfile of each packet";
    MmapMsend "mmap_msend" Download, ("0", "2+2n"), ("0", "n+4 and more to be told of the end"),
        Reported [], ZEROCOPY,
        "mmap; send with MSG_ZEROCOPY of each packet; munmap";
    Kmsend "kmsend" Download, ("0", "2+2n"), ("0", "t/b+5"), Reported [is_train], RING_MSG_ZC,
        "mmap; a ring's SENDMSG_ZC of trains from the mapped file; munmap";
    Ksendfile "ksendfile" Download, ("0", "2"), ("0", "t/b+2"),
        Reported [is_train is_image], RING_REGISTERED,
        "the engine's uring_registered_zc: SEND_ZC of trains from registered memory";
    ReadSendRtp "read_send_rtp" Rtp, ("2n", "4n"), ("2n", "2n"), Copied [], "",
        "pread behind the header, send of both";
    ReadWritev "read_writev" Rtp, ("3n", "4n"), ("2n", "2n"), Copied [], "",
        "pread; writev of header and payload";
    MmapSendRtp "mmap_send_rtp" Rtp, ("2n", "2+8n"), ("n", "4n+2"), Copied [], "",
        "mmap; UDP_CORK, send of the header, send of the payload, uncork; munmap";
    MmapWritev "mmap_writev" Rtp, ("2n", "2+2n"), ("n", "n+2"), Copied [], "",
        "mmap; writev of header and payload; munmap";
    RtpSendfile "rtp_sendfile" Rtp, ("n", "8n"), ("0", "4n"), Referenced [], SPLICE,
        "UDP_CORK, send of the header, sendfile of the payload, uncork";
    MmapRtpmsend "mmap_rtpmsend" Enhanced, ("n", "2+2n"),
        ("0", "t+5 and more to be told of the end"),
        Reported [is_train], ZEROCOPY_GSO,
        "mmap; sendmsg with MSG_ZEROCOPY of headers and payloads of up to 8 packets; munmap";
    MmapSendMsend "mmap_send_msend" Enhanced, ("n", "2+8n"), ("0", "5n+2"), Referenced [], SPLICE,
        "mmap; UDP_CORK, send of the header, vmsplice and splice of the payload, uncork; munmap";
    Rtpsendfile "rtpsendfile" Enhanced, ("n", "2n"), ("0", "2n+2t+1"),
        Referenced [is_train], SPLICE,
        "for up to 7 packets: UDP_CORK, send of a header and sendfile of its payload each, uncork";
    Krtpsendfile "krtpsendfile" Enhanced, ("0", "2"), ("0", "t/b+2"),
        Reported [is_train is_image], RING_REGISTERED,
        "the engine's uring_registered_zc: SEND_ZC of trains of packet images from registered \
         memory";
    Krtpmsend "krtpmsend" Enhanced, ("0", "2"), ("0", "t/b+5"), Reported [is_train], RING_MSG_ZC,
        "mmap; a ring's SENDMSG_ZC of headers and payloads of up to 8 packets; munmap";
    Sendto "sendto" Modern, ("", ""), ("n", "n+2"), Copied [is_image], "",
        "the engine's sendto: each packet image by itself";
    Sendmmsg "sendmmsg" Modern, ("", ""), ("n", "t+2"), Copied [is_image], "",
        "the engine's sendmmsg: as many packet images a call as a train would have";
    SendmmsgGso "sendmmsg_gso" Modern, ("", ""), ("n", "t+2"), Copied [is_train is_image], GSO,
        "the engine's sendmmsg_gso: a train of packet images a call";
    Gso "gso" Modern, ("", ""), ("n", "t+3"), Copied [is_train], GSO,
        "mmap; sendmsg of a train's headers and payloads; munmap";
    GsoSendfile "gso_sendfile" Modern, ("", ""), ("0", "t+1"), Referenced [is_train is_image], GSO,
        "sendfile of a train of packet images that lie in a memfd";
    GsoZerocopy "gso_zerocopy" Modern, ("", ""), ("0", "t+3 and more to be told of the end"),
        Reported [is_train is_image], ZEROCOPY_GSO,
        "send with MSG_ZEROCOPY of a train of packet images";
    Uring "uring" Modern, ("", ""), ("n", "n/b+3"), Copied [], "io_uring (Linux 5.11)",
        "mmap; a ring's SENDMSG of each packet; munmap";
    UringZc "uring_zc" Modern, ("", ""), ("0", "n/b+2"), Reported [is_image], RING_ZC,
        "a ring's SEND_ZC of each packet image";
    UringRegistered "uring_registered" Modern, ("", ""), ("0", "n/b+2"),
        Reported [is_image], RING_REGISTERED,
        "a ring's SEND_ZC of each packet image from registered memory";
    UringSqpoll "uring_sqpoll" Modern, ("", ""), ("0", "t/b+2, or fewer"),
        Reported [is_train is_image], RING_REGISTERED,
        "as krtpsendfile, but a thread of the kernel takes the entries (SQPOLL)";
    UringVectoredZc "uring_vectored_zc" Modern, ("", ""), ("0", "t/b+2"),
        Reported [is_train], RING_VECTORED,
        "the engine's, after a jump: SENDMSG_ZC of headers from a slab and payloads of packet \
         images, up to 8 packets, from registered memory";
}

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
