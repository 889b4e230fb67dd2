//! Who may connect: no more at once than there may be, in all and from one address (of IPv6 from
//! its /64); and what all who have connected from one address have together.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::config::DownloadLimits;
use super::memory::ClientBytes;
use super::{Site, rate};
use crate::config::{Limits, files_suffice};
use crate::engine::shared::{bump, drop_one};
use crate::network::network;
use crate::refusals::REFUSALS;
use crate::statistics::Statistics;
use crate::transfer::Limit;

/// Who is connected.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// By their networks.
    clients: RefCell<HashMap<IpAddr, Client>>,
    connections: Cell<usize>,
    /// Those that are being told that there are too many.
    refusals: Cell<usize>,
}

#[derive(Debug)]
struct Client {
    connections: usize,
    /// Requests of its that proxies have passed on.
    guests: usize,
    limit: Option<Limit>,
    share: Share,
    left: Option<Instant>,
}

/// What the connections of one network have together, besides themselves: of each it may have a
/// part alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    /// What their answers hold of memory.
    pub(super) made_bytes: ClientBytes,
    /// Requests that wait for what comes next of channels.
    waiting: Rc<Cell<usize>>,
    /// Ports that are listened at for their data connections.
    ports: Rc<Cell<usize>>,
}

/// One of a share, given back when dropped.
#[derive(Debug)]
pub(super) struct Taken(Rc<Cell<usize>>);

impl Share {
    /// A place among those who wait, if fewer than `most` have one.
    pub(super) fn wait(&self, most: usize) -> Option<Taken> {
        Taken::of(&self.waiting, most)
    }

    /// A port, if fewer than `most` are taken.
    pub(super) fn port(&self, most: usize) -> Option<Taken> {
        Taken::of(&self.ports, most)
    }
}

impl Taken {
    fn of(count: &Rc<Cell<usize>>, most: usize) -> Option<Self> {
        let taken = count.get();
        (taken < most).then(|| {
            count.set(taken + 1);
            Self(Rc::clone(count))
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Http,
    Ftp,
}

impl Protocol {
    const fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Ftp => "FTP",
        }
    }

    /// Files that a connection may have open, itself with them: of HTTP the file that is sent; of
    /// FTP that and the data connection, or who waits for it.
    const fn files(self) -> usize {
        match self {
            Self::Http => 2,
            Self::Ftp => 3,
        }
    }
}

/// A connection's place, given back when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    site: Rc<Site>,
    protocol: Protocol,
    network: IpAddr,
    limit: Option<Limit>,
    share: Share,
    is_refusal: bool,
}

impl Admission {
    /// Lets go of the rates of clients that have been gone for long enough to be given a new one.
    /// Before, a client that hangs up and calls again would have its burst each time.
    pub(crate) fn sweep(&self) {
        let is_kept = |client: &Client| client.left.is_none_or(|left| left.elapsed().as_secs() < 2);
        self.clients
            .borrow_mut()
            .retain(|_, client| is_kept(client));
    }

    /// One of a client's connections or requests, as `count` says, has ended.
    fn leave(&self, network: IpAddr, count: impl FnOnce(&mut Client) -> &mut usize) {
        let mut clients = self.clients.borrow_mut();
        let client = clients.get_mut(&network).expect("it was counted in");
        *count(client) -= 1;
        if client.connections + client.guests > 0 {
            return;
        }
        client.left = Some(Instant::now());
        if client.limit.is_none() {
            clients.remove(&network);
        }
    }
}

impl Client {
    /// That of a network, which is here now.
    fn enter<'a>(
        clients: &'a mut HashMap<IpAddr, Self>,
        network: IpAddr,
        site: &Site,
    ) -> &'a mut Self {
        let client_rate_max = site.settings.client_rate_max;
        let client = clients.entry(network).or_insert_with(|| Self {
            connections: 0,
            guests: 0,
            limit: client_rate_max.map(|bytes_a_second| Limit::new(rate(bytes_a_second))),
            share: Share::default(),
            left: None,
        });
        client.left = None;
        client
    }
}

impl ConnectionSlot {
    /// A place among those that are served.
    pub(crate) fn take(site: &Rc<Site>, protocol: Protocol, peer: IpAddr) -> Option<Self> {
        let limits = &site.settings.limits;
        let admission = &site.admission;
        let mut clients = admission.clients.borrow_mut();
        let network = network(peer);
        let of_peer = clients.get(&network).map_or(0, |client| client.connections);
        if admission.connections.get() >= limits.download_connections_max
            || (of_peer >= limits.download_connections_per_address_max
                && !is_of_proxy(site, protocol, peer))
            || !is_taken(site, protocol)
            || !site.has_files_for_client(protocol.files())
        {
            bump(&site.stats.refused, 1);
            let why = "too many connections, or descriptors in use";
            REFUSALS.note(peer, protocol.name(), why);
            return None;
        }
        let client = Client::enter(&mut clients, network, site);
        client.connections += 1;
        let (limit, share) = (client.limit.clone(), client.share.clone());
        admission.connections.set(admission.connections.get() + 1);
        let held = &site.statistics.download_files;
        held.fetch_add(protocol.files(), Ordering::Relaxed);
        bump(site.stats.connections(protocol), 1);
        Some(Self {
            site: Rc::clone(site),
            protocol,
            network,
            limit,
            share,
            is_refusal: false,
        })
    }

