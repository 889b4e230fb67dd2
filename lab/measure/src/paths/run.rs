//! One run after the other: the file, the testbed, what is counted at both ends.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_paths::{Mover, Name, Payload, Plan, Source, Touch};
use onrush_sys::clock::monotonic_ns;
use onrush_sys::thread::{Usage, pin_to, usage};
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{Options, RCV_DEVICE, RCV_IPV4, SND_DEVICE, SND_IPV4, Testbed};
use onrush_wire::media::RtpOrigin;
use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T};

use super::verify::Verify;
use super::{PathsRecord, Run, Sample, Settings, Transport};
use crate::counters::{Counted, Counting};
use crate::error::{ExperimentError, what_is};
use crate::experiment::Keep;
use crate::machine::{self, Awake, SenderClock};
use crate::page_cache::make_cold;
use crate::random::film;
use crate::setup::{in_turn, system, until_valid};
use crate::stats::{ratio, to_f64};
use crate::window;

const PORT: u16 = 5004;

/// Bytes that go to a TCP receiver before it begins to read, and how long it waits at the most.
const HELD_BYTES_MAX: u64 = 128 << 20;
const HELD_FOR_MAX: Duration = Duration::from_secs(10);

/// Socket buffers between two of which the sink looks into the payload: looking costs the sender.
const LOOK_EVERY: u16 = 256;

pub(super) struct Bench<'a> {
    settings: &'a Settings,
    testbed: Testbed,
    sink: Sink,
    file: File,
    /// Where everybody but the sender runs.
    rest: usize,
    /// Where the sender is.
    core: usize,
    /// The plans of the packet size at hand: without headers, and with.
    sources: Option<(u32, [Arc<Source>; 2])>,
}

/// One file to be sent once.
#[derive(Clone, Copy, Debug)]
struct Turn {
    repeat: u32,
    transport: Transport,
    packet_bytes: u32,
    name: Name,
    touch: Touch,
    is_cold: bool,
}

/// A TCP receiver: the bytes it takes. It does not read before what is here goes, when all has been
/// sent, if its window holds that; what a packet costs its sender would else be, for a good part,
/// what the lines of memory cost that go to the reader's processor, and waking it. Where it has to
/// read, both processors are kept awake.
struct Receiving {
    thread: JoinHandle<std::io::Result<u64>>,
    begin: Sender<()>,
    _awake: Vec<Awake>,
}

/// What arrived: packets (over TCP none are told apart) and bytes.
type Arrived = (u64, u64);

/// What a device needs to send memory in pieces: it sums and gathers.
const CARRIES_PIECES: [&str; 4] = [
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-scatter-gather",
];

impl<'a> Bench<'a> {
    pub(super) fn set_up(
        settings: &'a Settings,
        (core, rest): (usize, usize),
    ) -> Result<Self, ExperimentError> {
        let testbed = Testbed::new(Options::default())?;
        let sink = Sink::attach_seldom_looking(&testbed.rcv, RCV_DEVICE, PORT..=PORT, LOOK_EVERY)?;
        if settings.planted_copies {
            let planted = testbed.switch(&CARRIES_PIECES, false);
            planted.map_err(|error| ExperimentError::Settings(error.to_string()))?;
        }
        let file = film(settings.file_bytes).map_err(system("write the file (in /var/tmp)"))?;
        if settings.cold {
            let cold = make_cold(&file, whole(settings.file_bytes));
            cold.map_err(system("have the page cache forget the file (in /var/tmp)"))?;
        }
        Ok(Self {
            settings,
            testbed,
            sink,
            file,
            rest,
            core,
            sources: None,
        })
    }

    #[allow(clippy::unused_self, reason = "it describes this testbed")]
    pub(super) fn network(&self) -> String {
        format!(
            "{SND_DEVICE} of a veth pair, MTU 1500; UDP is counted and dropped at tc ingress of \
             its far end"
        )
    }

