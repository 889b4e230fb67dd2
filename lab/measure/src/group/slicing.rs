//! Where a send's time goes: the paper's figure 5, by its own method, software slicing.
//!
//! One datagram after the other is sent and dropped at a point of its way; what a point costs more
//! than the one before is what lies between them. The points are those at which a stock kernel lets
//! a program drop ([`onrush_testkit::slice`]), and one more: a datagram that is begun with MSG_MORE
//! is copied and then waits in its socket, where a second part that is too long has it thrown away.
//! What of that grows with the datagram is the copy. The way by `kernel` is sliced, too: its clones
//! are dropped where they come to the device.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_group::{Group, Options, Way};
use onrush_primitives::hardware::{Counted, HardwareCounters};
use onrush_testkit::sink::{Counts, Sink};
use onrush_testkit::slice::{self, Slice};
use onrush_testkit::testbed::{self, RCV_DEVICE, RCV_IPV4, SND_DEVICE, SND_IPV4, Testbed};
use rustix::io::Errno;
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};

use super::{CountedOfSend, Run, Settings, settle};
use crate::error::ExperimentError;
use crate::setup::system;
use crate::stats::ratio;

/// How far a datagram comes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// To the socket layer, before route and copy.
    Socket,
    /// Through route and copy; records of before have no such point.
    AfterCopy,
    /// Through UDP and IP.
    AfterIp,
    /// To the device.
    BeforeDevice,
    /// To the far end of the veth pair.
    FarEnd,
}

/// How far clones come.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClonePoint {
    /// Back to the device, addressed.
    BeforeDevice,
    /// To the far end of the veth pair.
    FarEnd,
}

impl Point {
    /// All, from the sender on.
    pub const ALL: [Self; 5] = [
        Self::Socket,
        Self::AfterCopy,
        Self::AfterIp,
        Self::BeforeDevice,
        Self::FarEnd,
    ];

    /// What lies between the point before and this one.
    #[must_use]
    pub fn layer(self, has_copy: bool) -> &'static str {
        match self {
            Self::Socket => "system call and socket",
            Self::AfterCopy => "route and copy",
            Self::AfterIp if has_copy => "UDP, IP",
            Self::AfterIp => "route, copy, UDP, IP",
            Self::BeforeDevice => "neighbour and queue",
            Self::FarEnd => "device and far end",
        }
    }
}

impl ClonePoint {
    const ALL: [Self; 2] = [Self::BeforeDevice, Self::FarEnd];
}

pub(super) fn run_all(
    settings: &Settings,
    runs: &mut Vec<Run>,
    mut progress: impl FnMut(f64),
) -> Result<(), ExperimentError> {
    if settings.sliced_bytes.is_empty() {
        return Ok(());
    }
    let testbed = Testbed::new(testbed::Options::default())?;
    let ports = PORT..=PORT + (MEMBERS - 1);
    let sink = Sink::attach_seldom_looking(&testbed.rcv, RCV_DEVICE, ports, LOOK_EVERY)?;
    let open = || UdpSocket::bind((SND_IPV4, 0));
    let socket = testbed.snd.run(open).map_err(system("open a socket"))?;
    let waiting = testbed.snd.run(|| (0..WAITING).map(|_| open()).collect());
    let waiting: Vec<_> = io::Result::map_err(waiting, system("open sockets"))?;
    let mut group = open_group(testbed.snd.run(open).map_err(system("open a socket"))?)?;
    let counters = HardwareCounters::open().ok();
    for repeat in 0..settings.repeats {
        for &bytes in &settings.sliced_bytes {
            for point in Point::ALL {
                let mut timed = Timed::new(counters.as_ref());
                match point {
                    Point::AfterCopy => run_to_copy(&sink, &waiting, bytes, &mut timed)?,
                    _ => run((&testbed, &sink, &socket), point, bytes, &mut timed)?,
                }
                let (send_ns, counted) = timed.of_send();
                runs.push(Run::Slice {
                    point,
                    bytes,
                    repeat,
                    send_ns,
                    counted,
                });
            }
        }
        for &bytes in settings.sliced_bytes.iter().filter(|b| CLONED.contains(b)) {
            for point in ClonePoint::ALL {
                let mut timed = Timed::new(counters.as_ref());
                let at = (point, bytes);
                run_clones(&testbed, &sink, &mut group, at, &mut timed)?;
                let (send_ns, counted) = timed.of_send();
                runs.push(Run::Clones {
                    point,
                    bytes,
                    members: MEMBERS,
                    repeat,
                    send_ns,
                    counted,
                });
            }
        }
        progress(ratio(u64::from(repeat) + 1, settings.repeats.into()));
    }
    Ok(())
}

