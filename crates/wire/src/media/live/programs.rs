//! Which program of a transport stream is cut: of those whose maps come the first with pictures, or
//! else the first of sound, as the table has them.
//!
//! A table may name all programs that are sent beside one another, of which receivers pass on one
//! with its map. So all maps that it names are waited for, but not for long. Then a stream that is
//! taken anew is of the same program, in front of whichever map it begins. Segments have a table
//! that names their program alone: many players take the first one of each table that comes.

use crate::media::ts::header::Header;
use crate::media::ts::psi::{
    Kind, PAT_PID, Sections, Tables, association_of_one, in_packets, names_one,
};
use crate::media::ts::seek::coded_type;

/// How long a better one is waited for once there is one: maps come twice a second at least (ETSI
/// TR 101 290, section 5.2.1).
const BETTER_WAIT_NS: u64 = 1_000_000_000;

/// The programs that the newest association table names, and the one that is cut.
#[derive(Debug, Default)]
pub(super) struct Programs {
    association: (Sections, Box<[u8]>),
    /// The maps that are followed, by their pids.
    maps: Vec<(u16, Sections)>,
    chosen: Option<Program>,
    /// The best that has come, as long as none is chosen, and when the first one came.
    best: Option<(Program, u64)>,
    /// The tracks of the one that was chosen last, and whether they were others before.
    tracks: Vec<(u16, u8)>,
    has_changed: bool,
}

/// A program whose map has come.
#[derive(Debug)]
struct Program {
    number: u16,
    map_pid: u16,
    map: Box<[u8]>,
    leading: Leading,
    /// The pid of its sound, if that is beside pictures.
    sound: Option<u16>,
    /// Its tracks: their pids, and how they are coded.
    tracks: Vec<(u16, u8)>,
    /// How many the table names in front of it.
    place: usize,
}

/// The stream whose times count: its pid, how it is coded, and what it is.
pub(super) type Leading = (u16, u8, Kind);

impl Programs {
    /// Takes a packet. Whether segments are to have it: not if it is of a table that names others.
    pub(super) fn packet(&mut self, header: &Header, payload: &[u8], now_ns: u64) -> bool {
        if header.pid == PAT_PID {
            self.read_association(payload, header.unit_start, now_ns);
            return names_one(&self.association.1);
        }
        self.read_map(header, payload, now_ns);
        true
    }

    /// The stream of the chosen program whose times count.
    pub(super) fn leading(&self) -> Option<Leading> {
        self.chosen.as_ref().map(|it| it.leading)
    }

    /// The pid of the sound that the chosen program has beside its pictures.
    pub(super) fn sound(&self) -> Option<u16> {
        self.chosen.as_ref().and_then(|it| it.sound)
    }

    /// Whether what is cut has other tracks than before; that is told once.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// The tables of the chosen program, in packets.
    pub(super) fn tables(&self) -> Option<Vec<u8>> {
        let of = self.chosen.as_ref()?;
        let association = association_of_one(&self.association.1, of.number, of.map_pid);
        let association = in_packets(PAT_PID, &association);
        Some([association, in_packets(of.map_pid, &of.map)].concat())
    }

    fn read_association(&mut self, payload: &[u8], is_start: bool, now_ns: u64) {
        let mut new = None;
        let push = |section: &[u8]| new = Some(Box::<[u8]>::from(section));
        self.association.0.push(payload, is_start, push);
        if let Some(section) = new {
            self.associate(section);
        }
        let is_over = |it: &mut (Program, u64)| now_ns.saturating_sub(it.1) >= BETTER_WAIT_NS;
        if let Some((program, _)) = self.best.take_if(is_over) {
            self.choose(program);
        }
    }

    /// Takes a new table. The chosen program stays as long as it is named.
    fn associate(&mut self, section: Box<[u8]>) {
        let mut tables = Tables::default();
        tables.read(PAT_PID, &section);
        self.association.1 = section;
        let named = || tables.programs.iter().map(|it| (it.number, it.pmt_pid));
        let is_named = |it: &Program| named().any(|of| of == (it.number, it.map_pid));
        if self.chosen.as_ref().is_some_and(is_named) {
            return;
        }
        (self.chosen, self.best) = (None, None);
        self.maps.clear();
        for (_, pid) in named() {
            if self.maps.iter().all(|(known, _)| *known != pid) {
                self.maps.push((pid, Sections::default()));
            }
        }
    }

    fn read_map(&mut self, header: &Header, payload: &[u8], now_ns: u64) {
        let mut followed = self.maps.iter_mut();
        let Some((pid, sections)) = followed.find(|(pid, _)| *pid == header.pid) else {
            return;
        };
        let (pid, mut new) = (*pid, Vec::new());
        let push = |section: &[u8]| new.push(Box::<[u8]>::from(section));
        sections.push(payload, header.unit_start, push);
        for map in new {
            if let Some(program) = Program::of(&self.association.1, pid, map) {
                self.take(program, now_ns);
            }
        }
    }

    /// Takes a program whose map is new.
    fn take(&mut self, program: Program, now_ns: u64) {
        if let Some(chosen) = &self.chosen {
            // Two may have their maps on one pid.
            if chosen.number == program.number {
                self.choose(program);
            }
            return;
        }
        if self.maps.len() == 1 || program.rank() == (false, 0) {
            return self.choose(program);
        }
        let since_ns = self.best.as_ref().map_or(now_ns, |it| it.1);
        let is_better = |(best, _): &(Program, u64)| {
            best.number == program.number || program.rank() < best.rank()
        };
        if self.best.as_ref().is_none_or(is_better) {
            self.best = Some((program, since_ns));
        }
    }

    fn choose(&mut self, program: Program) {
        self.maps.retain(|(pid, _)| *pid == program.map_pid);
        self.best = None;
        self.has_changed |= !self.tracks.is_empty() && self.tracks != program.tracks;
        self.tracks.clone_from(&program.tracks);
        self.chosen = Some(program);
    }
}

impl Program {
    /// The program that this map is of, if the table names it, and it has pictures or sound.
    fn of(association: &[u8], map_pid: u16, map: Box<[u8]>) -> Option<Self> {
        let mut tables = Tables::default();
        tables.read(PAT_PID, association);
        tables.read(map_pid, &map);
        let mut programs = tables.programs.iter();
        let place = programs.position(|it| it.pmt_pid == map_pid && !it.streams.is_empty())?;
        let of = &tables.programs[place];
        let first = |kind| of.streams.iter().find(|it| it.kind == kind);
        let leading = first(Kind::Video).or_else(|| first(Kind::Audio))?;
        let sound = first(Kind::Audio).map(|it| it.pid);
        let mut tracks: Vec<_> = of
            .streams
            .iter()
            .map(|it| (it.pid, coded_type(it)))
            .collect();
        tracks.sort_unstable();
        Some(Self {
            number: of.number,
            map_pid,
            map,
            leading: (leading.pid, coded_type(leading), leading.kind),
            sound: sound.filter(|pid| *pid != leading.pid),
            tracks,
            place,
        })
    }

    /// What of several the least is chosen by: those with pictures first, as the table has them.
    fn rank(&self) -> (bool, usize) {
        (self.leading.2 != Kind::Video, self.place)
    }
}
