//! The cost model: what a data path will cost, put together from what its parts cost.
//!
//! A path is a sum of [`Term`]s, each so and so often for a packet: crossings, bytes that are
//! copied, packets that pass the stack alone, trains, pages that are pinned. What a term costs here
//! and now is found by [`probe`]: small things done often, none of which is a path and none of
//! which moves a file. The prediction is the sum. Where it is wrong, something is missing from the
//! model, and that is worth knowing.
//!
//! The processor time is that of the sending thread. What a path leaves to others (a polling
//! thread, a receiver) is not in the model.

pub mod beside;
pub mod check;
mod cost;
mod formula;
pub mod probe;
mod stream;
mod turn;

use std::fmt;

use onrush_testkit::testbed::Mode;
use serde::{Deserialize, Serialize};

pub use formula::{Load, NotPredicted, group, of_many, over_loopback, over_tcp, path};
pub use probe::{Of, Probe, Run, Settings};

use crate::experiment::Record;
use crate::stats::Summary;

/// Its name in files.
pub const NAME: &str = "model";

/// What the probes took.
pub type ModelRecord = Record<Settings, Run>;

/// A part of a path. All costs are ns of processor time, without what other terms stand for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// Into the kernel and back.
    Crossing,
    /// A read of a cached file, without its bytes.
    ReadCall,
    /// A byte copied that was not in the processor's cache.
    ColdByte,
    /// A byte copied that was.
    HotByte,
    /// A load from memory: what the first byte of something costs, before the processor has
    /// understood that it will be read on. While a packet passes the stack, it forgets.
    Miss,
    /// A byte copied to a long train, which no cache close by holds.
    TrainByte,
    /// The same from memory that no cache close by holds either.
    ColdTrainByte,
    /// A packet's way through the network stack, alone.
    Packet,
    /// The same for a packet that was put together while it was held back.
    HeldPacket,
    /// A packet among others of one `sendmmsg`, its way through the stack included.
    Message,
    /// A train's way through the stack.
    Train,
    /// A packet in a train.
    Segment,
    /// A packet in a train whose bytes are referred to.
    ReferredSegment,
    /// A packet looked up in the plan by the program, to find how many are a train.
    Planned,
    /// A further piece of a gathered send.
    Piece,
    /// A page of a mapped file, touched for the first time.
    Fault,
    /// The same when it is the kernel that takes a reference to the page: it needs no trap
    /// (mm/gup.c, `faultin_page`).
    PinFault,
    /// An option set on a socket.
    Set,
    /// A piece appended to a packet that is held back.
    Append,
    /// A `sendfile`, without its pages.
    SpliceCall,
    /// A page moved by reference.
    SplicePage,
    /// A page of a file in memory (memfd) moved by reference.
    MemoryPage,
    /// A page lent to a pipe and moved on.
    Lend,
    /// What a splice to a socket adds to a splice to nowhere and a packet.
    SpliceOut,
    /// A further page spliced to a socket, beyond one that is spliced to nowhere.
    SpliceOutPage,
    /// MSG_ZEROCOPY: its bookkeeping and the message that memory is free, a page included.
    Notification,
    /// A further page pinned for one send.
    PinnedPage,
    /// The same, a part of a huge page.
    PinnedHugePage,
    /// A further piece pinned for one send.
    PinnedPiece,
    /// An entry of a ring.
    Entry,
    /// What an entry that sends adds to an entry and a packet.
    EntrySend,
    /// What a program does for an entry that sends: it makes it, notes what it stands for, and
    /// looks up whose its answers are.
    Account,
    /// An entry that a thread of the kernel fetches: what it takes whoever made it, its accounts
    /// included.
    PolledEntry,
    /// To sleep until that thread has done something, and to wake up.
    Sleep,
    /// That an entry waits for the one before.
    Link,
    /// What a link adds if the entry sends: it is not sent where it is handed over but by what the
    /// kernel has put off (io_uring/io_uring.c, `io_queue_next`), and so is the message that its
    /// memory is free.
    LinkSend,
    /// A ring's crossing, beyond a plain one.
    RingCrossing,
    /// What SEND_ZC adds to a train from registered memory: its message that memory is free.
    Release,
    /// What SEND_ZC adds if the memory has to be pinned, a page included.
    PinnedRelease,
    /// What a train takes more if its memory was not sent from a moment ago.
    ColdTrain,
    /// What a train takes more if it is another client's than the one before: its socket is in no
    /// cache.
    Session,
    /// A copy for one member more that a program at the device makes.
    Clone,
    /// A small write to a connection, its way to the far end included, where nobody reads yet.
    StreamWrite,
    /// What TCP takes for a byte that it refers to, its acknowledgements included.
    StreamByte,
    /// The same over loopback.
    LoopByte,
}

/// What the terms cost on one machine, in one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Who cuts trains.
    pub mode: Mode,
    ns: Vec<f64>,
}

/// How often each term is in a path, for a packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Formula {
    terms: Vec<(f64, Term)>,
}

