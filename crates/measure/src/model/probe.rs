//! Probes: what the terms of the model cost on this machine.
//!
//! Each does one small thing often, on one pinned processor that is kept awake, and all take turns. Those that
//! send do so in a testbed whose far end counts every packet; a round that lost one is void. A term is a probe
//! less what other terms explain of it, or the slope between two probes.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;

use onrush_sys::clock::thread_cpu_ns;
use onrush_sys::group::{self, Group, Way};
use onrush_sys::path::catalogue::Plan;
use onrush_sys::primitive::call;
use onrush_sys::primitive::latency::{Chain, LOADS, Order};
use onrush_sys::primitive::map::{Mapped, Memory, Pages, memory_file};
use onrush_sys::primitive::packet::{RingSend, RingSends, Sends};
use onrush_sys::thread::{allowed_cores, pin_to};
use onrush_testkit::sink::{Sink, SinkError};
use onrush_testkit::testbed::{
    Mode, Options, RCV_DEVICE, RCV_IPV4, SND_IPV4, Testbed, TestbedError,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::stream::Stream;
use super::{ModelRecord, NAME, Term, check};
use crate::experiment::{Environment, Record};
use crate::machine::Awake;
use crate::stats::ratio;

/// The port of the far end.
const PORT: u16 = 20_000;
/// A file that no cache of a processor holds.
const FILE_BYTES: u64 = 256 << 20;
/// A packet without weight, and those of trains.
const TINY: usize = 16;
const SMALL: usize = 512;
const WIDE: usize = 1400;
const SMALL_STRIDE: u16 = 512;
const WIDE_STRIDE: u16 = 1024;
const TINY_STRIDE: u16 = 16;
/// Packets of a short train and of a long one.
const SHORT: usize = 2;
const LONG: usize = 48;
/// Pages of a long splice, or of a long pinned send.
const PAGES: usize = 12;
const PAGE: usize = 4096;
/// Entries of a ring's batch.
const ENTRIES: usize = 256;
/// Members of a small group and of a larger one.
const MEMBERS_SHORT: u16 = 16;
const MEMBERS_LONG: u16 = 64;
/// What a ring has registered: one huge page.
const AREA_BYTES: usize = 2 << 20;
/// Memory that no cache holds, and what comes from it at once.
const CHAIN_BYTES: usize = 256 << 20;
const LINE_BYTES: usize = 64;

/// What is done often. The numbers are of packets, pieces, pages and bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is told by `Probes::carry_out`")]
pub enum Probe {
    Getppid,
    SendTiny,
    SendWide,
    ReadTiny,
    ReadWide,
    Gather1,
    Gather17,
    Messages,
    TrainShort,
    TrainLong,
    TrainWide,
    TrainCold,
    Cork,
    Append1,
    Append9,
    DiscardTiny,
    DiscardPages,
    DiscardMemory,
    Lend,
    LendPages,
    LendOut,
    LendOutPages,
    ZeroCopyTiny,
    ZeroCopyPieces,
    ZeroCopyPages,
    Faults,
    Miss,
    Plan,
    Nops1,
    NopsMany,
    NopsLinked,
    RingCopied,
    RingShort,
    RingLong,
    RingPinned,
    GroupShort,
    GroupLong,
    Stream,
}

/// How the probes are carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// How often each has its turn in each mode.
    pub rounds: u32,
    /// How long a turn is, about.
    pub turn_ns: u64,
    /// Who cuts trains.
    pub modes: Vec<Mode>,
    /// Whether the paths have their turns too, to check the model.
    pub check: bool,
    /// Bytes of the packets that paths send, header included.
    pub packet_bytes: u32,
}

/// What had its turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// A probe.
    Probe(Probe),
    /// A path of the catalogue, by name.
    Path(String),
}

/// One turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Who cut trains.
    pub mode: Mode,
    /// What had its turn.
    #[serde(flatten)]
    pub of: Of,
    /// Which turn.
    pub round: u32,
    /// How often it was done; how many packets a path sent.
    pub times: u64,
    /// Processor time of one, in ns.
    pub cost_ns: f64,
    /// Why it counts for nothing.
    pub void: Option<String>,
}

/// Why there are no costs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No network to send on.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// No counter at its end.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The system refused something else.
    #[error("can not {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

