//! Trains to many receivers by a ring, in the ways that may make one cheaper.
//!
//! Beside [`RingSends`](super::RingSends) it has what a server has: a socket for each receiver,
//! sockets in a table of the ring, a record of each receiver, and images all over its memory. No
//! cache close by holds all of that for thousands of receivers, and what that costs is asked here.

use std::hint::black_box;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::ring::Unlisted;
use onrush_lock::LockedArea;
use onrush_lock::memory::Area;

/// Trains that are handed over in one crossing, at the most.
pub const BATCH_TRAINS_MAX: usize = 1024;

/// Receivers, and the sockets to reach them by.
#[derive(Debug)]
pub struct TrainSockets {
    /// One for each, connected.
    pub connected: Vec<UdpSocket>,
    /// One for all, which is not.
    pub unconnected: UdpSocket,
    /// Where they are.
    pub addresses: Vec<SocketAddrV4>,
}

/// How a ring is set up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RingKind {
    /// One issuer, work deferred to its own waits, as the server's.
    Deferred,
    /// As the kernel sets it up by itself.
    Plain,
    /// A thread of the kernel on this processor takes the entries.
    Polled(u32),
}

/// How trains are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TrainWay {
    /// Trains in a crossing, up to [`BATCH_TRAINS_MAX`].
    pub batch: usize,
    /// Bytes of a train.
    pub bytes: u32,
    /// Sockets by their places in the ring's table, or else by descriptor.
    pub is_fixed: bool,
    /// Each by its own socket, or all by the one that is not connected.
    pub is_connected: bool,
    /// Receivers in the order of their sockets, or in none.
    pub is_in_order: bool,
    /// From registered memory, or copied.
    pub is_zero_copy: bool,
    /// Whether the kernel is to say if it copied.
    pub tells_usage: bool,
    /// Whether sends that succeed say nothing. Of copies only.
    pub is_silent: bool,
    /// Cache lines of a receiver's record that are read and written.
    pub record_lines: usize,
    /// Whether the records of the receivers to come are fetched ahead.
    pub is_prefetched: bool,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TrainsSent {
    /// Trains.
    pub trains: u64,
    /// Of those, copied, as far as the kernel said.
    pub copied: u64,
    /// Entries into the kernel.
    pub crossings: u64,
}

/// Cache lines of a record.
const RECORD_LINES: usize = 4;

/// Receivers whose records are fetched ahead.
const AHEAD: usize = 8;

/// What a server keeps of a receiver.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// A ring that sends trains.
#[derive(Debug)]
pub struct TrainRing {
    ring: Unlisted,
    area: Area,
    _registered: LockedArea,
    sockets: Arc<TrainSockets>,
    addresses: Vec<libc::sockaddr_in>,
    records: Vec<[Line; RECORD_LINES]>,
    /// Receivers in no order.
    order: Vec<usize>,
    at: usize,
    batch: Vec<squeue::Entry>,
}