    pub(super) fn run_all(
        &mut self,
        record: &mut PathsRecord,
        mut progress: impl FnMut(f64, &str),
        keep: Keep<'_, Settings, Sample>,
    ) -> Result<(), ExperimentError> {
        record.runs.extend(copies_and_crossings());
        let names = self.settings.paths.iter();
        let paths: Vec<Name> = names.filter_map(|name| name.parse().ok()).collect();
        let repeats = 0..self.settings.repeats;
        let schedule: Vec<_> = repeats
            .flat_map(|repeat| self.of_repeat(repeat, &paths))
            .collect();
        let mut mode = None;
        for (done, turn) in schedule.iter().enumerate() {
            let of_turn = turn.transport.mode();
            if mode != Some(of_turn) {
                self.testbed.set_mode(of_turn)?;
                mode = Some(of_turn);
            }
            let next = turn.told();
            progress(to_f64(done) / to_f64(schedule.len()), &next);
            let is_valid = |sample: &Sample| match sample {
                Sample::Path(run) => run.void.is_empty(),
                _ => true,
            };
            until_valid(&mut record.runs, is_valid, |attempt| {
                let mut run = self.run(turn)?;
                run.attempt = attempt;
                Ok::<_, ExperimentError>(Sample::Path(run))
            })?;
            keep(record);
        }
        Ok(())
    }

    /// One repeat of everything.
    fn of_repeat(&self, repeat: u32, paths: &[Name]) -> Vec<Turn> {
        let mut all = Vec::new();
        let states = if self.settings.cold { 2 } else { 1 };
        for &transport in &self.settings.transports {
            for &packet_bytes in &self.settings.packet_bytes {
                for name in in_turn(paths, repeat).filter(|name| transport.takes(*name)) {
                    let touches = self.settings.touches().into_iter();
                    let able = touches.filter(|touch| name.cannot_touch(*touch).is_none());
                    all.extend(able.flat_map(|touch| {
                        [false, true]
                            .into_iter()
                            .take(states)
                            .map(move |is_cold| Turn {
                                repeat,
                                transport,
                                packet_bytes,
                                name,
                                touch,
                                is_cold,
                            })
                    }));
                }
            }
        }
        all
    }

    fn run(&mut self, turn: &Turn) -> Result<Run, ExperimentError> {
        let Turn { name, touch, .. } = *turn;
        let mut run = turn.run();
        let source = self.source(turn.packet_bytes, name)?;
        let packets = source.plan.packets();
        if self.settings.touches() != [Touch::None] {
            match self.verify(turn, &source) {
                Ok(verified) => run.verified_packets = verified,
                Err(why) => run.void.push(why),
            }
        }
        let image_bytes = packets * source.plan.packet_bytes_max();
        let mut mover = Mover::open_touching(name, &source, image_bytes, touch)?;
        if turn.is_cold {
            // Written and synced when it was made, so that nothing keeps it.
            if let Err(refused) = make_cold(&source.file, whole(self.settings.file_bytes)) {
                run.void.push(format!("not sent: {refused}"));
                return Ok(run);
            }
        }
        let bytes = source.plan.bytes(0..packets);
        let (socket, receiving) = self.connect(turn.transport, bytes)?;
        let begin_ns = onrush_sys::clock::thread_cpu_ns();
        if !turn.is_cold {
            mover.prepare(0..packets).map_err(system("read the file"))?;
        }
        let prepare_ns = onrush_sys::clock::thread_cpu_ns() - begin_ns;
        if !turn.is_cold && name.facts().is_image && !touch.changes() {
            run.prepare_ns = prepare_ns;
        }
        let counters = mover.counters();
        let clock = self.clock(name);
        let this_thread = 0;
        let counting = Counting::of_threads(self.settings.counters, &[this_thread]);
        let before = Moment::before(&clock);
        let begun = counting.now();
        let sent = mover.send(&socket, 0..packets);
        run.counted = Counted::between(begun, counting.now());
        let after = Moment::after(&clock);
        drop(socket);
        (run.arrived_packets, run.arrived_bytes) = self.arrived(receiving)?;
        run.void.extend(sent.err().map(|error| error.to_string()));
        run.took(&before, &after);
        let did = mover.counters().since(&counters);
        run.packets = did.packets;
        run.sends = did.sends;
        run.crossings = did.crossings - did.crossings_prepare;
        run.sends_zero_copy = did.sends_zero_copy;
        run.sends_copied = did.sends_copied;
        let faults = run.faults(name, packets as u64, bytes, did.sends_single);
        run.void.extend(faults);
        if name.facts().payload != Payload::Copied && !self.device_gathers()? {
            run.void
                .push("the device cannot send without copying".to_owned());
        }
        Ok(run)
    }