struct Probes<'m> {
    sends: Sends,
    ring: RingSends,
    file: File,
    /// Where in the file the next probe goes on: what was just read is in the processor's cache.
    at: u64,
    bytes: Vec<u8>,
    stream: Stream,
    /// A file in memory.
    memory_file: File,
    /// What no cache holds, in huge pages, and where the next send of it begins.
    cold: Memory,
    cold_at: usize,
    chain: Chain<'m>,
    plan: Plan,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rounds: 7,
            turn_ns: 4_000_000,
            modes: vec![Mode::Uso, Mode::SoftwareGso],
            check: false,
            packet_bytes: 1328,
        }
    }
}

/// Probes all terms; about half a second a round and mode. The thread stays pinned.
///
/// # Errors
///
/// If there is no testbed (root makes one), or a probe is not possible here.
pub fn carry_out(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64),
) -> Result<ModelRecord, ModelError> {
    let mut record = Record::new(NAME, Environment::here(version, command), settings.clone());
    let cores = allowed_cores();
    let core = cores.last().copied().unwrap_or(0);
    let rest = cores.first().copied().unwrap_or(0);
    let mut testbed = Testbed::new(Options::default())?;
    let mut sink = Sink::attach_seldom_looking(
        &testbed.rcv,
        RCV_DEVICE,
        PORT..=PORT + (MEMBERS_LONG - 1),
        64,
    )?;
    let _awake = Awake::keep(core).map_err(system("keep a processor awake"))?;
    pin_to(core).map_err(system("bind to a processor"))?;
    let memory = Memory::map(CHAIN_BYTES, Pages::Huge);
    let mut memory = memory.map_err(system("map memory"))?;
    let mut probes = Probes::new(&testbed, &mut memory, rest)?;
    let rounds = f64::from(settings.rounds) * crate::stats::to_f64(settings.modes.len());
    let mut done = 0.0;
    for round in 0..settings.rounds {
        for &mode in &settings.modes {
            testbed.set_mode(mode)?;
            for probe in Probe::ALL {
                let (times, cost_ns, void) = probes.turn(probe, settings.turn_ns, &mut sink)?;
                record.runs.push(Run {
                    mode,
                    of: Of::Probe(probe),
                    round,
                    times,
                    cost_ns,
                    void,
                });
            }
            if settings.check {
                let from = (&probes.file, &probes.stream);
                let which = (round, settings.packet_bytes);
                check::round(&testbed, &mut sink, from, which, &mut record.runs)?;
            }
            done += 1.0;
            progress(done / rounds);
        }
    }
    Ok(record)
}

