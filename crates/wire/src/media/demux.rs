//! What the packets of a transport stream say: clocks, programs, random-access points, faults.
//!
//! Each packet's header is looked at once; only those of tables, clocks and the starts of pictures are
//! read further. Every list here has a limit that no file can pass.

use super::clock::{Clock, ClockBuilder, PcrQuality, StreamTimes, TIMED_STREAMS_MAX, Verdict};
use super::header::Header;
use super::psi::{Change, Kind, PAT_PID, Program, SDT_PID, Sections, Stream, Tables};
use super::report::ClockDoubt;
use super::seek::{self, SeekKind, Seeker, Start};
use super::ts::{SeekPoint, TS_PACKET_BYTES};

/// Pids whose clocks are followed; PCRs on further ones are ignored.
const CLOCKS_MAX: usize = 16;

/// Streams whose random-access points are followed.
const SEEKERS_MAX: usize = 32;

const PIDS: usize = 8192;
const NULL_PID: u16 = 0x1fff;

/// Not in a list: the value of an index that stands for none.
const NONE: u16 = u16::MAX;

/// Looks at packets in file order.
#[derive(Clone, Debug)]
pub(crate) struct Demux {
    packets: u64,
    nulls: u64,
    transport_errors: u64,
    scrambled: u64,
    pids: Vec<Pid>,
    tables: Tables,
    sections: Vec<(u16, Sections)>,
    clocks: Vec<(u16, ClockBuilder)>,
    seekers: Vec<Seeker>,
    /// Of the first seekers' streams, in the same order.
    times: Vec<StreamTimes>,
    /// The newest packet that starts a PAT.
    pat: Option<u64>,
    /// The newest one after which a map has come, too: a decoder can start there.
    tables_start: Option<u64>,
}

/// All that the packets told.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) clock: Clock,
    pub(crate) seek_points: Vec<SeekPoint>,
    pub(crate) streams: StreamFacts,
}

/// What the packets told, without times.
#[derive(Clone, Debug)]
pub(crate) struct StreamFacts {
    pub(crate) programs: Vec<Program>,
    pub(crate) pcr: Option<(u16, PcrQuality)>,
    /// Whether there is a clock to take the time from.
    pub(crate) clocked: bool,
    /// Why it is not that of `pcr`.
    pub(crate) doubt: Option<ClockDoubt>,
    /// What the streams' stamps would be at media time 0, in ns.
    pub(crate) stamps_start_ns: u64,
    pub(crate) seek_kind: SeekKind,
    pub(crate) nulls: u64,
    pub(crate) transport_errors: u64,
    pub(crate) scrambled: u64,
    pub(crate) continuity_errors: u64,
    pub(crate) pids: usize,
}

#[derive(Clone, Debug)]
struct Pid {
    packets: u64,
    continuity_errors: u64,
    /// The last continuity counter, 0xff before the first.
    counter: u8,
    repeated: bool,
    /// A discontinuity was announced and no PCR has come since.
    discontinuity: bool,
    /// Indices into the demultiplexer's lists, or [`NONE`].
    section: u16,
    clock: u16,
    seeker: u16,
}

impl Demux {
    pub(crate) fn new() -> Self {
        let pid = Pid {
            packets: 0,
            continuity_errors: 0,
            counter: 0xff,
            repeated: false,
            discontinuity: false,
            section: NONE,
            clock: NONE,
            seeker: NONE,
        };
        let mut demux = Self {
            packets: 0,
            nulls: 0,
            transport_errors: 0,
            scrambled: 0,
            pids: vec![pid; PIDS],
            tables: Tables::default(),
            sections: Vec::new(),
            clocks: Vec::new(),
            seekers: Vec::new(),
            times: Vec::new(),
            pat: None,
            tables_start: None,
        };
        demux.watch_tables(PAT_PID);
        demux.watch_tables(SDT_PID);
        demux
    }

