//! Turns of probes: what each makes, does often, and leaves behind.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use onrush_group::{Group, Options, Way};
use onrush_lock::memfd;
use onrush_paths::Plan;
use onrush_primitives::call;
use onrush_primitives::latency::{Chain, LOADS, Order};
use onrush_primitives::map::{Mapped, Memory, Pages};
use onrush_primitives::packet::{RingSend, RingSends, Sends, segment};
use onrush_sys::thread::raise_open_files_limit;
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{RCV_IPV4, SND_IPV4, Testbed};

use super::probe::{
    CHAIN_BYTES, ENTRIES, LENT, LONG, PAGE, PAGES, PORT, Probe, SHORT, SMALL, SMALL_STRIDE, TINY,
    WIDE,
};
use super::stream::{HELD_BYTES_MAX, Stream};
use crate::error::ExperimentError;
use crate::machine::SenderClock;
use crate::setup::system;
use crate::stats::ratio;

/// A file that no cache of a processor holds.
const FILE_BYTES: u64 = 256 << 20;
const MEMORY_FILE_BYTES: u64 = 128 << 20;
/// Clients.
const SESSIONS: usize = 2048;
/// How much longer turns of connections are.
const STREAM_TURNS: u64 = 8;
/// What a ring has registered: one huge page; and one that has more than a cache.
const AREA_BYTES: usize = 2 << 20;
const APART_BYTES: usize = 64 << 20;
/// What a thread of the kernel reads while who waits for it sleeps: some hundred microseconds,
/// about as long as it takes to send a batch of 256 trains.
const READ_BYTES: usize = 1 << 20;
/// How far apart trains lie that are as long as they may be.
const TRAIN_BYTES: usize = 64 << 10;
/// What comes from memory at once.
const LINE_BYTES: usize = 64;
/// Memory that is lent, a part at a time.
const LENT_BYTES: usize = 64 << 20;

/// All that probes work with.
pub(super) struct Probes<'m> {
    sends: Sends,
    ring: RingSends,
    /// Only while it has its turn: a thread of the kernel is busy with it.
    polled: Option<RingSends>,
    /// A ring with more memory than a cache has, sockets for it, and where it goes on.
    apart: RingSends,
    sockets: Vec<UdpSocket>,
    apart_at: usize,
    file: File,
    /// Where in the file the next probe goes on: what was just read is in the processor's cache.
    at: u64,
    bytes: Vec<u8>,
    /// What all this costs.
    clock: SenderClock,
    /// Where readers of connections are.
    rest: usize,
    /// A new one for each turn, as each transfer has.
    stream: Option<Stream>,
    /// Base pages that no cache holds, and where the next that are lent begin.
    lent: Memory,
    lent_at: usize,
    /// A file in memory. It is new for its turn, and gone through once: the kernel treats what was
    /// read before differently.
    memory_file: File,
    /// What no cache holds, in huge pages, and where the next send of it begins.
    cold: Memory,
    cold_at: usize,
    chain: Chain<'m>,
    plan: Plan,
}

impl<'m> Probes<'m> {
    /// The caller is bound to `core`. What needs no processor of its own (who reads a stream) goes
    /// to `rest`.
    pub(super) fn new(
        testbed: &Testbed,
        memory: &'m mut Memory,
        (core, rest): (usize, usize),
    ) -> Result<Self, ExperimentError> {
        let socket = connected(testbed).map_err(system("open a socket"))?;
        Ok(Self {
            sends: Sends::new(socket).map_err(system("make a socket ready"))?,
            ring: RingSends::new(AREA_BYTES).map_err(system("make a ring with memory"))?,
            polled: None,
            apart: RingSends::new(APART_BYTES).map_err(system("make a ring with memory"))?,
            sockets: sockets(testbed).map_err(system("open two thousand sockets"))?,
            apart_at: 0,
            file: filled(tempfile::tempfile(), FILE_BYTES)
                .map_err(system("write a file of 256 MiB"))?,
            at: 0,
            bytes: vec![7; PAGES * PAGE],
            clock: SenderClock::bound_to(core),
            rest,
            stream: None,
            lent: written(LENT_BYTES, Pages::Base).map_err(system("map memory"))?,
            lent_at: 0,
            memory_file: memfd(PAGE)?,
            cold: written(CHAIN_BYTES, Pages::Huge).map_err(system("map memory"))?,
            cold_at: 0,
            plan: Plan::regular(FILE_BYTES, SMALL_STRIDE.into()).expect("a size for a packet"),
            chain: Chain::link(memory, CHAIN_BYTES, LINE_BYTES, Order::Random),
        })
    }

