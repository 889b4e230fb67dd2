//! The yardstick: a server that reads and sends, a packet at a time, written as well as that can
//! be.
//!
//! One thread paces all sessions with the engine's own timer wheel, bursts and ticks. What a packet
//! needs is known before: its place in the file and its timestamp. For each it enters the kernel
//! twice, with `pread` of the payload behind the RTP header it has just written, and with `send` on
//! the session's connected socket. This is what the paper calls `read_send_rtp`.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use onrush_server::config::Config;
use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_sys::path::{PathName, prepare_socket};
use onrush_sys::thread::pin_to;
use onrush_wire::media::{Burst, Plan, RtpOrigin};
use onrush_wire::pace::Wheel;
use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T};

use super::film::Cue;
use super::record::Counts;
use super::sender::{Finished, LEAD_NS, Sender, Task};
use crate::error::ExperimentError;
use crate::setup::system;

/// The name of its thread.
pub(super) const THREAD_NAME: &str = "read-send-loop";

/// As in the engine.
const TICKS_PER_BURST: u64 = 4;

/// As in the engine.
const WHEEL_SLOTS: u32 = 512;

struct Plain {
    thread: JoinHandle<()>,
    stopping: Arc<AtomicBool>,
    counts: Arc<Mutex<Counts>>,
}

/// What the thread works with.
struct Loop {
    file: File,
    origin: RtpOrigin,
    packets: Vec<Packet>,
    bursts: Vec<Burst>,
    sessions: Vec<Session>,
    wheel: Wheel,
    tick_ns: u64,
    buffer: Vec<u8>,
}

/// All that is to be known of a packet to send it.
struct Packet {
    file_offset: u64,
    timestamp: u32,
    payload_bytes: u16,
}

struct Session {
    socket: UdpSocket,
    /// The next in the list of bursts.
    burst: usize,
    /// What of the burst's due time is not its own.
    epoch_ns: i64,
}

/// Starts a session on each socket.
pub(super) fn start(
    task: &Task,
    sockets: Vec<UdpSocket>,
) -> Result<Box<dyn Sender>, ExperimentError> {
    let config = Config {
        media_root: task.film.folder().to_owned(),
        burst: std::time::Duration::from_nanos(task.settings.burst_ns),
        ..Config::default()
    };
    let media = task.film.open(&config, &super::engine::runtime()?)?;
    let plans = task.film.plans(&media)?;
    let (plan, cues) = (&plans[0], task.film.cues(&plans, &task.settings));
    let begin_ns = monotonic_ns() + LEAD_NS;
    let sending = Loop::new(
        task.film.file()?,
        plan,
        media.origin(0),
        sockets,
        &cues,
        begin_ns,
    )
    .map_err(system("set up the sockets"))?;
    start_loop(sending, Some(task.core))
}

fn start_loop(mut sending: Loop, core: Option<usize>) -> Result<Box<dyn Sender>, ExperimentError> {
    let stopping = Arc::new(AtomicBool::new(false));
    let counts = Arc::new(Mutex::new(Counts::default()));
    let (its_stopping, its_counts) = (Arc::clone(&stopping), Arc::clone(&counts));
    let thread = thread::Builder::new().name(THREAD_NAME.to_owned());
    let thread = thread.spawn(move || {
        if core.is_some_and(|core| pin_to(core).is_err()) {
            return;
        }
        let mut due = Vec::with_capacity(sending.sessions.len());
        while !its_stopping.load(Ordering::Relaxed) {
            let until_ns = {
                // Taken once a tick; the other side looks twice in a run.
                let mut counts = its_counts.lock().unwrap_or_else(PoisonError::into_inner);
                sending.tick(monotonic_ns(), &mut due, &mut counts)
            };
            sleep_until_ns(until_ns);
        }
    });
    Ok(Box::new(Plain {
        thread: thread.map_err(system("start the loop"))?,
        stopping,
        counts,
    }))
}

