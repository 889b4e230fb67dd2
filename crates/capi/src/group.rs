//! Groups: one send, many receivers.

use std::ffi::{c_char, c_int, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};

use onrush_group::{Group, GroupError, MEMBERS_MAX, Options, Sent, Way};

use crate::arguments::{Out, bytes, read, write_text};
use crate::cache::{budget_of, onrush_cache_counters_t, onrush_cache_options_t, told_of};
use crate::error::{Failure, guarded};
use crate::handle::{self, close, open, with};

/// The best way that opens.
pub const ONRUSH_WAY_BEST: i32 = 0;
/// A program at the sending device clones one packet for all members (root).
pub const ONRUSH_WAY_KERNEL: i32 = 1;
/// A batch of zero-copy sends from registered memory.
pub const ONRUSH_WAY_URING: i32 = 2;
/// `sendmmsg`, with UDP_SEGMENT for trains.
pub const ONRUSH_WAY_SENDMMSG: i32 = 3;
/// `sendto` for each member and packet.
pub const ONRUSH_WAY_LOOP: i32 = 4;

/// A group of receivers. 0 is none.
pub type onrush_group_t = u64;

/// What can be chosen about a group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_group_options_t {
    /// ONRUSH_WAY_BEST, or another, which is taken or refused.
    pub way: i32,
    /// Members at once, at most: 1 to 131072.
    pub members_max: u32,
}

/// What became of a send, in packets, a train counting each of its own for each member.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_sent_t {
    /// Taken by the kernel.
    pub packets: u64,
    /// Refused by it.
    pub refused: u64,
}

/// What a group has done so far.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_group_counters_t {
    /// Members now.
    pub members: u64,
    /// Calls of `onrush_group_send`.
    pub sends: u64,
    /// Packets taken by the kernel, to all members.
    pub packets: u64,
    /// Packets refused by it.
    pub refused: u64,
    /// Entries into the kernel that sent.
    pub crossings: u64,
    /// Packets, or whole trains, that the program at the device has cloned.
    pub clones: u64,
    /// The way it sends: ONRUSH_WAY_KERNEL and so on.
    pub way: i32,
}

/// What was sent to a member since it joined.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_member_counters_t {
    /// Packets taken by the kernel.
    pub packets: u64,
    /// Packets refused by it.
    pub refused: u64,
    /// The errno of the last that was refused; 0 if none was.
    pub errno_last: i32,
}

impl handle::Kind for Group {
    const NAME: &'static str = "group";
    const NUMBER: u64 = 5;
}

/// Opens a group without members on a UDP socket. The group has a duplicate of the descriptor; the
/// caller keeps its own, to receive by, and should not send by it any more. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_open(
    socket: c_int,
    options: *const onrush_group_options_t,
    group: *mut onrush_group_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(group, "group") }?;
        let chosen = match options.is_null() {
            true => Options::default(),
            // SAFETY: as above.
            false => chosen(unsafe { read(options, "options") }?)?,
        };
        let group = Group::open(duplicate(socket)?, &chosen)?;
        to.set(open(group)?);
        Ok(())
    })
}

/// Replaces all members. `addresses` are `bytes` bytes of struct sockaddr_in and struct
/// sockaddr_in6, one behind the other; none makes the group empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_set(
    group: onrush_group_t,
    addresses: *const c_void,
    bytes: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let members = unsafe { parse(addresses, bytes) }?;
        with::<Group, _>(group, |it| Ok(it.set_members(&members)?))
    })
}

/// Adds members; those that are members already stay. If one cannot be added, those before it are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_add(
    group: onrush_group_t,
    addresses: *const c_void,
    bytes: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let members = unsafe { parse(addresses, bytes) }?;
        with::<Group, _>(group, |it| {
            for member in members {
                it.add(member)?;
            }
            Ok(())
        })
    })
}

/// Removes members, and writes how many of them were some. `removed` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_remove(
    group: onrush_group_t,
    addresses: *const c_void,
    bytes: usize,
    removed: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let members = unsafe { parse(addresses, bytes) }?;
        // SAFETY: as above.
        let to = unsafe { Out::if_wanted(removed, "removed") }?;
        let count = with::<Group, _>(group, |it| {
            let gone = members.iter().filter(|member| it.remove(**member));
            Ok(gone.count())
        })?;
        if let Some(to) = to {
            to.set(count);
        }
        Ok(())
    })
}

/// Sends to every member: one datagram if `packet_bytes` is 0, else a train of packets of so many
/// bytes, of which the last may be shorter. A member that cannot be sent to is counted, and delays
/// nobody. `sent` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_send(
    group: onrush_group_t,
    data: *const c_void,
    length: usize,
    packet_bytes: usize,
    sent: *mut onrush_sent_t,
) -> i32 {
    let send = |it: &mut Group, data: &[u8]| match packet_bytes {
        0 => it.send(data),
        stride => it.send_train(data, stride),
    };
    // SAFETY: of the library's rules for pointers.
    unsafe { send_by(group, (data, length), sent, send) }
}

