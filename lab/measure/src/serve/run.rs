//! One run: a contestant sends, is watched from outside, and is judged by what arrived.

use std::thread;
use std::time::Duration;

use onrush_server::engine::numbering::RtpHeaders;
use onrush_sys::clock::monotonic_ns;
use onrush_sys::path::PathName;
use onrush_sys::thread::{pin_to, raise_open_files_limit};
use onrush_testkit::playout::{Played, Playouts};
use onrush_testkit::sink::{self, Look, Sink};
use onrush_testkit::testbed::{Mode, Options, RCV_DEVICE, Testbed};

use super::engine::Outlets;
use super::film::Film;
use super::receiver::Receiver;
use super::record::{
    Arrived, Contestant, Counts, Entrant, Interval, Run, Settings, Transport, Turn,
};
use super::sender::{LEAD_NS, Sender, Task};
use super::{engine, file_ways, framed, pairs, parts, plain};
use crate::counters::{Counted, Counting};
use crate::error::{ExperimentError, what_is};
use crate::film_kind::FilmKind;
use crate::histogram::Histogram;
use crate::machine::{self, Awake, CoreTimes};
use crate::profile::{Profiling, Symbols};
use crate::setup::{TCP_SEGMENTATION, network, system, until_valid};
use crate::stats::{ratio, to_f64};

/// The port of the first session at the sink; the others follow.
const PORT_FIRST: u16 = 20_000;

/// A run that sent this much less or more than was due did not keep pace. Beside that each session
/// may have sent a burst more or less: bursts leave whole, at ticks that many sessions share, and
/// when the counters are read a tick may have come that was not waited for.
const PACE_TOLERANCE_PERMILLE: u64 = 20;

/// The sink looks at the RTP header of every so many socket buffers of a session: no divisor of the
/// packets in a burst, so that each place in a burst has its turn.
const LOOK_EVERY: u16 = 13;

/// What all runs share.
pub(crate) struct Bench {
    /// One for each kind of film.
    tasks: Vec<(FilmKind, Task)>,
    settings: Settings,
    core: usize,
    testbed: Testbed,
    sink: Sink,
    awake: Option<Awake>,
    /// The kernel's functions, if it is looked at where time goes.
    symbols: Option<Symbols>,
}

impl Bench {
    pub(crate) fn set_up(settings: &Settings, core: usize) -> Result<Self, ExperimentError> {
        raise_open_files_limit();
        let testbed = Testbed::new(Options::default())?;
        if settings.contestants.iter().any(|it| it.is_interleaved()) {
            testbed.receive_on_one_processor()?;
        }
        let sockets = u16::try_from(settings.sessions * settings.tracks_max());
        let sockets = sockets.expect("checked against SESSIONS_MAX");
        let ports = PORT_FIRST..=PORT_FIRST + (sockets - 1);
        let look = Look {
            every: LOOK_EVERY,
            playout: true,
            ..Look::default()
        };
        let sink = Sink::attach_looking(&testbed.rcv, RCV_DEVICE, ports, look)?;
        let tasks = settings.media.iter().map(|&media| {
            let task = Task {
                settings: settings.clone(),
                film: Film::make(settings, media)?,
                core,
            };
            Ok((media, task))
        });
        let tasks = tasks.collect::<Result<_, ExperimentError>>()?;
        let awake = settings.keep_awake.then(|| Awake::keep(core)).transpose();
        // After the sink, whose program is among them.
        let symbols = settings.account.then(Symbols::of_kernel).transpose();
        Ok(Self {
            tasks,
            settings: settings.clone(),
            core,
            testbed,
            sink,
            awake: awake.map_err(system("start a thread"))?,
            symbols: symbols.map_err(system("read the kernel's symbols"))?,
        })
    }

    /// The sending device and what it does in hardware, or here in nobody's.
    pub(crate) fn network(&self) -> Result<String, ExperimentError> {
        Ok(network(&self.testbed, &["tx-", "generic-seg"])?)
    }