    /// Takes the next packet.
    pub(crate) fn packet(&mut self, packet: &[u8; TS_PACKET_BYTES]) {
        let number = self.packets;
        self.packets += 1;
        if packet[1] & 0x80 != 0 {
            // Not even its pid can be trusted.
            self.transport_errors += 1;
            return;
        }
        let header = Header::read(packet);
        if header.pid == NULL_PID {
            self.nulls += 1;
            return;
        }
        let pid = &mut self.pids[usize::from(header.pid)];
        let lost = pid.count(packet, &header);
        let (section, seeker) = (pid.section, pid.seeker);
        if header.pcr.is_some() {
            self.pcr(number, &header);
        }
        let scrambled = packet[3] & 0xc0 != 0;
        self.scrambled += u64::from(scrambled);
        let payload = if scrambled {
            &[]
        } else {
            &packet[header.payload..]
        };
        if section != NONE {
            self.table(number, &header, lost, payload);
        }
        if seeker != NONE && (header.unit_start || header.random_access) {
            let tables = self.tables_start.unwrap_or(number);
            let start = Start {
                tables,
                access: number,
            };
            self.seekers[usize::from(seeker)].observe(start, &header, payload);
            if let Some(times) = self.times.get_mut(usize::from(seeker))
                && header.unit_start
            {
                times.observe(number, payload);
            }
        }
    }

    /// Packets so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// What was learned; `fallback` is the clock to use if there is none in the stream. Of a file
    /// that `grows`, only up to the last packet whose time is settled.
    pub(crate) fn finish(mut self, fallback: Clock, grows: bool) -> Learned {
        let packets = self.packets;
        let mut programs = self.tables.finish();
        let continuity_errors = self.pids.iter().map(|pid| pid.continuity_errors).sum();
        let pids = self.pids.iter().filter(|pid| pid.packets > 0).count();
        for stream in programs.iter_mut().flat_map(|program| &mut program.streams) {
            let pid = &self.pids[usize::from(stream.pid)];
            stream.packets = if stream.pid == NULL_PID {
                0
            } else {
                pid.packets
            };
            stream.continuity_errors = pid.continuity_errors;
        }
        let mut clocks: Vec<_> = self
            .clocks
            .into_iter()
            .map(|(pid, builder)| {
                let end = if grows { builder.settled() } else { packets };
                (pid, builder.finish(end))
            })
            .collect();
        // Programs' clocks in their order; after them what no program names.
        clocks.sort_by_key(|(pid, (clock, _))| {
            let program = programs.iter().position(|p| p.pcr_pid == Some(*pid));
            (clock.is_none(), program.unwrap_or(usize::MAX))
        });
        let first = clocks.into_iter().next();
        let (pcr, mut clock) = first.map_or((None, None), |(pid, (clock, quality))| {
            (Some((pid, quality)), clock)
        });
        // What was told of a file that grows stays true: its clock is judged as a whole, when it has its end.
        let judged = clock.as_mut().zip(pcr.as_ref()).filter(|_| !grows);
        let doubt = judged.and_then(|(clock, pcr)| {
            let followed = streams_of(&programs, pcr.0, &self.pids);
            by_streams(clock, &pcr.1, &followed, &mut self.times, packets)
        });
        let clocked = clock.is_some();
        let clock = clock.unwrap_or(fallback);
        let seeker_of = |stream: &Stream| {
            let pid = &self.pids[usize::from(stream.pid)];
            self.seekers.get(usize::from(pid.seeker))
        };
        let (seek_kind, mut seek_points) = seek::points(&programs, seeker_of, &clock);
        let settled = seek_points.partition_point(|point| point.ts_packet < clock.packets());
        seek_points.truncate(settled.max(1));
        let streams = StreamFacts {
            programs,
            pcr,
            clocked,
            doubt,
            stamps_start_ns: StreamTimes::start_ns(self.times.iter(), &clock),
            seek_kind,
            nulls: self.nulls,
            transport_errors: self.transport_errors,
            scrambled: self.scrambled,
            continuity_errors,
            pids,
        };
        Learned {
            clock,
            seek_points,
            streams,
        }
    }

    fn pcr(&mut self, number: u64, header: &Header) {
        let pid = &mut self.pids[usize::from(header.pid)];
        let flagged = std::mem::take(&mut pid.discontinuity);
        if pid.clock == NONE && self.clocks.len() < CLOCKS_MAX {
            pid.clock = index(self.clocks.len());
            self.clocks.push((header.pid, ClockBuilder::default()));
        }
        if let (Some((_, clock)), Some(pcr)) =
            (self.clocks.get_mut(usize::from(pid.clock)), header.pcr)
        {
            clock.observe(number, pcr, flagged);
        }
    }

