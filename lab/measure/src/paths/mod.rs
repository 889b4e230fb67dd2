//! `onrush-lab bench paths`: what moving a file over a socket costs on each path of the catalogue.
//!
//! The paper's experiment (Halvorsen, Dalseng, Griwodz: *Assessment of Data Path Implementations
//! for Download and Streaming*) on a [testbed](onrush_testkit::testbed): a file of some size, cut
//! into packets of some size, sent once on each path, turn about on one processor. UDP ends in a
//! sink that counts and drops, TCP in a receiver that drains. Processor time is the sender's own
//! (getrusage) and that of kernel threads made for it; how busy the whole machine was stands beside
//! it. A run is void unless exactly what was sent arrived, and unless the path did it the way it is
//! said to.
//!
//! Paths that send packet images are measured with the images at hand, as others with the file in
//! the page cache: making them is measured apart. Cold runs have neither: `mincore` must count no
//! page of the file before each. With a [`Touch`] each packet is passed over once on its way, where
//! the path lets a program have it; images that are changed are made for that one send, in the time
//! that is measured. Then some packets of each kind are compared with the file, byte for byte.

mod report;
mod run;
mod verify;

use onrush_paths::{Name, Piece, Plan, PlanError, Touch};
use onrush_primitives::named;
use onrush_testkit::testbed::Mode;
use onrush_wire::media::{self, RtpOrigin, TS_PACKET_BYTES};
use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T};
use serde::{Deserialize, Serialize};

use crate::counters::Counted;
use crate::error::{ExperimentError, refuse};
use crate::experiment::{Environment, Keep, Record};
use crate::setup::{on_core, two_cores};
pub use report::report;
use run::Bench;

/// Its name on the command line and in files.
pub const NAME: &str = "paths";

/// Bytes of a file that is sent, at the most: images of it must fit in memory.
pub const FILE_BYTES_MAX: u64 = 4 << 30;

/// The UDP payload that fills an Ethernet frame.
pub const MTU_PACKET_BYTES: u32 = 1472;

/// What is measured.
pub type PathsRecord = Record<Settings, Sample>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a packet on UDP or in one call on TCP, RTP header included.
    pub packet_bytes: Vec<u32>,
    /// How often each path has its turn.
    pub repeats: u32,
    /// Over which transports.
    #[serde(rename = "roads")]
    pub transports: Vec<Transport>,
    /// The paths, by name.
    pub paths: Vec<String>,
    /// What is done to the data on its way, by name; empty for nothing.
    #[serde(default)]
    pub touches: Vec<String>,
    /// Whether to measure with the file out of memory, too.
    pub cold: bool,
    /// Whether instructions, cycles and misses are counted; see [`Counted`].
    #[serde(default)]
    pub counters: bool,
    /// Makes the device unable to send without copying, behind the paths' backs: no run of one that
    /// says it does not copy may count then.
    #[serde(default)]
    pub planted_copies: bool,
    /// Changes a byte on the way of packets that are compared with the file: no run may count then.
    #[serde(default)]
    pub planted_byte: bool,
}

named! {
    /// Where packets go.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Transport {
        /// UDP, and the device cuts trains.
        Uso = "uso",
        /// UDP, and the kernel cuts trains.
        SoftwareGso = "software-gso",
        /// TCP.
        Tcp = "tcp",
    }
}

/// One file sent once, or one sample of what a copy or a crossing takes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "measured", rename_all = "snake_case")]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all samples are the largest"
)]
pub enum Sample {
    /// A file sent.
    Path(Run),
    /// A copy in memory: the paper's figure 2.
    Copy {
        /// How much.
        bytes: u32,
        /// How long it took, on average of many.
        ns: f64,
    },
    /// `getppid`, a system call that does nothing (the paper's `getpid` may be answered without
    /// one).
    Crossing {
        /// How long it took, on average of many.
        ns: f64,
    },
}

