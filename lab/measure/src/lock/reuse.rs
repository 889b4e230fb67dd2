//! What a message costs that is sent from where it lies, the sooner its memory is used again the
//! less: copied, registered each time, or found in a cache of registrations.
//!
//! The paper advises to keep registrations and assumes where that pays; here it is measured. A
//! message lies in memory of its own, is sent so many times, and its memory is unmapped; then comes
//! the next. All ways send by the same ring, but for the copy that the kernel makes, over a veth
//! pair whose far end counts each byte. A send returns when the memory is the program's again.

mod report;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use onrush_group::{Group, Options, Way as Sending};
use onrush_lock::bare::Private;
use onrush_lock::{Budget, Keep, Sealed};
use onrush_primitives::named;
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{self, RCV_DEVICE, RCV_IPV4, SND_IPV4, Testbed};
use serde::{Deserialize, Serialize};

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::group::settle;
use crate::setup::{in_turn, network, on_core, system, two_cores, until_valid};
use crate::stats::{ratio, to_f64};
pub use report::report;

/// Its name in files.
pub const NAME: &str = "lock-reuse";

/// What is measured.
pub type ReuseRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// How long messages are.
    pub sizes_bytes: Vec<usize>,
    /// How often the memory of a message is used before the next.
    pub uses: Vec<u32>,
    /// Sends of a sample, about.
    pub sends: u32,
    /// Bytes of a sample, unless that would be less than one message; messages that would send more
    /// are left out.
    pub sample_bytes_max: usize,
    /// How often everything has its turn.
    pub repeats: u32,
}

named! {
    /// How a message gets to where it is sent from.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Way {
        /// Not at all: the kernel copies it into its socket buffers.
        KernelCopy = "copied by the kernel",
        /// It is copied to memory that is registered.
        Copy = "copied to registered memory",
        /// Its memory is registered for each use.
        Registered = "registered each time",
        /// It is found in a cache that watches its memory.
        Watched = "watched cache",
        /// It is found in a cache, in memory that nobody can change.
        Sealed = "sealed cache",
    }
}

/// One sample.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// How.
    pub way: Way,
    /// How long each message was.
    pub bytes: usize,
    /// How often each was sent.
    pub uses: u32,
    /// Which repeat, from 0. What has the same was measured turn about.
    pub repeat: u32,
    /// Messages.
    pub messages: u32,
    /// Time of a send, in ns, what the message's memory cost included.
    pub send_ns: f64,
    /// Time to unmap a message's memory, in ns; 0 where it is not unmapped.
    pub unmap_ns: f64,
    /// Why it does not count; empty if it does.
    pub void: String,
}

impl Settings {
    /// All of it: some minutes.
    #[must_use]
    pub fn full() -> Self {
        Self {
            sizes_bytes: (3..=12).map(|shift| 1 << (2 * shift)).collect(),
            uses: vec![1, 2, 5, 10, 100, 1000],
            sends: 200,
            sample_bytes_max: 1 << 30,
            repeats: 7,
        }
    }

    /// Few sizes and uses: a minute.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            sizes_bytes: vec![64, 4 << 10, 64 << 10, 1 << 20],
            uses: vec![1, 10, 100],
            repeats: 3,
            sends: 100,
            ..Self::full()
        }
    }

    /// Messages of a sample; none if it is left out.
    fn messages(&self, bytes: usize, uses: u32) -> u32 {
        let most = self.sample_bytes_max / (bytes * uses as usize).max(1);
        let wanted = (self.sends / uses).max(1);
        wanted.min(u32::try_from(most).unwrap_or(u32::MAX))
    }
}

/// Carries it out. `version` and `command` go into the record; `progress` hears how much of the
/// whole is done.
///
/// # Errors
///
/// If it could not run. What went wrong with a sample makes that sample void.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64) + Send,
) -> Result<ReuseRecord, ExperimentError> {
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    let (_, core) = two_cores("the sender")?;
    let mut bench = Bench::set_up(settings)?;
    record.environment.network = network(&bench.testbed, &["tx-"])?;
    let runs = &mut record.runs;
    on_core(core, || bench.run_all(settings, runs, &mut progress))?;
    Ok(record)
}

struct Bench {
    testbed: Testbed,
    sink: Sink,
    groups: Vec<(Way, Group)>,
    /// What is copied to, by [`Way::Copy`].
    registered: Sealed,
}

/// A message, in memory of its own.
enum Message {
    Private(Private),
    Sealed(Sealed),
}