/// Sends a message of any length to every member, in packets of `packet_bytes` bytes, of which the
/// last may be shorter. By ONRUSH_WAY_URING it leaves from where it lies, without a copy: its
/// registration is looked for in the group's cache. The memory is the caller's again when this
/// returns. By other ways the kernel copies it. `sent` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_send_cached(
    group: onrush_group_t,
    data: *const c_void,
    length: usize,
    packet_bytes: usize,
    sent: *mut onrush_sent_t,
) -> i32 {
    let send = |it: &mut Group, data: &[u8]| it.send_cached(data, packet_bytes);
    // SAFETY: of the library's rules for pointers.
    unsafe { send_by(group, (data, length), sent, send) }
}

/// Says what `onrush_group_send_cached` may keep registered, from now on. At first that is sealed
/// memory alone, 1024 registrations of 256 MiB together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_set_cache(
    group: onrush_group_t,
    options: *const onrush_cache_options_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let budget = budget_of(unsafe { read(options, "options") }?)?;
        with::<Group, _>(group, |it| Ok(it.set_cache(budget)?))
    })
}

/// What the group's cache has done so far: hits, misses, uncached, invalidations and evictions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_cache_counters(
    group: onrush_group_t,
    counters: *mut onrush_cache_counters_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(counters, "counters") }?;
        to.set(with::<Group, _>(group, |it| {
            Ok(told_of(it.cache_counters()))
        })?);
        Ok(())
    })
}

/// What the group has done so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_counters(
    group: onrush_group_t,
    counters: *mut onrush_group_counters_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(counters, "counters") }?;
        let counted = with::<Group, _>(group, |it| {
            let counters = it.counters();
            Ok(onrush_group_counters_t {
                members: it.len() as u64,
                sends: counters.sends,
                packets: counters.packets,
                refused: counters.refused,
                crossings: counters.crossings,
                clones: counters.clones,
                way: number_of(it.way()),
            })
        })?;
        to.set(counted);
        Ok(())
    })
}

/// What was sent to one member, a struct sockaddr_in or sockaddr_in6, since it joined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_member_counters(
    group: onrush_group_t,
    address: *const c_void,
    bytes: usize,
    counters: *mut onrush_member_counters_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(counters, "counters") }?;
        // SAFETY: as above.
        let members = unsafe { parse(address, bytes) }?;
        let [member] = members[..] else {
            return Err(Failure::argument("one address is wanted; ask for each"));
        };
        let counted = with::<Group, _>(group, |it| Ok(it.member_counters(member)))?;
        let counted = counted.ok_or_else(|| {
            Failure::argument(format_args!("{member} is no member; add it first"))
        })?;
        to.set(onrush_member_counters_t {
            packets: counted.packets,
            refused: counted.refused,
            errno_last: counted.errno_last,
        });
        Ok(())
    })
}

/// Writes why the group sends the way it does, in words, to `text`, and its length. With too little
/// room it writes the length alone and answers ONRUSH_ERROR_ROOM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_group_reason(
    group: onrush_group_t,
    text: *mut c_char,
    room: usize,
    length: *mut usize,
) -> i32 {
    guarded(|| {
        let reason = with::<Group, _>(group, |it| Ok(it.reason().to_owned()))?;
        // SAFETY: of the library's rules for pointers.
        unsafe { write_text(&reason, (text, room), length) }
    })
}

/// Closes a group. Nothing of it is left in the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_group_close(group: onrush_group_t) -> i32 {
    guarded(|| close::<Group>(group, |_| Ok(())).map(drop))
}

/// Sends what the caller points to, and writes what became of it.
///
/// # Safety
///
/// The library's rules for pointers hold for `data` of `length` bytes and for `sent`.
unsafe fn send_by(
    group: onrush_group_t,
    (data, length): (*const c_void, usize),
    sent: *mut onrush_sent_t,
    send: impl FnOnce(&mut Group, &[u8]) -> Result<Sent, GroupError>,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let data = unsafe { bytes(data, length, "data") }?;
        // SAFETY: as above.
        let told = unsafe { Out::if_wanted(sent, "sent") }?;
        let done = with::<Group, _>(group, |it| Ok(send(it, data)?))?;
        if let Some(told) = told {
            told.set(onrush_sent_t {
                packets: done.packets,
                refused: done.refused,
            });
        }
        Ok(())
    })
}

fn chosen(options: onrush_group_options_t) -> Result<Options, Failure> {
    let way = match options.way {
        ONRUSH_WAY_BEST => None,
        other => Some(way_of(other).ok_or_else(|| {
            Failure::argument(format_args!(
                "{other} is no way to send; use ONRUSH_WAY_BEST or another ONRUSH_WAY_..."
            ))
        })?),
    };
    if options.members_max == 0 {
        return Err(Failure::argument(format_args!(
            "members_max is 0, and nobody could be a member; use 1 to {MEMBERS_MAX}"
        )));
    }
    Ok(Options {
        way,
        members_max: options.members_max as usize,
        area_bytes: 0,
    })
}

fn way_of(number: i32) -> Option<Way> {
    Way::ALL.into_iter().find(|way| number_of(*way) == number)
}