/// What one of `term` costs, from what the probes took. May be a little below zero, by noise.
pub(super) fn cost(term: Term, at: &impl Fn(Probe) -> f64) -> f64 {
    let of = |term| cost(term, at);
    let number = crate::stats::to_f64;
    let slope = |much: Probe, little: Probe, by: usize| (at(much) - at(little)) / number(by);
    match term {
        Term::Crossing => at(Probe::Getppid),
        Term::ReadCall => at(Probe::ReadTiny) - of(Term::Crossing),
        Term::ColdByte => slope(Probe::ReadWide, Probe::ReadTiny, WIDE - TINY),
        Term::HotByte => slope(Probe::SendWide, Probe::SendTiny, WIDE - TINY),
        Term::Packet => at(Probe::SendTiny) - of(Term::Crossing),
        Term::Message => (at(Probe::Messages) - of(Term::Crossing)) / number(LONG),
        Term::Train => {
            at(Probe::TrainShort) - of(Term::Crossing) - number(SHORT) * of(Term::Segment)
        }
        Term::Segment => {
            let bytes = number(TINY) * of(Term::HotByte);
            slope(Probe::TrainLong, Probe::TrainShort, LONG - SHORT) - bytes
        }
        Term::ReferredSegment => slope(Probe::RingLong, Probe::RingShort, (LONG - SHORT) * ENTRIES),
        Term::TrainByte => {
            let bytes = LONG * (usize::from(WIDE_STRIDE) - TINY);
            slope(Probe::TrainWide, Probe::TrainLong, bytes)
        }
        Term::ColdTrainByte => {
            let bytes = LONG * (usize::from(WIDE_STRIDE) - TINY);
            slope(Probe::TrainCold, Probe::TrainLong, bytes)
        }
        Term::Miss => at(Probe::Miss),
        Term::Planned => at(Probe::Plan),
        Term::Piece => slope(Probe::Gather17, Probe::Gather1, 16),
        Term::Fault => at(Probe::Faults),
        Term::Set => at(Probe::Cork) / 2.0 - of(Term::Crossing),
        Term::Append => slope(Probe::Append9, Probe::Append1, 8) - of(Term::Crossing),
        Term::HeldPacket => {
            let calls = at(Probe::Cork) + of(Term::Crossing) + of(Term::Append);
            at(Probe::Append1) - calls
        }
        Term::SpliceCall => at(Probe::DiscardTiny) - of(Term::Crossing) - of(Term::SplicePage),
        Term::SplicePage => slope(Probe::DiscardPages, Probe::DiscardTiny, PAGES - 1),
        Term::MemoryPage => {
            let pages = at(Probe::DiscardMemory) - of(Term::Crossing) - of(Term::SpliceCall);
            pages / number(PAGES)
        }
        Term::Lend => at(Probe::Lend) - 2.0 * of(Term::Crossing),
        // A packet has a crossing, a splice too.
        Term::SpliceOut => at(Probe::LendOut) - at(Probe::Lend) - of(Term::Packet),
        Term::SpliceOutPage => {
            let train = of(Term::Train) + number(LONG) * of(Term::ReferredSegment);
            let pages = at(Probe::LendOutPages) - at(Probe::LendPages) - train;
            (pages - of(Term::SpliceOut)) / number(PAGES - 1)
        }
        Term::StreamByte => {
            let copied = at(Probe::Stream) - of(Term::Crossing);
            copied / number(PAGES * PAGE) - of(Term::TrainByte)
        }
        Term::Clone => slope(
            Probe::GroupLong,
            Probe::GroupShort,
            usize::from(MEMBERS_LONG - MEMBERS_SHORT),
        ),
        Term::Notification => at(Probe::ZeroCopyTiny) - at(Probe::SendTiny),
        // Both are of so many packets.
        Term::PinnedPage => {
            let more = at(Probe::ZeroCopyPages) - at(Probe::TrainLong);
            (more - of(Term::Notification)) / number(PAGES - 1)
        }
        Term::PinnedPiece => slope(Probe::ZeroCopyPieces, Probe::ZeroCopyTiny, 8),
        _ => ring_cost(term, at),
    }
}

/// The same of terms of rings.
fn ring_cost(term: Term, at: &impl Fn(Probe) -> f64) -> f64 {
    let of = |term| cost(term, at);
    let number = crate::stats::to_f64;
    let slope = |much: Probe, little: Probe| (at(much) - at(little)) / number(ENTRIES - 1);
    // An entry of a batch, beyond one that does nothing.
    let each = |probe| {
        let batch = of(Term::Crossing) + of(Term::RingCrossing);
        (at(probe) - batch) / number(ENTRIES) - of(Term::Entry)
    };
    let train = || of(Term::Train) + number(SHORT) * of(Term::ReferredSegment);
    match term {
        Term::Link => slope(Probe::NopsLinked, Probe::NopsMany),
        Term::Entry => slope(Probe::NopsMany, Probe::Nops1),
        Term::RingCrossing => at(Probe::Nops1) - of(Term::Crossing) - of(Term::Entry),
        Term::EntrySend => each(Probe::RingCopied) - of(Term::Packet),
        Term::Release => each(Probe::RingShort) - train(),
        Term::PinnedRelease => each(Probe::RingPinned) - train(),
        _ => unreachable!("`cost` knows all other terms"),
    }
}

