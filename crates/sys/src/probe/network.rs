//! The network interfaces, their addresses, and what they do in hardware.

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use super::Refused;

/// One network interface and what it does in hardware.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Whether it is up.
    pub up: bool,
    /// `tx-scatter-gather`: without it every packet's bytes are copied together first.
    pub scatter_gather: Option<bool>,
    /// `tx-checksum-*`: without it the processor sums every byte, and zero copy is off.
    pub checksum: Option<bool>,
    /// `tx-udp-segmentation`: with it the hardware cuts the train (`uso`), else the kernel does
    /// (`software-gso`).
    pub udp_segmentation: Option<bool>,
    /// Its queueing disciplines, from the root down; empty if none was told.
    pub qdiscs: Vec<String>,
}

/// All interfaces of this network namespace.
///
/// # Errors
/// Whatever `if_nameindex` answers. An interface that does not answer a question has `None` there.
pub fn interfaces() -> Result<Vec<Interface>, Refused> {
    let names = names()?;
    let socket =
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| Refused::new("socket", e))?;
    let qdiscs = qdiscs().unwrap_or_default();
    let describe = |(index, name): (u32, String)| {
        let features = Features::ask(&socket, &name);
        let on = |names: &[&str]| features.as_ref().ok().map(|f| f.any(names));
        Interface {
            up: is_up(&socket, &name),
            scatter_gather: on(&["tx-scatter-gather"]),
            checksum: on(&[
                "tx-checksum-ip-generic",
                "tx-checksum-ipv4",
                "tx-checksum-ipv6",
            ]),
            udp_segmentation: on(&["tx-udp-segmentation"]),
            qdiscs: qdiscs
                .iter()
                .filter(|q| q.0 == index)
                .map(|q| q.1.clone())
                .collect(),
            index,
            name,
        }
    };
    Ok(names.into_iter().map(describe).collect())
}

/// The unicast addresses of the interfaces that are up, without IPv6's link-local ones (which need
/// a zone to be of use).
///
/// # Errors
/// Whatever `getifaddrs` answers.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut found = all_addresses()?;
    found.retain(|ip| !is_link_local(ip));
    Ok(found)
}

/// The same with the link-local ones, of which several interfaces may have the same.
///
/// # Errors
/// Whatever `getifaddrs` answers.
pub fn all_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list = ptr::null_mut();
    // SAFETY: `list` is writable; on success it is ours until freeifaddrs.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: not null, so an element of the list, which nobody changes while we hold it.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP.cast_unsigned() != 0 {
            // SAFETY: `ifa_addr` is null or points to an address of the length its family implies.
            found.extend(unsafe { address(entry.ifa_addr) });
        }
    }
    // SAFETY: the list came from getifaddrs, and no reference into it is left.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// # Safety
/// `address` is null or points to a socket address that is as long as its family implies.
unsafe fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null or a whole sockaddr, by this function's condition.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: of that family, so a whole sockaddr_in; read without assuming its alignment.
            let v4 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of that family, so a whole sockaddr_in6; read without assuming its alignment.
            let v6 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

fn names() -> Result<Vec<(u32, String)>, Refused> {
    // SAFETY: no arguments; the list is ours until if_freenameindex.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(Refused::last("if_nameindex"));
    }
    let mut found = Vec::new();
    let mut next = list;
    loop {
        // SAFETY: the list ends with an entry of index 0, before which we have stopped.
        let entry = unsafe { &*next };
        if entry.if_index == 0 || entry.if_name.is_null() {
            break;
        }
        // SAFETY: a name that is not null is a terminated string of the list.
        let name = unsafe { CStr::from_ptr(entry.if_name) };
        found.push((entry.if_index, name.to_string_lossy().into_owned()));
        // SAFETY: this was not the last entry, so there is a next.
        next = unsafe { next.add(1) };
    }
    // SAFETY: the list came from if_nameindex, and the names have been copied out of it.
    unsafe { libc::if_freenameindex(list) };
    Ok(found)
}

/// A device's features by name, as `ethtool -k` shows them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Features {
    /// In the kernel's order, and whether each is on.
    all: Vec<(String, bool)>,
}

const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const NAME_WORDS: usize = 8; // ETH_GSTRING_LEN is 32 bytes