impl Term {
    /// All, in the order of tables.
    pub const ALL: [Self; 45] = [
        Self::Crossing,
        Self::ReadCall,
        Self::ColdByte,
        Self::HotByte,
        Self::Miss,
        Self::TrainByte,
        Self::ColdTrainByte,
        Self::Packet,
        Self::HeldPacket,
        Self::Message,
        Self::Train,
        Self::Segment,
        Self::ReferredSegment,
        Self::Planned,
        Self::Piece,
        Self::Fault,
        Self::PinFault,
        Self::Set,
        Self::Append,
        Self::SpliceCall,
        Self::SplicePage,
        Self::MemoryPage,
        Self::Lend,
        Self::SpliceOut,
        Self::SpliceOutPage,
        Self::Notification,
        Self::PinnedPage,
        Self::PinnedHugePage,
        Self::PinnedPiece,
        Self::Entry,
        Self::EntrySend,
        Self::Account,
        Self::PolledEntry,
        Self::Sleep,
        Self::Link,
        Self::LinkSend,
        Self::RingCrossing,
        Self::Release,
        Self::PinnedRelease,
        Self::ColdTrain,
        Self::Session,
        Self::Clone,
        Self::StreamWrite,
        Self::StreamByte,
        Self::LoopByte,
    ];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crossing => "crossing",
            Self::ReadCall => "read",
            Self::ColdByte => "cold byte",
            Self::HotByte => "hot byte",
            Self::Miss => "miss",
            Self::TrainByte => "byte of a train",
            Self::ColdTrainByte => "cold byte of a train",
            Self::Packet => "packet",
            Self::HeldPacket => "held packet",
            Self::Message => "message",
            Self::Train => "train",
            Self::Segment => "segment",
            Self::ReferredSegment => "referred segment",
            Self::Planned => "planned packet",
            Self::Piece => "piece",
            Self::Fault => "fault",
            Self::PinFault => "fault by the kernel",
            Self::Set => "option",
            Self::Append => "append",
            Self::SpliceCall => "splice",
            Self::SplicePage => "spliced page",
            Self::MemoryPage => "spliced memory page",
            Self::Lend => "lend",
            Self::SpliceOut => "splice to a socket",
            Self::SpliceOutPage => "page to a socket",
            Self::Notification => "notification",
            Self::PinnedPage => "pinned page",
            Self::PinnedHugePage => "pinned huge page",
            Self::PinnedPiece => "pinned piece",
            Self::Entry => "entry",
            Self::EntrySend => "entry that sends",
            Self::Account => "account of an entry",
            Self::PolledEntry => "polled entry",
            Self::Sleep => "sleep",
            Self::Link => "link",
            Self::LinkSend => "link of a send",
            Self::RingCrossing => "ring crossing",
            Self::Release => "release",
            Self::PinnedRelease => "pin and release",
            Self::ColdTrain => "cold train",
            Self::Session => "session",
            Self::Clone => "clone",
            Self::StreamWrite => "write to a stream",
            Self::StreamByte => "byte of a stream",
            Self::LoopByte => "byte over loopback",
        }
    }
}

impl Costs {
    /// What the probes of `mode` say; `None` if there are none. A term is not a number if a probe
    /// of it has no samples.
    #[must_use]
    pub fn of(record: &ModelRecord, mode: Mode) -> Option<Self> {
        let of = |probe: Probe| {
            let runs = record
                .runs
                .iter()
                .filter(|run| run.mode == mode && run.of == Of::Probe(probe));
            let samples: Vec<_> = runs
                .filter(|run| run.void.is_none())
                .map(|run| run.cost_ns)
                .collect();
            Summary::of(&samples).map(|summary| summary.median)
        };
        // Files of before a probe was thought of lack it, and the terms that come of it.
        let found = Probe::ALL.map(|probe| of(probe).unwrap_or(f64::NAN));
        if found.iter().all(|cost| cost.is_nan()) {
            return None;
        }
        let at = |probe: Probe| found[probe as usize];
        let costs = Term::ALL.map(|term| match cost::cost(term, &at) {
            cost if cost.is_nan() => cost,
            cost => cost.max(0.0),
        });
        Some(Self {
            mode,
            ns: costs.to_vec(),
        })
    }

    /// One of `term`, in ns.
    #[must_use]
    pub fn ns(&self, term: Term) -> f64 {
        self.ns[term as usize]
    }
}

impl Formula {
    /// Adds so many of a term.
    #[must_use]
    pub fn with(mut self, count: f64, term: Term) -> Self {
        match self.terms.iter_mut().find(|(_, known)| *known == term) {
            Some((known, _)) => *known += count,
            None => self.terms.push((count, term)),
        }
        self
    }

    /// The same with none of a term.
    #[must_use]
    pub fn without(mut self, term: Term) -> Self {
        self.terms.retain(|(_, known)| *known != term);
        self
    }

    /// How many of a term.
    #[must_use]
    pub fn count(&self, term: Term) -> f64 {
        let of = self.terms.iter().filter(|(_, known)| *known == term);
        of.map(|(count, _)| count).sum()
    }

    /// All of another, so often.
    #[must_use]
    pub fn and(self, count: f64, other: &Self) -> Self {
        other
            .terms
            .iter()
            .fold(self, |sum, (times, term)| sum.with(count * times, *term))
    }

    /// What it costs, in ns.
    ///
    /// # Errors
    ///
    /// If a probe of one of its terms has no samples.
    pub fn predict(&self, costs: &Costs) -> Result<f64, NotPredicted> {
        let ns = self.ns(costs);
        if ns.is_nan() {
            return Err(NotPredicted::Probes);
        }
        Ok(ns)
    }

    /// What it costs, in ns; not a number if a probe of one of its terms has no samples.
    #[must_use]
    pub fn ns(&self, costs: &Costs) -> f64 {
        self.terms
            .iter()
            .map(|(count, term)| count * costs.ns(*term))
            .sum()
    }

    /// What each term adds, in ns, the most first.
    #[must_use]
    pub fn parts(&self, costs: &Costs) -> Vec<(Term, f64)> {
        let part = |(count, term): &(f64, Term)| (*term, count * costs.ns(*term));
        let mut parts: Vec<_> = self.terms.iter().map(part).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        parts
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (count, term)) in self.terms.iter().enumerate() {
            let plus = if i > 0 { " + " } else { "" };
            let count = (count * 1e3).round() / 1e3;
            write!(f, "{plus}{count} {}", term.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
