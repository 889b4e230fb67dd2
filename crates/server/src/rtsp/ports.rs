//! Pairs of UDP ports: an even one for RTP, the odd one above it for RTCP.
//!
//! A pair serves many clients. Each has an RTP socket of its own, connected to it, and they share
//! the port; the RTCP socket is one for all, and what it hears is told apart by whom it is from. So
//! the kernel holds one descriptor less for each client, and a firewall needs few open ports. A
//! client has a place at a pair where no other has its addresses. What is heard goes at once to who
//! is told of all; nothing waits here.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use onrush_sys::socket::{keep_errors, take_error};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, spawn_local, yield_now};

use super::CLIENTS_PER_PAIR_MAX;
use super::group_socket::send_to_groups;
use crate::listening::PortRange;

/// Bytes of a report that are read; more than a path without jumbo frames carries.
const REPORT_BYTES_MAX: usize = 1500;

/// Errors that a send may meet which are about other datagrams, before it is taken to be about its
/// own.
const STRAY_ERRORS_MAX: usize = 4;

/// What is taken of a pair's reports, and of errors, before all else of control has had its turn:
/// more than the clients of a pair say in any second, and little of a flood.
const HEARD_PER_TURN_MAX: usize = 64;

/// Is told whose RTCP port has said something, and what; or what the network says about it instead:
/// nobody listens there, or there is no way there.
pub(super) type Hear = dyn Fn(u64, Result<&[u8], ErrorKind>);

/// The ports that are given out, and where the next search begins.
pub(super) struct Ports {
    first: u16,
    pairs: u16,
    next: Cell<u16>,
    open: RefCell<Vec<Weak<Pair>>>,
    /// That of what is sent to multicast groups, if that may be.
    group_ttl: Option<u8>,
    hear: Rc<Hear>,
}

/// A pair in use at one of our addresses. It is free again when nobody has it any more.
#[derive(Debug)]
pub(super) struct Pair {
    local: SocketAddr,
    pub(super) rtp_port: u16,
    rtcp: Rc<UdpSocket>,
    clients: Rc<RefCell<Clients>>,
    group_ttl: Option<u8>,
    listening: AbortHandle,
}

/// Those at a pair by address: of their RTCP ports, with their owners, and of their RTP ports
/// alone.
#[derive(Debug, Default)]
struct Clients {
    reports: HashMap<Address, u64>,
    players: HashSet<Address>,
}

/// IP address and port, without what else the kernel says beside an IPv6 address.
type Address = (IpAddr, u16);

/// One client's place at a pair. Dropping it leaves it.
#[derive(Debug)]
pub(super) struct PortPairSlot {
    pair: Rc<Pair>,
    reports: SocketAddr,
    /// The client's port for RTP, if nobody else at the pair may have it; else 0.
    player_port: u16,
    /// Who is told what the client says; 0 for nobody.
    owner: Cell<u64>,
}

impl Ports {
    /// Those from `first` to `last`, both included. Their sockets send to multicast groups, too, if
    /// there is a TTL for that.
    pub(super) fn new(range: PortRange, group_ttl: Option<u8>, hear: Rc<Hear>) -> Self {
        let PortRange { first, last } = range;
        // An odd first port is left out, and so is an even last one, which has none above it.
        let first = first.saturating_add(first % 2);
        let pairs = u16::try_from((u32::from(last) + 1).saturating_sub(u32::from(first)) / 2);
        Self {
            first,
            pairs: pairs.expect("half of 65536"),
            next: Cell::new(0),
            open: RefCell::default(),
            group_ttl,
            hear,
        }
    }

    /// A place for the client at `reports`, whose RTP port is `player_port`, at a pair of `local`'s
    /// address, and an RTP socket connected to it.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is no free pair; else what the system says about the way to the client.
    pub(super) fn place(
        &self,
        local: SocketAddr,
        player_port: u16,
        reports: SocketAddr,
    ) -> io::Result<(std::net::UdpSocket, PortPairSlot)> {
        let mut player = reports;
        player.set_port(player_port);
        let pair = match self.shared(local, address(player), address(reports)) {
            Some(pair) => pair,
            None => {
                let pair = Rc::new(self.search(local)?);
                self.open.borrow_mut().push(Rc::downgrade(&pair));
                pair
            }
        };
        let rtp = pair.rtp_socket()?;
        rtp.connect(player)?;
        let mut clients = pair.clients.borrow_mut();
        clients.players.insert(address(player));
        clients.reports.insert(address(reports), 0);
        drop(clients);
        let mut place = pair.place(reports);
        place.player_port = player_port;
        Ok((rtp, place))
    }

