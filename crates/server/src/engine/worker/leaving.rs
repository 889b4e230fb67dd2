//! A stream goes to another engine: its worker lets go of it, once the kernel has let go of its
//! last train. What follows control does: see [`moving`](super::super::moving). One for whose
//! socket there is no descriptor stays.

use std::io;

use super::super::Play;
use super::super::moving::{Handover, PendingMove};
use super::super::shared::bump;
use super::entry::StreamOutlet;
use super::{Worker, unsigned};

impl Worker {
    /// Lets go of a stream, once the kernel has let go of its last train.
    pub(super) fn leave(&mut self, number: u32, mut leaving: Box<PendingMove>) {
        let has_played = self.streams.stop(number);
        let Some(stream) = self.streams.get_mut(number) else {
            return;
        };
        if has_played {
            let play = Play {
                from: stream.reader.next_packet(),
                stop_before: stream.reader.stop_before(),
                start_ns: unsigned(stream.hold_until_ns),
                line: stream.line(),
                moved_ns: stream.moved_ns,
                numbering: stream.numbering,
            };
            leaving.play = Some((play, stream.reader.hand_over(&self.store)));
        }
        stream.leaving = Some(leaving);
        if stream.trains == 0 {
            self.depart(number);
        }
    }

    /// Its last train has landed.
    pub(super) fn depart(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(number) else {
            return;
        };
        let Some(leaving) = stream.leaving.take() else {
            return;
        };
        stream.tell_paused();
        let outlet = std::mem::replace(&mut stream.outlet, StreamOutlet::InstalledSocket);
        let socket = match outlet {
            StreamOutlet::Socket(socket) => Ok(socket),
            StreamOutlet::InstalledSocket => self.transmitter.take_socket(number),
            StreamOutlet::Interleaved { .. } => unreachable!("a connection stays with its engine"),
            StreamOutlet::Lost(errno) => {
                stream.outlet = outlet;
                Err(io::Error::from_raw_os_error(errno))
            }
        };
        let stays = socket.is_err();
        if !stays {
            self.streams.remove(number);
            bump(&self.remote.shared.moved, 1);
        }
        let PendingMove { to, play } = *leaving;
        let unsent = to.send(Handover { socket, play }).err();
        // Nobody has it any more.
        if stays && unsent.is_some() {
            self.forget(number);
        }
        self.give_back(unsent.and_then(|unsent| unsent.play));
    }
}