    /// So many sessions from now on, no more than it was set up for.
    pub(crate) fn set_sessions(&mut self, sessions: u32) {
        self.settings.sessions = sessions;
        for (_, task) in &mut self.tasks {
            task.settings.sessions = sessions;
        }
    }

    pub(super) fn run_all(
        &mut self,
        runs: &mut Vec<Run>,
        mut progress: impl FnMut(f64, &str),
    ) -> Result<(), ExperimentError> {
        let schedule = self.settings.schedule();
        for (done, &turn) in schedule.iter().enumerate() {
            let (mode, number) = (turn.mode.name(), turn.repeat + 1);
            let next = format!("{mode} {}, run {number}", turn.entrant);
            progress(to_f64(done) / to_f64(schedule.len()), &next);
            until_valid(
                runs,
                |run| run.void.is_empty(),
                |attempt| self.run(turn, attempt),
            )?;
        }
        Ok(())
    }

    pub(crate) fn run(&mut self, turn: Turn, attempt: u32) -> Result<Run, ExperimentError> {
        let (mode, repeat) = (turn.mode, turn.repeat);
        let Entrant { contestant, media } = turn.entrant;
        self.testbed.set_mode(mode)?;
        self.testbed.switch(&TCP_SEGMENTATION, mode == Mode::Uso)?;
        let of_media = self.tasks.iter().find(|(kind, _)| *kind == media);
        let task = &of_media.expect("there is a task for each kind").1;
        self.sink.reset()?;
        let clocks = task.film.clocks_hz();
        let sockets = self.settings.sessions * u32::try_from(clocks.len()).unwrap_or(u32::MAX);
        let ports = PORT_FIRST..;
        for ((port, &clock_hz), _) in ports.zip(clocks.iter().cycle()).zip(0..sockets) {
            self.sink.set_clock(port, clock_hz)?;
        }
        let yardstick_ns = self.on_core(machine::yardstick_ns).unwrap_or(0);
        let suite = contestant.own_key_suite();
        let parts = suite.and_then(|suite| self.on_core(move || parts::measure(suite)));
        let (sender, receiver) = self.start(task, contestant, sockets)?;
        let settings = &self.settings;
        thread::sleep(Duration::from_nanos(LEAD_NS + settings.warm_up_ns));
        let counting = self.counting(contestant);
        let begun = counting.now();
        let before = self.snapshot(&*sender, receiver.as_ref(), contestant)?;
        let profiling = self.profiling(contestant)?;
        thread::sleep(Duration::from_nanos(settings.measured_ns));
        let symbols = self.symbols.as_ref();
        let profile = profiling
            .zip(symbols)
            .map(|(it, symbols)| it.finish(symbols));
        let after = self.snapshot(&*sender, receiver.as_ref(), contestant)?;
        let counted = Counted::between(begun, counting.now());
        let finished = sender.stop()?;
        let mut interval = after.since(&before, self.core);
        interval.counted = counted;
        interval.packets_due = task.film.packets_due(settings.sessions, interval.wall_ns);
        let playouts = match &receiver {
            None => Some(Self::playouts(
                &mut self.sink,
                settings.sessions,
                clocks.len(),
            )?),
            // Frames are timed when they are read.
            Some(_) => None,
        };
        let (arrived, garbled) = match &receiver {
            None => (self.sink.totals()?.into(), None),
            Some(receiver) => receiver.arrived(finished.counts.bytes),
        };
        let mut run = Run {
            mode,
            contestant,
            media,
            repeat,
            attempt,
            void: finished.failed.into_iter().chain(garbled).collect(),
            yardstick_ns,
            interval,
            packets_sent: finished.counts.packets,
            arrived,
            parts,
            profile,
            playouts,
            builder_cpu_ns: finished.builder_cpu_ns,
            images_built: finished.images_built,
        };
        let burst_packets = task.film.packets_due(settings.sessions, settings.burst_ns);
        run.void.extend(run.faults(&finished.counts, burst_packets));
        Ok(run)
    }