/// One file sent once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Where to.
    #[serde(rename = "road")]
    pub transport: Transport,
    /// By which path.
    pub path: String,
    /// Bytes of a packet.
    pub packet_bytes: u32,
    /// What was done to the data on its way.
    #[serde(default = "untouched")]
    pub touch: String,
    /// Whether nothing of the file was in memory.
    pub is_cold: bool,
    /// Which repeat, from 0. Runs of one repeat followed each other, and are compared.
    pub repeat: u32,
    /// How often it had been tried before.
    pub attempt: u32,
    /// Why it proves nothing; empty if it does.
    pub void: Vec<String>,
    /// The sender's processor time, in the program and in the kernel, to the nanosecond
    /// (CLOCK_THREAD_CPUTIME_ID).
    pub sender_ns: u64,
    /// Time of the softirq thread of its processor, which the kernel charges with what the sender
    /// did before ([`SenderClock`](crate::machine::SenderClock)); 0 if the sender sleeps while
    /// others work for it.
    #[serde(default)]
    pub softirq_ns: u64,
    /// What the processor counted of the sender meanwhile, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// Its time in the program, as getrusage tells it: in steps of the kernel's tick.
    pub user_ns: u64,
    /// Its time in the kernel, likewise.
    pub system_ns: u64,
    /// Time of kernel threads that work for it.
    pub helper_ns: u64,
    /// What making packet images took before, from the page cache; 0 if there are none, or if it is
    /// in the times above because the run is cold.
    pub prepare_ns: u64,
    /// How long it took.
    pub wall_ns: u64,
    /// How long all processors were busy, for whomever, in steps of 10 ms.
    pub machine_busy_ns: u64,
    /// Packets sent.
    pub packets: u64,
    /// Sends that carried them.
    pub sends: u64,
    /// Entries into the kernel, without those that made images.
    pub crossings: u64,
    /// Sends made without a copy, as the kernel reported.
    pub sends_zero_copy: u64,
    /// Sends copied that should not have been, as the kernel reported.
    pub sends_copied: u64,
    /// Packets that arrived.
    pub arrived_packets: u64,
    /// Bytes that arrived.
    pub arrived_bytes: u64,
    /// Packets of this kind that were compared with the file before, byte for byte.
    #[serde(default)]
    pub verified_packets: u64,
}

fn untouched() -> String {
    Touch::None.name().to_owned()
}

/// Carries the experiment out. `progress` hears before every turn which part is done and what comes
/// next.
///
/// # Errors
///
/// If it could not be carried out; see [`ExperimentError::needs_root`]. Runs that prove nothing are
/// no error: they are in the record, with the reason.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    progress: impl FnMut(f64, &str) + Send,
    keep: Keep<'_, Settings, Sample>,
) -> Result<PathsRecord, ExperimentError> {
    settings.check()?;
    let (rest, core) = two_cores("the sender")?;
    let mut environment = Environment::here(version, command);
    on_core(core, || {
        let mut bench = Bench::set_up(settings, (core, rest))?;
        environment.network = bench.network();
        let mut record = Record::new(NAME, environment, settings.clone());
        bench.run_all(&mut record, progress, keep)?;
        Ok(record)
    })
}

/// A stream's plan as the catalogue's paths take it, with the RTP headers that its images would
/// have.
///
/// # Errors
///
/// If a packet is not one that a datagram holds; plans made by `wire` have none such.
pub fn plan_of(plan: &media::ts::Plan, origin: RtpOrigin) -> Result<Plan, PlanError> {
    let index = plan.index();
    let per_packet = plan.rtp_packets().max(1);
    let ts_per_rtp = (plan.image_bytes_max() - HEADER_BYTES) / TS_PACKET_BYTES;
    let mut pieces: Vec<Piece> = Vec::new();
    let mut ends = Vec::with_capacity(usize::try_from(per_packet).unwrap_or(0));
    let mut runs = index.runs().iter().peekable();
    for ts_packet in 0..index.ts_packets() {
        while runs
            .peek()
            .is_some_and(|run| run.first + run.packets <= ts_packet)
        {
            runs.next();
        }
        let run = runs.peek().expect("every packet is in a run");
        let offset = run.file_offset + (ts_packet - run.first) * u64::from(run.packet_stride);
        let is_first = ts_packet % ts_per_rtp as u64 == 0;
        match pieces.last_mut() {
            Some(last) if !is_first && last.offset + u64::from(last.bytes) == offset => {
                last.bytes += 188;
            }
            _ => pieces.push(Piece { offset, bytes: 188 }),
        }
        if is_first {
            ends.push(0);
        }
        *ends.last_mut().expect("a packet has begun") = pieces.len();
    }
    let headers = (0..plan.rtp_packets()).flat_map(|number| {
        let header = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence: origin.sequence_of(number),
            timestamp: origin.timestamp_of(plan.due_ns(number)),
            ssrc: origin.ssrc,
        };
        header.to_bytes()
    });
    Plan::new(pieces, ends)?.with_headers(HEADER_BYTES, headers.collect())
}

impl Settings {
    /// The whole experiment.
    #[must_use]
    pub fn full() -> Self {
        Self {
            file_bytes: 256 << 20,
            packet_bytes: vec![256, 512, 1024, MTU_PACKET_BYTES, 2048, 4096, 8192],
            repeats: 10,
            transports: vec![Transport::Uso, Transport::SoftwareGso, Transport::Tcp],
            paths: Name::ALL.map(|name| name.as_str().to_owned()).to_vec(),
            touches: Vec::new(),
            cold: true,
            counters: false,
            planted_copies: false,
            planted_byte: false,
        }
    }

