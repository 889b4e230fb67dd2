//! The tables of a track (ISO/IEC 14496-12, section 8.5 to 8.7): which samples there are, where
//! each lies and when it is due.
//!
//! The tables stay as they are in the file, and [`Samples`] goes through all of them side by side.
//! So nothing is allocated, whatever counts they tell. Where tables disagree, the one that ends
//! first decides, or what is missing is made up as other players do; either is told.

use super::boxes::{Boxes, Fields, Name};

/// The tables of a track.
#[derive(Clone, Debug)]
pub(super) struct Tables<'a> {
    sizes: Sizes<'a>,
    durations: Table<'a, PAIR_BYTES>,
    /// How much later than decoded samples are shown.
    compositions: Option<Table<'a, PAIR_BYTES>>,
    chunks: Chunks<'a>,
    chunk_runs: Table<'a, CHUNK_RUN_BYTES>,
    /// Those that a decoder can start at; `None` if that are all.
    syncs: Option<Table<'a, NUMBER_BYTES>>,
    /// Besides those, in QuickTime's `stps`, the ones that begin an open group of pictures.
    partial_syncs: Option<Table<'a, NUMBER_BYTES>>,
    /// The same as ISO files have them: runs of samples, and whether they are in the group `rap `
    /// (0: they are not). `None` if all are sync samples.
    random_access: Option<Table<'a, PAIR_BYTES>>,
}

/// Rows of one number, of two, and of `stsc`.
const NUMBER_BYTES: usize = 4;
const PAIR_BYTES: usize = 8;
const CHUNK_RUN_BYTES: usize = 12;

/// Rows of equal length. A film of two hours has half a million; so none is looked for twice.
#[derive(Clone, Copy, Debug)]
struct Table<'a, const ROW_BYTES: usize> {
    rows: &'a [[u8; ROW_BYTES]],
}

/// Where each chunk begins.
#[derive(Clone, Copy, Debug)]
enum Chunks<'a> {
    /// `stco`.
    Narrow(Table<'a, 4>),
    /// `co64`.
    Wide(Table<'a, 8>),
}

#[derive(Clone, Copy, Debug)]
enum Sizes<'a> {
    /// All have so many bytes.
    Equal { bytes: u32, count: u32 },
    /// Each has its own.
    Each {
        table: &'a [[u8; NUMBER_BYTES]],
        count: u32,
    },
    /// Each has its own, of so many bits.
    Short {
        table: &'a [u8],
        bits: u32,
        count: u32,
    },
}

/// Some samples, as the tables tell of them: one, or several of equal length that lie one behind
/// the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Told {
    pub(super) offset: u64,
    /// Bytes of all of them.
    pub(super) bytes: u64,
    /// How many there are.
    pub(super) count: u32,
    pub(super) decode_ticks: i64,
    pub(super) composition_ticks: i64,
    /// Of all of them.
    pub(super) duration_ticks: u64,
    pub(super) is_sync: bool,
    /// The number of their sample entry, from 1 on.
    pub(super) description: u32,
}

impl<'a, const ROW_BYTES: usize> Table<'a, ROW_BYTES> {
    /// A table whose number of rows stands in front of it; what does not lie in `bytes` is left
    /// out.
    fn counted(bytes: &'a [u8], name: &str, problems: &mut Vec<String>) -> Self {
        let mut fields = Fields(bytes);
        let told = fields.u32().unwrap_or(0) as usize;
        let (rows, _) = fields.0.as_chunks();
        if told > rows.len() {
            let there = rows.len();
            problems.push(format!("{name} tells of {told} rows and has {there}"));
        }
        Self {
            rows: &rows[..rows.len().min(told)],
        }
    }

    /// The table of this name in a sample table box, if there is one.
    fn read(stbl: &Boxes<'a>, name: &Name, problems: &mut Vec<String>) -> Option<Self> {
        let bytes = stbl.first(name)?.get(4..)?;
        let name = str::from_utf8(name).unwrap_or("?");
        Some(Self::counted(bytes, name, problems))
    }

    /// Number `field` of row `at`.
    fn field(&self, at: usize, field: usize) -> Option<u32> {
        let (fields, _) = self.rows.get(at)?.as_chunks();
        fields.get(field).copied().map(u32::from_be_bytes)
    }