impl Bench {
    fn set_up(settings: &Settings) -> Result<Self, ExperimentError> {
        let testbed = Testbed::new(testbed::Options::default())?;
        let sink = Sink::attach_seldom_looking(&testbed.rcv, RCV_DEVICE, PORT..=PORT, LOOK_EVERY)?;
        let groups = Way::ALL.into_iter().map(|way| {
            let socket = testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0)));
            let options = Options {
                way: Some(match way {
                    Way::KernelCopy => Sending::Sendmmsg,
                    _ => Sending::Uring,
                }),
                members_max: 1,
                area_bytes: 0,
            };
            let mut group = Group::open(socket.map_err(system("open a socket"))?, &options)?;
            group.set_members(&[(RCV_IPV4, PORT).into()])?;
            group.set_cache(Budget {
                keep: match way {
                    Way::Watched => Keep::Watched,
                    _ => Keep::Sealed,
                },
                entries_max: 16,
                bytes_max: 256 << 20,
            })?;
            Ok((way, group))
        });
        let groups = groups.collect::<Result<_, ExperimentError>>()?;
        let most = settings.sizes_bytes.iter().max().copied().unwrap_or(1);
        Ok(Self {
            testbed,
            sink,
            groups,
            registered: Sealed::map(most)?,
        })
    }

    fn run_all(
        &mut self,
        settings: &Settings,
        runs: &mut Vec<Run>,
        progress: &mut impl FnMut(f64),
    ) -> Result<(), ExperimentError> {
        let cases: Vec<_> = settings
            .sizes_bytes
            .iter()
            .flat_map(|&bytes| settings.uses.iter().map(move |&uses| (bytes, uses)))
            .filter(|&(bytes, uses)| settings.messages(bytes, uses) > 0)
            .collect();
        let all = cases.len() as u64 * u64::from(settings.repeats);
        let mut done = 0;
        for (bytes, uses) in cases {
            for repeat in 0..settings.repeats {
                for way in in_turn(&Way::ALL, repeat) {
                    let case = Run {
                        way,
                        bytes,
                        uses,
                        repeat,
                        messages: settings.messages(bytes, uses),
                        send_ns: 0.0,
                        unmap_ns: 0.0,
                        void: String::new(),
                    };
                    let is_valid = |run: &Run| run.void.is_empty();
                    until_valid(runs, is_valid, |_| self.run(case.clone()))?;
                }
                done += 1;
                progress(ratio(done, all));
            }
        }
        Ok(())
    }

    fn run(&mut self, mut case: Run) -> Result<Run, ExperimentError> {
        // Warm: the ring, and whatever the way keeps from message to message.
        self.message(&case)?;
        settle(&self.sink)?;
        self.sink.reset()?;
        let (mut sending, mut unmapping) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..case.messages {
            let (sent, unmapped) = self.message(&case)?;
            sending += sent;
            unmapping += unmapped;
        }
        let arrived = settle(&self.sink)?;
        let sends = u64::from(case.messages) * u64::from(case.uses);
        let due = (
            sends * case.bytes.div_ceil(PACKET_BYTES) as u64,
            sends * case.bytes as u64,
        );
        if (arrived.packets, arrived.bytes) != due {
            let (packets, due) = (arrived.packets, due.0);
            case.void = format!("{packets} of {due} packets arrived");
        }
        let of = |time: Duration, count: u64| time.as_secs_f64() * 1e9 / to_f64(count);
        case.send_ns = of(sending, sends);
        case.unmap_ns = of(unmapping, case.messages.into());
        Ok(case)
    }

    /// Sends a message as often as its memory is used; the time of that, and of unmapping it.
    fn message(&mut self, case: &Run) -> Result<(Duration, Duration), ExperimentError> {
        let message = match case.way {
            Way::Sealed => Message::Sealed(Sealed::map(case.bytes)?),
            _ => Message::Private(Private::map(case.bytes).map_err(system("map memory"))?),
        };
        let message = message.written();
        let of_way = |(way, _): &&mut (Way, Group)| *way == case.way;
        let group = self.groups.iter_mut().find(of_way);
        let (_, group) = group.expect("each way has one");
        let begin = Instant::now();
        for _ in 0..case.uses {
            let bytes = &message.bytes()[..case.bytes];
            if case.way == Way::Copy {
                self.registered[..case.bytes].copy_from_slice(bytes);
                group.send_cached(&self.registered[..case.bytes], PACKET_BYTES)?;
            } else {
                group.send_cached(bytes, PACKET_BYTES)?;
            }
        }
        let sent = begin.elapsed();
        let begin = Instant::now();
        let is_unmapped = matches!(message, Message::Private(_));
        drop(message);
        let unmapped = begin.elapsed();
        Ok((
            sent,
            if is_unmapped {
                unmapped
            } else {
                Duration::ZERO
            },
        ))
    }
}

impl Message {
    /// With every page in memory.
    fn written(mut self) -> Self {
        match &mut self {
            Self::Private(private) => private.write(0x47),
            Self::Sealed(sealed) => sealed.fill(0x47),
        }
        self
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Private(private) => private,
            Self::Sealed(sealed) => sealed,
        }
    }
}

const PORT: u16 = 20_000;
const LOOK_EVERY: u16 = 1000;
/// As many bytes of payload as a packet of an Ethernet takes, to whole hundreds.
const PACKET_BYTES: usize = 1400;