    /// What players of all sessions would have had to buffer, each of so many tracks.
    fn playouts(
        sink: &mut Sink,
        sessions: u32,
        tracks: usize,
    ) -> Result<Playouts, ExperimentError> {
        let mut playouts = Playouts::default();
        let mut ports = PORT_FIRST..;
        for _ in 0..sessions {
            let mut session: Option<Played> = None;
            for port in ports.by_ref().take(tracks) {
                let packets = sink.port(port)?.counts.packets;
                // That all came which was sent is looked at elsewhere.
                let track = sink.take_playout(port)?.finish(None, packets);
                session = session.map_or(track, |it| Some(track.map_or(it, |track| it.and(track))));
            }
            playouts.add(session.unwrap_or_default());
        }
        Ok(playouts)
    }

    /// Starts a contestant, and who receives what comes on connections.
    fn start(
        &self,
        task: &Task,
        contestant: Contestant,
        sockets: u32,
    ) -> Result<(Box<dyn Sender>, Option<Receiver>), ExperimentError> {
        let best = PathName::UringRegisteredZc;
        let engine = |path, headers, outlets| engine::start(task, path, headers, outlets);
        let no_socket = system("open a socket for each session (see ulimit -n)");
        if !contestant.is_interleaved() {
            let sockets = pairs::datagrams(&self.testbed, sockets, PORT_FIRST);
            let sockets = sockets.map_err(no_socket)?;
            let sender = match contestant {
                Contestant::Engine(path) => {
                    engine(path, RtpHeaders::Shared, Outlets::Datagrams(sockets))
                }
                Contestant::OwnHeaders => {
                    engine(best, RtpHeaders::Own, Outlets::Datagrams(sockets))
                }
                Contestant::ReadSendLoop => plain::start(task, sockets),
                other if other.is_from_file() => file_ways::start(task, other, sockets),
                _ => {
                    let outlets = match contestant.own_key_suite() {
                        Some(suite) => Outlets::Srtp(suite, sockets),
                        None => Outlets::SharedKey(sockets),
                    };
                    engine(best, RtpHeaders::default(), outlets)
                }
            };
            return Ok((sender?, None));
        }
        let pairs = pairs::connections(&self.testbed, sockets).map_err(&no_socket)?;
        let headers = RtpHeaders::default();
        let (sender, ends) = match contestant.transport() {
            Transport::Tls => {
                let (sending, ends) = pairs::sealed(pairs).map_err(system("set up TLS"))?;
                let sender = match contestant {
                    Contestant::RustlsLoop => framed::start_rustls(task, sending),
                    _ => engine(best, headers, Outlets::Sealed(sending)),
                };
                (sender, ends)
            }
            _ => {
                let (sending, ends) = pairs;
                let sender = match contestant {
                    Contestant::WriteLoop => framed::start_writes(task, sending),
                    _ => engine(best, headers, Outlets::Connections(sending)),
                };
                (sender, pairs::plain(ends))
            }
        };
        let receiver = Receiver::start(ends).map_err(system("receive on connections"))?;
        Ok((sender?, Some(receiver)))
    }

    /// The thread that sends, by the beginning of its name.
    fn thread_name(&self, contestant: Contestant) -> String {
        match contestant {
            Contestant::ReadSendLoop => plain::THREAD_NAME.to_owned(),
            other if other.is_from_file() => file_ways::THREAD_NAME.to_owned(),
            Contestant::WriteLoop => framed::WRITE_THREAD.to_owned(),
            Contestant::RustlsLoop => framed::RUSTLS_THREAD.to_owned(),
            _ => format!("onrush-send-{}", self.core),
        }
    }

    /// Counts what the sender does from now on, if that is asked for.
    fn counting(&self, contestant: Contestant) -> Counting {
        let threads = machine::threads_named(&self.thread_name(contestant));
        Counting::of_threads(self.settings.counters, &threads)
    }

