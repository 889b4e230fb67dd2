//! What the packets of a transport stream say: clocks, programs, random-access points, faults.
//!
//! Each packet's header is looked at once; only those of tables, clocks and the starts of pictures
//! are read further. Every list here has a limit that no file can pass.
//!
//! The file's time is the clock of its first program. Where a map names another pid for it, or a
//! table puts another program in its place, as in recordings that were put behind one another, the
//! clock goes on with that, and so do the places to start.

use super::clock::{Clock, ClockBuilder, PcrQuality, StreamTimes, TIMED_STREAMS_MAX, Verdict};
use super::facts::{ClockDoubt, StreamFacts};
use super::header::Header;
use super::index::TS_PACKET_BYTES;
use super::picture::Picture;
use super::psi::{ASSOCIATIONS_MAX, Change, Kind, PAT_PID, Program, SDT_PID, Sections, Tables};
use super::seek::{self, REPLACEMENTS_MAX, Replacement, SeekPoint, Seeker, Start};

/// Pids whose clocks are followed; PCRs on further ones are ignored.
const CLOCKS_MAX: usize = 16;

/// Streams whose random-access points are followed.
const SEEKERS_MAX: usize = 32;

const PIDS: usize = 8192;
const NULL_PID: u16 = 0x1fff;

/// Not in a list: the value of an index that stands for none.
const NONE: u16 = u16::MAX;

/// Kinds of streams of which the first of each program is followed.
const FOLLOWED: [Kind; 2] = [Kind::Video, Kind::Audio];

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
    /// Of each program the first stream of each kind, by its newest map that has one.
    firsts: Vec<[Option<u16>; 2]>,
    replacements: Vec<Replacement>,
    /// The first program that the newest table names, and the pid of its clock.
    leading: Option<(usize, u16)>,
    /// Of the first seekers' streams, in the same order.
    times: Vec<StreamTimes>,
    /// The newest packet that starts a PAT.
    pat: Option<u64>,
    /// The newest one after which a map has come, too: a decoder can start there.
    tables_start: Option<u64>,
    /// The packets of the first association table, if that names more than one program.
    associations: Vec<u32>,
    /// How many of them came before the newest packet that starts one.
    associations_before: usize,
}