impl Sender for Plain {
    fn counts(&self) -> Counts {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn stop(self: Box<Self>) -> Result<Finished, ExperimentError> {
        self.stopping.store(true, Ordering::Relaxed);
        let failed = self
            .thread
            .join()
            .is_err()
            .then(|| "the loop panicked".to_owned());
        let counts = self
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Ok(Finished {
            counts,
            failed,
            ..Finished::default()
        })
    }
}

impl Loop {
    fn new(
        file: File,
        plan: &Plan,
        origin: RtpOrigin,
        sockets: Vec<UdpSocket>,
        cues: &[Cue],
        begin_ns: u64,
    ) -> io::Result<Self> {
        let packets = (0..plan.rtp_packets()).map(|number| Packet {
            file_offset: plan.file_range(number..number + 1).start,
            timestamp: origin.timestamp_of(plan.due_ns(number)),
            payload_bytes: u16::try_from(plan.payload_bytes(number)).expect("below 64 KiB"),
        });
        let mut bursts = Vec::new();
        plan.bursts(0..plan.rtp_packets(), &mut bursts);
        let tick_ns = (plan.burst_ns() / TICKS_PER_BURST).max(1);
        let count = u32::try_from(sockets.len()).expect("checked against SESSIONS_MAX");
        let mut wheel = Wheel::new(count, WHEEL_SLOTS, tick_ns, monotonic_ns());
        let mut sessions = Vec::with_capacity(sockets.len());
        for (number, (socket, cue)) in (0..).zip(sockets.into_iter().zip(cues)) {
            // The same room in the socket as the engine gives its own.
            let stride = u16::try_from(plan.image_bytes_max()).expect("below 64 KiB");
            prepare_socket(PathName::Sendto, socket.as_raw_fd(), stride)?;
            let start_ns = begin_ns + cue.phase_ns;
            wheel.insert(number, start_ns);
            let (from, _) = cue.tracks[0];
            let burst = bursts.partition_point(|burst| burst.first < from);
            let epoch_ns = start_ns.cast_signed() - plan.due_ns(from).cast_signed();
            sessions.push(Session {
                socket,
                burst,
                epoch_ns,
            });
        }
        Ok(Self {
            file,
            origin,
            packets: packets.collect(),
            bursts,
            sessions,
            wheel,
            tick_ns,
            buffer: vec![0; plan.image_bytes_max()],
        })
    }

    /// Sends all that is due in the tick that begins now; when to come again.
    fn tick(&mut self, now_ns: u64, due: &mut Vec<u32>, counts: &mut Counts) -> u64 {
        self.wheel.take_due(now_ns, due);
        let tick_end_ns = (now_ns / self.tick_ns + 1) * self.tick_ns;
        for number in due.drain(..) {
            while let Some(&burst) = self.bursts.get(self.sessions[number as usize].burst) {
                let session = &mut self.sessions[number as usize];
                let due_ns = session.epoch_ns + burst.due_ns.cast_signed();
                if due_ns >= tick_end_ns.cast_signed() {
                    self.wheel.insert(number, due_ns.cast_unsigned());
                    break;
                }
                session.burst += 1;
                counts
                    .lateness
                    .count(monotonic_ns().cast_signed() - due_ns, 1);
                self.send(number, burst, counts);
            }
        }
        counts.ticks += 1;
        counts.crossings += 1;
        self.wheel.next_ns().unwrap_or(tick_end_ns)
    }

    fn send(&mut self, number: u32, burst: Burst, counts: &mut Counts) {
        let socket = &self.sessions[number as usize].socket;
        for number in burst.first..burst.first + u64::from(burst.packets) {
            let place = usize::try_from(number).expect("an index of a list");
            let packet = &self.packets[place];
            let header = Header {
                marker: false,
                payload_type: PAYLOAD_TYPE_MP2T,
                sequence: self.origin.sequence_of(number),
                timestamp: packet.timestamp,
                ssrc: self.origin.ssrc,
            };
            let bytes = HEADER_BYTES + usize::from(packet.payload_bytes);
            self.buffer[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
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
    use onrush_wire::media::FilePiece;

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
        let mut sending = Loop::new(
            file,
            plan,
            media.origin(0),
            sockets.collect(),
            &cues,
            begin_ns,
        )
        .unwrap();
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