impl TrainRing {
    /// A ring with `bytes` of registered memory, in huge pages. `order` has each receiver once.
    ///
    /// # Errors
    ///
    /// If there is no such ring, or the memory cannot be locked.
    pub fn new(
        kind: RingKind,
        bytes: usize,
        sockets: Arc<TrainSockets>,
        order: Vec<usize>,
    ) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        let entries = u32::try_from(BATCH_TRAINS_MAX).map_err(io::Error::other)?;
        builder.setup_submit_all().setup_cqsize(entries * 4);
        match kind {
            RingKind::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun();
            }
            RingKind::Plain => {}
            RingKind::Polled(core) => {
                builder.setup_sqpoll(100).setup_sqpoll_cpu(core);
            }
        }
        let ring = builder.build(entries)?;
        let area = Area::map(bytes).map_err(io::Error::other)?;
        // SAFETY: the ring is open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let registered = area.register(fd).map_err(io::Error::other)?;
        let all = sockets.connected.iter().chain([&sockets.unconnected]);
        let files: Vec<_> = all.map(AsRawFd::as_raw_fd).collect();
        ring.submitter().register_files(&files)?;
        let sin_family = libc::sa_family_t::try_from(libc::AF_INET).map_err(io::Error::other)?;
        let addresses = sockets.addresses.iter().map(|at| libc::sockaddr_in {
            sin_family,
            sin_port: at.port().to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from_ne_bytes(at.ip().octets()),
            },
            sin_zero: [0; 8],
        });
        Ok(Self {
            ring: Unlisted(ring),
            area,
            _registered: registered,
            addresses: addresses.collect(),
            records: vec![Default::default(); sockets.connected.len()],
            sockets,
            order,
            at: 0,
            batch: Vec::with_capacity(BATCH_TRAINS_MAX),
        })
    }

    /// Sends so many batches, each to the next receivers, and waits until the kernel needs no
    /// memory of any.
    ///
    /// # Errors
    ///
    /// If a send failed.
    pub fn send(&mut self, way: &TrainWay, batches: u64) -> io::Result<TrainsSent> {
        let mut sent = TrainsSent::default();
        for _ in 0..batches {
            self.batch.clear();
            for _ in 0..way.batch.min(BATCH_TRAINS_MAX) {
                let entry = self.next(way)?;
                self.batch.push(entry);
            }
            self.hand_over(way, &mut sent)?;
        }
        Ok(sent)
    }

    /// The entry for the next receiver.
    fn next(&mut self, way: &TrainWay) -> io::Result<squeue::Entry> {
        let receivers = self.order.len();
        let of = |nth: usize| match way.is_in_order {
            true => nth % receivers,
            false => self.order[nth % receivers],
        };
        if way.is_prefetched {
            prefetch(&self.records[of(self.at + AHEAD)], way.record_lines);
        }
        let receiver = of(self.at);
        self.at += 1;
        let record = &mut self.records[receiver];
        for line in record.iter_mut().take(way.record_lines.max(1)) {
            line.0[0] = black_box(line.0[0] + 1);
        }
        // An image somewhere, at a multiple of a page.
        let places = self.area.bytes_total().saturating_sub(64 << 10) / 4096;
        let turn = usize::try_from(record[0].0[0]).map_err(io::Error::other)?;
        let place = (receiver.wrapping_mul(977) + turn * 3) % places.max(1);
        let start = self
            .area
            .base()
            .as_ptr()
            .wrapping_add(place * 4096)
            .cast_const();
        let which = match way.is_connected {
            true => receiver,
            false => self.sockets.connected.len(),
        };
        let to = (&raw const self.addresses[receiver]).cast::<libc::sockaddr>();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // Either kind of socket is a type of its own.
        macro_rules! entry {
            ($socket:expr) => {
                if way.is_zero_copy {
                    let send = opcode::SendZc::new($socket, start, way.bytes).flags(flags);
                    let send = send.buf_index(Some(0));
                    let send = send.zc_flags(if way.tells_usage { REPORT_USAGE } else { 0 });
                    match way.is_connected {
                        true => send.build(),
                        false => send.dest_addr(to).dest_addr_len(ADDRESS_BYTES).build(),
                    }
                } else {
                    opcode::Send::new($socket, start, way.bytes)
                        .flags(flags)
                        .build()
                }
            };
        }
        let entry = match way.is_fixed {
            true => {
                let place = u32::try_from(which).map_err(io::Error::other)?;
                entry!(types::Fixed(place))
            }
            false if way.is_connected => {
                entry!(types::Fd(self.sockets.connected[receiver].as_raw_fd()))
            }
            false => entry!(types::Fd(self.sockets.unconnected.as_raw_fd())),
        };
        Ok(match way.is_silent {
            true => entry.flags(squeue::Flags::SKIP_SUCCESS),
            false => entry,
        })
    }

    /// Hands over what is made, and waits until the kernel needs no memory any more.
    fn hand_over(&mut self, way: &TrainWay, sent: &mut TrainsSent) -> io::Result<()> {
        let ring = &mut self.ring.0;
        // SAFETY: sockets, addresses and memory are `self`'s, and stay until all were answered and
        // released, below; those that say nothing have been copied when the call returns.
        let pushed = unsafe { ring.submission().push_multiple(&self.batch) };
        pushed.map_err(io::Error::other)?;
        sent.trains += self.batch.len() as u64;
        let (mut unanswered, mut unreleased) = (self.batch.len(), 0);
        if way.is_silent {
            unanswered = 0;
            ring.submit()?;
            sent.crossings += 1;
        }
        while unanswered + unreleased > 0 {
            // Each that is answered is released later: wait for all of both at once.
            let each = if way.is_zero_copy { 2 } else { 1 };
            ring.submit_and_wait(unanswered * each + unreleased)?;
            sent.crossings += 1;
            for completion in ring.completion() {
                if cqueue::notif(completion.flags()) {
                    unreleased -= 1;
                    sent.copied += u64::from(completion.result() & USAGE_COPIED != 0);
                    continue;
                }
                unanswered = unanswered.saturating_sub(1);
                unreleased += usize::from(cqueue::more(completion.flags()));
                if completion.result() < 0 {
                    return Err(io::Error::from_raw_os_error(-completion.result()));
                }
            }
        }
        // What says nothing when it succeeds has said why it did not.
        match ring.completion().next() {
            Some(failed) if failed.result() < 0 => {
                Err(io::Error::from_raw_os_error(-failed.result()))
            }
            _ => Ok(()),
        }
    }
}

