//! What the paper had of paths that take payloads from the file, paced: a packet at a time.
//!
//! `rtp_sendfile` is the paper's best of the paths that existed: UDP_CORK, a `send` of the header,
//! a `sendfile` of the payload, UDP_CORK off. `rtp_sendfile_more` says the same with MSG_MORE and
//! two entries. `mmap_writev` sends header and mapped payload by one. `read_send_rtp` is
//! [`plain`](super::plain).

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::ops::Range;

use onrush_primitives::cork::cork;
use onrush_primitives::map::Mapped;
use onrush_wire::media::{Plan, RtpOrigin};
use rustix::fs::sendfile;
use rustix::io::writev;
use rustix::net::{SendFlags, send};

use super::pacing::{Way, start_way};
use super::plain::{Packet, widen};
use super::record::{Contestant, Counts};
use super::sender::{Sender, Task};
use crate::error::ExperimentError;

/// The name of their thread.
pub(super) const THREAD_NAME: &str = "file-way-loop";

/// How a packet is handed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Corked,
    More,
    Writev,
}

/// Sends from the file.
struct FileWay {
    kind: Kind,
    file: File,
    map: Mapped,
    origin: RtpOrigin,
    packets: Vec<Packet>,
    sockets: Vec<UdpSocket>,
}

/// Starts a session on each socket, of one of the three.
pub(super) fn start(
    task: &Task,
    contestant: Contestant,
    sockets: Vec<UdpSocket>,
) -> Result<Box<dyn Sender>, ExperimentError> {
    let kind = match contestant {
        Contestant::RtpSendfile => Kind::Corked,
        Contestant::RtpSendfileMore => Kind::More,
        _ => Kind::Writev,
    };
    let file = task.film.file()?;
    start_way(task, THREAD_NAME, |plan, origin| {
        FileWay::new(kind, file, plan, origin, sockets)
    })
}

impl FileWay {
    fn new(
        kind: Kind,
        file: File,
        plan: &Plan,
        origin: RtpOrigin,
        sockets: Vec<UdpSocket>,
    ) -> io::Result<Self> {
        widen(&sockets, plan)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let map = Mapped::map(&file, bytes)?;
        Ok(Self {
            kind,
            map,
            file,
            origin,
            packets: Packet::all(plan, origin),
            sockets,
        })
    }

    /// Sends a packet; its bytes, and how often the kernel was entered.
    fn packet(&self, socket: &UdpSocket, number: u64) -> (io::Result<usize>, u64) {
        let place = usize::try_from(number).expect("an index of a list");
        let packet = &self.packets[place];
        let header = packet.header(number, self.origin);
        let payload_bytes = usize::from(packet.payload_bytes);
        match self.kind {
            Kind::Writev => {
                let from = usize::try_from(packet.file_offset).expect("within what is mapped");
                let payload = &self.map.as_bytes()[from..from + payload_bytes];
                let pieces = [IoSlice::new(&header), IoSlice::new(payload)];
                (writev(socket, &pieces).map_err(io::Error::from), 1)
            }
            Kind::More => (self.spliced(socket, &header, packet, SendFlags::MORE), 2),
            Kind::Corked => {
                let held = cork(socket, true);
                let sent =
                    held.and_then(|()| self.spliced(socket, &header, packet, SendFlags::empty()));
                let let_go = cork(socket, false);
                (sent.and_then(|bytes| let_go.map(|()| bytes)), 4)
            }
        }
    }

    fn spliced(
        &self,
        socket: &UdpSocket,
        header: &[u8],
        packet: &Packet,
        flags: SendFlags,
    ) -> io::Result<usize> {
        let mut offset = packet.file_offset;
        let bytes = send(socket, header, flags)?;
        let payload = sendfile(
            socket,
            &self.file,
            Some(&mut offset),
            packet.payload_bytes.into(),
        )?;
        match payload == usize::from(packet.payload_bytes) {
            true => Ok(bytes + payload),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Way for FileWay {
    fn send(&mut self, session: usize, packets: Range<u64>, counts: &mut Counts) {
        let socket = &self.sockets[session];
        for number in packets {
            let (sent, crossings) = self.packet(socket, number);
            counts.crossings += crossings;
            match sent {
                Ok(bytes) => {
                    counts.packets += 1;
                    counts.bytes += bytes as u64;
                }
                Err(_) => counts.packets_refused += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use onrush_server::config::Config;
    use onrush_wire::media::FilePiece;

    use super::*;
    use crate::film_kind::FilmKind;
    use crate::serve::Settings;
    use crate::serve::film::Film;

    #[test]
    fn each_sends_the_very_packets_of_the_plan() {
        let settings = Settings {
            sessions: 1,
            measured_ns: 100_000_000,
            rate_bps: 4_000_000,
            ..Settings::default()
        };
        let film = Film::make(&settings, FilmKind::Ts).unwrap();
        let config = Config {
            media_root: film.folder().to_owned(),
            ..Config::default()
        };
        let runtime = super::super::engine::runtime().unwrap();
        let media = film.open(&config, &runtime).unwrap();
        let plan = &film.plans(&media).unwrap()[0];
        let bytes = std::fs::read(film.folder().join("film.ts")).unwrap();
        let whole = FilePiece {
            offset: 0,
            bytes: &bytes,
        };
        for (kind, crossings) in [(Kind::Corked, 4), (Kind::More, 2), (Kind::Writev, 1)] {
            let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(receiver.local_addr().unwrap()).unwrap();
            let file = film.file().unwrap();
            let mut way = FileWay::new(kind, file, plan, media.origin(0), vec![socket]).unwrap();
            let mut counts = Counts::default();
            way.send(0, 30..50, &mut counts);
            assert_eq!(
                (counts.packets, counts.packets_refused),
                (20, 0),
                "{kind:?}"
            );
            assert_eq!(counts.crossings, 20 * crossings);
            let mut buffer = [0; 2000];
            for number in 30..50 {
                let length = receiver.recv(&mut buffer).unwrap();
                let mut image = vec![0; plan.image_bytes_max()];
                plan.write_images(number..number + 1, &[whole], media.origin(0), &mut image)
                    .unwrap();
                assert!(buffer[..length] == image, "{kind:?}: packet {number}");
            }
        }
    }
}