    fn verify(&self, turn: &Turn, source: &Arc<Source>) -> Result<u64, String> {
        let verify = Verify {
            testbed: &self.testbed,
            source,
            name: turn.name,
            touch: turn.touch,
            is_planted: self.settings.planted_byte,
        };
        verify.over(turn.transport)
    }

    fn clock(&self, name: Name) -> SenderClock {
        match name {
            Name::UringSqpoll => SenderClock::of_sleeper(),
            _ => SenderClock::bound_to(self.core),
        }
    }

    fn source(&mut self, packet_bytes: u32, name: Name) -> Result<Arc<Source>, ExperimentError> {
        if self
            .sources
            .as_ref()
            .is_none_or(|(bytes, _)| *bytes != packet_bytes)
        {
            let file = || self.file.try_clone().map_err(system("open the file again"));
            let file_bytes = self.settings.file_bytes;
            let header_bytes = u32::try_from(HEADER_BYTES).expect("twelve");
            let plain = Plan::regular(file_bytes, packet_bytes)?;
            let rtp = with_rtp(Plan::regular(file_bytes, packet_bytes - header_bytes)?)?;
            let of = |file, plan| Arc::new(Source { file, plan });
            self.sources = Some((packet_bytes, [of(file()?, plain), of(file()?, rtp)]));
        }
        let (_, sources) = self.sources.as_ref().expect("made above");
        Ok(Arc::clone(&sources[usize::from(name.takes_headers(true))]))
    }

    fn connect(
        &mut self,
        transport: Transport,
        bytes: u64,
    ) -> Result<(OwnedFd, Option<Receiving>), ExperimentError> {
        self.sink.reset()?;
        let system = system("open a socket");
        if transport != Transport::Tcp {
            let socket = self.testbed.snd.run(|| {
                let socket = UdpSocket::bind((SND_IPV4, 0))?;
                socket.connect((RCV_IPV4, PORT)).map(|()| socket)
            });
            return Ok((socket.map_err(system)?.into(), None));
        }
        let listener = self.testbed.rcv.run(|| TcpListener::bind((RCV_IPV4, 0)));
        let listener = listener.map_err(&system)?;
        window::widen(&listener).map_err(&system)?;
        let address = listener.local_addr().map_err(&system)?;
        let rest = self.rest;
        let is_held = bytes <= HELD_BYTES_MAX;
        let (begin, waits) = channel();
        let awake = [rest, self.core].map(Awake::keep).into_iter();
        let awake = awake.collect::<Result<_, _>>().map_err(&system)?;
        let thread = thread::spawn(move || {
            pin_to(rest)?;
            let stream = listener.accept()?.0;
            if is_held {
                // Nothing is ever sent: it ends when the other end goes, or with the time.
                waits.recv_timeout(HELD_FOR_MAX).ok();
            }
            drain(stream)
        });
        let stream = self.testbed.snd.run(|| TcpStream::connect(address));
        let receiving = Receiving {
            thread,
            begin,
            _awake: awake,
        };
        Ok((stream.map_err(system)?.into(), Some(receiving)))
    }