/// Asks for the first lines of a record before they are needed.
fn prefetch(record: &[Line; RECORD_LINES], lines: usize) {
    for line in record.iter().take(lines) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing that a program could see; the address is a
            // reference's all the same.
            unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *line).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        black_box(line);
    }
}

/// `IORING_SEND_ZC_REPORT_USAGE` and `IORING_NOTIF_USAGE_ZC_COPIED`.
const REPORT_USAGE: u16 = 8;
const USAGE_COPIED: i32 = i32::MIN;
const ADDRESS_BYTES: libc::socklen_t = 16;
const _: () = assert!(size_of::<libc::sockaddr_in>() == 16);

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::tests::sizes;
    use super::*;

    const WAY: TrainWay = TrainWay {
        batch: 5,
        bytes: 100,
        is_fixed: true,
        is_connected: true,
        is_in_order: false,
        is_zero_copy: true,
        tells_usage: true,
        is_silent: false,
        record_lines: 1,
        is_prefetched: false,
    };

    #[test]
    fn each_way_sends_to_each_receiver_in_turn() {
        let receivers: Vec<_> = (0..3)
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        let at = |receiver: &UdpSocket| match receiver.local_addr().unwrap() {
            SocketAddr::V4(at) => at,
            SocketAddr::V6(_) => unreachable!("an address of IPv4 was bound"),
        };
        let connected = receivers.iter().map(|receiver| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(at(receiver)).unwrap();
            socket
        });
        let sockets = Arc::new(TrainSockets {
            connected: connected.collect(),
            unconnected: UdpSocket::bind("127.0.0.1:0").unwrap(),
            addresses: receivers.iter().map(at).collect(),
        });
        let core = onrush_sys::thread::allowed_cores()[0];
        let kinds = [
            RingKind::Deferred,
            RingKind::Plain,
            RingKind::Polled(u32::try_from(core).unwrap()),
        ];
        let ways = [
            WAY,
            TrainWay {
                is_fixed: false,
                ..WAY
            },
            TrainWay {
                is_connected: false,
                ..WAY
            },
            TrainWay {
                is_connected: false,
                is_fixed: false,
                ..WAY
            },
            TrainWay {
                is_in_order: true,
                is_prefetched: true,
                record_lines: 4,
                ..WAY
            },
            TrainWay {
                is_zero_copy: false,
                ..WAY
            },
            TrainWay {
                is_zero_copy: false,
                is_silent: true,
                ..WAY
            },
        ];
        for kind in kinds {
            let Ok(mut ring) = TrainRing::new(kind, 1 << 20, Arc::clone(&sockets), vec![2, 0, 1])
            else {
                // A kernel, or a container, without rings; the server's tests say so loudly.
                return;
            };
            for way in &ways {
                if kind != RingKind::Deferred && way.is_silent {
                    // Elsewhere nobody knows when it was sent.
                    continue;
                }
                let sent = ring.send(way, 3).unwrap();
                assert_eq!(sent.trains, 15, "{way:?}");
                assert!(sent.crossings >= 3);
                for receiver in &receivers {
                    assert_eq!(sizes(receiver, 5), [100; 5], "{kind:?} {way:?}");
                }
            }
            let failed = ring.send(
                &TrainWay {
                    bytes: 65_508,
                    ..WAY
                },
                1,
            );
            assert!(failed.is_err());
        }
    }
}