    /// A place among those that are told that there are too many, if there is one left: the others
    /// of a flood are just closed.
    pub(crate) fn take_refusal(site: &Rc<Site>, protocol: Protocol, peer: IpAddr) -> Option<Self> {
        let refusals = &site.admission.refusals;
        if refusals.get() >= REFUSALS_MAX {
            return None;
        }
        refusals.set(refusals.get() + 1);
        Some(Self {
            site: Rc::clone(site),
            protocol,
            network: network(peer),
            limit: None,
            share: Share::default(),
            is_refusal: true,
        })
    }

    /// The rate that it shares with all of its address.
    pub(crate) fn limit(&self) -> Option<&Limit> {
        self.limit.as_ref()
    }

    /// What it has together with all of its address.
    pub(crate) fn share(&self) -> &Share {
        &self.share
    }
}

/// How much of `most` one address may have: a quarter as a rule, or as large a part as it may have
/// of the connections.
pub(super) fn of_address(limits: &DownloadLimits, most: usize) -> usize {
    let all = limits.download_connections_max.max(1);
    let own = limits.download_connections_per_address_max.min(all);
    let part = most.saturating_mul(own) / all;
    part.max(Limits::per_address(most))
}

/// Whether a connection of that protocol is taken while the server drains: who speaks HTTP can be
/// told where else to ask.
fn is_taken(site: &Site, protocol: Protocol) -> bool {
    let drain = &site.statistics.drain;
    let has_others = || site.statistics.cluster_of_many().is_some();
    let is_told =
        || matches!(protocol, Protocol::Http) && (drain.redirection().is_some() || has_others());
    !drain.is_on() || is_told()
}

/// Whether connections from there carry requests of many clients, who have a share each.
fn is_of_proxy(site: &Site, protocol: Protocol, peer: IpAddr) -> bool {
    let mut proxies = site.settings.trusted_proxies.iter();
    matches!(protocol, Protocol::Http) && proxies.any(|it| it.contains(peer))
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let admission = &self.site.admission;
        if self.is_refusal {
            admission.refusals.set(admission.refusals.get() - 1);
            return;
        }
        admission.connections.set(admission.connections.get() - 1);
        let held = &self.site.statistics.download_files;
        held.fetch_sub(self.protocol.files(), Ordering::Relaxed);
        drop_one(self.site.stats.connections(self.protocol));
        admission.leave(self.network, |client| &mut client.connections);
    }
}

/// A client whose request a proxy has passed on, until that is answered. The connection is the
/// proxy's; all else it shares with those of its network.
#[derive(Debug)]
pub(crate) struct Guest {
    site: Rc<Site>,
    network: IpAddr,
    limit: Option<Limit>,
    share: Share,
}

impl Guest {
    /// The one at that address.
    pub(crate) fn enter(site: &Rc<Site>, address: IpAddr) -> Self {
        let network = network(address);
        let mut clients = site.admission.clients.borrow_mut();
        let client = Client::enter(&mut clients, network, site);
        client.guests += 1;
        Self {
            site: Rc::clone(site),
            network,
            limit: client.limit.clone(),
            share: client.share.clone(),
        }
    }

    /// The rate that it shares with all of its address.
    pub(crate) fn limit(&self) -> Option<&Limit> {
        self.limit.as_ref()
    }

    /// What it has together with all of its address.
    pub(crate) fn share(&self) -> &Share {
        &self.share
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let admission = &self.site.admission;
        admission.leave(self.network, |client| &mut client.guests);
    }
}

/// A place among the files that are open: of a request beside others on its connection, or of a
/// file that is kept.
#[derive(Debug)]
pub(crate) struct FileSlot(Arc<Statistics>);

impl FileSlot {
    /// A place for what a client asks for, if there is one left.
    pub(crate) fn take(site: &Site) -> Option<Self> {
        let has_files = site.has_files_for_client(1);
        has_files.then(|| Self::of(&site.statistics))
    }

    /// A place for what is only kept, if there is one left: no film makes room for it.
    pub(crate) fn spare(site: &Site) -> Option<Self> {
        site.has_files(1).then(|| Self::of(&site.statistics))
    }

    /// A place, whether one is left or not.
    pub(crate) fn of(statistics: &Arc<Statistics>) -> Self {
        statistics.download_files.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(statistics))
    }
}