    /// The first two numbers of row `at`.
    fn pair(&self, at: usize) -> Option<(u32, u32)> {
        Some((self.field(at, 0)?, self.field(at, 1)?))
    }
}

impl<'a> Table<'a, PAIR_BYTES> {
    /// Which samples begin an open group of pictures (`sbgp` of the type `rap `, sections 8.9.2 and
    /// 10.4). Groups of other types have boxes of the same name.
    fn random_access(stbl: &Boxes<'a>, problems: &mut Vec<String>) -> Option<Self> {
        let mut groups = stbl.clone().filter(|(name, _)| name == b"sbgp");
        let rows = groups.find_map(|(_, bytes)| {
            let mut fields = Fields(bytes);
            let (version, _) = fields.version_and_flags()?;
            let grouping: Name = fields.array()?;
            // Since version 1 a parameter of the type comes next.
            fields.bytes(if version == 0 { 0 } else { 4 })?;
            (&grouping == b"rap ").then_some(fields.0)
        });
        Some(Self::counted(rows?, "sbgp", problems))
    }
}

impl Table<'_, NUMBER_BYTES> {
    /// Whether `number` is in a table of ascending numbers, of which those before row `next` have
    /// been asked for. Rows that do not ascend are passed over.
    fn names(self, number: u32, next: &mut usize) -> bool {
        while let Some(row) = self.field(*next, 0) {
            if row >= number {
                return row == number;
            }
            *next += 1;
        }
        false
    }
}

impl<'a> Chunks<'a> {
    fn read(stbl: &Boxes<'a>, problems: &mut Vec<String>) -> Option<Self> {
        let narrow = Table::read(stbl, b"stco", problems).map(Self::Narrow);
        narrow.or_else(|| Table::read(stbl, b"co64", problems).map(Self::Wide))
    }

    /// Where chunk `at` begins, if there are so many.
    fn offset(&self, at: usize) -> Option<u64> {
        match self {
            Self::Narrow(table) => table.field(at, 0).map(u64::from),
            Self::Wide(table) => table.rows.get(at).copied().map(u64::from_be_bytes),
        }
    }
}

impl<'a> Sizes<'a> {
    /// Of `stsz`, or of `stz2`, in which sizes may have 4, 8 or 16 bits.
    fn read(stbl: &Boxes<'a>, problems: &mut Vec<String>) -> Option<Self> {
        let (mut fields, equal, bits) = match stbl.first(b"stsz") {
            Some(bytes) => {
                let mut fields = Fields(bytes.get(4..)?);
                let equal = fields.u32()?;
                (fields, equal, 32)
            }
            None => {
                let mut fields = Fields(stbl.first(b"stz2")?.get(4..)?);
                let bits = fields.u32()? & 0xff;
                (fields, 0, bits)
            }
        };
        let count = fields.u32()?;
        if equal > 0 {
            return Some(Self::Equal {
                bytes: equal,
                count,
            });
        }
        if !matches!(bits, 4 | 8 | 16 | 32) {
            problems.push(format!("stz2 tells of sizes of {bits} bits"));
            return None;
        }
        let rows = fields.0.len() as u64 * 8 / u64::from(bits);
        if u64::from(count) > rows {
            problems.push(format!("there are {count} samples, and sizes of {rows}"));
        }
        let (table, count) = (fields.0, u32::try_from(rows).unwrap_or(u32::MAX).min(count));
        Some(match bits {
            32 => {
                let (table, _) = table.as_chunks();
                Self::Each { table, count }
            }
            _ => Self::Short { table, bits, count },
        })
    }

    fn count(&self) -> u32 {
        match *self {
            Self::Equal { count, .. } | Self::Each { count, .. } | Self::Short { count, .. } => {
                count
            }
        }
    }