/// What sends took.
struct Timed<'a> {
    counters: Option<&'a HardwareCounters>,
    sends: u32,
    elapsed: Duration,
    counted: Counted,
}

impl<'a> Timed<'a> {
    fn new(counters: Option<&'a HardwareCounters>) -> Self {
        Self {
            counters,
            sends: 0,
            elapsed: Duration::ZERO,
            counted: Counted::default(),
        }
    }

    /// So many sends.
    fn run<T>(&mut self, sends: u32, act: impl FnOnce() -> T) -> T {
        let read = |counters: Option<&HardwareCounters>| counters.and_then(|it| it.read().ok());
        let before = read(self.counters);
        let begin = Instant::now();
        let result = act();
        self.elapsed += begin.elapsed();
        self.sends += sends;
        match before.zip(read(self.counters)) {
            Some((before, after)) => {
                self.counted.instructions += after.instructions - before.instructions;
                self.counted.misses += after.misses - before.misses;
            }
            // What is counted in part says nothing.
            None => self.counters = None,
        }
        result
    }

    /// The time of one in ns, and what was counted of it.
    fn of_send(&self) -> (f64, Option<CountedOfSend>) {
        let sends = u64::from(self.sends);
        let counted = self.counters.map(|_| CountedOfSend {
            instructions: ratio(self.counted.instructions, sends),
            misses: ratio(self.counted.misses, sends),
        });
        let send_ns = self.elapsed.as_secs_f64() * 1e9 / f64::from(self.sends);
        (send_ns, counted)
    }
}

fn run(
    (testbed, sink, socket): (&Testbed, &Sink, &UdpSocket),
    point: Point,
    bytes: usize,
    timed: &mut Timed<'_>,
) -> Result<(), ExperimentError> {
    let drop_at = match point {
        Point::Socket => Some(slice::Point::Socket),
        Point::AfterIp => Some(slice::Point::AfterIp),
        Point::BeforeDevice => Some(slice::Point::BeforeDevice),
        Point::AfterCopy | Point::FarEnd => None,
    };
    let slice = drop_at.map(|point| Slice::attach(point, socket, &testbed.snd, SND_DEVICE));
    let slice = slice.transpose()?;
    let before = sink.totals()?;
    let (datagram, to) = (vec![0x47; bytes], (RCV_IPV4, PORT));
    let send = || {
        // Points in the socket's own call say EPERM.
        drop(socket.send_to(&datagram, to));
    };
    (0..SENDS / 10).for_each(|_| send());
    timed.run(SENDS, || (0..SENDS).for_each(|_| send()));
    let sent = u64::from(SENDS + SENDS / 10);
    let is_whole = match (&slice, point) {
        (Some(slice), Point::BeforeDevice) => slice.dropped()? == sent * fragments(bytes),
        (Some(slice), _) => slice.dropped()? == sent,
        // The sink counts later fragments by their bytes.
        (None, _) => came(&sink.totals()?, &before) == (sent, sent * bytes as u64),
    };
    whole(is_whole, bytes)
}