impl Probe {
    /// All, in the order of their turns.
    pub const ALL: [Self; 38] = [
        Self::Getppid,
        Self::SendTiny,
        Self::SendWide,
        Self::ReadTiny,
        Self::ReadWide,
        Self::Gather1,
        Self::Gather17,
        Self::Messages,
        Self::TrainShort,
        Self::TrainLong,
        Self::TrainWide,
        Self::TrainCold,
        Self::Cork,
        Self::Append1,
        Self::Append9,
        Self::DiscardTiny,
        Self::DiscardPages,
        Self::DiscardMemory,
        Self::Lend,
        Self::LendPages,
        Self::LendOut,
        Self::LendOutPages,
        Self::ZeroCopyTiny,
        Self::ZeroCopyPieces,
        Self::ZeroCopyPages,
        Self::Faults,
        Self::Miss,
        Self::Plan,
        Self::Nops1,
        Self::NopsMany,
        Self::NopsLinked,
        Self::RingCopied,
        Self::RingShort,
        Self::RingLong,
        Self::RingPinned,
        Self::GroupShort,
        Self::GroupLong,
        Self::Stream,
    ];

    /// The stride that trains are cut into; 0 for none.
    fn stride(self) -> u16 {
        match self {
            Self::TrainShort | Self::TrainLong => TINY_STRIDE,
            Self::RingShort | Self::RingLong | Self::RingPinned => SMALL_STRIDE,
            Self::TrainWide | Self::TrainCold => WIDE_STRIDE,
            Self::ZeroCopyPages | Self::LendOutPages => WIDE_STRIDE,
            _ => 0,
        }
    }

    /// Packets that one of it sends.
    fn packets(self) -> u64 {
        let packets = match self {
            Self::SendTiny | Self::SendWide | Self::Gather1 | Self::Gather17 => 1,
            Self::Append1 | Self::Append9 => 1,
            Self::ZeroCopyTiny | Self::ZeroCopyPieces | Self::LendOut => 1,
            Self::Messages | Self::TrainLong | Self::TrainWide | Self::TrainCold => LONG,
            Self::ZeroCopyPages | Self::LendOutPages => LONG,
            Self::TrainShort => SHORT,
            Self::RingCopied => ENTRIES,
            Self::RingShort | Self::RingPinned => SHORT * ENTRIES,
            Self::RingLong => LONG * ENTRIES,
            Self::GroupShort => MEMBERS_SHORT.into(),
            Self::GroupLong => MEMBERS_LONG.into(),
            _ => 0,
        };
        packets as u64
    }
}

impl<'m> Probes<'m> {
    /// What needs no processor of its own (who reads a stream) goes to `rest`.
    fn new(testbed: &Testbed, memory: &'m mut Memory, rest: usize) -> Result<Self, ModelError> {
        let socket = connected(testbed).map_err(system("open a socket"))?;
        Ok(Self {
            sends: Sends::new(socket).map_err(system("make a socket ready"))?,
            ring: RingSends::new(AREA_BYTES).map_err(system("make a ring with memory"))?,
            file: filled(tempfile::tempfile()).map_err(system("write a file of 256 MiB"))?,
            at: 0,
            bytes: vec![7; PAGES * PAGE],
            stream: Stream::open(testbed, rest).map_err(system("connect by TCP"))?,
            memory_file: filled(memory_file())
                .map_err(system("write 256 MiB to a file in memory"))?,
            cold: cold_memory().map_err(system("map memory"))?,
            cold_at: 0,
            plan: Plan::regular(FILE_BYTES, SMALL_STRIDE.into()).expect("a size for a packet"),
            chain: Chain::link(memory, CHAIN_BYTES, LINE_BYTES, Order::Random),
        })
    }

    /// What a probe of clones sends to. Its program is at the device no longer than that.
    fn group(&self, probe: Probe) -> Result<Option<Group>, ModelError> {
        let (Probe::GroupShort | Probe::GroupLong) = probe else {
            return Ok(None);
        };
        let members = u16::try_from(probe.packets()).expect("a member for each packet");
        let options = group::Options {
            way: Some(Way::Kernel),
            members_max: members.into(),
            area_bytes: 0,
        };
        let refused = system("replicate packets at the device");
        let socket = self.sends.socket().try_clone().map_err(&refused)?;
        socket.set_nonblocking(false).map_err(&refused)?;
        let group = Group::open(socket, &options);
        let mut group = group.map_err(io::Error::other).map_err(&refused)?;
        let addresses: Vec<_> = (0..members)
            .map(|nth| (RCV_IPV4, PORT + nth).into())
            .collect();
        let named = group.set_members(&addresses);
        named.map_err(io::Error::other).map_err(&refused)?;
        Ok(Some(group))
    }

