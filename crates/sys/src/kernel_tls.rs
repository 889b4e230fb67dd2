//! Kernel TLS (kTLS, Documentation/networking/tls.rst): the kernel encrypts what is sent on a TCP
//! connection, `sendfile` included, with a key that it is given once.
//!
//! Only the sending direction is given away here. What is received stays as it comes: records,
//! which whoever has the other key opens. Nothing here shakes hands or knows what records mean.
//!
//! A socket that has a key once keeps it until it is closed.

use std::ffi::CStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use thiserror::Error;

use crate::path::cue::is_writable;

/// The name of the protocol above TCP.
const NAME: &CStr = c"tls";

/// Bytes of the longest `tls_crypto_info` here.
const INFO_BYTES_MAX: usize = 56;

const SEQUENCE_BYTES: usize = 8;

/// Bytes that every `tls_crypto_info` begins with: its version and its cipher.
const KIND_BYTES: usize = 4;

/// The type of a record of data, which is its first byte.
const DATA_RECORD: u8 = 23;

/// How long a byte over loopback is waited for.
const LOOPBACK_TIME_MAX: Duration = Duration::from_secs(5);

/// A version of TLS whose records the kernel makes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// A cipher that kernels have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM; of TLS 1.3 since Linux 5.1.
    Aes256Gcm,
    /// ChaCha20-Poly1305, since Linux 5.11.
    ChaCha20Poly1305,
}

impl Cipher {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    fn number(self) -> u16 {
        match self {
            Self::Aes128Gcm => libc::TLS_CIPHER_AES_GCM_128,
            Self::Aes256Gcm => libc::TLS_CIPHER_AES_GCM_256,
            Self::ChaCha20Poly1305 => libc::TLS_CIPHER_CHACHA20_POLY1305,
        }
    }

    fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Bytes of a nonce that do not change, which the kernel calls its salt.
    fn salt_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 4,
            Self::ChaCha20Poly1305 => 0,
        }
    }

    const fn info_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 40,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 56,
        }
    }
}

// As the kernel has them (include/uapi/linux/tls.h).
const _: () = assert!(
    size_of::<libc::tls12_crypto_info_aes_gcm_128>() == Cipher::Aes128Gcm.info_bytes()
        && size_of::<libc::tls12_crypto_info_aes_gcm_256>() == Cipher::Aes256Gcm.info_bytes()
        && size_of::<libc::tls12_crypto_info_chacha20_poly1305>()
            == Cipher::ChaCha20Poly1305.info_bytes()
);

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        })
    }
}

/// Why the kernel does not encrypt.
#[derive(Debug, Error)]
#[error("{call}: {source}")]
pub struct Refused {
    /// What was asked for: a call, or a socket option.
    pub call: &'static str,
    /// What the kernel answered.
    pub source: io::Error,
}

/// What the kernel is told to send with: a `tls_crypto_info`. It is overwritten when it is dropped.
pub struct SendKey {
    info: [u8; INFO_BYTES_MAX],
    cipher: Cipher,
}

