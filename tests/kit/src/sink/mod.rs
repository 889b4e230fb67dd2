//! The counting sink: what arrived at each UDP port, in which trains, when, and then nothing of it.
//!
//! An eBPF program at tc ingress of the receiving device counts and drops before local delivery,
//! where zero-copy data would be copied. It sees trains as the sender's stack passed them on, so it
//! can say whether a train stayed whole. A figure is void unless the sink counted exactly what was
//! sent.
//!
//! Not here: payloads. Those who compare bytes use the [`receiver`](crate::receiver).

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use aya::maps::{Array, MapData, MapError, PerCpuArray};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, tc};
use aya::{Ebpf, EbpfError, EbpfLoader, Pod, include_bytes_aligned};
use thiserror::Error;

use crate::netns::{Netns, NetnsError};
use crate::playout::{Ended, Playout};

/// A counting program on a device. Dropping it takes the program away.
pub struct Sink {
    ports: RangeInclusive<u16>,
    port_states: Array<MapData, PortState>,
    lateness: PerCpuArray<MapData, u64>,
    /// Of one port each, or a single one that nobody writes.
    playouts: Array<MapData, Playout>,
    /// The addresses of those who are named, as IPv6 has them.
    senders: Array<MapData, [u8; 16]>,
    /// Those who are in it.
    named: Vec<IpAddr>,
    /// Holds the program and its attachment.
    ebpf: Ebpf,
}

/// What happens to a packet that was counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It is dropped: the experiments' choice, the sender pays for sending alone.
    Drop,
    /// It goes on to its receiver: for tests that look at trains and bytes at once.
    Pass,
}

/// What a sink looks at besides counting.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// RTP headers of every so many socket buffers of a port; see [`Sink::attach_seldom_looking`].
    pub every: u16,
    /// Timestamps are CLOCK_MONOTONIC's; see [`Sink::attach_by_clock`].
    pub by_clock: bool,
    /// Packets of a port that come without a longer pause are one burst. 0: bursts are not
    /// followed, and the clock is read at a look only, which spares a sender some 20 ns for each
    /// train.
    pub burst_gap_ns: u64,
    /// What players would have to buffer is followed; see [`Sink::take_playout`].
    pub playout: bool,
}

impl Default for Look {
    /// At everything, without bursts.
    fn default() -> Self {
        Self {
            every: 1,
            by_clock: false,
            burst_gap_ns: 0,
            playout: false,
        }
    }
}

/// What arrived, at one port or at all of them.
// Within `struct port_state` of sink.bpf.c.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Counts {
    /// Packets as they would be on a wire; a train counts all of its own.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Socket buffers, each a train or a single packet.
    pub skbs: u64,
    /// Socket buffers of more than one packet.
    pub trains: u64,
    /// Packets of the longest train.
    pub train_packets_max: u64,
    /// Packets that were RTP, of those looked at.
    pub rtp_packets: u64,
    /// RTP sequence numbers that were jumped over.
    pub sequence_missing: u64,
    /// RTP packets whose numbers were behind those already seen: repeated or reordered.
    pub sequence_repeated: u64,
    /// Those of them that came late and not again, which are among the missing, too. 0 where not
    /// every socket buffer is looked at.
    pub sequence_reordered: u64,
}

/// What arrived at one port, and when.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PortCounts {
    /// How much.
    pub counts: Counts,
    /// CLOCK_MONOTONIC of the first and the last arrival that was looked at, in ns; 0 before any.
    pub arrival_ns: (u64, u64),
    /// The RTP timestamp that lateness is measured from.
    pub timestamp_first: u32,
    /// Earliest and latest, see [`Histogram`]. The earliest tells how late the first packet itself
    /// was.
    pub lateness_ns: (i64, i64),
    /// Packets of the longest burst, in however many socket buffers; 0 if nobody asked for it.
    pub burst_packets_max: u64,
}

/// How late packets arrived, in steps of [`LATENESS_STEP_NS`].
///
/// Lateness is (arrival - first arrival) - (RTP timestamp - first timestamp), of the port's
/// packets. All packets of a train count with the lateness of its first, the latest: an upper
/// bound.
#[derive(Clone, Eq, PartialEq)]
pub struct Histogram {
    /// Packets earlier than [`LATENESS_FLOOR_NS`].
    pub under: u64,
    /// Packets in each step from there.
    pub steps: Vec<u64>,
    /// Packets later than the last step.
    pub over: u64,
}

