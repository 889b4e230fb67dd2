//! Files of boxes, made to order.

/// A box.
pub(super) fn boxed(name: &[u8; 4], inside: &[&[u8]]) -> Vec<u8> {
    let inside = inside.concat();
    let bytes = u32::try_from(inside.len() + 8).unwrap();
    [&bytes.to_be_bytes(), &name[..], &inside].concat()
}

/// A box with version and flags.
pub(super) fn full(name: &[u8; 4], version: u8, flags: u32, inside: &[&[u8]]) -> Vec<u8> {
    let both = u32::from(version) << 24 | flags;
    boxed(name, &[&both.to_be_bytes(), &inside.concat()])
}

pub(in super::super) fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_be_bytes()).collect()
}

/// A table with the number of its rows in front.
pub(super) fn counted(name: &[u8; 4], version: u8, row: usize, table: &[u32]) -> Vec<u8> {
    let rows = u32::try_from(table.len() / row).unwrap();
    full(name, version, 0, &[&numbers(&[rows]), &numbers(table)])
}

/// H.264 whose parameter sets are in the samples, with lengths of four bytes.
pub(super) fn avc3() -> Vec<u8> {
    let configuration = boxed(b"avcC", &[&[1, 0x42, 0xc0, 0x0d, 0xff, 0xe0, 0]]);
    visual(b"avc3", &configuration)
}

pub(super) fn visual(name: &[u8; 4], inside: &[u8]) -> Vec<u8> {
    boxed(name, &[&[0; 6], &[0, 1], &[0; 70], inside])
}

pub(super) fn sound(name: &[u8; 4], channels: u8, bits: u8, rate: u16, inside: &[u8]) -> Vec<u8> {
    let rate = u32::from(rate) << 16;
    let told = [0, channels, 0, bits, 0, 0, 0, 0];
    boxed(
        name,
        &[
            &[0; 6],
            &[0, 1],
            &[0; 8],
            &told,
            &rate.to_be_bytes(),
            inside,
        ],
    )
}

/// A track of a file.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) id: u32,
    pub(super) handler: [u8; 4],
    pub(super) timescale: u32,
    pub(super) entries: Vec<Vec<u8>>,
    /// The boxes of `stbl` but for `stsd`.
    pub(super) tables: Vec<Vec<u8>>,
    /// Of its edit list: duration, start and rate of each.
    pub(super) edits: Vec<(u32, i32, u32)>,
    pub(super) matrix: [i32; 9],
    pub(super) language: [u8; 3],
    pub(super) name: &'static [u8],
    /// The flags of its header: 7 is enabled, and in the movie and its preview.
    pub(super) flags: u32,
    /// The tracks that it names as those of its chapters.
    pub(super) chapters: Vec<u32>,
    /// What is behind its media.
    pub(super) more: Vec<u8>,
}

impl Track {
    pub(super) fn pictures(id: u32, tables: Vec<Vec<u8>>) -> Self {
        Self {
            id,
            handler: *b"vide",
            timescale: 1000,
            entries: vec![visual(b"vp08", b"")],
            tables,
            edits: Vec::new(),
            matrix: [1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30],
            language: *b"und",
            name: b"",
            flags: 7,
            chapters: Vec::new(),
            more: Vec::new(),
        }
    }

    pub(super) fn sound(id: u32, tables: Vec<Vec<u8>>) -> Self {
        Self {
            handler: *b"soun",
            timescale: 8000,
            entries: vec![sound(b"ulaw", 1, 8, 8000, b"")],
            ..Self::pictures(id, tables)
        }
    }

    fn boxed(&self) -> Vec<u8> {
        let matrix = self.matrix.map(i32::cast_unsigned);
        let size = numbers(&[320 << 16, 240 << 16]);
        let head = [&numbers(&[0, 0, self.id, 0, 0])[..], &[0; 16]].concat();
        let tkhd = full(b"tkhd", 0, self.flags, &[&head, &numbers(&matrix), &size]);
        let letters = self.language.map(|it| u16::from(it - 0x60));
        let language = letters.iter().fold(0, |all, it| all << 5 | it);
        let times = numbers(&[0, 0, self.timescale, 0]);
        let mdhd = full(
            b"mdhd",
            0,
            0,
            &[&times, &u16::to_be_bytes(language), &[0; 2]],
        );
        let hdlr = full(
            b"hdlr",
            0,
            0,
            &[&[0; 4], &self.handler, &[0; 12], self.name, &[0]],
        );
        let count = u32::try_from(self.entries.len()).unwrap();
        let stsd = full(b"stsd", 0, 0, &[&numbers(&[count]), &self.entries.concat()]);
        let stbl = boxed(b"stbl", &[&stsd, &self.tables.concat()]);
        let minf = boxed(b"minf", &[&stbl]);
        let mdia = boxed(b"mdia", &[&mdhd, &hdlr, &minf]);
        let mut edits = Vec::new();
        for &(duration, start, rate) in &self.edits {
            edits.extend([duration, start.cast_unsigned(), rate]);
        }
        let edts = match edits.is_empty() {
            true => Vec::new(),
            false => boxed(b"edts", &[&counted(b"elst", 0, 3, &edits)]),
        };
        let tref = match self.chapters.is_empty() {
            true => Vec::new(),
            false => boxed(b"tref", &[&boxed(b"chap", &[&numbers(&self.chapters)])]),
        };
        boxed(b"trak", &[&tkhd, &edts, &tref, &mdia, &self.more])
    }
}

/// A movie box; its times have 1000 ticks a second.
pub(super) fn moov(tracks: &[Track], more: &[u8]) -> Vec<u8> {
    let mvhd = full(b"mvhd", 0, 0, &[&numbers(&[0, 0, 1000, 0]), &[0; 80]]);
    let tracks: Vec<_> = tracks.iter().flat_map(Track::boxed).collect();
    boxed(b"moov", &[&mvhd, &tracks, more])
}

/// A movie box for fragments of that track.
pub(super) fn moov_of_fragments(tracks: &[Track], trex: &[[u32; 5]]) -> Vec<u8> {
    let trex = trex
        .iter()
        .flat_map(|it| full(b"trex", 0, 0, &[&numbers(it)]));
    let trex: Vec<_> = trex.collect();
    moov(tracks, &boxed(b"mvex", &[&trex]))
}

pub(super) fn ftyp() -> Vec<u8> {
    boxed(b"ftyp", &[b"isom\0\0\0\0isom"])
}

/// Tables of samples of `bytes` each, `duration` ticks long, that lie in one chunk.
pub(super) fn tables(count: u32, bytes: u32, duration: u32, offset: u32) -> Vec<Vec<u8>> {
    vec![
        counted(b"stts", 0, 2, &[count, duration]),
        counted(b"stsc", 0, 3, &[1, count, 1]),
        full(b"stsz", 0, 0, &[&numbers(&[bytes, count])]),
        counted(b"stco", 0, 1, &[offset]),
    ]
}