    /// Bytes of sample `at`, which there is.
    fn get(&self, at: u32) -> u32 {
        let at = at as usize;
        match *self {
            Self::Equal { bytes, .. } => bytes,
            Self::Each { table, .. } => table.get(at).copied().map_or(0, u32::from_be_bytes),
            Self::Short { table, bits: 4, .. } => {
                let both = table.get(at / 2).copied().unwrap_or(0);
                u32::from(if at.is_multiple_of(2) {
                    both >> 4
                } else {
                    both & 15
                })
            }
            Self::Short { table, bits, .. } => {
                let width = (bits / 8) as usize;
                let bytes = table.get(at * width..(at + 1) * width).unwrap_or_default();
                let add = |sum: u32, &byte: &u8| sum << 8 | u32::from(byte);
                bytes.iter().fold(0, add)
            }
        }
    }
}

impl<'a> Tables<'a> {
    /// The tables in a sample table box (`stbl`), and in `problems` what is wrong with them. `None`
    /// if they tell of no samples, as in files of fragments.
    pub(super) fn read(stbl: &'a [u8], problems: &mut Vec<String>) -> Option<Self> {
        let stbl = Boxes(stbl);
        let sizes = Sizes::read(&stbl, problems)?;
        let chunks = Chunks::read(&stbl, problems)?;
        let chunk_runs = Table::read(&stbl, b"stsc", problems)?;
        let durations = Table::read(&stbl, b"stts", problems)?;
        let syncs = Table::read(&stbl, b"stss", problems);
        let partial_syncs = Table::read(&stbl, b"stps", problems);
        // Without `stss` all are sync samples, and nobody has to count groups.
        let random_access = syncs.and_then(|_| Table::random_access(&stbl, problems));
        let compositions = Table::read(&stbl, b"ctts", problems);
        let tables = Self {
            sizes,
            durations,
            compositions,
            chunks,
            chunk_runs,
            syncs,
            partial_syncs,
            random_access,
        };
        (sizes.count() > 0).then_some(tables)
    }

    /// How many samples they tell of.
    pub(super) fn count(&self) -> u32 {
        self.sizes.count()
    }

    /// Bytes of each sample, if all have equally many.
    pub(super) fn equal_bytes(&self) -> Option<u32> {
        match self.sizes {
            Sizes::Equal { bytes, .. } => Some(bytes),
            Sizes::Each { .. } | Sizes::Short { .. } => None,
        }
    }

    /// The same tables, of samples that have `bytes` bytes each: of sound whose tables say
    /// otherwise than its format.
    pub(super) fn with_equal_bytes(self, bytes: u32) -> Self {
        let count = self.count();
        let sizes = Sizes::Equal { bytes, count };
        Self { sizes, ..self }
    }

    /// The most that a sample is shown before it is decoded, which offsets of version 1 allow, in
    /// ticks. (`cslg` says the same, where it is.)
    pub(super) fn shown_before_ticks(&self) -> i64 {
        let Some(table) = self.compositions else {
            return 0;
        };
        let offset = |[.., a, b, c, d]: &[u8; PAIR_BYTES]| i32::from_be_bytes([*a, *b, *c, *d]);
        let least = table.rows.iter().map(offset).min().map(i64::from);
        -least.unwrap_or(0).min(0)
    }

    /// The samples, in the order of decoding, each time at most as many as `at_once` together.
    pub(super) fn samples(&self, at_once: u32) -> Samples<'_> {
        Samples {
            tables: self,
            at_once: at_once.max(1),
            number: 0,
            chunk: 0,
            chunk_run: 0,
            in_chunk: 0,
            description: 1,
            offset: 0,
            duration: Run::default(),
            composition: Run::default(),
            sync: 0,
            partial_sync: 0,
            random_access: Run::default(),
            decode_ticks: 0,
            anomalies: Anomalies::default(),
        }
    }
}

/// What does not fit together in tables.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Anomalies {
    /// Samples that no chunk has.
    pub(super) without_chunk: u32,
    /// Samples whose duration is negative, as players that make 2^32 of it want to say.
    pub(super) backwards: u32,
    /// Samples that no duration is told of.
    pub(super) without_duration: u32,
}

/// Where one is in a table of runs: so many samples, and what all of them have.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// The row behind it.
    next: usize,
    left: u32,
    value: u32,
}

impl Run {
    /// Goes to the run that has the next sample. Whether there is one.
    fn settle(&mut self, table: &Table<'_, PAIR_BYTES>) -> bool {
        while self.left == 0 {
            let Some((count, value)) = table.pair(self.next) else {
                return false;
            };
            (self.left, self.value) = (count, value);
            self.next += 1;
        }
        true
    }
}