    /// Begins to look where the sender's time goes, if that is asked for.
    fn profiling(&self, contestant: Contestant) -> Result<Option<Profiling>, ExperimentError> {
        let threads = machine::threads_named(&self.thread_name(contestant));
        let looked = self.symbols.as_ref().zip(threads.first());
        let profiling = looked.map(|(_, &thread)| Profiling::start(self.core, thread));
        let profiling = profiling.transpose();
        Ok(profiling.map_err(system("sample where a processor's time goes"))?)
    }

    fn snapshot(
        &self,
        sender: &dyn Sender,
        receiver: Option<&Receiver>,
        contestant: Contestant,
    ) -> Result<Snapshot, ExperimentError> {
        let core = self.core;
        let threads = machine::threads_named(&self.thread_name(contestant));
        let mut cores = machine::core_times();
        // What keeps a processor awake is rest all the same.
        if let Some((core, awake)) = cores.get_mut(core).zip(self.awake.as_ref()) {
            core.idle_ns += awake.cpu_ns();
        }
        Ok(Snapshot {
            at_ns: monotonic_ns(),
            counts: sender.counts(),
            cpu_ns: machine::cpu_ns_of_all(&threads),
            cores,
            waited_ns: threads
                .iter()
                .map(|&thread| machine::waited_ns(thread))
                .sum(),
            arrivals: match receiver {
                None => Histogram::from(&self.sink.lateness()?),
                Some(receiver) => receiver.lateness(),
            },
        })
    }

    /// Does something on the sender's processor, by a thread that then ends.
    fn on_core<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let core = self.core;
        let measured = thread::spawn(move || pin_to(core).ok().map(|()| work()));
        measured.join().ok().flatten()
    }
}

/// Everything that counts up, at one moment.
struct Snapshot {
    at_ns: u64,
    cpu_ns: u64,
    waited_ns: u64,
    counts: Counts,
    cores: Vec<CoreTimes>,
    arrivals: Histogram,
}

impl Snapshot {
    /// What happened since `before`.
    fn since(&self, before: &Self, core: usize) -> Interval {
        let wall_ns = self.at_ns - before.at_ns;
        let (mut core_busy_ns, mut other_cores_busy_ns, mut stolen_ns) = (0, 0, 0);
        for (number, (now, then)) in self.cores.iter().zip(&before.cores).enumerate() {
            let stolen = now.stolen_ns.saturating_sub(then.stolen_ns);
            let idle = now.idle_ns.saturating_sub(then.idle_ns);
            let busy = wall_ns.saturating_sub(idle + stolen);
            stolen_ns += stolen;
            if number == core {
                core_busy_ns = busy;
            } else {
                other_cores_busy_ns += busy;
            }
        }
        Interval {
            wall_ns,
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            counted: None,
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            core_busy_ns,
            other_cores_busy_ns,
            stolen_ns,
            packets_due: 0,
            counts: self.counts.since(&before.counts),
            arrival_lateness: self.arrivals.since(&before.arrivals),
        }
    }
}

impl Run {
    /// Why it proves nothing: everything that is not as it must be, each in words. `counts` are
    /// those of the whole run, and `burst_packets` are of a burst of all sessions.
    fn faults(&self, counts: &Counts, burst_packets: u64) -> Vec<String> {
        let mut faults = self.work_faults(counts, burst_packets);
        faults.extend(self.mechanism_faults(counts));
        faults
    }

    /// Whether it did the work: all of it, no more, and on time.
    fn work_faults(&self, counts: &Counts, burst_packets: u64) -> Vec<String> {
        let (arrived, interval) = (&self.arrived, &self.interval);
        let (missing, again) = (arrived.sequence_missing, arrived.sequence_repeated);
        let pace = ratio(interval.counts.packets, interval.packets_due.max(1));
        let off = interval.counts.packets.abs_diff(interval.packets_due);
        let off = off.saturating_sub(burst_packets);
        let bytes = counts.bytes + counts.packets * self.contestant.tag_bytes();
        what_is! {
            arrived.packets != counts.packets
                => "{} packets were sent, {} arrived", counts.packets, arrived.packets;
            arrived.bytes != bytes
                => "{bytes} bytes were sent, {} arrived", arrived.bytes;
            missing + again > 0 => "{missing} sequence numbers were missing, {again} came again";
            counts.packets_refused > 0 => "the kernel refused {} packets", counts.packets_refused;
            counts.lags > 0 => "{} times a session was too late to catch up", counts.lags;
            off * 1000 > interval.packets_due * PACE_TOLERANCE_PERMILLE
                => "it did not keep pace: it sent {:.0} % of what was due", pace * 100.0;
        }
    }