    fn table(&mut self, number: u64, header: &Header, lost: bool, payload: &[u8]) {
        if header.unit_start {
            if header.pid == PAT_PID {
                self.pat = Some(number);
            } else if header.pid != SDT_PID {
                self.tables_start = self.pat;
            }
        }
        let section = usize::from(self.pids[usize::from(header.pid)].section);
        let (pid, sections) = &mut self.sections[section];
        if lost {
            sections.reset();
        }
        let mut changes = Vec::new();
        sections.push(payload, header.unit_start, |section| {
            changes.push(self.tables.read(*pid, section));
        });
        for change in changes {
            match change {
                Change::None => {}
                Change::Programs => {
                    for i in 0..self.tables.programs.len() {
                        self.watch_tables(self.tables.programs[i].pmt_pid);
                    }
                }
                Change::Streams(program) => self.watch_streams(program),
            }
        }
    }

    /// Reads sections on `pid` from now on. Their number is that of programs, and limited there.
    fn watch_tables(&mut self, pid: u16) {
        let section = &mut self.pids[usize::from(pid)].section;
        if *section == NONE {
            *section = index(self.sections.len());
            self.sections.push((pid, Sections::default()));
        }
    }

    /// Follows the first video and the first sound of a program from now on.
    fn watch_streams(&mut self, program: usize) {
        let streams = &self.tables.programs[program].streams;
        for kind in [Kind::Video, Kind::Audio] {
            let Some(stream) = streams.iter().find(|stream| stream.kind == kind) else {
                continue;
            };
            let seeker = &mut self.pids[usize::from(stream.pid)].seeker;
            if *seeker == NONE && self.seekers.len() < SEEKERS_MAX {
                *seeker = index(self.seekers.len());
                self.seekers.push(Seeker::new(stream));
                if self.times.len() < TIMED_STREAMS_MAX {
                    self.times.push(StreamTimes::default());
                }
            }
        }
    }
}

impl Pid {
    /// Counts a packet, and says whether others are missing before it.
    fn count(&mut self, packet: &[u8; TS_PACKET_BYTES], header: &Header) -> bool {
        self.packets += 1;
        self.discontinuity |= header.discontinuity;
        let counter = packet[3] & 0x0f;
        let has_payload = packet[3] & 0x10 != 0;
        let expected = if has_payload {
            self.counter.wrapping_add(1) & 0x0f
        } else {
            self.counter
        };
        // A packet with payload may come twice (ISO/IEC 13818-1, section 2.4.3.3).
        let repeats = has_payload && counter == self.counter && !self.repeated;
        let follows = self.counter == 0xff || counter == expected || repeats;
        let lost = !follows && !header.discontinuity;
        self.repeated = repeats && counter != expected;
        self.counter = counter;
        self.continuity_errors += u64::from(lost);
        lost
    }
}

/// Has `clock` say what the times of its streams do, where they know better: how it ends, or all of
/// it. Then the reason comes back.
fn by_streams(
    clock: &mut Clock,
    quality: &PcrQuality,
    followed: &[(u16, usize)],
    times: &mut [StreamTimes],
    packets: u64,
) -> Option<ClockDoubt> {
    if let Some((at, doubt)) = contradiction(clock, followed, times)
        && let Some(own) = std::mem::take(&mut times[at]).into_clock(packets)
    {
        *clock = own;
        return Some(doubt);
    }
    let times = followed.iter().filter_map(|(_, at)| times.get(*at));
    if quality.discontinuities == 0
        && let Some(end_ns) = StreamTimes::end_ns(times, clock)
    {
        clock.set_end(end_ns);
    }
    None
}

/// Which of the streams contradicts the clock, and how, if each that says anything does: where it
/// is in the list. Of several it is the one that lasts longest.
fn contradiction(
    clock: &Clock,
    followed: &[(u16, usize)],
    times: &[StreamTimes],
) -> Option<(usize, ClockDoubt)> {
    let mut found: Option<(usize, ClockDoubt)> = None;
    for (pid, at) in followed {
        match times
            .get(*at)
            .map_or(Verdict::Unknown, |times| times.judge(clock))
        {
            Verdict::Agrees => return None,
            Verdict::Unknown => {}
            Verdict::Contradicts {
                stream_ns,
                clock_ns,
            } => {
                let doubt = ClockDoubt {
                    pid: *pid,
                    stream_ns,
                    clock_ns,
                };
                if found.is_none_or(|(_, longest)| longest.stream_ns < stream_ns) {
                    found = Some((*at, doubt));
                }
            }
        }
    }
    found
}

