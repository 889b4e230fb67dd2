//! Kernel TLS: from the first long body on the kernel seals what is sent on a connection, so that
//! files go by `sendfile` as they do without TLS.
//!
//! The kernel is asked once, when the server starts; then each connection hands over the key that
//! it has sealed with so far, and the number of its next record. The direction that is received
//! stays here. A connection whose key the kernel does not take goes on without it.
//!
//! A key that the kernel has is never changed for another: kernels before 6.14 cannot. So a
//! connection ends, between two answers, before its key is worn, and when its client asks for
//! another key.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onrush_sys::kernel_tls::{Cipher, Refused, ciphers, sealed_records};
use onrush_wire::tls::FRAGMENT_BYTES_MAX;
use tracing::{debug, info};

use super::config::KernelTlsUse;
use super::record::{REKEY_SHARE, Sealer};
use super::stats::TlsStats;

/// The longest body that is sealed here although the kernel would: read and sealed at once, it
/// costs less than handing over a key.
pub const KERNEL_TLS_BODY_BYTES_MIN: u64 = 64 << 10;

/// Pieces that the kernel puts into one record at the least, if they are short enough
/// (MAX_SKB_FRAGS, of which a piece across two pages takes two).
const PIECES_OF_RECORD: u64 = 8;

/// The kernel's part in TLS, as all connections find it.
#[derive(Debug)]
pub(crate) struct KernelTls {
    stats: Arc<TlsStats>,
    has_told: AtomicBool,
}

/// Who encrypts bodies of HTTP/1.1, and why not the kernel, if so.
#[derive(Debug)]
pub enum KernelTlsState {
    /// The kernel does, with these ciphers.
    Used(Vec<Cipher>),
    /// It was told to leave it.
    Off,
    /// It does not.
    Refused(Refused),
}

/// A connection's key that the kernel has.
#[derive(Debug)]
pub(super) struct KernelKey {
    cipher: Cipher,
    records_max: u64,
    /// Records that it has sealed, or a few more.
    records: Cell<u64>,
    stats: Arc<TlsStats>,
}

impl KernelTls {
    /// Asks the kernel, if that is wanted.
    pub(super) fn open(
        asked: KernelTlsUse,
        stats: &Arc<TlsStats>,
    ) -> (Option<Arc<Self>>, KernelTlsState) {
        let state = match asked {
            KernelTlsUse::Off => KernelTlsState::Off,
            KernelTlsUse::Auto => match ciphers() {
                Ok(ciphers) => KernelTlsState::Used(ciphers),
                Err(refused) => KernelTlsState::Refused(refused),
            },
        };
        let kernel = matches!(state, KernelTlsState::Used(_)).then(|| Self::new(stats));
        (kernel, state)
    }

    /// That of a kernel that is said to have TLS.
    pub(super) fn new(stats: &Arc<TlsStats>) -> Arc<Self> {
        Arc::new(Self {
            stats: Arc::clone(stats),
            has_told: AtomicBool::new(false),
        })
    }

    /// Gives the sealer's key to the kernel, for a body of so many bytes and what follows. `None`
    /// if it stays where it is: then the sealer goes on.
    pub(super) fn take(
        &self,
        sealer: &Sealer,
        socket: BorrowedFd<'_>,
        body_bytes: u64,
    ) -> Option<KernelKey> {
        let (key, cipher) = sealer.send_key()?;
        let (records, records_max) = sealer.records();
        let kernel_key = KernelKey {
            cipher,
            records_max,
            records: Cell::new(records),
            stats: Arc::clone(&self.stats),
        };
        // Here, a key of TLS 1.3 would be changed on the way.
        if !kernel_key.has_room_for(body_bytes) {
            return None;
        }
        match key.install(socket) {
            Ok(()) => {
                self.stats.kernel.fetch_add(1, Ordering::Relaxed);
                Some(kernel_key)
            }
            Err(refused) => {
                self.stats.kernel_refused.fetch_add(1, Ordering::Relaxed);
                match self.has_told.swap(true, Ordering::Relaxed) {
                    true => debug!("kernel TLS: {refused}; the server encrypts"),
                    false => info!(
                        "kernel TLS: {refused}; the server encrypts that connection by itself. \
                         Others of which that is true are counted, and not logged"
                    ),
                }
                None
            }
        }
    }
}