    /// A file that is in memory.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// What a probe of clones sends to. Its program is at the device no longer than that.
    fn group(&self, probe: Probe) -> Result<Option<Group>, ExperimentError> {
        let (Probe::GroupShort | Probe::GroupLong) = probe else {
            return Ok(None);
        };
        let members = u16::try_from(probe.packets()).expect("a member for each packet");
        let options = Options {
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

    /// What is made for one turn.
    fn make(&mut self, testbed: &Testbed, probe: Probe) -> io::Result<()> {
        let is_polled = matches!(probe, Probe::AccountPolled | Probe::PolledRead);
        let polled = is_polled.then(|| RingSends::polled(AREA_BYTES));
        self.polled = polled.transpose()?;
        self.stream = match probe {
            Probe::StreamWrite | Probe::StreamPages => Some(Stream::open(testbed, self.rest)?),
            Probe::LoopPages => Some(Stream::open_loopback(self.rest)?),
            _ => None,
        };
        if probe == Probe::DiscardMemory {
            let file = memfd(PAGE).map_err(io::Error::other);
            self.memory_file = filled(file, MEMORY_FILE_BYTES)?;
            self.at = 0;
        }
        Ok(())
    }

    /// One turn: how often, what one took, and why it is void.
    pub(super) fn turn(
        &mut self,
        testbed: &Testbed,
        probe: Probe,
        turn_ns: u64,
        sink: &mut Sink,
    ) -> Result<(u64, f64, Option<String>), ExperimentError> {
        let refused = system("carry out a probe");
        let mut group = self.group(probe)?;
        self.make(testbed, probe).map_err(&refused)?;
        self.sends.segment(probe.stride()).map_err(&refused)?;
        let clock = match self.polled {
            Some(_) => SenderClock::of_sleeper(),
            None => self.clock,
        };
        // A connection finds its windows in a while.
        let turn_ns = turn_ns
            * if self.stream.is_some() {
                STREAM_TURNS
            } else {
                1
            };
        let (mut times, mut streamed) = (1, 0);
        // What it takes, about; also what warms it up.
        let once_ns = loop {
            let (begin, asked) = (clock.now_ns(), times);
            self.run_probe(probe, times, group.as_mut())
                .map_err(&refused)?;
            let taken = clock.now_ns() - begin;
            streamed += times * probe.stream_bytes();
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
        let times = match probe {
            Probe::DiscardMemory => {
                times.min((MEMORY_FILE_BYTES - self.at) / (PAGES * PAGE) as u64)
            }
            _ if self.stream.is_some() => times.min(HELD_BYTES_MAX / probe.stream_bytes()),
            _ => times,
        };
        let held = self.stream.as_ref().map(|stream| stream.hold(streamed));
        sink.reset()?;
        let begin = clock.now_ns();
        self.run_probe(probe, times, group.as_mut())
            .map_err(&refused)?;
        let taken = clock.now_ns() - begin;
        drop(held);
        let (sent, arrived) = (times * probe.packets(), sink.totals()?.packets);
        let void =
            (sent != arrived).then(|| format!("{sent} packets were sent, {arrived} arrived"));
        streamed += times * probe.stream_bytes();
        let lost = self.stream.as_ref().and_then(|stream| {
            let arrived = stream.arrived_at_last(streamed);
            let what = || format!("{streamed} bytes were sent by TCP, {arrived} arrived");
            (arrived != streamed).then(what)
        });
        Ok((times, ratio(taken, times), void.or(lost)))
    }

    fn run_probe(&mut self, probe: Probe, times: u64, group: Option<&mut Group>) -> io::Result<()> {
        let (sends, file, bytes) = (&self.sends, &self.file, &self.bytes);
        let tiny = &bytes[..TINY];
        match probe {
            Probe::Getppid => {
                call::getppid(times);
                Ok(())
            }
            Probe::SendTiny => sends.send(tiny, times),
            Probe::SendWide => sends.send(&bytes[..WIDE], times),
            Probe::ReadTiny => read(file, &mut self.at, &mut [0; TINY], times),
            Probe::ReadWide => read(file, &mut self.at, &mut [0; WIDE], times),
            Probe::Gather1 => sends.gather(tiny, 1, times),
            Probe::Gather17 => sends.gather(tiny, 17, times),
            Probe::Messages => sends.many(tiny, LONG, times),
            Probe::TrainShort => sends.send(&bytes[..SHORT * TINY], times),
            Probe::TrainLong => sends.send(&bytes[..LONG * TINY], times),
            Probe::Cork => sends.cork(times),
            Probe::Append1 => sends.append(tiny, 1, times),
            Probe::Append9 => sends.append(tiny, 9, times),
            Probe::DiscardTiny => discard(sends, file, &mut self.at, TINY, times),
            Probe::DiscardPages => discard(sends, file, &mut self.at, PAGES * PAGE, times),
            Probe::DiscardMemory => {
                let place = self.at;
                self.at += times * bytes.len() as u64;
                sends.discard(&self.memory_file, place, bytes.len(), times)
            }
            Probe::Lend => sends.lend(&bytes[..WIDE], times),
            Probe::LendPages => sends.lend(bytes, times),
            Probe::LendOut => sends.lend_out(&bytes[..TINY], times),
            Probe::LendOutPages => sends.lend_out(bytes, times),
            Probe::ZeroCopyTiny => sends.zero_copy(tiny, 1, times),
            Probe::ZeroCopyPieces => sends.zero_copy(tiny, 9, times),
            Probe::ZeroCopyPages => sends.zero_copy(bytes, 1, times),
            Probe::TrainWide => sends.send(bytes, times),
            Probe::Faults => map(file, times, touch),
            Probe::Populate => map(file, times, |mapped, _| mapped.populate()),
            Probe::Plan => {
                look_up(&self.plan, times);
                Ok(())
            }
            _ => self.run_kept(probe, times, group),
        }
    }

    /// The probes of what is kept from turn to turn: cold memory, the plan, streams, rings.
    fn run_kept(&mut self, probe: Probe, times: u64, group: Option<&mut Group>) -> io::Result<()> {
        let (sends, file, bytes) = (&self.sends, &self.file, &self.bytes);
        match probe {
            Probe::TrainCold => (0..times)
                .try_for_each(|_| sends.send(next(&self.cold, &mut self.cold_at, bytes.len()), 1)),
            // One page after the other, and the same for a while: nobody reads what is referred to.
            Probe::ZeroCopyHuge => {
                sends.zero_copy(next(&self.cold, &mut self.cold_at, bytes.len()), 1, times)
            }
            Probe::Miss => {
                let loads = usize::try_from(times).map_err(io::Error::other)?;
                // Rounded up, which is nothing among so many.
                self.chain.walk(loads.div_ceil(LOADS));
                Ok(())
            }
            Probe::StreamWrite => {
                let mut socket = &self.stream.as_ref().expect("made for its turn").socket;
                (0..times).try_for_each(|_| socket.write_all(&bytes[..WIDE]))
            }
            Probe::LendCold | Probe::StreamPages | Probe::LoopPages => lend(
                sends,
                self.stream.as_ref(),
                &self.lent,
                &mut self.lent_at,
                times,
            ),
            Probe::GroupShort | Probe::GroupLong => {
                let group = group.expect("made for its turn");
                (0..times).try_for_each(|_| {
                    let sent = group.send(&bytes[..TINY]);
                    sent.map(drop).map_err(io::Error::other)
                })
            }
            Probe::AccountPolled | Probe::PolledRead => {
                let polled = self.polled.as_mut().expect("made for its turn");
                match probe {
                    Probe::PolledRead => polled.wait_for_read(file, READ_BYTES, times),
                    _ => account(polled, sends, times),
                }
            }
            Probe::RingApart | Probe::RingSockets => {
                let one = [sends.socket().try_clone()?];
                let by = match probe {
                    Probe::RingApart => &one[..],
                    _ => &self.sockets,
                };
                let bytes = (SHORT * SMALL, TRAIN_BYTES);
                let (ring, at) = (&mut self.apart, &mut self.apart_at);
                (0..times).try_for_each(|_| ring.send_apart(by, bytes, ENTRIES, at))
            }
            _ => by_ring(&mut self.ring, sends, probe, times),
        }
    }
}

/// The probes of rings.
fn by_ring(ring: &mut RingSends, sends: &Sends, probe: Probe, times: u64) -> io::Result<()> {
    let (how, bytes, entries) = match probe {
        Probe::Account => return account(ring, sends, times),
        Probe::Nops1 => (RingSend::Nothing, 0, 1),
        Probe::NopsMany => (RingSend::Nothing, 0, ENTRIES),
        Probe::NopsLinked => (RingSend::Linked, 0, ENTRIES),
        Probe::RingCopied => (RingSend::Copied, TINY, ENTRIES),
        Probe::RingShort => (RingSend::Registered, SHORT * SMALL, ENTRIES),
        Probe::RingLong => (RingSend::Registered, LONG * SMALL, ENTRIES),
        Probe::RingPinned => (RingSend::Pinned, SHORT * SMALL, ENTRIES),
        Probe::RingLinked => (RingSend::RegisteredLinked, SHORT * SMALL, ENTRIES),
        _ => unreachable!("the callers know all other probes"),
    };
    ring.send(sends, how, bytes, entries, times)
}

/// Makes, notes and finds again a batch of entries, so often.
fn account(ring: &mut RingSends, sends: &Sends, times: u64) -> io::Result<()> {
    ring.account(sends, ENTRIES, times).map(drop)
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

/// The next part of the memory, from the start again where too little is left.
fn next<'a>(memory: &'a Memory, at: &mut usize, bytes: usize) -> &'a [u8] {
    *at += bytes;
    if *at + bytes > memory.bytes() {
        *at = 0;
    }
    &memory.as_bytes()[*at..][..bytes]
}

/// Lends so many parts of the memory to a connection, or to nowhere.
fn lend(
    sends: &Sends,
    to: Option<&Stream>,
    memory: &Memory,
    at: &mut usize,
    times: u64,
) -> io::Result<()> {
    (0..times).try_for_each(|nth| {
        let bytes = next(memory, at, LENT);
        match to {
            None => sends.lend(bytes, 1),
            Some(stream) => sends.lend_on(stream.socket.as_fd(), bytes, nth + 1 < times),
        }
    })
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

/// Does something to each of so many pages of the file, in mappings that are new.
fn map(file: &File, times: u64, each: impl Fn(&Mapped, usize) -> io::Result<()>) -> io::Result<()> {
    let pages = FILE_BYTES / PAGE as u64;
    let mut left = times;
    while left > 0 {
        let these = usize::try_from(left.min(pages)).map_err(io::Error::other)?;
        each(&Mapped::map(file, these * PAGE)?, these)?;
        left -= these as u64;
    }
    Ok(())
}

/// Touches so many pages.
#[allow(clippy::unnecessary_wraps, reason = "as others that can fail")]
fn touch(mapped: &Mapped, pages: usize) -> io::Result<()> {
    (0..pages).for_each(|page| {
        black_box(mapped.read(page * PAGE));
    });
    Ok(())
}

/// Memory that was written, of huge pages if they are wanted and there are some.
fn written(bytes: usize, pages: Pages) -> io::Result<Memory> {
    let mut memory = Memory::map(bytes, pages)?;
    memory.words_mut().fill(7);
    Ok(memory)
}

/// The file, with bytes that are in memory.
fn filled(file: io::Result<File>, bytes: u64) -> io::Result<File> {
    let mut file = file?;
    let chunk = vec![7; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&chunk)?;
    }
    Ok(file)
}

/// As many sockets as clients, so that what the kernel has of each is in no cache when its turn
/// comes.
fn sockets(testbed: &Testbed) -> io::Result<Vec<UdpSocket>> {
    raise_open_files_limit();
    let one = |_| {
        let socket = connected(testbed)?;
        segment(&socket, SMALL_STRIDE)?;
        Ok(socket)
    };
    (0..SESSIONS).map(one).collect()
}

/// A socket to the far end.
pub(super) fn connected(testbed: &Testbed) -> io::Result<UdpSocket> {
    testbed.snd.run(|| {
        let socket = UdpSocket::bind((SND_IPV4, 0))?;
        socket.connect((RCV_IPV4, PORT))?;
        Ok(socket)
    })
}
