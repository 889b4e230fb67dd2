//! The yardstick: a server that reads and sends, a packet at a time, written as well as that can
//! be.
//!
//! One thread paces all sessions, as [`pacing`](super::pacing) has it. What a packet needs is known
//! before: its place in the file and its timestamp. For each it enters the kernel twice, with
//! `pread` of the payload behind the RTP header it has just written, and with `send` on the
//! session's connected socket. This is what the paper calls `read_send_rtp`.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use onrush_sys::path::{PathName, prepare_socket};
use onrush_wire::media::{Plan, RtpOrigin};
use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T};

use super::pacing::{Way, start_way};
use super::record::Counts;
use super::sender::{Sender, Task};
use crate::error::ExperimentError;

/// The name of its thread.
pub(super) const THREAD_NAME: &str = "read-send-loop";

/// Reads and sends.
struct ReadSend {
    file: File,
    origin: RtpOrigin,
    packets: Vec<Packet>,
    sockets: Vec<UdpSocket>,
    buffer: Vec<u8>,
}

/// All that is to be known of a packet to send it.
pub(super) struct Packet {
    pub(super) file_offset: u64,
    timestamp: u32,
    pub(super) payload_bytes: u16,
}

/// Starts a session on each socket.
pub(super) fn start(
    task: &Task,
    sockets: Vec<UdpSocket>,
) -> Result<Box<dyn Sender>, ExperimentError> {
    let file = task.film.file()?;
    start_way(task, THREAD_NAME, |plan, origin| {
        ReadSend::new(file, plan, origin, sockets)
    })
}

impl ReadSend {
    fn new(
        file: File,
        plan: &Plan,
        origin: RtpOrigin,
        sockets: Vec<UdpSocket>,
    ) -> io::Result<Self> {
        widen(&sockets, plan)?;
        Ok(Self {
            file,
            origin,
            packets: Packet::all(plan, origin),
            sockets,
            buffer: vec![0; plan.image_bytes_max()],
        })
    }
}

impl Packet {
    /// Those of a plan.
    pub(super) fn all(plan: &Plan, origin: RtpOrigin) -> Vec<Self> {
        let packets = (0..plan.rtp_packets()).map(|number| Self {
            file_offset: plan.file_range(number..number + 1).start,
            timestamp: origin.timestamp_of(plan.due_ns(number)),
            payload_bytes: u16::try_from(plan.payload_bytes(number)).expect("below 64 KiB"),
        });
        packets.collect()
    }

    /// The RTP header of that packet.
    pub(super) fn header(&self, number: u64, origin: RtpOrigin) -> [u8; HEADER_BYTES] {
        let header = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence: origin.sequence_of(number),
            timestamp: self.timestamp,
            ssrc: origin.ssrc,
        };
        header.to_bytes()
    }
}

/// Gives sockets the same room as the engine gives its own.
pub(super) fn widen(sockets: &[UdpSocket], plan: &Plan) -> io::Result<()> {
    let stride = u16::try_from(plan.image_bytes_max()).expect("below 64 KiB");
    let mut sockets = sockets.iter();
    sockets.try_for_each(|socket| prepare_socket(PathName::Sendto, socket.as_raw_fd(), stride))
}

impl Way for ReadSend {
    fn send(&mut self, session: usize, packets: Range<u64>, counts: &mut Counts) {
        let socket = &self.sockets[session];
        for number in packets {
            let place = usize::try_from(number).expect("an index of a list");
            let packet = &self.packets[place];
            let bytes = HEADER_BYTES + usize::from(packet.payload_bytes);
            let header = packet.header(number, self.origin);
            self.buffer[..HEADER_BYTES].copy_from_slice(&header);
            let payload = &mut self.buffer[HEADER_BYTES..bytes];
            let read = self.file.read_exact_at(payload, packet.file_offset);
            let sent = read.and_then(|()| socket.send(&self.buffer[..bytes]));
            counts.crossings += 2;
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
    use onrush_sys::clock::monotonic_ns;
    use onrush_wire::media::FilePiece;

    use super::super::pacing::{Loop, TICKS_PER_BURST};
    use super::*;
    use crate::film_kind::FilmKind;
    use crate::serve::Settings;
    use crate::serve::film::Film;

    #[test]
    fn it_sends_the_very_packets_of_the_plan_in_bursts_that_are_due() {
        let settings = Settings {
            sessions: 2,
            measured_ns: 100_000_000,
            rate_bps: 4_000_000,
            ..Settings::default()
        };
        let film = Film::make(&settings, FilmKind::Ts).unwrap();
        let config = Config {
            media_root: film.folder().to_owned(),
            ..Config::default()
        };
        let media = film
            .open(&config, &super::super::engine::runtime().unwrap())
            .unwrap();
        let plans = film.plans(&media).unwrap();
        let (plan, cues) = (&plans[0], film.cues(&plans, &settings));
        let receivers: Vec<_> = cues
            .iter()
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        let sockets = receivers.iter().map(|receiver| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(receiver.local_addr().unwrap()).unwrap();
            socket
        });
        // At a tick's beginning, so that what is due is the same in every run of this test.
        let begin_ns = (monotonic_ns() / settings.burst_ns + 1) * settings.burst_ns;
        let file = film.file().unwrap();
        let way = ReadSend::new(file, plan, media.origin(0), sockets.collect()).unwrap();
        let mut sending = Loop::new(way, plan, &cues, begin_ns);
        sending.tick_ns_max = u64::MAX;
        // A clock of its own: five bursts of each, at once.
        let (mut counts, mut due, mut now_ns) = (Counts::default(), Vec::new(), begin_ns);
        while now_ns < begin_ns + 5 * settings.burst_ns {
            let next_ns = sending.tick(now_ns, &mut due, &mut counts);
            assert!(next_ns > now_ns);
            now_ns = next_ns;
        }
        assert_eq!(
            (counts.lateness.total(), counts.packets_refused),
            (2 * 5, 0)
        );
        assert_eq!(counts.crossings, counts.ticks + 2 * counts.packets);
        assert!(counts.ticks <= 5 * TICKS_PER_BURST + 1, "{}", counts.ticks);
        let bytes = std::fs::read(film.folder().join("film.ts")).unwrap();
        let whole = FilePiece {
            offset: 0,
            bytes: &bytes,
        };
        let mut received = 0;
        for (receiver, cue) in receivers.iter().zip(&cues) {
            receiver.set_nonblocking(true).unwrap();
            let mut buffer = [0; 2000];
            for number in cue.tracks[0].0.. {
                let Ok(length) = receiver.recv(&mut buffer) else {
                    break;
                };
                let mut image = vec![0; plan.image_bytes_max()];
                plan.write_images(number..number + 1, &[whole], media.origin(0), &mut image)
                    .unwrap();
                assert!(buffer[..length] == image, "packet {number}");
                received += 1;
            }
        }
        assert_eq!(received, counts.packets);
        assert!(received >= 2 * 5 * 7, "{received}");
    }
}