impl SendKey {
    /// The key of a direction that has sealed `sequence` records, each with the nonce that is `iv`
    /// with the record's number laid over it (exclusive or). `None` if the key is not of that
    /// cipher's length.
    #[must_use]
    pub fn new(
        (version, cipher): (Version, Cipher),
        key: &[u8],
        iv: &[u8; 12],
        sequence: u64,
    ) -> Option<Self> {
        if key.len() != cipher.key_bytes() {
            return None;
        }
        let number = match version {
            Version::Tls12 => libc::TLS_1_2_VERSION,
            Version::Tls13 => libc::TLS_1_3_VERSION,
        };
        let (salt, rest) = iv.split_at(cipher.salt_bytes());
        let first = match (version, rest.first_chunk()) {
            // Of TLS 1.2 the kernel counts the explicit half of the nonce of AES-GCM up from what
            // it is given (net/tls/tls.h, `tls_advance_record_sn`), and a nonce must never come
            // twice. Numbers laid over a nonce are no larger than the two added, so behind that
            // sum all are new.
            (Version::Tls12, Some(explicit)) if !salt.is_empty() => {
                let explicit = u64::from_be_bytes(*explicit).wrapping_add(sequence);
                explicit.to_be_bytes().to_vec()
            }
            _ => rest.to_vec(),
        };
        let mut info = [0; INFO_BYTES_MAX];
        let pieces = [
            &number.to_ne_bytes()[..],
            &cipher.number().to_ne_bytes(),
            &first,
            key,
            salt,
            &sequence.to_be_bytes(),
        ];
        let mut at = 0;
        for piece in pieces {
            info[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        assert_eq!(at, cipher.info_bytes(), "of that cipher's length");
        Some(Self { info, cipher })
    }

    /// Has the kernel send with it on a connection that is open in both directions. What was
    /// written before leaves as it was written.
    ///
    /// # Errors
    ///
    /// Then nothing has changed: ENOENT if the kernel has no TLS (or the process may not load its
    /// module), ENOTCONN if the peer has closed, EINVAL and ENOENT of ciphers that it lacks; what
    /// asking for the key says where a kernel took it and does not have it.
    pub fn install(&self, socket: BorrowedFd<'_>) -> Result<(), Refused> {
        match set(socket, (libc::IPPROTO_TCP, libc::TCP_ULP), NAME.to_bytes()) {
            // It has been asked for before.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            asked => asked.map_err(refused("TCP_ULP"))?,
        }
        let info = &self.info[..self.cipher.info_bytes()];
        let set = set(socket, (libc::SOL_TLS, libc::TLS_TX), info);
        set.map_err(refused("TLS_TX"))?;
        // gVisor answers 0 to both options, which it does not know, and would send files as they
        // are. Linux says since 4.13 which key it has.
        let mut kept = [0; KIND_BYTES];
        let answer = kept_key(socket, &mut kept).map(|()| kept);
        self.check_kept(answer).map_err(refused("TLS_TX"))
    }

    /// That this is what the kernel says about the key which it has.
    fn check_kept(&self, answer: io::Result<[u8; KIND_BYTES]>) -> io::Result<()> {
        match answer? == self.info[..KIND_BYTES] {
            true => Ok(()),
            false => Err(io::Error::other("the kernel does not have the key it took")),
        }
    }

    /// The `tls_crypto_info`.
    #[cfg(test)]
    fn info(&self) -> &[u8] {
        &self.info[..self.cipher.info_bytes()]
    }
}

impl Drop for SendKey {
    fn drop(&mut self) {
        wipe(&mut self.info);
    }
}

impl fmt::Debug for SendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of a key is ever printed.
        write!(f, "SendKey of {}", self.cipher)
    }
}

/// The ciphers with which this kernel seals records of TLS 1.3: each is tried on a connection over
/// loopback, where a record must come. Loads the module, where the process may.
///
/// # Errors
///
/// If it has no TLS, or none of the ciphers.
pub fn ciphers() -> Result<Vec<Cipher>, Refused> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refused("bind"))?;
    let to = listener.local_addr().map_err(refused("getsockname"))?;
    let (mut found, mut last) = (Vec::new(), None);
    for cipher in Cipher::ALL {
        let socket = TcpStream::connect(to).map_err(refused("connect"))?;
        let (received, _) = listener.accept().map_err(refused("accept"))?;
        let nothing = &[0; 32][..cipher.key_bytes()];
        let key = SendKey::new((Version::Tls13, cipher), nothing, &[0; 12], 0);
        let installed = key.expect("of that length").install(socket.as_fd());
        match installed.and_then(|()| check_sealed(&socket, &received).map_err(refused("send"))) {
            Ok(()) => found.push(cipher),
            Err(refused) if refused.call == "TCP_ULP" => return Err(refused),
            Err(refused) => last = Some(refused),
        }
    }
    match last.filter(|_| found.is_empty()) {
        Some(refused) => Err(refused),
        None => Ok(found),
    }
}

/// How many records the connection's key has sealed, those before the kernel had it included.
///
/// # Errors
///
/// EBUSY if the kernel has no key.
pub fn sealed_records(socket: BorrowedFd<'_>, cipher: Cipher) -> io::Result<u64> {
    let mut info = [0; INFO_BYTES_MAX];
    let bytes = cipher.info_bytes();
    let answer = kept_key(socket, &mut info[..bytes]);
    let mut sequence = [0; SEQUENCE_BYTES];
    sequence.copy_from_slice(&info[bytes - SEQUENCE_BYTES..bytes]);
    wipe(&mut info);
    answer.map(|()| u64::from_be_bytes(sequence))
}