/// All that the packets told.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) clock: Clock,
    pub(crate) seek_points: Vec<SeekPoint>,
    /// Of each of them the picture that begins there.
    pub(crate) pictures: Vec<Picture>,
    pub(crate) streams: StreamFacts,
    /// The packets of the first association table, each time it comes, if that names more than one
    /// program.
    pub(crate) associations: Vec<u32>,
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
            firsts: Vec::new(),
            replacements: Vec::new(),
            leading: None,
            times: Vec::new(),
            pat: None,
            tables_start: None,
            associations: Vec::new(),
            associations_before: 0,
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
        let following = self.seekers.get_mut(usize::from(seeker));
        let is_repeated = following.is_some_and(|seeker| seeker.follow(number, packet));
        let is_start = header.unit_start || header.random_access;
        if seeker != NONE && is_start && !is_repeated {
            let tables = self.tables_start.unwrap_or(number);
            let start = Start {
                tables,
                access: number,
                picture: Picture::default(),
            };
            self.seekers[usize::from(seeker)].observe(start, &header, packet, payload);
            if let Some(times) = self.times.get_mut(usize::from(seeker))
                && header.unit_start
            {
                times.observe(number, payload);
            }
        }
    }

    /// The programs so far, and how often what is told of them may have changed.
    pub(crate) fn programs(&self) -> (&[Program], u64) {
        (&self.tables.programs, self.tables.maps)
    }

    /// Packets so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// What was learned; `fallback` is the clock to use if there is none in the stream. Of a file
    /// that `grows`, only up to the last packet whose time is settled.
    pub(crate) fn finish(mut self, fallback: Clock, grows: bool) -> Learned {
        let packets = self.packets;
        let open = self.seekers.iter_mut().filter(|_| !grows);
        open.for_each(Seeker::end);
        let association = std::mem::take(&mut self.tables.association);
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
        let leading = self.leading.map(|(_, pid)| pid);
        clocks.sort_by_key(|(pid, (clock, _))| (clock.is_none(), rank(&programs, leading, *pid)));
        let first = clocks.into_iter().next();
        let (pcr, mut clock) = first.map_or((None, None), |(pid, (clock, quality))| {
            (Some((pid, quality)), clock)
        });
        // What was told of a file that grows stays true: its clock is judged as a whole, when it
        // has its end.
        let judged = clock.as_mut().zip(pcr.as_ref()).filter(|_| !grows);
        let doubt = judged.and_then(|(clock, pcr)| {
            let followed = streams_of(&programs, pcr.0, &self.pids);
            by_streams(clock, &pcr.1, &followed, &mut self.times, packets)
        });
        let clocked = clock.is_some();
        let clock = clock.unwrap_or(fallback);
        let seeker_of = |pid: u16| {
            let pid = &self.pids[usize::from(pid)];
            self.seekers.get(usize::from(pid.seeker))
        };
        let found = seek::points(&programs, &self.replacements, seeker_of, &clock);
        let streams = StreamFacts {
            programs,
            association,
            pcr,
            clocked,
            doubt,
            stamps_start_ns: StreamTimes::start_ns(self.times.iter(), &clock),
            seek_kind: found.kind,
            sync_pid: found.pid,
            nulls: self.nulls,
            transport_errors: self.transport_errors,
            scrambled: self.scrambled,
            continuity_errors,
            pids,
        };
        Learned {
            clock,
            seek_points: found.points,
            pictures: found.pictures,
            streams,
            associations: self.associations,
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
        let is_new = !changes.is_empty();
        for change in changes {
            match change {
                Change::None => {}
                Change::Programs => {
                    for i in 0..self.tables.programs.len() {
                        self.watch_tables(self.tables.programs[i].pmt_pid);
                    }
                }
                Change::Map(program, pids, clock_before) => {
                    self.watch_streams(number, program, &pids);
                    self.follow_clock(program, clock_before);
                }
            }
        }
        if is_new {
            self.lead(number);
        }
        if header.pid == PAT_PID {
            self.keep_association(number, header.unit_start);
        }
    }

    /// Remembers a packet of an association table, if that is the first table again.
    fn keep_association(&mut self, number: u64, unit_start: bool) {
        if unit_start {
            self.associations_before = self.associations.len();
        }
        if !self.tables.is_shared_again() {
            // Only its last packet has told that it is another.
            self.associations.truncate(self.associations_before);
        } else if let Ok(number) = u32::try_from(number)
            && self.associations.len() < ASSOCIATIONS_MAX
        {
            self.associations.push(number);
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

    /// Follows the first video and the first sound of a program's newest map, which has these pids,
    /// from packet `number` on.
    fn watch_streams(&mut self, number: u64, program: usize, pids: &[u16]) {
        self.firsts.resize(self.tables.programs.len(), [None; 2]);
        for (at, kind) in FOLLOWED.into_iter().enumerate() {
            let streams = &self.tables.programs[program].streams;
            let known = |pid: &u16| streams.iter().find(|stream| stream.pid == *pid);
            let mut of_map = pids.iter().filter_map(known);
            let Some(stream) = of_map.find(|stream| stream.kind == kind) else {
                continue;
            };
            let pid = stream.pid;
            let seeker = &mut self.pids[usize::from(pid)].seeker;
            if *seeker == NONE && self.seekers.len() < SEEKERS_MAX {
                *seeker = index(self.seekers.len());
                self.seekers.push(Seeker::new(stream));
                if self.times.len() < TIMED_STREAMS_MAX {
                    self.times.push(StreamTimes::default());
                }
            }
            let before = self.firsts[program][at].replace(pid);
            if let Some(gone) = before.filter(|before| !pids.contains(before)) {
                self.replace(number, gone, pid);
            }
        }
    }

    /// Has the clock and the places to start go on with the first program that there is now, from
    /// packet `number` on, once its map is known.
    fn lead(&mut self, number: u64) {
        let listed = (0..self.tables.programs.len()).filter(|&i| self.tables.is_listed(i));
        let mut clocked = listed.map(|i| (i, self.tables.programs[i].pcr_pid));
        // One without a clock does not lead.
        let first = clocked.find(|(_, pid)| *pid != Some(NULL_PID));
        let Some((program, Some(pid))) = first else {
            return;
        };
        let Some((last, old)) = self.leading.replace((program, pid)) else {
            return;
        };
        if last != program {
            let of = |program: usize| self.firsts.get(program).copied().unwrap_or_default();
            let [gone, new] = [last, program].map(of);
            for pair in gone.into_iter().zip(new) {
                if let (Some(gone), Some(new)) = pair {
                    self.replace(number, gone, new);
                }
            }
        }
        self.move_clock(old, pid);
    }

    /// Has the clock of a program go on with the pid that its newest map names; of one that does
    /// not lead only if no other has the old pid, too.
    fn follow_clock(&mut self, program: usize, before: Option<u16>) {
        let tables = &self.tables;
        let clock_of = |i: usize| tables.programs[i].pcr_pid.filter(|_| tables.is_listed(i));
        let (Some(old), Some(new)) = (before, clock_of(program)) else {
            return;
        };
        let leads = self.leading.is_some_and(|(leading, _)| leading == program);
        let others = (0..tables.programs.len()).filter(|&i| i != program);
        let is_shared = !leads && others.map(clock_of).any(|pid| pid == Some(old));
        if new == NULL_PID || is_shared {
            return;
        }
        if leads {
            self.leading = Some((program, new));
        }
        self.move_clock(old, new);
    }

    fn replace(&mut self, packet: u64, old: u16, new: u16) {
        if old != new && self.replacements.len() < REPLACEMENTS_MAX {
            self.replacements.push(Replacement { packet, old, new });
        }
    }

    /// Has the clock of one pid go on with the references on another, if it tells any time.
    fn move_clock(&mut self, old: u16, new: u16) {
        let [of_old, of_new] = [old, new].map(|pid| self.pids[usize::from(pid)].clock);
        let found = self.clocks.get(usize::from(of_old));
        if old == new || found.is_none_or(|(_, clock)| clock.settled() == 0) {
            return;
        }
        for (pid, clock) in [(old, of_new), (new, of_old)] {
            self.pids[usize::from(pid)].clock = clock;
            if let Some((of, _)) = self.clocks.get_mut(usize::from(clock)) {
                *of = pid;
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

/// By what clocks are put in order: the one that went on to the end, those of programs in their
/// order, and then what no program names.
fn rank(programs: &[Program], leading: Option<u16>, pid: u16) -> (bool, usize) {
    let program = programs.iter().position(|it| it.pcr_pid == Some(pid));
    (leading != Some(pid), program.unwrap_or(usize::MAX))
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
mod tests;
