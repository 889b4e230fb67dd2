//! Pairs of UDP ports: an even one for RTP, the odd one above it for RTCP.
//!
//! A pair serves many clients. Each has an RTP socket of its own, connected to it, and they share the port; the
//! RTCP socket is one for all, and what it hears is told apart by whom it is from. So the kernel holds one
//! descriptor less for each client, and a firewall needs few open ports. A client has a place at a pair where no
//! other has its addresses.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use onrush_sys::socket::{keep_errors, take_error};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};

use super::{CLIENTS_PER_PAIR_MAX, REPORTS_WAITING_MAX};

/// Bytes of a report that are read; more than a path without jumbo frames carries.
const REPORT_BYTES_MAX: usize = 1500;

/// Of one client's, for the account of what a session takes.
#[cfg(test)]
pub(super) const INBOX_BYTES: usize = size_of::<Inbox>() + 2 * size_of::<(Address, Rc<Inbox>)>();

/// Errors that a send may meet which are about other datagrams, before it is taken to be about its own.
const STRAY_ERRORS_MAX: usize = 4;

/// The ports that are given out, and where the next search begins.
#[derive(Debug)]
pub(super) struct Ports {
    first: u16,
    pairs: u16,
    next: Cell<u16>,
    open: RefCell<Vec<Weak<Pair>>>,
}

/// A pair in use at one of our addresses. It is free again when nobody has it any more.
#[derive(Debug)]
pub(super) struct Pair {
    local: SocketAddr,
    pub(super) rtp_port: u16,
    rtcp: Rc<UdpSocket>,
    clients: Rc<RefCell<Clients>>,
    listening: AbortHandle,
}

/// Those at a pair by address: of their RTCP ports, and of their RTP ports alone.
#[derive(Debug, Default)]
struct Clients {
    reports: HashMap<Address, Rc<Inbox>>,
    players: HashSet<Address>,
}

/// IP address and port, without what else the kernel says beside an IPv6 address.
type Address = (IpAddr, u16);

/// What the RTCP port of one client has said, and what the network has said about it.
#[derive(Debug, Default)]
struct Inbox {
    waiting: RefCell<VecDeque<Result<Box<[u8]>, ErrorKind>>>,
    arrived: Notify,
}

/// One client's place at a pair. Dropping it leaves it.
#[derive(Debug)]
pub(super) struct Place {
    pair: Rc<Pair>,
    player: Option<Address>,
    reports: SocketAddr,
    inbox: Rc<Inbox>,
}

impl Ports {
    /// Those from `first` to `last`, both included.
    pub(super) fn new((first, last): (u16, u16)) -> Self {
        // An odd first port is left out, and so is an even last one, which has none above it.
        let first = first.saturating_add(first % 2);
        let pairs = u16::try_from((u32::from(last) + 1).saturating_sub(u32::from(first)) / 2);
        Self {
            first,
            pairs: pairs.expect("half of 65536"),
            next: Cell::new(0),
            open: RefCell::default(),
        }
    }