fn number_of(way: Way) -> i32 {
    match way {
        Way::Kernel => ONRUSH_WAY_KERNEL,
        Way::Uring => ONRUSH_WAY_URING,
        Way::Sendmmsg => ONRUSH_WAY_SENDMMSG,
        Way::Loop => ONRUSH_WAY_LOOP,
    }
}

/// A UDP socket of the group's own, with what the caller's has.
fn duplicate(socket: c_int) -> Result<UdpSocket, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        Failure::argument(format_args!(
            "descriptor {socket} is no UDP socket ({why}); make one with socket(AF_INET or \
             AF_INET6, SOCK_DGRAM, 0)"
        ))
    };
    if socket < 0 {
        return Err(refused(&"it is negative"));
    }
    // SAFETY: it is not -1, and is only asked for a duplicate; one that is not open is refused.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let socket: OwnedFd = socket
        .try_clone_to_owned()
        .map_err(|error| refused(&error))?;
    let (kind, protocol) = (
        option(&socket, libc::SO_TYPE).map_err(|error| refused(&error))?,
        option(&socket, libc::SO_PROTOCOL).map_err(|error| refused(&error))?,
    );
    if (kind, protocol) != (libc::SOCK_DGRAM, libc::IPPROTO_UDP) {
        return Err(refused(&"it is of another kind"));
    }
    Ok(socket.into())
}

fn option(socket: &OwnedFd, name: c_int) -> std::io::Result<c_int> {
    use std::os::fd::AsRawFd;
    let mut value: c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<c_int>()).expect("four");
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Addresses as the kernel has them (ip(7), ipv6(7)), one behind the other.
///
/// # Safety
///
/// The pointer is null, or may be read for so many bytes until the call ends.
unsafe fn parse(addresses: *const c_void, length: usize) -> Result<Vec<SocketAddr>, Failure> {
    // SAFETY: the caller's promise.
    let mut rest = unsafe { bytes(addresses, length, "addresses") }?;
    let mut parsed = Vec::new();
    while !rest.is_empty() {
        let (address, more) = first(rest).ok_or_else(|| {
            Failure::argument(format_args!(
                "byte {} of the addresses begins no struct sockaddr_in or sockaddr_in6; give \
                 whole ones with their family set",
                length - rest.len()
            ))
        })?;
        parsed.push(address);
        rest = more;
    }
    Ok(parsed)
}

fn first(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (family, _) = bytes.split_first_chunk()?;
    let port = |bytes: &[u8]| Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match c_int::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let (address, rest) = bytes.split_at_checked(size_of::<libc::sockaddr_in>())?;
            let ip: [u8; 4] = address[4..8].try_into().ok()?;
            let address = SocketAddrV4::new(Ipv4Addr::from(ip), port(address)?);
            Some((address.into(), rest))
        }
        libc::AF_INET6 => {
            let (address, rest) = bytes.split_at_checked(size_of::<libc::sockaddr_in6>())?;
            let word = |at: usize| Some(u32::from_ne_bytes(address[at..at + 4].try_into().ok()?));
            let ip: [u8; 16] = address[8..24].try_into().ok()?;
            let ip = Ipv6Addr::from(ip);
            let address = SocketAddrV6::new(ip, port(address)?, word(4)?, word(24)?);
            Some((address.into(), rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(ip: [u8; 4], port: u16) -> Vec<u8> {
        let family = u16::try_from(libc::AF_INET).unwrap().to_ne_bytes();
        [&family[..], &port.to_be_bytes(), &ip, &[0; 8]].concat()
    }

    fn v6(ip: Ipv6Addr, port: u16, scope: u32) -> Vec<u8> {
        let family = u16::try_from(libc::AF_INET6).unwrap().to_ne_bytes();
        let (port, scope) = (port.to_be_bytes(), scope.to_ne_bytes());
        [&family[..], &port, &[0; 4], &ip.octets(), &scope].concat()
    }

    fn parsed(bytes: &[u8]) -> Result<Vec<SocketAddr>, Failure> {
        // SAFETY: the bytes are there.
        unsafe { parse(bytes.as_ptr().cast(), bytes.len()) }
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let link = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
        let list = [
            v4([10, 0, 0, 1], 4000),
            v6(link, 5000, 3),
            v4([127, 0, 0, 1], 1),
        ]
        .concat();
        let told: Vec<_> = parsed(&list)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(told, ["10.0.0.1:4000", "[fe80::7%3]:5000", "127.0.0.1:1"]);
        assert!(parsed(&[]).unwrap().is_empty());
        // From an odd place, too.
        assert_eq!(parsed(&[&[0], &list[..]].concat()[1..]).unwrap().len(), 3);
        for length in 1..list.len() {
            let is_whole = [16, 44].contains(&length);
            assert_eq!(parsed(&list[..length]).is_ok(), is_whole, "{length}");
        }
        assert!(parsed(&[9; 16]).is_err());
    }

    #[test]
    fn ways_have_numbers_of_their_own() {
        for way in Way::ALL {
            assert_eq!(way_of(number_of(way)), Some(way));
        }
        assert_eq!(
            (way_of(ONRUSH_WAY_BEST), way_of(5), way_of(-1)),
            (None, None, None)
        );
    }
}
