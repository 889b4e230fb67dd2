//! Groups: members that come and go, and what each of them gets, beside a list of who they are.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use onrush_group::{Group, GroupError, MemberCounters, Options, Sent, Way};

/// Who may be a member; more than a group takes.
const RECEIVERS: usize = 12;

/// Members that a group is opened for.
const MEMBERS_MAX: usize = 9;

/// Operations of an input, at the most.
const OPERATIONS_MAX: usize = 100;

/// Packets of a train, at the most.
const PACKETS_MAX: usize = 5;

/// What is sent comes within moments; a machine may be slow.
const WAIT: Duration = Duration::from_secs(20);

thread_local! {
    /// Where things arrive. Each input leaves nothing in them.
    static SOCKETS: Vec<UdpSocket> = (0..RECEIVERS).map(|_| bound()).collect();
}

fn bound() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    socket.set_read_timeout(Some(WAIT)).expect("a time-out");
    socket
}

/// A group, and what is expected of it.
struct Pair<'a> {
    group: Group,
    receivers: &'a [UdpSocket],
    addresses: Vec<SocketAddr>,
    /// Packets that each member was sent since it joined.
    members: BTreeMap<SocketAddr, u64>,
    total: Sent,
}

/// Does what an input says: the way in its first byte, and then two bytes an operation.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let Some((&way, operations)) = input.split_first() else {
        return;
    };
    SOCKETS.with(|receivers| {
        let options = Options {
            way: Some(Way::ALL[usize::from(way) % Way::ALL.len()]),
            members_max: MEMBERS_MAX,
            area_bytes: 0,
        };
        // Not every account can open every way.
        let Ok(group) = Group::open(bound(), &options) else {
            return;
        };
        let address = |socket: &UdpSocket| socket.local_addr().expect("bound");
        let mut pair = Pair {
            group,
            receivers,
            addresses: receivers.iter().map(address).collect(),
            members: BTreeMap::new(),
            total: Sent::default(),
        };
        for operation in operations.chunks_exact(2).take(OPERATIONS_MAX) {
            pair.operate(operation[0], usize::from(operation[1]));
            pair.compare();
        }
        pair.end();
    });
}

impl Pair<'_> {
    fn operate(&mut self, what: u8, much: usize) {
        let one = self.addresses[much % RECEIVERS];
        match what % 8 {
            0 | 1 => self.add(one),
            2 => {
                let was_one = self.members.remove(&one).is_some();
                assert_eq!(self.group.remove(one), was_one);
            }
            3 => self.replace(much << 8 | usize::from(what)),
            4 => self.unreachable(),
            5 | 6 => self.send(1 + much * 5, 1 + much * 5),
            _ => {
                let stride = 1 + much;
                let packets = 1 + usize::from(what) / 8 % PACKETS_MAX;
                self.send(stride * packets - much / 2, stride);
            }
        }
    }

    fn add(&mut self, address: SocketAddr) {
        let is_full = self.members.len() == MEMBERS_MAX;
        match (self.members.contains_key(&address), self.group.add(address)) {
            (true, added) => assert!(matches!(added, Ok(false)), "{added:?}"),
            (false, Err(GroupError::MembersMax { .. })) => assert!(is_full),
            (false, added) => {
                assert!(!is_full && matches!(added, Ok(true)), "{added:?}");
                self.members.insert(address, 0);
            }
        }
    }

    /// Others in place of all, some of them twice.
    fn replace(&mut self, which: usize) {
        let some = |at: &usize| which >> (at % RECEIVERS) & 1 == 1;
        let twice = (0..RECEIVERS + 3).filter(some);
        let addresses: Vec<_> = twice.map(|at| self.addresses[at % RECEIVERS]).collect();
        let next: BTreeMap<_, _> = addresses.iter().map(|&address| (address, 0)).collect();
        match self.group.set_members(&addresses) {
            Ok(()) => self.members = next,
            Err(GroupError::MembersMax { .. }) => assert!(next.len() > MEMBERS_MAX),
            Err(error) => panic!("{error}"),
        }
    }

    /// Who cannot be reached from this socket is none, and nobody else ceases to be one.
    fn unreachable(&mut self) {
        let other = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 9));
        assert!(matches!(
            self.group.add(other),
            Err(GroupError::Family { .. })
        ));
        let all = [self.addresses[0], other];
        let replaced = self.group.set_members(&all);
        assert!(matches!(replaced, Err(GroupError::Family { .. })));
        assert!(!self.group.remove(other));
    }

    /// Each member gets each packet, once and in order.
    fn send(&mut self, bytes: usize, stride: usize) {
        let pattern = |at: usize| (at * 31 + bytes).to_le_bytes()[0];
        let train: Vec<_> = (0..bytes).map(pattern).collect();
        let sent = self.group.send_train(&train, stride).expect("a train");
        let packets = bytes.div_ceil(stride) as u64;
        let expected = Sent {
            packets: packets * self.members.len() as u64,
            refused: 0,
        };
        assert_eq!(sent, expected);
        self.total.packets += sent.packets;
        let mut buffer = vec![0; bytes + 1];
        for (receiver, address) in self.receivers.iter().zip(&self.addresses) {
            let Some(count) = self.members.get_mut(address) else {
                continue;
            };
            *count += packets;
            for packet in train.chunks(stride) {
                let arrived = receiver.recv(&mut buffer).expect("it arrives");
                assert!(buffer[..arrived] == *packet, "another packet arrives");
            }
        }
    }

    fn compare(&self) {
        let mut members: Vec<_> = self.group.members().collect();
        members.sort_unstable();
        assert!(members.iter().eq(self.members.keys()), "{members:?}");
        assert_eq!(self.group.len(), members.len());
        for &address in &self.addresses {
            let told = self.group.member_counters(address);
            let expected = self.members.get(&address).map(|&packets| MemberCounters {
                packets,
                ..MemberCounters::default()
            });
            assert_eq!(told, expected, "{address}");
        }
        let counters = self.group.counters();
        assert_eq!(
            (counters.packets, counters.refused),
            (self.total.packets, 0)
        );
    }

    /// Nobody has got anything else.
    fn end(self) {
        drop(self.group);
        for receiver in self.receivers {
            receiver.set_nonblocking(true).expect("a socket");
            let more = receiver.recv(&mut [0; 1]).map_err(|error| error.kind());
            assert_eq!(
                more,
                Err(ErrorKind::WouldBlock),
                "more arrives than was sent"
            );
            receiver.set_nonblocking(false).expect("a socket");
        }
    }
}