impl Drop for FileSlot {
    fn drop(&mut self) {
        self.0.download_files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Site {
    /// Whether so many files more can be open for a client: films make room that nobody uses.
    fn has_files_for_client(&self, files: usize) -> bool {
        self.library.has_descriptors(|| self.has_files(files))
    }

    /// Whether so many files more can be open. RTSP takes its own meanwhile, on another thread;
    /// those that are set apart make up for what both take at once.
    fn has_files(&self, files: usize) -> bool {
        let of = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        let Statistics {
            connections,
            rtp_files,
            download_files,
            ..
        } = &*self.statistics;
        let of_films = self.library.descriptors();
        let others = of(rtp_files) + of(download_files) + of_films + files;
        files_suffice(self.files_max, of(connections), others)
    }
}

const REFUSALS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::{Downloads, testing};
    use super::*;

    /// A server of an empty folder, from which an address may have two connections.
    fn site() -> (Rc<Site>, TempDir) {
        let mut downloads = Downloads::default();
        downloads.limits.download_connections_per_address_max = 2;
        testing::site(downloads)
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let (site, _root) = site();
        let take = |peer: &str| ConnectionSlot::take(&site, Protocol::Http, peer.parse().unwrap());
        let slots = [take("2001:db8::1"), take("2001:db8::2")];
        assert!(slots.iter().all(Option::is_some));
        assert!(take("2001:db8::3").is_none());
        assert!(take("2001:db8:0:1::1").is_some(), "it is another's");
        drop(slots);
        assert!(site.admission.clients.borrow().is_empty());
    }

    // SPECIFICATION.md: 22
    #[test]
    fn an_address_has_a_quarter_or_what_it_has_of_connections() {
        let of = |own, most| {
            let limits = DownloadLimits {
                download_connections_per_address_max: own,
                ..DownloadLimits::default()
            };
            of_address(&limits, most)
        };
        for (own, most, expected) in [
            (4096, 1000, 250),
            (4096, 256 << 20, 64 << 20),
            (4096, 5, 5),
            (4096, 100, 64),
            (1, 1000, 250),
            (8192, 1000, 500),
            (16_384, 1000, 1000),
            (usize::MAX, 256 << 20, 256 << 20),
        ] {
            assert_eq!(of(own, most), expected, "{own} {most}");
        }
        let limits = DownloadLimits::default();
        let quarter = Limits::per_address(limits.download_connections_max);
        assert_eq!(limits.download_connections_per_address_max, quarter);
    }

    #[test]
    fn connections_of_an_address_share_what_it_may_have() {
        let (site, _root) = site();
        let take = |peer: &str| {
            let taken = ConnectionSlot::take(&site, Protocol::Ftp, peer.parse().unwrap());
            taken.unwrap()
        };
        let [one, other] = [take("192.0.2.1"), take("192.0.2.1")];
        let ports = [one.share().port(2), other.share().port(2)];
        assert!(ports.iter().all(Option::is_some));
        assert!(one.share().port(2).is_none());
        assert!(one.share().wait(1).is_some(), "they are counted apart");
        let stranger = take("192.0.2.2");
        assert!(stranger.share().port(2).is_some(), "it is another's");
        drop(ports);
        assert!(other.share().port(1).is_some());
    }

    #[test]
    fn a_trusted_proxy_has_as_many_connections_as_there_may_be() {
        let mut downloads = Downloads::default();
        downloads.limits.download_connections_max = 4;
        downloads.limits.download_connections_per_address_max = 1;
        downloads.trusted_proxies = vec!["192.0.2.0/31".parse().unwrap()];
        let (site, _root) = testing::site(downloads);
        let mut slots = Vec::new();
        let mut take = |protocol, peer: &str| {
            slots.extend(ConnectionSlot::take(&site, protocol, peer.parse().unwrap()));
            slots.len()
        };
        for (protocol, peer, taken) in [
            (Protocol::Ftp, "192.0.2.1", 1),
            (Protocol::Ftp, "192.0.2.1", 1),
            (Protocol::Http, "192.0.2.2", 2),
            (Protocol::Http, "192.0.2.2", 2),
            (Protocol::Http, "192.0.2.1", 3),
            (Protocol::Http, "192.0.2.1", 4),
            (Protocol::Http, "192.0.2.1", 4),
        ] {
            assert_eq!(take(protocol, peer), taken, "{protocol:?} {peer}");
        }
    }

    #[test]
    fn who_comes_through_a_proxy_has_the_share_of_its_address() {
        let (site, _root) = site();
        let enter = |peer: &str| Guest::enter(&site, peer.parse().unwrap());
        let own = ConnectionSlot::take(&site, Protocol::Http, "2001:db8::1".parse().unwrap());
        let [one, other] = [enter("2001:db8::2"), enter("2001:db8:0:1::1")];
        let waits = one.share().wait(1);
        assert!(waits.is_some() && own.unwrap().share().wait(1).is_none());
        assert!(other.share().wait(1).is_some(), "it is another's");
        assert_eq!(site.admission.clients.borrow().len(), 2);
        // They are no connections.
        let guests = [(); 3].map(|()| enter("192.0.2.1"));
        let slot = ConnectionSlot::take(&site, Protocol::Http, "192.0.2.1".parse().unwrap());
        assert!(slot.is_some());
        drop((one, other, guests, slot));
        assert!(site.admission.clients.borrow().is_empty());
    }
}