/// Why there is no sink, or no number from it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The kernel did not take the program.
    #[error("load the sink's eBPF program (needs CAP_BPF, CAP_NET_ADMIN and Linux 5.4): {0}")]
    Load(#[from] EbpfError),
    /// The program could not be verified or attached.
    #[error("attach the sink: {0}")]
    Attach(#[from] ProgramError),
    /// A map could not be read or written.
    #[error("the sink's counters: {0}")]
    Map(#[from] MapError),
    /// More senders than it can hold are named.
    #[error("more than {senders_max} addresses of servers")]
    Senders {
        /// How many it can hold.
        senders_max: u32,
    },
    /// No sink counts this port.
    #[error("port {port} is outside the sink's {first} to {last}")]
    Port {
        /// The port asked for.
        port: u16,
        /// The first port counted.
        first: u16,
        /// The last port counted.
        last: u16,
    },
}

impl Sink {
    /// Counts and drops UDP to `ports` that reaches `device` in `netns`.
    pub fn attach(
        netns: &Netns,
        device: &str,
        ports: RangeInclusive<u16>,
    ) -> Result<Self, SinkError> {
        Self::attach_with(netns, device, ports, Verdict::Drop)
    }

    /// Counts UDP to `ports` that reaches `device` in `netns`, and does to it as `verdict` says.
    ///
    /// # Panics
    ///
    /// If `ports` is empty.
    pub fn attach_with(
        netns: &Netns,
        device: &str,
        ports: RangeInclusive<u16>,
        verdict: Verdict,
    ) -> Result<Self, SinkError> {
        let look = Look::default();
        Self::load(netns, device, ports, verdict, look)
    }

    /// Counts and drops UDP to `ports` that reaches `device` in `netns`, but looks at the RTP
    /// header of every so many socket buffers of a port only, the first among them.
    ///
    /// A look fetches a line of payload that a zero-copy sender never touched, and the sender pays
    /// for it. Between two looks packets are counted on: a number that was missing or came again is
    /// noticed at the second. Lateness and arrival times are of those looked at.
    ///
    /// # Panics
    ///
    /// If `ports` is empty, or `look_every` is 0.
    pub fn attach_seldom_looking(
        netns: &Netns,
        device: &str,
        ports: RangeInclusive<u16>,
        look_every: u16,
    ) -> Result<Self, SinkError> {
        let look = Look {
            every: look_every,
            ..Look::default()
        };
        Self::load(netns, device, ports, Verdict::Drop, look)
    }

    /// Counts and drops UDP to `ports` that reaches `device` in `netns`, and looks so at it.
    ///
    /// # Panics
    ///
    /// If `ports` is empty, or it never looks.
    pub fn attach_looking(
        netns: &Netns,
        device: &str,
        ports: RangeInclusive<u16>,
        look: Look,
    ) -> Result<Self, SinkError> {
        Self::load(netns, device, ports, Verdict::Drop, look)
    }

    /// Looks seldom, too, at a sender whose RTP timestamps are CLOCK_MONOTONIC in ticks of 90 kHz,
    /// modulo 2^32: a packet is late by when it arrived minus when it says it was sent, whatever
    /// the first one was.
    ///
    /// # Panics
    ///
    /// If `ports` is empty, or `look_every` is 0.
    pub fn attach_by_clock(
        netns: &Netns,
        device: &str,
        ports: RangeInclusive<u16>,
        look_every: u16,
    ) -> Result<Self, SinkError> {
        let look = Look {
            every: look_every,
            by_clock: true,
            ..Look::default()
        };
        Self::load(netns, device, ports, Verdict::Drop, look)
    }

    /// Counts and drops UDP that reaches `device` in the namespace that this thread is in: to those
    /// of `ports` that are [open](Self::set_open), from those who are
    /// [named](Self::count_sender). All else passes, because other programs use the device, too.
    ///
    /// # Panics
    ///
    /// If `ports` is empty, or it never looks.
    pub fn attach_here(
        device: &str,
        ports: RangeInclusive<u16>,
        look: Look,
    ) -> Result<Self, SinkError> {
        let mut sink = Self::prepare(ports, Verdict::Drop, look, true)?;
        sink.attach_to(device)?;
        Ok(sink)
    }

    fn load(
        netns: &Netns,
        device: &str,
        ports: RangeInclusive<u16>,
        verdict: Verdict,
        look: Look,
    ) -> Result<Self, SinkError> {
        let mut sink = Self::prepare(ports, verdict, look, false)?;
        netns.run(|| sink.attach_to(device))?;
        Ok(sink)
    }

    fn prepare(
        ports: RangeInclusive<u16>,
        verdict: Verdict,
        look: Look,
        is_chosen: bool,
    ) -> Result<Self, SinkError> {
        assert!(!ports.is_empty(), "a sink counts at least one port");
        assert!(look.every > 0, "a sink looks at times");
        let first = u32::from(*ports.start());
        let count = u32::from(*ports.end()) - first + 1;
        let verdict: u32 = if verdict == Verdict::Drop {
            TC_ACT_SHOT
        } else {
            TC_ACT_OK
        };
        let mut ebpf = EbpfLoader::new()
            .override_global("PORT_FIRST", &first, true)
            .override_global("PORT_COUNT", &count, true)
            .override_global("VERDICT", &verdict, true)
            .override_global("LOOK_EVERY", &u32::from(look.every), true)
            .override_global("CHOSEN", &u32::from(is_chosen), true)
            .override_global("BY_CLOCK", &u32::from(look.by_clock), true)
            .override_global("PLAYOUT", &u32::from(look.playout), true)
            .override_global("BURST_GAP_NS", &look.burst_gap_ns, true)
            .map_max_entries("ports", count)
            .map_max_entries("playouts", if look.playout { count } else { 1 })
            .load(PROGRAM)?;
        let program: &mut SchedClassifier = ebpf
            .program_mut("sink")
            .expect("sink.bpf.c defines it")
            .try_into()?;
        program.load()?;
        let mut map = |name| ebpf.take_map(name).expect("sink.bpf.c defines it");
        Ok(Self {
            ports,
            port_states: map("ports").try_into()?,
            lateness: map("lateness").try_into()?,
            playouts: map("playouts").try_into()?,
            senders: map("senders").try_into()?,
            named: Vec::new(),
            ebpf,
        })
    }

    fn attach_to(&mut self, device: &str) -> Result<(), SinkError> {
        // Kernels before 6.6 attach through this queue discipline; it may be there already, and if
        // it cannot be made, attaching says so.
        drop(tc::qdisc_add_clsact(device));
        let program = self.ebpf.program_mut("sink");
        let program: &mut SchedClassifier = program.expect("it was loaded").try_into()?;
        program.attach(device, TcAttachType::Ingress)?;
        Ok(())
    }

    /// From here on what comes from there to open ports is counted, and dropped.
    ///
    /// # Errors
    ///
    /// [`SinkError::Senders`] if too many are named already.
    pub fn count_sender(&mut self, ip: IpAddr) -> Result<(), SinkError> {
        if self.named.contains(&ip) {
            return Ok(());
        }
        let senders_max = self.senders.len();
        let place = u32::try_from(self.named.len()).unwrap_or(u32::MAX);
        if place >= senders_max {
            return Err(SinkError::Senders { senders_max });
        }
        let as_ipv6 = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        self.senders.set(place, as_ipv6.octets(), 0)?;
        self.named.push(ip);
        Ok(())
    }

    /// Opens a port, at which packets are counted from here on, or closes it, so that they pass. It
    /// stays so until all counters are [reset](Self::reset), which closes it. Call it while nobody
    /// sends there.
    pub fn set_open(&mut self, port: u16, is_open: bool) -> Result<(), SinkError> {
        let index = self.index(port)?;
        let mut state = self.port_states.get(&index, BPF_F_LOCK)?;
        state.is_open = u32::from(is_open);
        Ok(self.port_states.set(index, state, BPF_F_LOCK)?)
    }

    /// Sets all counters to nothing. Call it while nobody sends.
    pub fn reset(&mut self) -> Result<(), SinkError> {
        for index in 0..self.port_states.len() {
            self.port_states
                .set(index, PortState::default(), BPF_F_LOCK)?;
        }
        for index in 0..self.playouts.len() {
            self.playouts.set(index, Playout::default(), 0)?;
        }
        let cpus = self.lateness.get(&0, 0)?.len();
        for step in 0..self.lateness.len() {
            let zeros = vec![0; cpus].try_into().map_err(MapError::from)?;
            self.lateness.set(step, zeros, 0)?;
        }
        Ok(())
    }

    /// What arrived at all ports. Exact once nobody sends.
    pub fn totals(&self) -> Result<Counts, SinkError> {
        let mut sum = Counts::default();
        for port in 0..self.port_states.len() {
            sum.add(&self.port_states.get(&port, BPF_F_LOCK)?.counts);
        }
        Ok(sum)
    }

    /// What arrived at one port.
    pub fn port(&self, port: u16) -> Result<PortCounts, SinkError> {
        let index = self.index(port)?;
        Ok(self.port_states.get(&index, BPF_F_LOCK)?.into())
    }

    /// What arrived at one port, which begins anew: its next packet is the first. Call it while
    /// nobody sends there.
    pub fn take_port(&mut self, port: u16) -> Result<PortCounts, SinkError> {
        let index = self.index(port)?;
        let state = self.port_states.get(&index, BPF_F_LOCK)?;
        let anew = PortState {
            is_open: state.is_open,
            ..PortState::default()
        };
        self.port_states.set(index, anew, BPF_F_LOCK)?;
        Ok(state.into())
    }

    /// What a player at one port would have had to buffer, where that is followed, else nothing;
    /// its account begins anew. Call it while nobody sends there.
    pub fn take_playout(&mut self, port: u16) -> Result<Playout, SinkError> {
        let index = self.index(port)?;
        if index >= self.playouts.len() {
            return Ok(Playout::default());
        }
        let playout = self.playouts.get(&index, 0)?;
        self.playouts.set(index, Playout::default(), 0)?;
        Ok(playout)
    }

    /// Ends the clock of a player at one port, who stopped watching then, or whose stream ended by
    /// itself; see [`Playout::restart`]. Call it while nobody sends there.
    pub fn restart_playout(&mut self, port: u16, ended: Option<Ended>) -> Result<(), SinkError> {
        let index = self.index(port)?;
        if index >= self.playouts.len() {
            return Ok(());
        }
        let packets = self.port(port)?.counts.packets;
        let mut playout = self.playouts.get(&index, 0)?;
        playout.restart(ended, packets);
        Ok(self.playouts.set(index, playout, 0)?)
    }

    /// Measures the lateness of what comes next at one port from its own first packet, as after a
    /// pause. Sequence numbers go on: what is missing between before and after is missing. Call it
    /// while nobody sends there.
    pub fn restart_clock(&mut self, port: u16) -> Result<(), SinkError> {
        let index = self.index(port)?;
        let mut state = self.port_states.get(&index, BPF_F_LOCK)?;
        // The next one is looked at: it is what the others are measured from.
        (state.rtp_arrival_ns_first, state.looks_in) = (0, 0);
        Ok(self.port_states.set(index, state, BPF_F_LOCK)?)
    }

    /// Has the lateness at one port measured by an RTP clock of so many ticks a second, until its
    /// counters are taken or reset; 0: 90 kHz, as where nobody says. Call it while nobody sends
    /// there.
    pub fn set_clock(&mut self, port: u16, clock_hz: u32) -> Result<(), SinkError> {
        let index = self.index(port)?;
        let mut state = self.port_states.get(&index, BPF_F_LOCK)?;
        state.clock_hz = clock_hz;
        Ok(self.port_states.set(index, state, BPF_F_LOCK)?)
    }

    fn index(&self, port: u16) -> Result<u32, SinkError> {
        let (first, last) = (*self.ports.start(), *self.ports.end());
        if self.ports.contains(&port) {
            Ok(u32::from(port - first))
        } else {
            Err(SinkError::Port { port, first, last })
        }
    }

    /// How late the packets of all ports arrived.
    pub fn lateness(&self) -> Result<Histogram, SinkError> {
        let mut slots = Vec::with_capacity(self.lateness.len() as usize);
        for per_cpu in self.lateness.iter() {
            slots.push(per_cpu?.iter().sum());
        }
        let over = slots.pop().expect("the map has a slot over the range");
        let under = slots.remove(0);
        Ok(Histogram {
            under,
            steps: slots,
            over,
        })
    }
}

impl From<PortState> for PortCounts {
    fn from(state: PortState) -> Self {
        Self {
            counts: state.counts,
            arrival_ns: (state.arrival_ns_first, state.arrival_ns_last),
            timestamp_first: state.timestamp_first,
            lateness_ns: (state.lateness_ns_min, state.lateness_ns_max),
            burst_packets_max: state.burst_packets_max,
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.skbs += other.skbs;
        self.trains += other.trains;
        self.train_packets_max = self.train_packets_max.max(other.train_packets_max);
        self.rtp_packets += other.rtp_packets;
        self.sequence_missing += other.sequence_missing;
        self.sequence_repeated += other.sequence_repeated;
        self.sequence_reordered += other.sequence_reordered;
    }
}

impl Histogram {
    /// Packets in all.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.under + self.steps.iter().sum::<u64>() + self.over
    }

    /// The lateness in ns that `fraction` (0 to 1) of the packets did not exceed, rounded up to the
    /// end of its step: [`LATENESS_FLOOR_NS`] for those under the range, `i64::MAX` for those over
    /// it. `None` without packets.
    #[must_use]
    pub fn quantile_ns(&self, fraction: f64) -> Option<i64> {
        #[allow(
            clippy::cast_precision_loss,
            reason = "packet counts are far below 2^52"
        )]
        let wanted = (self.packets() as f64 * fraction).ceil();
        #[allow(
            clippy::cast_sign_loss,
            clippy::cast_possible_truncation,
            reason = "0 to packets"
        )]
        let wanted = (wanted as u64).clamp(1, self.packets().max(1));
        if self.packets() == 0 {
            return None;
        }
        let mut seen = self.under;
        let mut edge_ns = LATENESS_FLOOR_NS;
        for step in &self.steps {
            if seen >= wanted {
                return Some(edge_ns);
            }
            seen += step;
            edge_ns += LATENESS_STEP_NS;
        }
        Some(if seen >= wanted { edge_ns } else { i64::MAX })
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Thousands of steps, nearly all empty, would drown the message of a failed test.
        f.debug_struct("Histogram")
            .field("packets", &self.packets())
            .field("under", &self.under)
            .field("over", &self.over)
            .field("p50_ns", &self.quantile_ns(0.5))
            .field("p999_ns", &self.quantile_ns(0.999))
            .finish()
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink")
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