    /// A pair for who shares it in his own way.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is none free.
    pub(super) fn pair(&self, local: SocketAddr) -> io::Result<Rc<Pair>> {
        self.search(local).map(Rc::new)
    }

    /// Two sockets of a pair of its own at `local`'s address, for one who sends from these ports of
    /// `peer`: RTP and RTCP, and the port of the first.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is no free pair; else what the system says.
    pub(super) fn input(
        &self,
        local: SocketAddr,
        peer: IpAddr,
        [rtp_port, rtcp_port]: [u16; 2],
    ) -> io::Result<([std::net::UdpSocket; 2], u16)> {
        for _ in 0..self.pairs {
            let port = self.first + 2 * self.next.get();
            self.next.set((self.next.get() + 1) % self.pairs);
            let bound = bind_one(local, port, false)
                .and_then(|rtp| Ok((rtp, bind_one(local, port + 1, false)?)));
            let (rtp, rtcp) = match bound {
                Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
                bound => bound?,
            };
            rtp.connect(&SocketAddr::new(peer, rtp_port).into())?;
            rtcp.connect(&SocketAddr::new(peer, rtcp_port).into())?;
            return Ok(([rtp.into(), rtcp.into()], port));
        }
        Err(ErrorKind::AddrInUse.into())
    }

    /// A pair in use where nobody has these addresses, and not too many have others.
    fn shared(&self, local: SocketAddr, player: Address, reports: Address) -> Option<Rc<Pair>> {
        let mut open = self.open.borrow_mut();
        open.retain(|pair| pair.strong_count() > 0);
        let mut pairs = open.iter().filter_map(Weak::upgrade);
        pairs.find(|pair| {
            let clients = pair.clients.borrow();
            pair.local == local_address(local)
                && clients.players.len() < CLIENTS_PER_PAIR_MAX
                && !clients.players.contains(&player)
                && !clients.reports.contains_key(&reports)
        })
    }

    /// Binds a pair to `local`'s address. They are taken in turn, so that one rests for as long as
    /// can be.
    fn search(&self, local: SocketAddr) -> io::Result<Pair> {
        for _ in 0..self.pairs {
            let pair = self.next.get();
            self.next.set((pair + 1) % self.pairs);
            match Pair::bind(local, self.first + 2 * pair, self.group_ttl, &self.hear) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }
}

impl Pair {
    fn bind(
        local: SocketAddr,
        rtp_port: u16,
        group_ttl: Option<u8>,
        hear: &Rc<Hear>,
    ) -> io::Result<Self> {
        // This one alone: who else wants the pair meets it. The RTP port is tried, and then held by
        // none but those who use it.
        let rtcp: std::net::UdpSocket = bind_one(local, rtp_port + 1, false)?.into();
        drop(bind_one(local, rtp_port, false)?);
        if let Some(ttl) = group_ttl {
            send_to_groups(SockRef::from(&rtcp), local, ttl)?;
        }
        keep_errors(&rtcp)?;
        let rtcp = Rc::new(UdpSocket::from_std(rtcp)?);
        let clients = Rc::<RefCell<Clients>>::default();
        let listening = spawn_local(listen(
            Rc::clone(&rtcp),
            Rc::clone(&clients),
            Rc::clone(hear),
        ));
        Ok(Self {
            local: local_address(local),
            rtp_port,
            rtcp,
            clients,
            group_ttl,
            listening: listening.abort_handle(),
        })
    }