    /// Whether it did it the way it is said to.
    fn mechanism_faults(&self, counts: &Counts) -> Vec<String> {
        let (trains, singles) = (counts.trains, counts.trains_single);
        let (copied, not) = (counts.trains_copied, counts.trains_zero_copy);
        let is_engine = self.contestant.is_zero_copy();
        let (arrived, mode) = (self.arrived.trains, self.mode.name());
        if self.contestant.is_interleaved() {
            // What is sent to a socket of the same machine is copied when it arrives.
            return what_is! {
                self.interval.cpu_ns == 0 => "the sending thread was not found";
            };
        }
        let is_whole = match (self.mode, self.contestant.segments()) {
            (Mode::Uso, true) if is_engine => arrived == trains - singles,
            // Of a low rate a burst may be one packet.
            (Mode::Uso, true) => arrived > 0 || counts.packets <= trains,
            _ => arrived == 0,
        };
        what_is! {
            is_engine && copied > 0 => "the kernel copied {copied} trains";
            is_engine && not + singles != trains
                => "of {trains} trains {singles} were single packets, and {not} were reported as \
                    sent without a copy";
            !is_whole => "{arrived} trains arrived whole, in mode {mode}";
            self.interval.cpu_ns == 0 => "the sending thread was not found";
        }
    }
}