    /// One turn: how often, what one took, and why it is void.
    fn turn(
        &mut self,
        probe: Probe,
        turn_ns: u64,
        sink: &mut Sink,
    ) -> Result<(u64, f64, Option<String>), ModelError> {
        let refused = system("carry out a probe");
        let mut group = self.group(probe)?;
        self.sends.segment(probe.stride()).map_err(&refused)?;
        let mut times = 1;
        // What it takes, about; also what warms it up.
        let once_ns = loop {
            let (begin, asked) = (thread_cpu_ns(), times);
            self.carry_out(probe, times, group.as_mut())
                .map_err(&refused)?;
            let taken = thread_cpu_ns() - begin;
            times *= 4;
            if taken > turn_ns / 8 || times > 1 << 20 {
                break ratio(taken, asked);
            }
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive count of some millions at most"
        )]
        let times = (ratio(turn_ns, 1) / once_ns.max(1.0)).ceil().min(1e7) as u64;
        sink.reset()?;
        let begin = thread_cpu_ns();
        self.carry_out(probe, times, group.as_mut())
            .map_err(&refused)?;
        let taken = thread_cpu_ns() - begin;
        let (sent, arrived) = (times * probe.packets(), sink.totals()?.packets);
        let void =
            (sent != arrived).then(|| format!("{sent} packets were sent, {arrived} arrived"));
        Ok((times, ratio(taken, times), void))
    }

    fn carry_out(&mut self, probe: Probe, times: u64, group: Option<&mut Group>) -> io::Result<()> {
        let Self {
            sends,
            ring,
            file,
            at,
            bytes,
            chain,
            plan,
            memory_file,
            cold,
            cold_at,
            stream,
            ..
        } = self;
        let tiny = &bytes[..TINY];
        match probe {
            Probe::Getppid => {
                call::getppid(times);
                Ok(())
            }
            Probe::SendTiny => sends.send(tiny, times),
            Probe::SendWide => sends.send(&bytes[..WIDE], times),
            Probe::ReadTiny => read(file, at, &mut [0; TINY], times),
            Probe::ReadWide => read(file, at, &mut [0; WIDE], times),
            Probe::Gather1 => sends.gather(tiny, 1, times),
            Probe::Gather17 => sends.gather(tiny, 17, times),
            Probe::Messages => sends.many(tiny, LONG, times),
            Probe::TrainShort => sends.send(&bytes[..SHORT * TINY], times),
            Probe::TrainLong => sends.send(&bytes[..LONG * TINY], times),
            Probe::Cork => sends.cork(times),
            Probe::Append1 => sends.append(tiny, 1, times),
            Probe::Append9 => sends.append(tiny, 9, times),
            Probe::DiscardTiny => discard(sends, file, at, TINY, times),
            Probe::DiscardPages => discard(sends, file, at, PAGES * PAGE, times),
            Probe::DiscardMemory => discard(sends, memory_file, at, PAGES * PAGE, times),
            Probe::Lend => sends.lend(&bytes[..WIDE], times),
            Probe::LendPages => sends.lend(bytes, times),
            Probe::LendOut => sends.lend_out(&bytes[..TINY], times),
            Probe::LendOutPages => sends.lend_out(bytes, times),
            Probe::ZeroCopyTiny => sends.zero_copy(tiny, 1, times),
            Probe::ZeroCopyPieces => sends.zero_copy(tiny, 9, times),
            Probe::ZeroCopyPages => sends.zero_copy(bytes, 1, times),
            Probe::TrainWide => sends.send(bytes, times),
            Probe::TrainCold => (0..times).try_for_each(|_| {
                *cold_at = (*cold_at + bytes.len()) % (CHAIN_BYTES - bytes.len());
                sends.send(&cold.as_bytes()[*cold_at..][..bytes.len()], 1)
            }),
            Probe::Faults => touch(file, times),
            Probe::Plan => {
                look_up(plan, times);
                Ok(())
            }
            Probe::Miss => {
                // Rounded up, which is nothing among so many.
                chain.walk(
                    usize::try_from(times)
                        .map_err(io::Error::other)?
                        .div_ceil(LOADS),
                );
                Ok(())
            }
            Probe::Stream => (0..times).try_for_each(|_| (&stream.socket).write_all(bytes)),
            Probe::GroupShort | Probe::GroupLong => {
                let group = group.expect("made for its turn");
                (0..times).try_for_each(|_| group.send(tiny).map(drop).map_err(io::Error::other))
            }
            _ => by_ring(ring, sends, probe, times),
        }
    }
}