/// That what is sent on one end of a connection comes to the other as a record.
fn check_sealed(mut socket: &TcpStream, mut received: &TcpStream) -> io::Result<()> {
    received.set_read_timeout(Some(LOOPBACK_TIME_MAX))?;
    socket.write_all(&[0])?;
    let mut first = [0];
    received.read_exact(&mut first)?;
    match first[0] == DATA_RECORD {
        true => Ok(()),
        false => Err(io::Error::other(
            "the kernel does not encrypt what it sends",
        )),
    }
}

/// What the kernel has of the connection's key: all of that cipher's `tls_crypto_info`, or its
/// first [`KIND_BYTES`]. Before Linux 5.16 it tells of ChaCha20-Poly1305 no more than these.
fn kept_key(socket: BorrowedFd<'_>, info: &mut [u8]) -> io::Result<()> {
    let mut info_bytes = libc::socklen_t::try_from(info.len()).unwrap_or(0);
    // SAFETY: the descriptor is open as long as it is borrowed; `info` is writable for the length
    // given, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_TLS,
            libc::TLS_TX,
            info.as_mut_ptr().cast(),
            &raw mut info_bytes,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a record of another type than data, an alert for example, on a socket that does not
/// block, behind all that was sent before.
///
/// # Errors
///
/// `WouldBlock` if the socket is full: an edge-triggered wait is sure to see it become writable.
pub fn send_record(socket: BorrowedFd<'_>, record_type: u8, payload: &[u8]) -> io::Result<()> {
    if !is_writable(socket)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let mut part = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    // As large as one control message of a byte, and aligned as its header is.
    let mut control = [0_u64; 4];
    // SAFETY: it only computes.
    let space = unsafe { libc::CMSG_SPACE(1) };
    // SAFETY: it only computes.
    let length = unsafe { libc::CMSG_LEN(1) };
    assert!(space as usize <= size_of_val(&control));
    // SAFETY: a msghdr of zeroes is one without address, pieces and control messages.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = space as _;
    // SAFETY: the message's control data is writable for its length, which has room for a header.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let asked = libc::cmsghdr {
        cmsg_len: length as _,
        cmsg_level: libc::SOL_TLS,
        cmsg_type: libc::TLS_SET_RECORD_TYPE,
    };
    // SAFETY: `header` is the start of `control`, which is aligned for it and longer.
    unsafe { header.write(asked) };
    // SAFETY: `header` is a header that was written, within `control`.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: its data begins within `control`, which has room for the one byte.
    unsafe { data.write(record_type) };
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the message, its part and its control data outlive the call, which only reads them.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets an option of a socket: its level, and its number there.
fn set(socket: BorrowedFd<'_>, (level, option): (i32, i32), value: &[u8]) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the descriptor is open as long as it is borrowed; the value is readable for the
    // length given, and the kernel copies it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            bytes,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn refused(call: &'static str) -> impl FnOnce(io::Error) -> Refused {
    move |source| Refused { call, source }
}

/// Overwrites what has a key in it, so that no compiler leaves it out.
fn wipe(bytes: &mut [u8]) {
    for byte in bytes {
        // SAFETY: the byte is valid, and exclusively borrowed.
        unsafe { std::ptr::write_volatile(byte, 0) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const KEY: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";
    const IV: [u8; 12] = *b"ABCDEFGHIJKL";

    fn key(of: (Version, Cipher), sequence: u64) -> SendKey {
        SendKey::new(of, &KEY[..of.1.key_bytes()], &IV, sequence).unwrap()
    }

    /// Little-endian machines are what this runs on.
    #[test]
    fn the_kernel_is_told_each_cipher_as_its_header_has_it() {
        use Cipher::{Aes128Gcm, Aes256Gcm, ChaCha20Poly1305};
        let expected: [(_, &[u8]); 5] = [
            (
                (Version::Tls13, Aes128Gcm),
                b"\x04\x03\x33\0EFGHIJKL0123456789abcdefABCD\0\0\0\0\0\0\x01\x02",
            ),
            (
                (Version::Tls13, Aes256Gcm),
                b"\x04\x03\x34\0EFGHIJKL0123456789abcdefghijklmnopqrstuvABCD\0\0\0\0\0\0\x01\x02",
            ),
            (
                (Version::Tls13, ChaCha20Poly1305),
                b"\x04\x03\x36\0ABCDEFGHIJKL0123456789abcdefghijklmnopqrstuv\0\0\0\0\0\0\x01\x02",
            ),
            // 'K' + 1, 'L' + 2.
            (
                (Version::Tls12, Aes128Gcm),
                b"\x03\x03\x33\0EFGHIJLN0123456789abcdefABCD\0\0\0\0\0\0\x01\x02",
            ),
            (
                (Version::Tls12, ChaCha20Poly1305),
                b"\x03\x03\x36\0ABCDEFGHIJKL0123456789abcdefghijklmnopqrstuv\0\0\0\0\0\0\x01\x02",
            ),
        ];
        for (of, info) in expected {
            assert_eq!(key(of, 0x102).info(), info, "{of:?}");
        }
        assert!(SendKey::new((Version::Tls13, Aes128Gcm), &KEY, &IV, 0).is_none());
        let text = format!("{:?}", key((Version::Tls13, Aes128Gcm), 0));
        assert_eq!(text, "SendKey of AES-128-GCM");
    }

    /// Whoever sealed before laid the number of each record over the nonce; the kernel counts up.
    #[test]
    fn no_nonce_of_tls_1_2_comes_twice() {
        let of = (Version::Tls12, Cipher::Aes256Gcm);
        let explicits = [0, 1, 2, 7, 8, 0xfe, 0xff, u64::MAX - 3, u64::MAX];
        for explicit in explicits {
            let mut iv = IV;
            iv[4..].copy_from_slice(&explicit.to_be_bytes());
            for sequence in [0, 1, 2, 3, 5, 8, 100] {
                let key = SendKey::new(of, &KEY, &iv, sequence).unwrap();
                let first = u64::from_be_bytes(*key.info()[4..].first_chunk().unwrap());
                let before = (0..sequence).map(|number| explicit ^ number);
                let since = (0..1000).map(|more| first.wrapping_add(more));
                let all: Vec<_> = before.chain(since).collect();
                let each: HashSet<_> = all.iter().collect();
                assert_eq!(each.len(), all.len(), "{explicit:x} behind {sequence}");
            }
        }
    }

    /// gVisor answers 0 to options that it does not know.
    #[test]
    fn a_key_that_the_kernel_took_and_has_not_is_refused() {
        let key = key((Version::Tls13, Cipher::Aes256Gcm), 3);
        assert!(key.check_kept(Ok(*b"\x04\x03\x34\0")).is_ok());
        // Nothing was written; of TLS 1.2; of another cipher.
        for other in [[0; 4], *b"\x03\x03\x34\0", *b"\x04\x03\x33\0"] {
            assert!(key.check_kept(Ok(other)).is_err(), "{other:?}");
        }
        let unknown = io::Error::from_raw_os_error(libc::ENOPROTOOPT);
        let error = key.check_kept(Err(unknown)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
    }

    #[test]
    fn what_comes_as_it_was_sent_is_not_encrypted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        assert!(kept_key(near.as_fd(), &mut [0; KIND_BYTES]).is_err());
        let error = check_sealed(&near, &far).unwrap_err();
        assert!(error.to_string().contains("does not encrypt"), "{error}");
        // A record's first byte.
        (&near).write_all(&[DATA_RECORD]).unwrap();
        assert!(check_sealed(&near, &far).is_ok());
    }

    /// On a kernel without TLS, and on one with it.
    #[test]
    fn the_kernel_takes_a_key_or_says_why_and_the_connection_lives() {
        let ciphers = ciphers();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"before").unwrap();
        let installed = key((Version::Tls13, Cipher::Aes256Gcm), 3).install(near.as_fd());
        near.write_all(b"behind").unwrap();
        let mut received = [0; 12];
        far.read_exact(&mut received).unwrap();
        match installed {
            Ok(()) => {
                assert!(ciphers.unwrap().contains(&Cipher::Aes256Gcm));
                // A record of six bytes, its type and its tag.
                assert_eq!(&received[..11], b"before\x17\x03\x03\0\x17");
                assert_eq!(sealed_records(near.as_fd(), Cipher::Aes256Gcm).unwrap(), 4);
            }
            Err(refused) => {
                assert_eq!(refused.to_string(), ciphers.unwrap_err().to_string());
                assert!(refused.to_string().starts_with("TCP_ULP"), "{refused}");
                assert_eq!(&received, b"beforebehind");
                assert!(sealed_records(near.as_fd(), Cipher::Aes256Gcm).is_err());
            }
        }
        let unconnected =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let refused = key((Version::Tls13, Cipher::Aes128Gcm), 0).install(unconnected.as_fd());
        assert_eq!(refused.unwrap_err().call, "TCP_ULP");
    }
}