    fn arrived(&self, receiving: Option<Receiving>) -> Result<Arrived, ExperimentError> {
        match receiving {
            None => {
                let totals = self.sink.totals()?;
                Ok((totals.packets, totals.bytes))
            }
            Some(Receiving {
                thread,
                begin,
                _awake,
            }) => {
                drop(begin);
                let drained = thread.join().expect("it does not panic");
                Ok((0, drained.map_err(system("receive"))?))
            }
        }
    }

    /// Whether the sending device takes packets in pieces and sums them, as it must for anything to
    /// go by reference.
    fn device_gathers(&self) -> Result<bool, ExperimentError> {
        let interfaces = self.testbed.snd.run(onrush_sys::probe::interfaces);
        let asked = system("ask the device what it does");
        let interfaces = interfaces.map_err(|refused| asked(refused.source))?;
        let device = interfaces.iter().find(|device| device.name == SND_DEVICE);
        Ok(device.is_some_and(|d| d.scatter_gather == Some(true) && d.checksum == Some(true)))
    }
}

impl Turn {
    /// What is next, for people.
    fn told(&self) -> String {
        let Self {
            transport,
            packet_bytes,
            name,
            touch,
            ..
        } = self;
        match touch {
            Touch::None => format!("{transport} {packet_bytes} B {name}"),
            touch => format!("{transport} {packet_bytes} B {name}, {touch}"),
        }
    }

    /// The run that it will be; nothing was done yet.
    fn run(&self) -> Run {
        Run {
            transport: self.transport,
            path: self.name.as_str().to_owned(),
            packet_bytes: self.packet_bytes,
            touch: self.touch.name().to_owned(),
            is_cold: self.is_cold,
            repeat: self.repeat,
            attempt: 0,
            void: Vec::new(),
            sender_ns: 0,
            softirq_ns: 0,
            counted: None,
            user_ns: 0,
            system_ns: 0,
            helper_ns: 0,
            prepare_ns: 0,
            wall_ns: 0,
            machine_busy_ns: 0,
            packets: 0,
            sends: 0,
            crossings: 0,
            sends_zero_copy: 0,
            sends_copied: 0,
            arrived_packets: 0,
            arrived_bytes: 0,
            verified_packets: 0,
        }
    }
}

impl Run {
    /// What passed between two moments.
    fn took(&mut self, before: &Moment, after: &Moment) {
        self.sender_ns = after.sender_ns - before.sender_ns;
        self.softirq_ns = after.softirq_ns - before.softirq_ns;
        self.user_ns = after.user_ns - before.user_ns;
        self.system_ns = after.system_ns - before.system_ns;
        self.helper_ns = after.helper_ns.saturating_sub(before.helper_ns);
        self.wall_ns = after.at_ns - before.at_ns;
        self.machine_busy_ns = after.busy_since(before);
    }

    /// What is not as it must be, in words.
    fn faults(&self, name: Name, packets: u64, bytes: u64, singles: u64) -> Vec<String> {
        let is_udp = self.transport != Transport::Tcp;
        let (sends, copied, not) = (self.sends, self.sends_copied, self.sends_zero_copy);
        let (sent, arrived) = (self.packets, self.arrived_packets);
        let is_reported = name.facts().payload == Payload::Reported;
        // What is fragmented the kernel copies, as docs/paths.md says; nothing else.
        let is_whole = self.packet_bytes <= super::MTU_PACKET_BYTES;
        what_is! {
            sent != packets || (is_udp && arrived != packets)
                => "{packets} packets, {sent} sent, {arrived} arrived";
            self.arrived_bytes != bytes
                => "{bytes} bytes were sent, {} arrived", self.arrived_bytes;
            is_reported && is_whole && copied > 0 => "the kernel copied {copied} of {sends} sends";
            is_reported && not + copied + singles != sends
                => "of {sends} sends {not} were reported uncopied, {singles} were copied on \
                    purpose";
        }
    }
}

