//! A path that cannot be had, or turns out not to do, is given up for a lesser one.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use onrush_sys::path::{Path, PathName, prepare_socket};
use tracing::{debug, warn};

use super::super::shared::{State, bump};
use super::Worker;

impl Worker {
    /// Goes on without trains: the device, or the way to it, does not take them (net/ipv4/udp.c,
    /// `udp_send_skb`: EIO). Out loud, and once; it takes memory for the path that follows, and
    /// delays what is due for as long as that takes to open.
    pub(super) fn demote(&mut self) {
        if self.retired.is_some() {
            return;
        }
        let from = self.path.name();
        let path = open_from(PathName::Sendmmsg, |name| {
            (self.open_path)(name, self.store.pool(), &self.remote.waker).ok()
        });
        let to = path.name();
        warn!(%from, %to, "the device takes no trains (EIO): packets are sent singly from now on");
        let mut retired = std::mem::replace(&mut self.path, path);
        self.remote.shared.set_path(to);
        bump(&self.remote.shared.demotions, 1);
        self.places = 0;
        self.remote.shared.places.store(0, Ordering::Relaxed);
        for number in 0..u32::try_from(self.streams.len()).expect("streams have 32 bits") {
            self.take_back(number, &mut *retired);
        }
        self.retired = Some(retired);
    }

    /// Gives a stream's socket a descriptor again, if it has none, and readies it for the path of
    /// now.
    pub(super) fn take_back(&mut self, number: u32, retired: &mut dyn Path) {
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        if stream.socket.is_none() {
            match retired.descriptor(number) {
                Ok(socket) => stream.socket = Some(socket.into()),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    stream.set_errno(errno);
                    return self.end(number, State::SendFailed);
                }
            }
        }
        if let Some(socket) = &stream.socket {
            prepare(self.path.name(), socket, stream.shared.segment_bytes);
        }
    }

    /// Takes what is still in flight on a path that was given up.
    pub(super) fn drain_retired(&mut self) {
        let Some(mut retired) = self.retired.take() else {
            return;
        };
        if let Err(error) = retired.submit() {
            debug!(%error, "a retired path could not be entered");
        }
        // The path of now sends singly: no answer to these trains gives it up, too.
        while let Some(completion) = retired.completion() {
            self.complete(completion);
        }
        if retired.in_flight() > 0 {
            self.retired = Some(retired);
        }
    }
}

/// Opens the path `first`, or the best after it that `open` yields.
pub(super) fn open_from(
    first: PathName,
    mut open: impl FnMut(PathName) -> Option<Box<dyn Path>>,
) -> Box<dyn Path> {
    let mut name = first;
    loop {
        if let Some(path) = open(name) {
            return path;
        }
        name = name
            .next()
            .expect("sendto needs nothing and is always available");
    }
}

/// Readies a stream's socket once more, for another path.
pub(super) fn prepare(path: PathName, socket: &UdpSocket, segment_bytes: u16) {
    if let Err(error) = prepare_socket(path, socket.as_raw_fd(), segment_bytes) {
        debug!(%error, "a socket kept its options");
    }
}