impl Features {
    /// Asks about a device of this network namespace. Any socket will do to ask by.
    ///
    /// # Errors
    ///
    /// What the system says: ENODEV for a device that is not here.
    pub fn ask(socket: &UdpSocket, interface: &str) -> io::Result<Self> {
        // struct ethtool_sset_info { cmd, reserved, mask: u64, data[] }, as words.
        let mut count = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1_u64 << ETH_SS_FEATURES).to_ne_bytes();
        count[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        count[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        ethtool(socket, interface, &mut count)?;
        // No kernel has more than a few hundred; the bound keeps a bad answer from costing memory.
        let features = (count[4] as usize).min(4096);

        // struct ethtool_gstrings { cmd, set, len, data[len][32] }
        let mut names = vec![0; 3 + features * NAME_WORDS];
        names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count[4].min(4096)]);
        ethtool(socket, interface, &mut names)?;

        // struct ethtool_gfeatures { cmd, size, { available, requested, active, never_changed }[] }
        let blocks = features.div_ceil(32);
        let mut bits = vec![0; 2 + 4 * blocks];
        bits[..2].copy_from_slice(&[ETHTOOL_GFEATURES, u32::try_from(blocks).unwrap_or(0)]);
        ethtool(socket, interface, &mut bits)?;

        let is_active =
            |feature: usize| bits[2 + 4 * (feature / 32) + 2] >> (feature % 32) & 1 == 1;
        let name = |feature: usize| {
            let words = &names[3 + feature * NAME_WORDS..][..NAME_WORDS];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            String::from_utf8_lossy(bytes.split(|&b| b == 0).next().unwrap_or(&[])).into_owned()
        };
        Ok(Self {
            all: (0..features)
                .map(|feature| (name(feature), is_active(feature)))
                .collect(),
        })
    }

    /// Whether one of these is on.
    #[must_use]
    pub fn any(&self, names: &[&str]) -> bool {
        self.on().any(|on| names.contains(&on))
    }

    /// Those that are on.
    pub fn on(&self) -> impl Iterator<Item = &str> {
        self.all
            .iter()
            .filter(|(_, is_on)| *is_on)
            .map(|(name, _)| &**name)
    }

    /// Asks a device to switch those of these features that it knows, and says what it has then: a
    /// device need not agree. For test beds; needs CAP_NET_ADMIN.
    ///
    /// # Errors
    ///
    /// What the system says; `NotFound` if it knows none of them.
    pub fn switch(
        socket: &UdpSocket,
        interface: &str,
        names: &[&str],
        is_on: bool,
    ) -> io::Result<Self> {
        let Self { all } = Self::ask(socket, interface)?;
        // struct ethtool_sfeatures { cmd, size, { valid, requested }[] }
        let blocks = all.len().div_ceil(32);
        let mut bits = vec![0; 2 + 2 * blocks];
        bits[..2].copy_from_slice(&[ETHTOOL_SFEATURES, u32::try_from(blocks).unwrap_or(0)]);
        let named = all
            .iter()
            .enumerate()
            .filter(|(_, (name, _))| names.contains(&&**name));
        let mut is_known = false;
        for (feature, _) in named {
            is_known = true;
            let (block, bit) = (2 + 2 * (feature / 32), 1 << (feature % 32));
            bits[block] |= bit;
            bits[block + 1] |= if is_on { bit } else { 0 };
        }
        if !is_known {
            return Err(io::ErrorKind::NotFound.into());
        }
        ethtool(socket, interface, &mut bits)?;
        Self::ask(socket, interface)
    }
}

/// Whether a device cuts UDP trains itself; no if it cannot be asked. Any socket will do to ask by.
pub fn segments_udp(socket: &UdpSocket, interface: &str) -> bool {
    Features::ask(socket, interface).is_ok_and(|f| f.any(&["tx-udp-segmentation"]))
}

/// One ethtool command, whose answer overwrites `command`.
fn ethtool(socket: &UdpSocket, interface: &str, command: &mut [u32]) -> io::Result<()> {
    let mut request = named(interface);
    request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
    // SAFETY: the request is a whole ifreq whose data points to `command`; the kernel writes no
    // more than the counts inside it announce, which the callers have made room for.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_up(socket: &UdpSocket, interface: &str) -> bool {
    let mut request = named(interface);
    // SAFETY: the request is a whole ifreq, into which the kernel writes the flags.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) } < 0 {
        return false;
    }
    // SAFETY: the call that filled the union wrote this member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    i32::from(flags) & libc::IFF_UP != 0
}

/// A request about one interface. A name that is too long is cut, and so found not to exist.
fn named(interface: &str) -> libc::ifreq {
    // SAFETY: an ifreq is bytes, integers and pointers, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = libc::IFNAMSIZ - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request
}