/// The followed streams of the program whose clock is on `pcr_pid`: their pids, and where they
/// are in the lists.
fn streams_of(programs: &[Program], pcr_pid: u16, pids: &[Pid]) -> Vec<(u16, usize)> {
    let program = programs
        .iter()
        .find(|program| program.pcr_pid == Some(pcr_pid));
    let streams = program.map_or(&[][..], |program| &program.streams);
    let followed = streams.iter().map(|stream| {
        let seeker = pids[usize::from(stream.pid)].seeker;
        (stream.pid, usize::from(seeker))
    });
    followed
        .filter(|(_, at)| *at != usize::from(NONE))
        .collect()
}

/// A list's index as it is kept per pid. The lists' limits are far below [`NONE`].
fn index(i: usize) -> u16 {
    u16::try_from(i).unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::synth::{MapEntry, Packet, Writer, pes, pictures};

    /// 10 ms in PCR ticks; a packet in these tests lasts that long.
    const PACKET_TICKS: u64 = 270_000;

    const IDR: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x65, 1, 2];
    const SLICE: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x41, 1, 2];

    /// What a stream says, 10 ms a packet where it has no clock.
    fn learn(stream: &[u8]) -> Learned {
        let mut demux = Demux::new();
        for packet in stream.chunks_exact(TS_PACKET_BYTES) {
            demux.packet(packet.first_chunk().unwrap());
        }
        let packets = demux.packets();
        demux.finish(Clock::constant(packets, 188 * 8 * 100), false)
    }

    /// PAT, and maps of programs whose video has the pid after the map's.
    fn tables(writer: &mut Writer, maps: &[u16]) {
        let programs: Vec<_> = (1..).zip(maps.iter().copied()).collect();
        writer.pat(&programs);
        for (number, pid) in programs {
            let video = MapEntry {
                pid: pid + 1,
                stream_type: 0x1b,
                descriptors: &[],
            };
            writer.pmt(pid, number, pid + 1, &[video]);
        }
    }

    fn video(pid: u16, payload: &[u8]) -> Packet<'_> {
        Packet {
            pid,
            unit_start: true,
            payload,
            ..Packet::default()
        }
    }

    fn nulls(writer: &mut Writer, count: usize) {
        (0..count).for_each(|_| writer.null());
    }

    fn points(learned: &Learned) -> Vec<u64> {
        learned
            .seek_points
            .iter()
            .map(|point| point.ts_packet)
            .collect()
    }

    #[test]
    fn seeking_starts_with_the_tables_if_they_are_near() {
        let mut writer = Writer::new();
        tables(&mut writer, &[100]);
        let mut expected = vec![0];
        for distance in [3, 48, 49] {
            nulls(&mut writer, 100);
            let tables_start = writer.packets();
            tables(&mut writer, &[100]);
            nulls(&mut writer, distance);
            let access = writer.packets();
            writer.packet(Packet {
                random_access: true,
                ..video(101, SLICE)
            });
            expected.push(if access - tables_start <= 50 {
                tables_start
            } else {
                access
            });
        }
        // A PAT whose map does not follow is of no use.
        nulls(&mut writer, 100);
        writer.pat(&[(1, 100)]);
        expected.push(writer.packets());
        writer.packet(Packet {
            random_access: true,
            ..video(101, SLICE)
        });
        let learned = learn(&writer.finish());
        assert_eq!(learned.streams.seek_kind, SeekKind::Flagged);
        assert_eq!(points(&learned), expected);
    }

    #[test]
    fn pictures_are_looked_for_where_none_is_flagged() {
        let mut writer = Writer::new();
        tables(&mut writer, &[100]);
        let mut expected = vec![0];
        for payload in [SLICE, IDR, SLICE, IDR] {
            nulls(&mut writer, 60);
            if payload == IDR {
                expected.push(writer.packets());
            }
            writer.packet(video(101, payload));
        }
        let learned = learn(&writer.finish());
        assert_eq!(
            (learned.streams.seek_kind, points(&learned)),
            (SeekKind::Pictures, expected)
        );
    }

    #[test]
    fn sound_alone_starts_anywhere() {
        let mut writer = Writer::new();
        writer.pat(&[(1, 100)]);
        writer.pmt(
            100,
            1,
            101,
            &[MapEntry {
                pid: 101,
                stream_type: 0x03,
                descriptors: &[],
            }],
        );
        nulls(&mut writer, 100);
        let expected = vec![0, writer.packets(), writer.packets() + 1];
        writer.packet(video(101, &[0, 0, 1, 0xc0]));
        writer.packet(video(101, &[0, 0, 1, 0xc0]));
        writer.packet(video(101, &[1, 0, 1, 0xc0]));
        let learned = learn(&writer.finish());
        assert_eq!(
            (learned.streams.seek_kind, points(&learned)),
            (SeekKind::Sound, expected)
        );
    }

    #[test]
    fn without_tables_there_is_only_the_start() {
        let mut writer = Writer::new();
        nulls(&mut writer, 100);
        writer.packet(Packet {
            random_access: true,
            ..video(101, IDR)
        });
        let learned = learn(&writer.finish());
        assert_eq!(
            (learned.streams.seek_kind, points(&learned)),
            (SeekKind::None, vec![0])
        );
    }

    #[test]
    fn the_clock_is_that_of_the_first_program_that_has_one() {
        // Program 1 (pids 100, 101) has one PCR and thus no clock, 2 one at half speed, 3 and a stray pid
        // others.
        let mut writer = Writer::new();
        tables(&mut writer, &[100, 200, 300]);
        for i in 0..100 {
            for (pid, ticks) in [(999, 1), (301, 2), (201, 8), (101, 0)] {
                let pcr = (ticks > 0 || i == 50).then_some(i * ticks * PACKET_TICKS);
                writer.packet(Packet {
                    pcr,
                    ..video(pid, SLICE)
                });
            }
        }
        let learned = learn(&writer.finish());
        let (pid, quality) = learned.streams.pcr.unwrap();
        assert_eq!(
            (pid, quality.count, learned.streams.clocked),
            (201, 100, true)
        );
        // 8 packet times in 4 packets.
        assert_eq!(
            learned.clock.time_ns(404) - learned.clock.time_ns(400),
            80_000_000
        );
    }

    /// What follows the last reference at the rate before it says nothing of how long that picture
    /// lasts.
    #[test]
    fn a_last_picture_lasts_as_long_as_the_shortest() {
        let lasts_ms = |last: &[(u64, u64)]| {
            let stream = pictures(&[&[(5, 40); 25][..], last].concat(), 27_000);
            let learned = learn(&stream);
            let packets = stream.len() as u64 / 188;
            // Behind the tables.
            (learned.clock.time_ns(packets) - learned.clock.time_ns(2)) / 1_000_000
        };
        // 40 s and 0.4 s, if the packets were asked.
        assert_eq!(lasts_ms(&[(5, 4000), (50, 4000)]), 5040);
        assert_eq!(lasts_ms(&[(50, 4000), (5, 4000)]), 5040);
        // One large picture behind small ones.
        assert_eq!(lasts_ms(&[(500, 40)]), 1040);
        // References often enough are believed to the packet.
        assert_eq!(lasts_ms(&[(10, 40)]), 1080);
    }

    /// References a thousand times too slow would have it sent a thousand times too fast, and the
    /// other way round.
    #[test]
    fn references_that_contradict_their_streams_are_not_believed() {
        let film = [(5, 40); 250];
        for (pcr_per_ms, clock_ms) in [(27, 9), (271_000, 99_968), (2_699, 995)] {
            let learned = learn(&pictures(&film, pcr_per_ms));
            let doubt = learned.streams.doubt.expect("it is grossly wrong");
            assert_eq!((doubt.pid, doubt.stream_ns), (0x100, 9_960_000_000));
            assert_eq!(doubt.clock_ns / 1_000_000, clock_ms, "{pcr_per_ms}");
            let time_ms = |packet| learned.clock.time_ns(packet) / 1_000_000;
            assert_eq!(time_ms(2 + 5 * 100) - time_ms(2), 4000);
            assert_eq!(time_ms(2 + 5 * 250) - time_ms(2), 10_000);
            assert!(learned.streams.clocked && learned.streams.pcr.is_some());
        }
        // Wrong, but not grossly; and too short to say.
        for (pictures_, pcr_per_ms) in [(250, 2_700), (250, 269_000), (250, 27_000), (25, 27)] {
            let learned = learn(&pictures(&film[..pictures_], pcr_per_ms));
            assert_eq!(learned.streams.doubt, None, "{pictures_} {pcr_per_ms}");
        }
    }

    #[test]
    fn times_are_followed_of_so_many_streams() {
        for (programs, is_followed) in [(TIMED_STREAMS_MAX, true), (TIMED_STREAMS_MAX + 1, false)] {
            let mut writer = Writer::new();
            let maps: Vec<u16> = (0_u16..).map(|i| 100 + 2 * i).take(programs).collect();
            tables(&mut writer, &maps);
            // Only the last program has pictures, and a clock a hundred times too slow.
            let pid = maps.last().unwrap() + 1;
            for i in 0..200 {
                writer.packet(Packet {
                    pcr: Some(i * PACKET_TICKS / 100),
                    ..video(pid, &pes(i * PACKET_TICKS / 300, IDR))
                });
                nulls(&mut writer, 9);
            }
            let learned = learn(&writer.finish());
            assert_eq!(learned.streams.doubt.is_some(), is_followed);
        }
    }

    #[test]
    fn without_a_clock_the_fallback_holds() {
        let mut writer = Writer::new();
        tables(&mut writer, &[100]);
        writer.packet(Packet {
            pcr: Some(5),
            ..video(101, SLICE)
        });
        nulls(&mut writer, 50);
        let learned = learn(&writer.finish());
        assert!(!learned.streams.clocked);
        assert_eq!(learned.clock.time_ns(50), 500_000_000);
    }

    #[test]
    fn an_announced_discontinuity_counts_until_the_next_reference() {
        let mut writer = Writer::new();
        for i in 0..100_u64 {
            // The flag comes a packet before the first reference of the new base, 9 s on.
            let pcr = (i != 49).then_some(i * PACKET_TICKS + u64::from(i >= 50) * 9 * 27_000_000);
            let discontinuity = i == 49;
            writer.packet(Packet {
                pcr,
                discontinuity,
                ..video(101, SLICE)
            });
        }
        let learned = learn(&writer.finish());
        assert_eq!(learned.streams.pcr.unwrap().1.discontinuities, 1);
        assert_eq!(learned.clock.time_ns(100), 1_000_000_000);
    }

    #[test]
    fn faults_are_counted_and_tolerated() {
        let mut writer = Writer::new();
        tables(&mut writer, &[100]);
        for _ in 0..8 {
            writer.packet(video(101, SLICE));
        }
        nulls(&mut writer, 5);
        let mut packets: Vec<Vec<u8>> = writer
            .finish()
            .chunks(TS_PACKET_BYTES)
            .map(<[u8]>::to_vec)
            .collect();
        // Twice the same is allowed, three times is not; nor is a missing one.
        packets.insert(3, packets[3].clone());
        packets.insert(6, packets[6].clone());
        packets.insert(6, packets[6].clone());
        packets.remove(10);
        packets[11][1] |= 0x80;
        packets[9][3] |= 0x80;
        let learned = learn(&packets.concat());
        let facts = &learned.streams;
        // The third copy, the missing packet, and the one whose header cannot be trusted.
        assert_eq!(facts.continuity_errors, 2);
        assert_eq!(
            (facts.nulls, facts.transport_errors, facts.scrambled),
            (5, 1, 1)
        );
        assert_eq!(facts.programs[0].streams[0].packets, 9);
        assert_eq!(facts.programs[0].streams[0].continuity_errors, 2);
        assert_eq!(facts.pids, 3);
    }

    #[test]
    fn clocks_end_at_their_limit() {
        let mut writer = Writer::new();
        let pids = 100..=100 + u16::try_from(CLOCKS_MAX).unwrap();
        // The last is the program's, but comes too late.
        writer.pat(&[(1, 50)]);
        let late = *pids.end();
        writer.pmt(50, 1, late, &[]);
        for pid in pids {
            for i in 0..10 {
                writer.packet(Packet {
                    pid,
                    pcr: Some(i * PACKET_TICKS),
                    ..Packet::default()
                });
            }
        }
        let stream = writer.finish();
        assert_eq!(learn(&stream).streams.pcr.unwrap().0, 100);
        // One less, and it fits.
        let rest = [&stream[..2 * 188], &stream[12 * 188..]].concat();
        assert_eq!(learn(&rest).streams.pcr.unwrap().0, late);
    }

    #[test]
    fn followed_streams_end_at_their_limit() {
        for (programs, kind) in [
            (SEEKERS_MAX, SeekKind::Flagged),
            (SEEKERS_MAX + 1, SeekKind::None),
        ] {
            let mut writer = Writer::new();
            let maps: Vec<u16> = (0_u16..).map(|i| 100 + 2 * i).take(programs).collect();
            tables(&mut writer, &maps);
            nulls(&mut writer, 100);
            // Only the last program has pictures.
            let pid = maps.last().unwrap() + 1;
            writer.packet(Packet {
                random_access: true,
                ..video(pid, SLICE)
            });
            assert_eq!(learn(&writer.finish()).streams.seek_kind, kind);
        }
    }
}