    /// A place for the client with these addresses, at a pair of `local`'s address, and an RTP socket connected
    /// to it.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is no free pair; else what the system says about the way to the client.
    pub(super) fn place(
        &self,
        local: SocketAddr,
        player: SocketAddr,
        reports: SocketAddr,
    ) -> io::Result<(std::net::UdpSocket, Place)> {
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
        let mut place = pair.place(reports);
        place.player = Some(address(player));
        let mut clients = place.pair.clients.borrow_mut();
        clients.players.insert(address(player));
        drop(clients);
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

    /// Binds a pair to `local`'s address. They are taken in turn, so that one rests for as long as can be.
    fn search(&self, local: SocketAddr) -> io::Result<Pair> {
        for _ in 0..self.pairs {
            let pair = self.next.get();
            self.next.set((pair + 1) % self.pairs);
            match Pair::bind(local, self.first + 2 * pair) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }
}

impl Pair {
    fn bind(local: SocketAddr, rtp_port: u16) -> io::Result<Self> {
        // This one alone: who else wants the pair meets it. The RTP port is tried, and then held by none but
        // those who use it.
        let rtcp: std::net::UdpSocket = bind_one(local, rtp_port + 1, false)?.into();
        drop(bind_one(local, rtp_port, false)?);
        keep_errors(&rtcp)?;
        let rtcp = Rc::new(UdpSocket::from_std(rtcp)?);
        let clients = Rc::<RefCell<Clients>>::default();
        let listening = spawn_local(listen(Rc::clone(&rtcp), Rc::clone(&clients)));
        Ok(Self {
            local: local_address(local),
            rtp_port,
            rtcp,
            clients,
            listening: listening.abort_handle(),
        })
    }

    /// One more socket at the RTP port. Connect it, if there are to be others.
    pub(super) fn rtp_socket(&self) -> io::Result<std::net::UdpSocket> {
        let rtp = bind_one(self.local, self.rtp_port, true)?;
        // What clients send to the RTP port (to open their firewalls) is never read.
        rtp.set_recv_buffer_size(1)?;
        Ok(rtp.into())
    }

    /// A place for a client who reports from there. Where two do, the later is heard.
    pub(super) fn place(self: &Rc<Self>, reports: SocketAddr) -> Place {
        let inbox = Rc::<Inbox>::default();
        let mut clients = self.clients.borrow_mut();
        clients.reports.insert(address(reports), Rc::clone(&inbox));
        drop(clients);
        Place {
            pair: Rc::clone(self),
            player: None,
            reports,
            inbox,
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Place {
    /// The port that the client's RTP comes from.
    pub(super) fn rtp_port(&self) -> u16 {
        self.pair.rtp_port
    }

    /// The next datagram from the client's RTCP port.
    ///
    /// # Errors
    ///
    /// What the network says instead: nobody listens there, or there is no way there.
    pub(super) async fn hear(&self) -> io::Result<Box<[u8]>> {
        loop {
            let next = self.inbox.waiting.borrow_mut().pop_front();
            if let Some(next) = next {
                return next.map_err(io::Error::from);
            }
            self.inbox.arrived.notified().await;
        }
    }

    /// Sends to the client's RTCP port.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        // Not through tokio, which says that a new socket can not be written until it has looked. What the
        // network says about anybody's datagram is the error of the next send to whomever, once.
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

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.pair.clients.borrow_mut();
        if let Some(player) = self.player {
            clients.players.remove(&player);
        }
        let reports = address(self.reports);
        let current = clients.reports.get(&reports);
        if current.is_some_and(|inbox| Rc::ptr_eq(inbox, &self.inbox)) {
            clients.reports.remove(&reports);
        }
    }
}

impl Inbox {
    fn put(&self, item: Result<Box<[u8]>, ErrorKind>) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < REPORTS_WAITING_MAX {
            waiting.push_back(item);
        }
        self.arrived.notify_one();
    }
}

/// Gives what an RTCP socket hears to those whom it concerns, until it is told to stop.
async fn listen(socket: Rc<UdpSocket>, clients: Rc<RefCell<Clients>>) {
    // With ERROR, because an ICMP message makes a socket neither readable nor writable.
    let both = Interest::READABLE | Interest::ERROR;
    while let Ok(ready) = socket.ready(both).await {
        let inbox = |from: SocketAddr| clients.borrow().reports.get(&address(from)).cloned();
        if ready.is_error() {
            let take = || take_error(&*socket);
            while let Ok((error, to)) = socket.try_io(Interest::ERROR, take) {
                if let Some(inbox) = to.and_then(inbox) {
                    inbox.put(Err(error.kind()));
                }
            }
        }
        let mut datagram = [0; REPORT_BYTES_MAX];
        loop {
            match socket.try_recv_from(&mut datagram) {
                Ok((bytes, from)) => {
                    if let Some(inbox) = inbox(from) {
                        inbox.put(Ok(datagram[..bytes].into()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // An error that is kept, too: it is told above in its turn.
                Err(_) => {}
            }
        }
    }
}

fn bind_one(mut local: SocketAddr, port: u16, is_shared: bool) -> io::Result<Socket> {
    local.set_port(port);
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(local), kind, Some(Protocol::UDP))?;
    socket.set_reuse_port(is_shared)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

fn address(of: SocketAddr) -> Address {
    (of.ip(), of.port())
}

/// An address of ours without the port that a connection came to.
fn local_address(mut local: SocketAddr) -> SocketAddr {
    local.set_port(0);
    local
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;
    use crate::testing::block_on;

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

    fn local() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
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
        for (range, first, pairs) in [
            ((20_000, 20_001), 20_000, 1),
            ((20_000, 20_002), 20_000, 1),
            ((20_001, 20_003), 20_002, 1),
            ((20_001, 20_002), 20_002, 0),
            ((20_000, 20_000), 20_000, 0),
            ((20_000, 10_000), 20_000, 0),
            ((0, 65_535), 0, 32_768),
            ((65_535, 65_535), 65_535, 0),
        ] {
            let ports = Ports::new(range);
            assert_eq!((ports.first, ports.pairs), (first, pairs), "{range:?}");
        }
        let none = with_tasks(async { Ports::new((20_000, 20_000)).pair(local()) });
        assert_eq!(none.unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn pairs_are_taken_in_turn_and_taken_ones_passed_over() {
        with_tasks(async {
            // Somewhere in the range other tests may hold a port; then the search goes on, as it should.
            let ports = Ports::new((61_000, 61_007));
            let mut held: Vec<_> = (0..4).map_while(|_| ports.pair(local()).ok()).collect();
            assert!(!held.is_empty());
            assert!(held.iter().all(|pair| pair.rtp_port % 2 == 0));
            let full = ports.pair(local()).unwrap_err();
            assert_eq!(full.kind(), ErrorKind::AddrInUse);
            let freed = held.swap_remove(0).rtp_port;
            tokio::task::yield_now().await;
            assert_eq!(ports.pair(local()).unwrap().rtp_port, freed);
        });
    }

    #[test]
    fn a_pair_serves_so_many_clients_and_no_two_of_the_same_addresses() {
        with_tasks(async {
            let ports = Ports::new((61_100, 61_199));
            let mut places = Vec::new();
            for i in 0..=u16::try_from(CLIENTS_PER_PAIR_MAX).unwrap() {
                let to = |port| SocketAddr::new([127, 0, 0, 1].into(), port);
                let (player, reports) = (to(30_000 + 2 * i), to(30_001 + 2 * i));
                let (rtp, place) = ports.place(local(), player, reports).unwrap();
                assert_eq!(rtp.local_addr().unwrap().port(), place.rtp_port());
                assert_eq!(rtp.peer_addr().unwrap(), player);
                places.push((rtp, place));
            }
            let first = places[0].1.rtp_port();
            let (last, others) = places.split_last().unwrap();
            assert!(others.iter().all(|(_, place)| place.rtp_port() == first));
            assert_ne!(last.1.rtp_port(), first);
            drop(places.drain(1..));
            // There is room at the first again, but not for who is there.
            let [player, reports] = [30_000, 30_001].map(|port| {
                let mut to = local();
                to.set_port(port);
                to
            });
            let again = ports.place(local(), player, reports).unwrap();
            assert_ne!(again.1.rtp_port(), first);
            let another = ports.place(local(), reports, player).unwrap();
            assert_eq!(another.1.rtp_port(), first);
        });
    }

    #[test]
    fn reports_and_errors_come_to_whom_they_concern() {
        with_tasks(async {
            let ports = Ports::new((61_200, 61_299));
            let clients = [client(), client()];
            let [one, two] = [0, 1].map(|i: usize| {
                let [player, reports] = addresses(&clients[i]);
                ports.place(local(), player, reports).unwrap()
            });
            assert_eq!(one.1.rtp_port(), two.1.rtp_port());
            let mut server = local();
            server.set_port(one.1.rtp_port() + 1);
            // From no client's RTCP port, it is nobody's.
            clients[0][0].send_to(b"stray", server).unwrap();
            clients[1][1].send_to(b"two", server).unwrap();
            clients[0][1].send_to(b"one", server).unwrap();
            assert_eq!(&*heard(&one.1).await.unwrap(), b"one");
            assert_eq!(&*heard(&two.1).await.unwrap(), b"two");
            let [[_, one_reports], [_, two_reports]] = clients;
            drop(one_reports);
            one.1.send(b"anybody?").unwrap();
            // Whatever the network says about the first, the second's report leaves.
            two.1.send(b"report").unwrap();
            let error = heard(&one.1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            let mut datagram = [0; 9];
            let bytes = two_reports.recv(&mut datagram).unwrap();
            assert_eq!(&datagram[..bytes], b"report");
            assert!(two.1.inbox.waiting.borrow().is_empty());
        });
    }

    #[test]
    fn so_many_reports_wait_and_no_more() {
        with_tasks(async {
            let ports = Ports::new((61_300, 61_399));
            let pair = ports.pair(local()).unwrap();
            let place = pair.place(local());
            for i in 0..=REPORTS_WAITING_MAX {
                place.inbox.put(Ok([u8::try_from(i).unwrap()].into()));
            }
            assert_eq!(place.inbox.waiting.borrow().len(), REPORTS_WAITING_MAX);
            assert_eq!(*place.hear().await.unwrap(), [0]);
        });
    }

    async fn heard(place: &Place) -> io::Result<Box<[u8]>> {
        tokio::time::timeout(PATIENCE, place.hear()).await.unwrap()
    }
}
