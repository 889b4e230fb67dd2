//! Making a lane: here, or on a thread beside the sender.
//!
//! The kernel waits for all processors whenever a map of maps is written (kernel/bpf/syscall.c,
//! `maybe_wait_bpf_programs`). That takes some milliseconds for each of two maps, in which a game
//! server would miss its tick; so a group that is in use has its lanes made beside it, and sends
//! directly until they are there.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use super::device::{AtDevice, PassEntry};
use super::error::KernelError;
use super::lane::Lane;
use super::lane_key::LaneKey;
use super::netns::in_netns_of;
use super::network::netns_cookie;

/// What a lane is made of.
pub(super) struct LaneOrder {
    /// The group's, or another descriptor of it.
    pub(super) socket: UdpSocket,
    pub(super) key: LaneKey,
    pub(super) device: String,
    /// The group at that device, if it is there already.
    pub(super) known: Option<Arc<AtDevice>>,
    pub(super) pass: PassEntry,
    pub(super) number: u16,
    pub(super) members_max: u32,
}

/// A lane that is being made on a thread of its own.
pub(super) struct LaneMaking {
    pub(super) key: LaneKey,
    pub(super) device: String,
    made: Receiver<Result<Lane, KernelError>>,
}

impl LaneOrder {
    pub(super) fn make(self) -> Result<Lane, KernelError> {
        let at = match self.known {
            Some(at) => at,
            None => {
                let device = (self.key.ifindex, self.device.as_str());
                let enter = || self.pass.enter(netns_cookie(&self.socket), device);
                Arc::new(in_netns_of(&self.socket, enter)?)
            }
        };
        Ok(Lane::new(self.key, at.lane(self.number, self.members_max)?))
    }

    /// Begins to make it. If nobody waits for it any more when it is made, it goes.
    pub(super) fn begin(self) -> io::Result<LaneMaking> {
        let (sender, made) = sync_channel(1);
        let (key, device) = (self.key, self.device.clone());
        thread::Builder::new()
            .name("onrush-lane".to_owned())
            .spawn(move || drop(sender.send(self.make())))?;
        Ok(LaneMaking { key, device, made })
    }
}

impl LaneMaking {
    /// The lane, or why there is none; `None` as long as it is being made.
    pub(super) fn poll(&self) -> Option<Result<Lane, KernelError>> {
        match self.made.try_recv() {
            Ok(made) => Some(made),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(gone())),
        }
    }

    /// Waits until it is made.
    pub(super) fn wait(self) -> Result<Lane, KernelError> {
        self.made.recv().unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> KernelError {
    KernelError::Network(io::Error::other("the thread that made a lane panicked"))
}