impl KernelKey {
    /// So many bytes, in so many pieces, were given to the kernel by one call or a few.
    pub(super) fn sealed(&self, bytes: u64, pieces: u64) {
        let records = bytes / FRAGMENT_BYTES_MAX as u64 + pieces / PIECES_OF_RECORD + 2;
        self.records.set(self.records.get().saturating_add(records));
    }

    /// The same, of a file.
    pub(super) fn sealed_file(&self, bytes: u64, pieces: u64) {
        self.stats.kernel_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.sealed(bytes, pieces);
    }

    /// Whether the connection should end before another answer.
    pub(super) fn is_worn(&self, socket: BorrowedFd<'_>) -> bool {
        self.has_sealed(self.records_max / REKEY_SHARE, socket)
    }

    /// That it may seal more.
    ///
    /// # Errors
    ///
    /// `EKEYEXPIRED`; what one call has sealed fits into what is left then.
    pub(super) fn check(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        match self.has_sealed(self.last(), socket) {
            true => Err(io::Error::from_raw_os_error(libc::EKEYEXPIRED)),
            false => Ok(()),
        }
    }

    /// Whether a body is sealed whole before that.
    pub(super) fn has_room_for(&self, body_bytes: u64) -> bool {
        let records = body_bytes / FRAGMENT_BYTES_MAX as u64;
        self.records.get().saturating_add(records.saturating_mul(2)) < self.last()
    }

    fn last(&self) -> u64 {
        self.records_max / 4 * 3
    }

    /// Whether it has sealed so many records. The kernel is asked only if it seems so.
    fn has_sealed(&self, records: u64, socket: BorrowedFd<'_>) -> bool {
        if self.records.get() < records {
            return false;
        }
        if let Ok(sealed) = sealed_records(socket, self.cipher) {
            self.records.set(sealed);
        }
        self.records.get() >= records
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn key(records_max: u64, records: u64) -> KernelKey {
        KernelKey {
            cipher: Cipher::Aes256Gcm,
            records_max,
            records: Cell::new(records),
            stats: Arc::default(),
        }
    }

    #[test]
    fn a_key_is_worn_at_half_and_over_at_three_quarters() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (socket, last) = (socket.as_fd(), 1 << 24);
        for (records, is_worn, is_over) in [
            (last / 2 - 1, false, false),
            (last / 2, true, false),
            (last / 4 * 3 - 1, true, false),
            (last / 4 * 3, true, true),
        ] {
            let key = key(last, records);
            assert_eq!(key.is_worn(socket), is_worn, "{records}");
            assert_eq!(key.check(socket).is_err(), is_over, "{records}");
        }
        // ChaCha20 has no such bound.
        let unbounded = key(u64::MAX, 1 << 40);
        assert!(!unbounded.is_worn(socket) && unbounded.has_room_for(u64::MAX));
    }

    #[test]
    fn no_call_seals_more_records_than_are_counted() {
        let key = key(1 << 24, 0);
        let mut expected = 0;
        for (bytes, pieces, records) in [(0, 1, 2), (1, 1, 2), (64 << 10, 1, 6), (600, 600, 77)] {
            key.sealed_file(bytes, pieces);
            expected += records;
            assert_eq!(key.records.get(), expected, "{bytes} in {pieces}");
        }
        assert_eq!(key.stats.kernel_bytes.load(Ordering::Relaxed), 66_137);
    }

    #[test]
    fn a_body_that_the_key_cannot_seal_stays_here() {
        let room = |records, bytes| key(1 << 24, records).has_room_for(bytes);
        let (all, record) = ((1_u64 << 24) / 4 * 3, FRAGMENT_BYTES_MAX as u64);
        assert!(room(0, (all / 2 - 1) * record) && !room(0, all / 2 * record));
        assert!(room(all - 3, record) && !room(all - 2, record));
    }
}