/// Begins datagrams, each in a socket of its own, and throws them away while nobody looks at the
/// clock.
fn run_to_copy(
    sink: &Sink,
    sockets: &[UdpSocket],
    bytes: usize,
    timed: &mut Timed<'_>,
) -> Result<(), ExperimentError> {
    let before = sink.totals()?;
    let (datagram, rest) = (vec![0x47; bytes], vec![0x47; DATAGRAM_BYTES_TOO_MANY]);
    let to = SocketAddr::from((RCV_IPV4, PORT));
    let (mut is_whole, count) = (true, u32::try_from(sockets.len()).unwrap_or(u32::MAX));
    let begin = |socket: &UdpSocket| begin_datagram(socket, &datagram, to).is_ok();
    // The first round warms up.
    for round in 0..=SENDS / count {
        is_whole &= match round {
            0 => sockets.iter().all(begin),
            _ => timed.run(count, || sockets.iter().all(begin)),
        };
        for socket in sockets {
            let thrown = begin_datagram(socket, &rest, to);
            let errno = thrown.err().and_then(|error| Errno::from_io_error(&error));
            is_whole &= errno == Some(Errno::MSGSIZE);
        }
    }
    whole(is_whole && came(&settle(sink)?, &before) == (0, 0), bytes)
}

fn begin_datagram(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
    let socket = socket2::SockRef::from(socket);
    socket.send_to_with_flags(bytes, &to.into(), SendFlags::MORE.bits().cast_signed())?;
    Ok(())
}

/// A group of those at the sink's ports, in the network namespace of the socket.
fn open_group(socket: UdpSocket) -> Result<Group, ExperimentError> {
    let options = Options {
        way: Some(Way::Kernel),
        members_max: usize::from(MEMBERS),
        area_bytes: 0,
    };
    let mut group = Group::open(socket, &options)?;
    let member = |i| SocketAddr::from((RCV_IPV4, PORT + i));
    let members: Vec<_> = (0..MEMBERS).map(member).collect();
    group.set_members(&members)?;
    Ok(group)
}

/// Sends to the group, whose clones come to that point.
fn run_clones(
    testbed: &Testbed,
    sink: &Sink,
    group: &mut Group,
    (point, bytes): (ClonePoint, usize),
    timed: &mut Timed<'_>,
) -> Result<(), ExperimentError> {
    let (datagram, is_dropped) = (vec![0x47; bytes], point == ClonePoint::BeforeDevice);
    // Behind the group's own, which lets clones pass.
    let slice = is_dropped.then(|| {
        let at = slice::Point::Clones;
        Slice::attach(at, group.socket(), &testbed.snd, SND_DEVICE)
    });
    let slice = slice.transpose()?;
    let before = sink.totals()?;
    (0..GROUP_SENDS / 10).try_for_each(|_| group.send(&datagram).map(drop))?;
    timed.run(GROUP_SENDS, || {
        (0..GROUP_SENDS).try_for_each(|_| group.send(&datagram).map(drop))
    })?;
    let all = u64::from(GROUP_SENDS + GROUP_SENDS / 10) * u64::from(MEMBERS);
    let is_whole = match &slice {
        Some(slice) => slice.dropped()? == all,
        None => came(&settle(sink)?, &before) == (all, all * bytes as u64),
    };
    whole(is_whole, bytes)
}

/// Packets and bytes that came since.
fn came(now: &Counts, before: &Counts) -> (u64, u64) {
    (now.packets - before.packets, now.bytes - before.bytes)
}

fn whole(is_whole: bool, bytes: usize) -> Result<(), ExperimentError> {
    if is_whole {
        return Ok(());
    }
    let why =
        format!("datagrams of {bytes} bytes to be sliced were not dropped where they were to be");
    Err(ExperimentError::subject(why))
}

/// Packets that a datagram leaves in, each with a part of it and its UDP header that is a multiple
/// of 8 bytes.
fn fragments(bytes: usize) -> u64 {
    (bytes as u64 + 8).div_ceil(1480)
}

const PORT: u16 = 20_000;
const LOOK_EVERY: u16 = 1000;
/// Of a run.
const SENDS: u32 = 10_000;
/// The same of one to a group, whose members are as many as in what is judged.
const GROUP_SENDS: u32 = 200;
const MEMBERS: u16 = 480;
/// Datagrams whose clones are sliced, of those that are.
const CLONED: [usize; 2] = [100, 1000];
/// Datagrams that wait at once: few enough that what they lie in stays in the cache.
const WAITING: usize = 32;
/// No datagram is that long, whatever it begins with.
const DATAGRAM_BYTES_TOO_MANY: usize = 65_535;