    /// Packets that fill a frame, and one size to each side; a small file; under a minute.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            file_bytes: 32 << 20,
            packet_bytes: vec![512, MTU_PACKET_BYTES, 4096],
            repeats: 3,
            cold: false,
            ..Self::full()
        }
    }

    /// What is done to the data, once each: nothing, unless something is asked for.
    #[must_use]
    pub fn touches(&self) -> Vec<Touch> {
        let is_asked = |touch: &Touch| self.touches.iter().any(|name| name == touch.name());
        let asked: Vec<_> = Touch::ALL.into_iter().filter(is_asked).collect();
        match asked.is_empty() {
            true => vec![Touch::None],
            false => asked,
        }
    }

    /// Refuses what cannot be measured, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`ExperimentError::Settings`].
    pub fn check(&self) -> Result<(), ExperimentError> {
        let nothing = self.repeats == 0 || self.transports.is_empty() || self.paths.is_empty();
        let is_none = |bytes: &&u32| !(64..=32_768).contains(*bytes);
        let packet = self.packet_bytes.iter().find(is_none);
        let mut unknown = self
            .paths
            .iter()
            .filter_map(|name| name.parse::<Name>().err());
        let unknown = unknown.next();
        let touches = self.touches.iter();
        let no_touch = touches
            .filter_map(|name| name.parse::<Touch>().err())
            .next();
        refuse! { ExperimentError::Settings;
            !(1 << 20..=FILE_BYTES_MAX).contains(&self.file_bytes)
                => "{} bytes: ask for 1 MiB to 4 GiB", self.file_bytes;
            packet.is_some() => "packets of {} bytes: ask for 64 to 32768", packet.unwrap_or(&0);
            unknown.is_some() => "{}", unknown.unwrap_or_default();
            no_touch.is_some() => "{}", no_touch.unwrap_or_default();
            nothing => "nothing to do: ask for a repeat, a transport and a path";
        }
        Ok(())
    }
}

impl Transport {
    fn mode(self) -> Mode {
        match self {
            Self::SoftwareGso => Mode::SoftwareGso,
            _ => Mode::Uso,
        }
    }

    fn takes(self, name: Name) -> bool {
        match self {
            Self::Tcp => name.takes_tcp(),
            _ => name.takes_udp(),
        }
    }
}

impl Run {
    /// Processor time for it: the sender's and that of its kernel threads.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.sender_cost_ns() + self.helper_ns
    }

    /// Processor time of the sender, with what the kernel charged to another for it.
    #[must_use]
    pub fn sender_cost_ns(&self) -> u64 {
        self.sender_ns + self.softirq_ns
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::time::Duration;

    use onrush_paths::{Mover, Source};
    use onrush_wire::media::FilePiece;
    use onrush_wire::media::ts::synth;
    use onrush_wire::media::ts::{Packetisation, ScanOptions, Scanner};

    use super::*;

    #[test]
    fn a_stream_is_sent_as_its_plan_has_it_by_any_path() {
        let stream = synth::constant_rate(200, 0, 10_152);
        // M2TS: four bytes in front of each transport packet.
        let m2ts: Vec<u8> = stream
            .chunks(TS_PACKET_BYTES)
            .flat_map(|packet| [&[0, 0, 0, 0], packet].concat())
            .collect();
        for bytes in [stream, m2ts] {
            let mut scanner = Scanner::new(ScanOptions::default());
            scanner.push(&bytes).expect("a stream");
            let index = Arc::new(scanner.finish().expect("a stream"));
            let packetisation = Packetisation {
                ts_packets_per_rtp: 7,
                burst_ns: 20_000_000,
            };
            let wire = media::ts::Plan::new(index, packetisation);
            let origin = RtpOrigin {
                sequence: 65_530,
                timestamp: 7,
                ssrc: 9,
            };
            let plan = plan_of(&wire, origin).expect("packets of a frame");
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&bytes).expect("room");
            let source = Arc::new(Source { file, plan });
            for name in [
                Name::ReadWritev,
                Name::RtpSendfile,
                Name::Gso,
                Name::Krtpsendfile,
            ] {
                let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
                receiver
                    .set_read_timeout(Some(Duration::from_secs(10)))
                    .expect("an option");
                let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
                sender
                    .connect(receiver.local_addr().expect("bound"))
                    .expect("loopback");
                let mut mover = Mover::open(name, &source, 1 << 20).expect("available");
                mover.send(&sender, 0..source.plan.packets()).expect("sent");
                for number in 0..wire.rtp_packets() {
                    let mut image = vec![0; wire.image_bytes_max()];
                    let whole = FilePiece {
                        offset: 0,
                        bytes: &bytes,
                    };
                    wire.write_images(number..number + 1, &[whole], origin, &mut image)
                        .expect("at hand");
                    let mut packet = [0; 2000];
                    let length = receiver.recv(&mut packet).expect("a packet");
                    assert!(
                        packet[..length] == image[..length],
                        "{name}: packet {number}"
                    );
                }
            }
        }
    }
}