/// All queueing disciplines: the interface's index and the kind.
fn qdiscs() -> io::Result<Vec<(u32, String)>> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };

    // struct nlmsghdr { len: u32, type: u16, flags: u16, seq: u32, pid: u32 }, struct tcmsg (20
    // bytes)
    let mut request = [0_u8; 36];
    request[..4].copy_from_slice(&36_u32.to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_GETQDISC.to_ne_bytes());
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or(0);
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    let bytes = request.as_ptr().cast::<c_void>();
    // SAFETY: the message is readable and as long as is said.
    if unsafe { libc::send(socket.as_raw_fd(), bytes, request.len(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }

    let mut found = Vec::new();
    let mut answer = vec![0_u8; 64 << 10];
    // A bound that only thousands of interfaces reach; then the list is short, which harms nobody.
    for _ in 0..256 {
        let buffer = answer.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is writable and as long as is said.
        let got = unsafe { libc::recv(socket.as_raw_fd(), buffer, answer.len(), 0) };
        let Ok(got) = usize::try_from(got) else {
            return Err(io::Error::last_os_error());
        };
        if !read_qdiscs(&answer[..got], &mut found) {
            break;
        }
    }
    Ok(found)
}

/// Reads one answer; false when it was the last.
fn read_qdiscs(mut messages: &[u8], found: &mut Vec<(u32, String)>) -> bool {
    const HEADER_BYTES: usize = 16;
    const TCMSG_BYTES: usize = 20;
    const TCA_KIND: u16 = 1;
    while let Some(header) = messages.get(..HEADER_BYTES) {
        let length = word(header, 0) as usize;
        let Some(body) = messages.get(HEADER_BYTES..length) else {
            return false;
        };
        if half(header, 4) != libc::RTM_NEWQDISC {
            return false; // NLMSG_DONE or NLMSG_ERROR
        }
        let mut attributes = body.get(TCMSG_BYTES..).unwrap_or(&[]);
        while attributes.len() >= 4 {
            let length = usize::from(half(attributes, 0));
            let Some(value) = attributes.get(4..length) else {
                break;
            };
            if half(attributes, 2) == TCA_KIND {
                let name = value.split(|&b| b == 0).next().unwrap_or(&[]);
                found.push((word(body, 4), String::from_utf8_lossy(name).into_owned()));
            }
            attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    true
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]))
}

const _: () = assert!(size_of::<libc::nlmsghdr>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_known() {
        let all = interfaces().unwrap();
        let lo = all
            .iter()
            .find(|i| i.name == "lo")
            .expect("every namespace has lo");
        // Fixed by the driver: loopback cannot be without either (drivers/net/loopback.c).
        assert_eq!(lo.scatter_gather, Some(true), "{lo:?}");
        assert_eq!(lo.checksum, Some(true), "{lo:?}");
        assert!(addresses().unwrap().contains(&Ipv4Addr::LOCALHOST.into()) || !lo.up);
    }

    #[test]
    fn link_local_addresses_are_in_the_whole_list_alone() {
        // Interfaces of other tests come and go.
        let listed = || std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
        let (before, all, after) = (listed(), all_addresses().unwrap(), listed());
        let some = addresses().unwrap();
        assert!(!some.iter().any(is_link_local), "{some:?}");
        for line in before.lines().filter(|line| after.contains(*line)) {
            let ip = line.split_whitespace().next().expect("its address");
            let ip = Ipv6Addr::from(u128::from_str_radix(ip, 16).unwrap());
            assert!(all.contains(&ip.into()), "{ip} of {all:?}");
        }
    }

    #[test]
    fn an_interface_that_does_not_exist_has_no_features() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(Features::ask(&socket, "none-such").is_err());
        assert!(!is_up(&socket, "a-name-longer-than-any-interface-has"));
    }

    fn qdisc_message(kind: &[u8], interface: u32) -> Vec<u8> {
        let mut body = [0_u8; 20].to_vec();
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        body.extend(u16::try_from(4 + kind.len()).unwrap().to_ne_bytes());
        body.extend(1_u16.to_ne_bytes());
        body.extend(kind);
        body.resize(body.len().next_multiple_of(4), 0);
        let mut message = u32::try_from(16 + body.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        message.extend(libc::RTM_NEWQDISC.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    #[test]
    fn qdiscs_are_read_and_broken_answers_end_the_reading() {
        let mut answer = qdisc_message(b"mq\0", 2);
        answer.extend(qdisc_message(b"fq_codel\0", 2));
        let mut found = Vec::new();
        assert!(read_qdiscs(&answer, &mut found));
        assert_eq!(found, [(2, "mq".to_owned()), (2, "fq_codel".to_owned())]);

        for cut in 0..answer.len() {
            read_qdiscs(&answer[..cut], &mut Vec::new());
        }
        let done = [
            20_u8, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert!(!read_qdiscs(&done, &mut found));
        assert!(
            !read_qdiscs(&[0; 16], &mut found),
            "a length of nothing must not loop"
        );
    }
}