/// `struct port_state` of sink.bpf.c.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct PortState {
    lock: u32,
    sequence_next: u16,
    looks_in: u16,
    is_open: u32,
    clock_hz: u32,
    counts: Counts,
    arrival_ns_first: u64,
    arrival_ns_last: u64,
    rtp_arrival_ns_first: u64,
    lateness_ns_min: i64,
    lateness_ns_max: i64,
    timestamp_first: u32,
    timestamp: u32,
    ticks: i64,
    seen: u64,
    burst_packets_max: u64,
    burst_ns_last: u64,
    burst_packets: u32,
    unused: u32,
}

const _: () = assert!(size_of::<PortState>() == 22 * 8);
const _: () = assert!(size_of::<Counts>() == 9 * 8);

// SAFETY: Pod demands that every bit pattern is a value and that there is no padding to leak. All
// fields are integers, and the size above is the sum of theirs.
unsafe impl Pod for PortState {}

// SAFETY: as above: all fields are integers, and playout.rs asserts that the size is their sum.
unsafe impl Pod for Playout {}

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/sink.o"));

/// The histogram begins here: this much early.
pub const LATENESS_FLOOR_NS: i64 = -50_000_000;
/// The width of the histogram's steps.
pub const LATENESS_STEP_NS: i64 = 100_000;

const TC_ACT_OK: u32 = 0;
const TC_ACT_SHOT: u32 = 2;
/// Reads and writes a port's state whole, under its lock.
const BPF_F_LOCK: u64 = 4;

#[cfg(test)]
mod tests;
