//! What the program at the device and the sender share: the lanes' members and the group's pass.
//!
//! Each is an eBPF array map of the sender's own, mapped into this process, so that a group is
//! replaced without entering the kernel. The program finds it in a map of maps, runs within the
//! sender's own system call, and only while a pass is armed; so whoever is between two sends may
//! write.

use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use aya::Pod;

/// `struct member` of bpf/fan.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Slot {
    pub(super) address: [u8; 16],
    pub(super) port: [u8; 2],
    pub(super) mac: [u8; 6],
    pub(super) ifindex: u32,
    pub(super) sum_address: u16,
    pub(super) sum_port: u16,
    pub(super) refused: u32,
    pub(super) error: i32,
}

/// `struct pass` of bpf/group.bpf.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Pass {
    pub(super) armed: u32,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) is_ipv6: u32,
    pub(super) address: [u8; 16],
    pub(super) port: [u8; 2],
    pub(super) lane: u16,
    pub(super) ifindex: u32,
    pub(super) clones: u64,
    pub(super) refused: u64,
}

/// `struct lane` of bpf/group.bpf.c: by what the program finds a lane's members.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub(super) struct LaneName {
    pub(super) cookie: u64,
    pub(super) number: u32,
    pub(super) pad: u32,
}

const _: () = assert!(size_of::<Slot>() == 40);
const _: () = assert!(size_of::<Pass>() == 56);
const _: () = assert!(size_of::<LaneName>() == 16);

// SAFETY: made of integers alone, without bytes between or behind them, so that all of their bytes
// are initialised and any bytes are a value.
unsafe impl Pod for Slot {}
// SAFETY: as above.
unsafe impl Pod for Pass {}
// SAFETY: as above.
unsafe impl Pod for LaneName {}

/// An array map in our address space. Its entries are plain integers, which the kernel changes too:
/// they are read and written whole, never borrowed.
#[derive(Debug)]
pub(super) struct Mapped<T> {
    base: NonNull<T>,
    entries: usize,
}

// SAFETY: a mapping of shared memory belongs to no thread, and only its owner's methods touch it.
unsafe impl<T: Send> Send for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// Maps an array map that was made with BPF_F_MMAPABLE, and whose values are `T`.
    pub(super) fn of(map: impl AsFd, value_bytes: u32, entries: u32) -> io::Result<Self> {
        assert_eq!(
            value_bytes as usize,
            size_of::<T>(),
            "the map's values are this type"
        );
        let entries = entries as usize;
        let bytes = entries * size_of::<T>();
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, map.as_fd().as_raw_fd());
        // SAFETY: a new mapping, at an address of the kernel's choice, that replaces nothing.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("a mapping is not at 0");
        Ok(Self { base, entries })
    }

    pub(super) fn read(&self, index: usize) -> T {
        // SAFETY: see `at`; every bit pattern of the two types is a value. Volatile, because the
        // kernel changes it behind the compiler's back.
        unsafe { self.at(index).read_volatile() }
    }

    pub(super) fn write(&mut self, index: usize, value: T) {
        // SAFETY: see `at`; nobody holds a reference into the mapping. The kernel reads it in a
        // later system call only, before which the compiler has to have written it.
        unsafe { self.at(index).write(value) }
    }

    /// Writes four bytes of an entry that is in use, and not the others: a program that runs sees
    /// the number of before or this one, and what was written before it.
    pub(super) fn write_word(&mut self, index: usize, offset: usize, word: u32) {
        assert!(
            offset + 4 <= size_of::<T>() && offset.is_multiple_of(4),
            "a word of it"
        );
        let at = self.at(index).wrapping_byte_add(offset).cast::<u32>();
        // SAFETY: within the entry by the assertion, in the mapping, which is aligned to eight
        // bytes as `at` says, for as long as `self` lives. Others write only atomically there, or
        // not at all.
        unsafe { AtomicU32::from_ptr(at) }.store(word, Ordering::SeqCst);
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.entries, "the map has such an entry");
        // Within the mapping, whose start is aligned to a page and whose entries lie
        // `size_of::<T>()` apart: that is a multiple of 8, to which the kernel would round.
        self.base.as_ptr().wrapping_add(index)
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        let bytes = self.entries * size_of::<T>();
        // SAFETY: the range is the mapping that `of` made, and nobody refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
    }
}

impl Slot {
    pub(super) fn new(ip: IpAddr, port: u16, mac: [u8; 6], ifindex: u32) -> Self {
        let (mut address, port) = ([0; 16], port.to_be_bytes());
        let sum_address = match ip {
            IpAddr::V4(ip) => {
                address[..4].copy_from_slice(&ip.octets());
                sum_of(&ip.octets())
            }
            IpAddr::V6(ip) => {
                address = ip.octets();
                sum_of(&address)
            }
        };
        Self {
            address,
            port,
            mac,
            ifindex,
            sum_address,
            sum_port: u16::from_ne_bytes(port),
            refused: 0,
            error: 0,
        }
    }

    /// The same member at another IPv4 address and port, to whom nothing was refused yet.
    pub(super) fn at_ipv4(self, to: SocketAddrV4) -> Self {
        let (ip, port) = (to.ip().octets(), to.port().to_be_bytes());
        let mut address = [0; 16];
        address[..4].copy_from_slice(&ip);
        Self {
            address,
            port,
            sum_address: sum_of(&ip),
            sum_port: u16::from_ne_bytes(port),
            refused: 0,
            error: 0,
            ..self
        }
    }
}

/// The one's complement sum of 16-bit words as they lie in memory (RFC 1071), whose byte order does
/// not matter as long as it is the same everywhere.
fn sum_of(address: &[u8]) -> u16 {
    let words = address.chunks_exact(2);
    let sum: u32 = words
        .map(|w| u32::from(u16::from_ne_bytes([w[0], w[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded twice")
}

/// A count of members, lanes or slots, as the program has it.
pub(super) fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("at most MEMBERS_MAX")
}