/// The probes of rings.
fn by_ring(ring: &mut RingSends, sends: &Sends, probe: Probe, times: u64) -> io::Result<()> {
    let (how, bytes, entries) = match probe {
        Probe::Nops1 => (RingSend::Nothing, 0, 1),
        Probe::NopsMany => (RingSend::Nothing, 0, ENTRIES),
        Probe::NopsLinked => (RingSend::Linked, 0, ENTRIES),
        Probe::RingCopied => (RingSend::Copied, TINY, ENTRIES),
        Probe::RingShort => (RingSend::Registered, SHORT * SMALL, ENTRIES),
        Probe::RingLong => (RingSend::Registered, LONG * SMALL, ENTRIES),
        Probe::RingPinned => (RingSend::Pinned, SHORT * SMALL, ENTRIES),
        _ => unreachable!("`Probes::carry_out` knows all other probes"),
    };
    ring.send(sends, how, bytes, entries, times)
}

/// Reads so many parts of the file, one after the other.
fn read(file: &File, at: &mut u64, buffer: &mut [u8], times: u64) -> io::Result<()> {
    let bytes = buffer.len() as u64;
    (0..times).try_for_each(|_| {
        let place = step(at, bytes);
        file.read_exact_at(buffer, place)
    })
}

/// Moves so many parts of the file to nowhere.
fn discard(sends: &Sends, file: &File, at: &mut u64, bytes: usize, times: u64) -> io::Result<()> {
    let mut left = times;
    while left > 0 {
        let place = step(at, 0);
        let fit = ((FILE_BYTES - place) / bytes as u64).min(left);
        sends.discard(file, place, bytes, fit)?;
        *at = place + fit * bytes as u64;
        left -= fit;
    }
    Ok(())
}

/// Where the next part of the file is; a new start where too little is left.
fn step(at: &mut u64, bytes: u64) -> u64 {
    if FILE_BYTES - *at < (PAGES * PAGE) as u64 {
        *at = 0;
    }
    let place = *at;
    *at += bytes;
    place
}

/// Finds trains in the plan, until so many packets have been looked at.
fn look_up(plan: &Plan, times: u64) {
    let (mut at, mut looked_at) = (0, 0);
    while looked_at < times {
        let count = plan.train(at..plan.packets(), LONG);
        black_box(plan.bytes(at..at + count));
        looked_at += count as u64;
        at = if at + count < plan.packets() {
            at + count
        } else {
            0
        };
    }
}

/// Touches so many pages of the file, in mappings that are new.
fn touch(file: &File, times: u64) -> io::Result<()> {
    let pages = FILE_BYTES / PAGE as u64;
    let mut left = times;
    while left > 0 {
        let these = usize::try_from(left.min(pages)).map_err(io::Error::other)?;
        let mapped = Mapped::map(file, these * PAGE)?;
        (0..these).for_each(|page| {
            black_box(mapped.read(page * PAGE));
        });
        left -= these as u64;
    }
    Ok(())
}

/// Memory that was written, of huge pages if there are some.
fn cold_memory() -> io::Result<Memory> {
    let mut memory = Memory::map(CHAIN_BYTES, Pages::Huge)?;
    memory.words_mut().fill(7);
    Ok(memory)
}

/// The file, with bytes that are in memory.
fn filled(file: io::Result<File>) -> io::Result<File> {
    let mut file = file?;
    let chunk = vec![7; 1 << 20];
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&chunk)?;
    }
    Ok(file)
}

/// A socket to the far end.
pub(super) fn connected(testbed: &Testbed) -> io::Result<UdpSocket> {
    testbed.snd.run(|| {
        let socket = UdpSocket::bind((SND_IPV4, 0))?;
        socket.connect((RCV_IPV4, PORT))?;
        Ok(socket)
    })
}

pub(super) fn system(action: &'static str) -> impl Fn(io::Error) -> ModelError {
    move |source| ModelError::System { action, source }
}