    /// One more socket at the RTP port. Connect it, if there are to be others.
    pub(super) fn rtp_socket(&self) -> io::Result<std::net::UdpSocket> {
        let rtp = bind_one(self.local, self.rtp_port, true)?;
        // What clients send to the RTP port (to open their firewalls) is never read.
        rtp.set_recv_buffer_size(1)?;
        if let Some(ttl) = self.group_ttl {
            send_to_groups(SockRef::from(&rtp), self.local, ttl)?;
        }
        Ok(rtp.into())
    }

    /// A place for a client who reports from there. Where two do, the one that was given an owner
    /// later is heard.
    pub(super) fn place(self: &Rc<Self>, reports: SocketAddr) -> PortPairSlot {
        PortPairSlot {
            pair: Rc::clone(self),
            reports,
            player_port: 0,
            owner: Cell::new(0),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl PortPairSlot {
    /// From now on what the client says is told with this number.
    pub(super) fn belongs_to(&self, owner: u64) {
        self.owner.set(owner);
        let mut clients = self.pair.clients.borrow_mut();
        clients.reports.insert(address(self.reports), owner);
    }

    /// The port that the client's RTP comes from.
    pub(super) fn rtp_port(&self) -> u16 {
        self.pair.rtp_port
    }

    /// The address that it comes from.
    pub(super) fn local_ip(&self) -> IpAddr {
        self.pair.local.ip()
    }

    /// The client's.
    pub(super) fn peer_ip(&self) -> IpAddr {
        self.reports.ip()
    }

    /// Sends to the client's RTCP port.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        // Not through tokio, which says that a new socket cannot be written until it has looked.
        // What the network says about anybody's datagram is the error of the next send to whomever,
        // once.
        let (socket, to) = (SockRef::from(&*self.pair.rtcp), self.reports.into());
        let mut sent = socket.send_to(datagram, &to);
        for _ in 0..STRAY_ERRORS_MAX {
            match sent {
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    sent = socket.send_to(datagram, &to);
                }
                sent => return sent.map(drop),
            }
        }
        sent.map(drop)
    }
}

impl Drop for PortPairSlot {
    fn drop(&mut self) {
        let mut clients = self.pair.clients.borrow_mut();
        if self.player_port != 0 {
            clients
                .players
                .remove(&(self.reports.ip(), self.player_port));
        }
        let reports = address(self.reports);
        if clients.reports.get(&reports) == Some(&self.owner.get()) {
            clients.reports.remove(&reports);
        }
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports")
            .field("first", &self.first)
            .field("pairs", &self.pairs)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// Tells what an RTCP socket hears, and whom it concerns, until it is told to stop.
async fn listen(socket: Rc<UdpSocket>, clients: Rc<RefCell<Clients>>, hear: Rc<Hear>) {
    // With ERROR, because an ICMP message makes a socket neither readable nor writable.
    let both = Interest::READABLE | Interest::ERROR;
    while let Ok(ready) = socket.ready(both).await {
        let tell = |from: SocketAddr, said: Result<&[u8], ErrorKind>| {
            let owner = clients.borrow().reports.get(&address(from)).copied();
            if let Some(owner) = owner.filter(|&owner| owner != 0) {
                hear(owner, said);
            }
        };
        if ready.is_error() {
            let take = || socket.try_io(Interest::ERROR, || take_error(&*socket));
            for (error, to) in (0..HEARD_PER_TURN_MAX).map_while(|_| take().ok()) {
                if let Some(to) = to {
                    tell(to, Err(error.kind()));
                }
            }
        }
        let mut datagram = [0; REPORT_BYTES_MAX];
        for _ in 0..HEARD_PER_TURN_MAX {
            match socket.try_recv_from(&mut datagram) {
                Ok((bytes, from)) => tell(from, Ok(&datagram[..bytes])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // An error that is kept, too: it is told above in its turn.
                Err(_) => {}
            }
        }
        // Waiting alone lets nobody else go on, as long as there is something to be heard.
        yield_now().await;
    }
}

fn bind_one(mut local: SocketAddr, port: u16, is_shared: bool) -> io::Result<Socket> {
    local.set_port(port);
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(local), kind, Some(Protocol::UDP))?;
    if is_shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&local.into())?;
    Ok(socket)
}

fn address(of: SocketAddr) -> Address {
    (of.ip(), of.port())
}

/// An address of ours without the port that a connection came to, but with its link, if it has one.
pub(super) fn local_address(mut local: SocketAddr) -> SocketAddr {
    local.set_port(0);
    local
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::task::LocalSet;

    use super::*;
    use crate::testing::block_on;

    fn range(first: u16, last: u16) -> PortRange {
        PortRange { first, last }
    }

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

    fn local() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn with_tasks<T>(body: impl Future<Output = T>) -> T {
        block_on(LocalSet::new().run_until(body))
    }

    /// A client's sockets for RTP and RTCP.
    fn client() -> [std::net::UdpSocket; 2] {
        [(); 2].map(|()| std::net::UdpSocket::bind(local()).unwrap())
    }

    fn addresses(client: &[std::net::UdpSocket; 2]) -> [SocketAddr; 2] {
        [0, 1].map(|i: usize| client[i].local_addr().unwrap())
    }

    #[test]
    fn only_whole_pairs_count() {
        for ((from, to), first, pairs) in [
            ((20_000, 20_001), 20_000, 1),
            ((20_000, 20_002), 20_000, 1),
            ((20_001, 20_003), 20_002, 1),
            ((20_001, 20_002), 20_002, 0),
            ((20_000, 20_000), 20_000, 0),
            ((20_000, 10_000), 20_000, 0),
            ((0, 65_535), 0, 32_768),
            ((65_535, 65_535), 65_535, 0),
        ] {
            let ports = Ports::new(range(from, to), None, deaf());
            assert_eq!((ports.first, ports.pairs), (first, pairs), "{from}-{to}");
        }
        let none =
            with_tasks(async { Ports::new(range(20_000, 20_000), None, deaf()).pair(local()) });
        assert_eq!(none.unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn pairs_are_taken_in_turn_and_taken_ones_passed_over() {
        with_tasks(async {
            // Somewhere in the range other tests may hold a port; then the search goes on, as it
            // should.
            let ports = Ports::new(range(61_000, 61_007), None, deaf());
            let mut held: Vec<_> = (0..4).map_while(|_| ports.pair(local()).ok()).collect();
            assert!(!held.is_empty());
            assert!(held.iter().all(|pair| pair.rtp_port % 2 == 0));
            let full = ports.pair(local()).unwrap_err();
            assert_eq!(full.kind(), ErrorKind::AddrInUse);
            let freed = held.swap_remove(0).rtp_port;
            yield_now().await;
            assert_eq!(ports.pair(local()).unwrap().rtp_port, freed);
        });
    }

    #[test]
    fn a_pair_serves_no_two_clients_of_the_same_address() {
        with_tasks(async {
            let ports = Ports::new(range(61_100, 61_199), None, deaf());
            let mut places = Vec::new();
            for i in 0..=u16::try_from(CLIENTS_PER_PAIR_MAX).unwrap() {
                let (player, reports) = (30_000 + 2 * i, at(30_001 + 2 * i));
                let (rtp, place) = ports.place(local(), player, reports).unwrap();
                assert_eq!(rtp.local_addr().unwrap().port(), place.rtp_port());
                assert_eq!(rtp.peer_addr().unwrap(), at(player));
                places.push((rtp, place));
            }
            let first = places[0].1.rtp_port();
            let (last, others) = places.split_last().unwrap();
            assert!(others.iter().all(|(_, place)| place.rtp_port() == first));
            assert_ne!(last.1.rtp_port(), first);
            drop(places.drain(1..));
            // There is room at the first again, but not for who is there.
            let again = ports.place(local(), 30_000, at(30_001)).unwrap();
            assert_ne!(again.1.rtp_port(), first);
            let another = ports.place(local(), 30_001, at(30_000)).unwrap();
            assert_eq!(another.1.rtp_port(), first);
        });
    }

    #[test]
    fn reports_and_errors_come_to_whom_they_concern() {
        with_tasks(async {
            let (hear, mut heard) = ears();
            let ports = Ports::new(range(61_200, 61_299), None, hear);
            let clients = [client(), client()];
            let [one, two] = [0, 1].map(|i: usize| {
                let [player, reports] = addresses(&clients[i]);
                ports.place(local(), player.port(), reports).unwrap()
            });
            assert_eq!(one.1.rtp_port(), two.1.rtp_port());
            let server = at(one.1.rtp_port() + 1);
            one.1.belongs_to(1);
            // From no client's RTCP port it is nobody's, and so it is from that of one who belongs
            // to nobody yet.
            clients[0][0].send_to(b"stray", server).unwrap();
            clients[1][1].send_to(b"early", server).unwrap();
            clients[0][1].send_to(b"one", server).unwrap();
            assert_eq!(next(&mut heard).await, (1, Ok(b"one".to_vec())));
            two.1.belongs_to(2);
            clients[1][1].send_to(b"two", server).unwrap();
            assert_eq!(next(&mut heard).await, (2, Ok(b"two".to_vec())));
            let [[_, one_reports], [_, two_reports]] = clients;
            drop(one_reports);
            one.1.send(b"anybody?").unwrap();
            // Whatever the network says about the first, the second's report leaves.
            two.1.send(b"report").unwrap();
            let refused = Err(ErrorKind::ConnectionRefused);
            assert_eq!(next(&mut heard).await, (1, refused));
            let mut datagram = [0; 9];
            let bytes = two_reports.recv(&mut datagram).unwrap();
            assert_eq!(&datagram[..bytes], b"report");
            assert!(heard.try_recv().is_err());
        });
    }

    #[test]
    fn of_two_who_report_from_one_address_the_later_is_heard() {
        with_tasks(async {
            let (hear, mut heard) = ears();
            let pair = Ports::new(range(61_300, 61_399), None, hear)
                .pair(local())
                .unwrap();
            let client = client();
            let [_, reports] = addresses(&client);
            let mut says = async |what: &[u8]| {
                client[1].send_to(what, at(pair.rtp_port + 1)).unwrap();
                next(&mut heard).await.0
            };
            let [earlier, later] = [1, 2].map(|owner| {
                let place = pair.place(reports);
                place.belongs_to(owner);
                place
            });
            assert_eq!(says(b"one").await, 2);
            drop(earlier);
            assert_eq!(says(b"two").await, 2);
            drop(later);
            assert!(pair.clients.borrow().reports.is_empty());
        });
    }

    #[test]
    fn a_flood_of_reports_waits_for_all_else() {
        // No more than a socket's buffer holds.
        const FLOOD: usize = 3 * HEARD_PER_TURN_MAX;
        with_tasks(async {
            let (hear, mut heard) = ears();
            let ports = Ports::new(range(61_400, 61_499), None, hear);
            let client = client();
            let [player, reports] = addresses(&client);
            let (_, place) = ports.place(local(), player.port(), reports).unwrap();
            place.belongs_to(1);
            for _ in 0..FLOOD {
                client[1]
                    .send_to(b"report", at(place.rtp_port() + 1))
                    .unwrap();
            }
            // What else control has to do: it looks, each time it has its turn, how many were heard
            // since.
            let others = async {
                let (mut turns, mut all) = (Vec::new(), 0);
                while all < FLOOD {
                    yield_now().await;
                    let since = std::iter::from_fn(|| heard.try_recv().ok()).count();
                    all += since;
                    turns.push(since);
                }
                turns
            };
            let turns = tokio::time::timeout(PATIENCE, others).await.unwrap();
            let most = turns.into_iter().max();
            assert_eq!(most, Some(HEARD_PER_TURN_MAX));
        });
    }

    type Said = (u64, Result<Vec<u8>, ErrorKind>);

    /// Who listens to nobody.
    fn deaf() -> Rc<Hear> {
        Rc::new(|_, _| {})
    }

    /// Who listens, and what they have heard.
    fn ears() -> (Rc<Hear>, UnboundedReceiver<Said>) {
        let (send, heard) = unbounded_channel();
        let hear = move |owner, said: Result<&[u8], ErrorKind>| {
            send.send((owner, said.map(<[u8]>::to_vec))).unwrap();
        };
        (Rc::new(hear), heard)
    }

    async fn next(heard: &mut UnboundedReceiver<Said>) -> Said {
        let next = tokio::time::timeout(PATIENCE, heard.recv());
        next.await.expect("something is heard").unwrap()
    }
}