impl From<sink::Counts> for Arrived {
    fn from(counts: sink::Counts) -> Self {
        Self {
            packets: counts.packets,
            bytes: counts.bytes,
            skbs: counts.skbs,
            trains: counts.trains,
            train_packets_max: counts.train_packets_max,
            sequence_missing: counts.sequence_missing,
            sequence_repeated: counts.sequence_repeated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::record::tests::{counts, run};
    use onrush_sys::path::PathName;

    const GSO: Contestant = Contestant::Engine(PathName::SendmmsgGso);

    #[test]
    fn a_run_that_did_what_it_should_is_not_void() {
        for mode in [Mode::Uso, Mode::SoftwareGso] {
            for contestant in [Contestant::ENGINE, GSO, Contestant::ReadSendLoop] {
                let run = run(mode, contestant, 0, 1);
                let faults = run.faults(&run.interval.counts, 0);
                assert_eq!(faults, [""; 0], "{contestant}");
            }
        }
    }

    #[test]
    fn what_is_encrypted_arrives_with_its_tags() {
        for (contestant, tag_bytes) in [
            (Contestant::Srtp, 10),
            (Contestant::SrtpGcm, 16),
            (Contestant::SrtpShared, 10),
        ] {
            let mut run = run(Mode::Uso, contestant, 0, 1);
            run.arrived.bytes += 1000 * tag_bytes;
            assert_eq!(run.faults(&run.interval.counts, 0), [""; 0], "{contestant}");
            run.arrived.bytes -= 1;
            let faults = run.faults(&run.interval.counts, 0);
            let sent = format!("{} bytes were sent", 1_328_000 + 1000 * tag_bytes);
            assert!(
                faults.len() == 1 && faults[0].starts_with(&sent),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn each_thing_that_is_not_as_it_must_be_makes_a_run_void() {
        type Change = fn(&mut Run, &mut Counts);
        let changes: [(&str, Change); 14] = [
            ("1000 packets were sent, 999 arrived", |r, _| {
                r.arrived.packets -= 1
            }),
            ("1000 packets were sent, 1001 arrived", |r, _| {
                r.arrived.packets += 1
            }),
            ("1328000 bytes were sent, 1327999 arrived", |r, _| {
                r.arrived.bytes -= 1
            }),
            ("1 sequence numbers were missing", |r, _| {
                r.arrived.sequence_missing = 1
            }),
            ("1 came again", |r, _| r.arrived.sequence_repeated = 1),
            ("refused 1 packets", |_, c| c.packets_refused = 1),
            ("1 times a session was too late", |_, c| c.lags = 1),
            ("it sent 97 % of what was due", |r, _| {
                r.interval.counts.packets = 970
            }),
            ("it sent 103 % of what was due", |r, _| {
                r.interval.counts.packets = 1030
            }),
            ("copied 1 trains", |_, c| c.trains_copied = 1),
            ("and 124 were reported as sent without", |_, c| {
                c.trains_zero_copy -= 1
            }),
            ("0 trains arrived whole, in mode uso", |r, _| {
                r.arrived.trains = 0
            }),
            ("125 trains arrived whole, in mode software-gso", |r, _| {
                r.mode = Mode::SoftwareGso
            }),
            ("thread was not found", |r, _| r.interval.cpu_ns = 0),
        ];
        for (expected, change) in changes {
            let mut run = run(Mode::Uso, Contestant::ENGINE, 0, 1);
            let mut counts = counts(125, 125);
            change(&mut run, &mut counts);
            let faults = run.faults(&counts, 0);
            assert!(
                faults.len() == 1 && faults[0].contains(expected),
                "{expected}: {faults:?}"
            );
        }
        // So many sends as packets have no train among them, and else they have some.
        for (trains, is_fault) in [(1000, false), (999, true)] {
            let mut few = run(Mode::Uso, GSO, 0, 1);
            few.arrived.trains = 0;
            let mut counts = few.interval.counts.clone();
            counts.trains = trains;
            assert_eq!(!few.faults(&counts, 0).is_empty(), is_fault);
        }
        // Single packets are copied, and are no trains.
        let mut some_single = run(Mode::Uso, Contestant::ENGINE, 0, 1);
        some_single.arrived.trains = 120;
        let mut single = counts(125, 120);
        (single.trains_copied, single.trains_single) = (0, 5);
        assert_eq!(some_single.faults(&single, 0), [""; 0]);
        // A path that copies may; a train where none was sent is as wrong as none where there
        // should be.
        let mut plain = run(Mode::Uso, Contestant::ReadSendLoop, 0, 1);
        plain.arrived.trains = 1;
        assert_eq!(plain.faults(&plain.interval.counts, 0).len(), 1);
    }

    #[test]
    fn a_burst_of_each_session_more_or_less_is_no_haste() {
        let mut run = run(Mode::Uso, Contestant::ENGINE, 0, 1);
        let whole = run.interval.counts.clone();
        for (packets, burst_packets, faults) in [
            (1020, 0, 0),
            (1021, 0, 1),
            (1058, 38, 0),
            (1059, 38, 1),
            (942, 38, 0),
            (941, 38, 1),
        ] {
            run.interval.counts.packets = packets;
            let found = run.faults(&whole, burst_packets);
            assert_eq!(found.len(), faults, "{packets}: {found:?}");
        }
    }

    #[test]
    fn what_is_not_idle_and_not_stolen_is_busy() {
        let at = |at_ns, times: [(u64, u64); 2]| Snapshot {
            at_ns,
            cpu_ns: 0,
            waited_ns: 0,
            counts: Counts::default(),
            cores: times
                .map(|(idle_ns, stolen_ns)| CoreTimes { idle_ns, stolen_ns })
                .to_vec(),
            arrivals: Histogram::default(),
        };
        let (before, after) = (at(10, [(5, 0), (7, 1)]), at(110, [(95, 0), (47, 21)]));
        let interval = after.since(&before, 1);
        assert_eq!((interval.wall_ns, interval.core_busy_ns), (100, 40));
        assert_eq!((interval.other_cores_busy_ns, interval.stolen_ns), (10, 20));
    }
}
