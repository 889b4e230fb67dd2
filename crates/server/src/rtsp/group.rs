//! A multicast group that a film or a channel is sent to, as those have it who watch it.
//!
//! A session of the server's own sends to it, as any session does to its client: the group is its
//! client. Those who watch have sessions that send nothing; what they report to the group's RTCP
//! ports, which are the odd ones, is told to their sessions, by the address that it is from.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use onrush_wire::rtsp::Group as GroupAddress;
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, spawn_local, yield_now};
use tracing::debug;

use super::group_socket::{hear_group, is_source_specific};
use super::ports::Hear;

/// Sessions of one address that are told of one report: a report costs no more than so many, however
/// many viewers are behind one NAT. Those beyond live by their requests.
pub const GROUP_REPORT_SESSIONS_MAX: usize = 64;

/// Bytes of a report that are read.
const REPORT_BYTES_MAX: usize = 1500;

/// Reports that are taken before all else of control has had its turn.
const HEARD_PER_TURN_MAX: usize = 64;

/// A group that is sent to.
#[derive(Debug)]
pub(super) struct Group {
    address: GroupAddress,
    /// Of the session that sends.
    leader: u64,
    tracks: Vec<GroupTrack>,
}

/// A track of what is sent.
#[derive(Debug)]
struct GroupTrack {
    ssrc: u32,
    clock_hz: u32,
    members: Rc<RefCell<Members>>,
    listening: Option<AbortHandle>,
}

/// Who watches a track: their sessions, by their addresses.
type Members = HashMap<IpAddr, Vec<u64>>;

/// What is known of a track before anybody watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupTrackSpec {
    pub(super) ssrc: u32,
    pub(super) clock_hz: u32,
}

/// One who watches a track. Dropping it leaves it.
#[derive(Debug)]
pub(super) struct GroupSlot {
    group: Rc<Group>,
    track: u8,
    peer: IpAddr,
    /// Who is told what it says; 0 for nobody.
    owner: Cell<u64>,
}

impl Group {
    /// A group at `address` that the session of number `leader` sends those tracks to, from `local`.
    /// Its RTCP ports are heard as far as that is possible.
    pub(super) fn new(
        address: GroupAddress,
        leader: u64,
        specs: &[GroupTrackSpec],
        (local, hear): (SocketAddr, &Rc<Hear>),
    ) -> Self {
        let ports = (address.rtp_port..).step_by(2);
        let tracks = specs.iter().zip(ports).map(|(spec, rtp_port)| {
            let members = Rc::<RefCell<Members>>::default();
            let at = (address.ip, rtp_port + 1);
            let listening = heard_at(at, local).map(|socket| {
                let hearing = listen(socket, Rc::clone(&members), Rc::clone(hear));
                spawn_local(hearing).abort_handle()
            });
            GroupTrack {
                ssrc: spec.ssrc,
                clock_hz: spec.clock_hz,
                members,
                listening,
            }
        });
        Self {
            address,
            leader,
            tracks: tracks.collect(),
        }
    }

    /// Where it is, with the port of its first track.
    pub(super) fn address(&self) -> GroupAddress {
        self.address
    }

    /// The number of the session that sends.
    pub(super) fn leader(&self) -> u64 {
        self.leader
    }

    fn track(&self, track: u8) -> &GroupTrack {
        &self.tracks[usize::from(track)]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for track in &self.tracks {
            if let Some(listening) = &track.listening {
                listening.abort();
            }
        }
    }
}

impl GroupSlot {
    /// One more who watches that track, at `peer`.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    pub(super) fn new(group: &Rc<Group>, track: usize, peer: IpAddr) -> Self {
        assert!(track < group.tracks.len());
        Self {
            group: Rc::clone(group),
            track: u8::try_from(track).expect("there are eight tracks at most"),
            peer,
            owner: Cell::new(0),
        }
    }

    /// From now on what it says is told with this number.
    pub(super) fn belongs_to(&self, owner: u64) {
        self.leave();
        self.owner.set(owner);
        let mut members = self.group.track(self.track).members.borrow_mut();
        members.entry(self.peer).or_default().push(owner);
    }

    fn leave(&self) {
        let owner = self.owner.replace(0);
        let mut members = self.group.track(self.track).members.borrow_mut();
        let Some(owners) = members.get_mut(&self.peer) else {
            return;
        };
        if let Some(at) = owners.iter().position(|&it| it == owner) {
            owners.swap_remove(at);
        }
        if owners.is_empty() {
            members.remove(&self.peer);
        }
    }

    /// Where the track is sent to.
    pub(super) fn address(&self) -> GroupAddress {
        let address = self.group.address;
        GroupAddress {
            rtp_port: address.rtp_port + 2 * u16::from(self.track),
            ..address
        }
    }

    pub(super) fn peer_ip(&self) -> IpAddr {
        self.peer
    }

    /// The number of the track, from 0 on.
    pub(super) fn track(&self) -> u8 {
        self.track
    }

    pub(super) fn ssrc(&self) -> u32 {
        self.group.track(self.track).ssrc
    }

    pub(super) fn clock_hz(&self) -> u32 {
        self.group.track(self.track).clock_hz
    }
}

impl Drop for GroupSlot {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A socket that hears reports at that port of a group, if any can be.
fn heard_at(at: (IpAddr, u16), local: SocketAddr) -> Option<UdpSocket> {
    if is_source_specific(at.0) {
        return None;
    }
    let heard = hear_group(at, local);
    heard
        .inspect_err(|error| debug!("reports to {}:{} are not heard: {error}", at.0, at.1))
        .ok()
}

/// Tells what receivers say, until it is told to stop.
async fn listen(socket: UdpSocket, members: Rc<RefCell<Members>>, hear: Rc<Hear>) {
    while socket.readable().await.is_ok() {
        let mut datagram = [0; REPORT_BYTES_MAX];
        for _ in 0..HEARD_PER_TURN_MAX {
            let (bytes, from) = match socket.try_recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => continue,
            };
            let owners: Vec<u64> = match members.borrow().get(&from.ip()) {
                Some(owners) => {
                    let told = owners.iter().take(GROUP_REPORT_SESSIONS_MAX);
                    told.copied().collect()
                }
                None => continue,
            };
            for owner in owners {
                hear(owner, Ok(&datagram[..bytes]));
            }
        }
        // Waiting alone lets nobody else go on, as long as there is something to be heard.
        yield_now().await;
    }
}