/// Goes through the samples of [`Tables`].
#[derive(Clone, Debug)]
pub(super) struct Samples<'a> {
    tables: &'a Tables<'a>,
    at_once: u32,
    /// The next sample.
    number: u32,
    /// How many chunks are begun, which row of `stsc` the last of them has, and how many of its
    /// samples are left.
    chunk: usize,
    chunk_run: usize,
    in_chunk: u32,
    /// The entry of the chunk that is open.
    description: u32,
    offset: u64,
    duration: Run,
    composition: Run,
    /// The next rows of `stss` and `stps`, and the run of samples in or out of the group `rap `.
    sync: usize,
    partial_sync: usize,
    random_access: Run,
    decode_ticks: i64,
    /// What has not fitted together so far.
    pub(super) anomalies: Anomalies,
}

impl Samples<'_> {
    /// Begins chunks until one has samples. Whether there is one.
    fn settle_chunk(&mut self) -> bool {
        let (chunks, runs) = (&self.tables.chunks, &self.tables.chunk_runs);
        while self.in_chunk == 0 {
            let Some(offset) = chunks.offset(self.chunk) else {
                return false;
            };
            self.offset = offset;
            self.chunk += 1;
            let first_of = |run: usize| runs.field(run, 0).map(|first| first as usize);
            while first_of(self.chunk_run + 1).is_some_and(|first| first <= self.chunk) {
                self.chunk_run += 1;
            }
            self.in_chunk = runs.field(self.chunk_run, 1).unwrap_or(0);
            self.description = runs.field(self.chunk_run, 2).unwrap_or(1);
        }
        true
    }

    /// Whether the next sample is one that a decoder can start at.
    fn is_sync(&mut self) -> bool {
        let Some(syncs) = self.tables.syncs else {
            return true;
        };
        let this = self.number + 1;
        let partial = self.tables.partial_syncs;
        self.begins_open_group()
            || syncs.names(this, &mut self.sync)
            || partial.is_some_and(|table| table.names(this, &mut self.partial_sync))
    }

    /// Whether the next sample is in the group `rap `. To be asked of each sample, because runs are
    /// counted.
    fn begins_open_group(&mut self) -> bool {
        let Some(table) = &self.tables.random_access else {
            return false;
        };
        if !self.random_access.settle(table) {
            return false;
        }
        self.random_access.left -= 1;
        self.random_access.value != 0
    }
}

impl Iterator for Samples<'_> {
    type Item = Told;

    fn next(&mut self) -> Option<Told> {
        let left = self.tables.count() - self.number;
        if left == 0 {
            return None;
        }
        if !self.settle_chunk() {
            self.anomalies.without_chunk = left;
            return None;
        }
        let mut count = 1;
        let has_runs = self.tables.compositions.is_some() || self.tables.random_access.is_some();
        if !has_runs && self.tables.equal_bytes().is_some() {
            count = self.at_once.min(left).min(self.in_chunk);
        }
        // Durations beyond the table's end are as the last.
        if self.duration.settle(&self.tables.durations) {
            count = count.min(self.duration.left);
            self.duration.left -= count;
        } else {
            self.anomalies.without_duration += count;
        }
        let mut composition_ticks = 0;
        if let Some(table) = &self.tables.compositions
            && self.composition.settle(table)
        {
            composition_ticks = i64::from(self.composition.value.cast_signed());
            self.composition.left -= 1;
        }
        let mut duration = self.duration.value;
        if duration.cast_signed() < 0 {
            self.anomalies.backwards += 1;
            duration = 0;
        }
        let bytes = u64::from(self.tables.sizes.get(self.number)) * u64::from(count);
        let told = Told {
            offset: self.offset,
            bytes,
            count,
            decode_ticks: self.decode_ticks,
            composition_ticks,
            duration_ticks: u64::from(duration) * u64::from(count),
            is_sync: self.is_sync(),
            description: self.description,
        };
        self.number += count;
        self.in_chunk -= count;
        self.offset = self.offset.saturating_add(bytes);
        self.decode_ticks = self
            .decode_ticks
            .saturating_add(told.duration_ticks.cast_signed());
        Some(told)
    }
}