struct Moment {
    at_ns: u64,
    sender_ns: u64,
    softirq_ns: u64,
    user_ns: u64,
    system_ns: u64,
    helper_ns: u64,
    /// Of those who keep processors awake.
    awake_ns: u64,
    cores: Vec<machine::CoreTimes>,
}

impl Moment {
    fn now(clock: &SenderClock) -> Self {
        let helpers = machine::threads_named("iou-");
        let Usage { user_ns, system_ns } = usage();
        Self {
            at_ns: monotonic_ns(),
            sender_ns: onrush_sys::clock::thread_cpu_ns(),
            softirq_ns: clock.softirq_ns(),
            user_ns,
            system_ns,
            helper_ns: machine::cpu_ns_of_all(&helpers),
            awake_ns: machine::awake_ns(),
            cores: machine::core_times(),
        }
    }

    /// The moment now, at which reading all that costs the sender least: last what `send` will be
    /// measured by.
    fn before(clock: &SenderClock) -> Self {
        let now = Self::now(clock);
        Self {
            sender_ns: onrush_sys::clock::thread_cpu_ns(),
            at_ns: monotonic_ns(),
            ..now
        }
    }

    /// The same behind it: first what `send` is measured by.
    fn after(clock: &SenderClock) -> Self {
        let sender_ns = onrush_sys::clock::thread_cpu_ns();
        let at_ns = monotonic_ns();
        Self {
            sender_ns,
            at_ns,
            ..Self::now(clock)
        }
    }

    fn busy_since(&self, before: &Self) -> u64 {
        let wall_ns = self.at_ns - before.at_ns;
        let cores = self.cores.iter().zip(&before.cores);
        let busy_ns: u64 = cores
            .map(|(now, then)| {
                let idle = now.idle_ns.saturating_sub(then.idle_ns);
                let stolen = now.stolen_ns.saturating_sub(then.stolen_ns);
                wall_ns.saturating_sub(idle + stolen)
            })
            .sum();
        busy_ns.saturating_sub(self.awake_ns.saturating_sub(before.awake_ns))
    }
}

/// All of a file, which is at most [`super::FILE_BYTES_MAX`].
fn whole(file_bytes: u64) -> usize {
    usize::try_from(file_bytes).expect("addresses have 64 bits")
}

fn with_rtp(plan: Plan) -> Result<Plan, ExperimentError> {
    let origin = RtpOrigin {
        sequence: 0,
        timestamp: 0,
        ssrc: 0x6f6e_7275,
    };
    let headers = (0..plan.packets() as u64).flat_map(|number| {
        let header = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence: origin.sequence_of(number),
            timestamp: origin.timestamp_of(number * 1000),
            ssrc: origin.ssrc,
        };
        header.to_bytes()
    });
    let headers = headers.collect();
    Ok(plan.with_headers(HEADER_BYTES, headers)?)
}

fn drain(mut stream: TcpStream) -> std::io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(total),
            bytes => total += bytes as u64,
        }
    }
}

/// The paper's figure 2 and the call that does nothing.
fn copies_and_crossings() -> Vec<Sample> {
    let from = vec![7u8; 16 << 20];
    let mut to = vec![0u8; 16 << 20];
    let mut samples = Vec::new();
    for shift in 4..=24 {
        let bytes = 1usize << shift;
        let rounds = ((64 << 20) / bytes).clamp(4, 200_000);
        let begin = Instant::now();
        for _ in 0..rounds {
            black_box(&mut to[..bytes]).copy_from_slice(black_box(&from[..bytes]));
        }
        samples.push(Sample::Copy {
            bytes: 1 << shift,
            ns: nanos(begin) / to_f64(rounds),
        });
    }
    let rounds = 200_000;
    let begin = Instant::now();
    for _ in 0..rounds {
        black_box(rustix::process::getppid());
    }
    samples.push(Sample::Crossing {
        ns: nanos(begin) / to_f64(rounds),
    });
    samples
}

fn nanos(begin: Instant) -> f64 {
    ratio(
        u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX),
        1,
    )
}
