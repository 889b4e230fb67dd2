//! What a cutter of a live channel tells, and the window that keeps and lists it.

use onrush_wire::hls::live::{Leaving, Stored, Window, WindowSettings};
use onrush_wire::media::live::{LiveCutter, Output, PART_BYTES_MAX};

use crate::memory::bounded;
use crate::playlist::{QUERY, assert_manifest, assert_playlist};
use crate::random::Random;

/// What cutting may hold beside some times what has come: packets that wait for others, the part
/// and the segment that are written, descriptions.
pub(crate) const MEMORY_BYTES: usize = 1 << 20;

/// How much is kept of a channel: little, so that it is reached.
const WINDOW: WindowSettings = WindowSettings {
    window_us: 20_000_000,
    bytes_max: 16 << 10,
    stored_bytes_max: 32 << 10,
    first_number: 1_700_000_000,
    first_break: 7,
    version: 1 << 32,
};

/// What was told of renditions: whether each was described, and has an open segment with parts.
pub(crate) struct Told {
    window: Window,
    /// A segment that is being stored, and how many were.
    leaving: Option<Leaving>,
    files: u64,
    renditions: Vec<(bool, bool)>,
    is_transport: bool,
    bytes: usize,
    /// Parts of segments.
    pub(crate) parts: usize,
}

impl Told {
    pub(crate) fn of(cutter: &LiveCutter) -> Self {
        let renditions = cutter.renditions();
        assert!(!renditions.is_empty(), "something is cut");
        Self {
            window: Window::new(WINDOW, renditions.to_vec()),
            leaving: None,
            files: 0,
            is_transport: renditions.iter().any(|it| it.name == "stream"),
            renditions: vec![(false, false); renditions.len()],
            bytes: 0,
            parts: 0,
        }
    }

    /// Takes what a cutter told of so many bytes in all.
    ///
    /// # Panics
    ///
    /// If a promise is broken.
    pub(crate) fn take(&mut self, out: &mut Vec<Output>, taken: usize, random: &mut Random) {
        for output in out.drain(..) {
            self.apply(output, random);
        }
        assert!(
            self.bytes <= MEMORY_BYTES + 64 * taken,
            "{} bytes are told of {taken}",
            self.bytes
        );
    }

    fn apply(&mut self, output: Output, random: &mut Random) {
        match &output {
            Output::PartTarget(_) | Output::Target(_) => {}
            Output::Break { rendition, breaks } => {
                assert!(*rendition < self.renditions.len() && *breaks > 0);
            }
            Output::Init { rendition, init } => {
                self.renditions[*rendition].0 = true;
                self.bytes += init.bytes.len();
            }
            Output::Part { rendition, part } => {
                let (is_described, is_open) = &mut self.renditions[*rendition];
                assert!(
                    *is_described || self.is_transport,
                    "a part of what nobody knows"
                );
                *is_open = true;
                assert!(!part.bytes.is_empty() && part.bytes.len() <= 2 * PART_BYTES_MAX);
                self.bytes += part.bytes.len();
                self.parts += 1;
            }
            Output::SegmentEnd { rendition } => {
                let (_, is_open) = &mut self.renditions[*rendition];
                assert!(*is_open, "a segment without a part");
                *is_open = false;
            }
        }
        bounded(MEMORY_BYTES, || {
            if self.window.apply(output) && random.is_one_in(16) {
                check_window(&self.window, random);
            }
            self.store(random);
        });
    }

    /// What memory is too small for is stored, some time after it was asked for, or cannot be.
    fn store(&mut self, random: &mut Random) {
        if random.is_one_in(2) {
            return;
        }
        let Some(leaving) = self.leaving.take() else {
            self.leaving = self.window.leaving();
            return;
        };
        if random.is_one_in(8) {
            self.window.could_not_store();
            return;
        }
        let bytes: usize = leaving.parts.iter().map(|part| part.len()).sum();
        assert!(bytes > 0, "a segment of nothing leaves");
        self.files += 1;
        let stored = Stored {
            file: self.files,
            start: random.below(1 << 20),
            bytes: bytes as u64,
        };
        self.window.has_stored(&leaving, stored);
        assert!(self.window.stored_bytes() <= WINDOW.stored_bytes_max);
        assert!(
            self.window
                .first_file()
                .is_none_or(|file| file <= self.files)
        );
    }
}

/// What is listed of a channel.
fn check_window(window: &Window, random: &mut Random) {
    let skips = random.is_one_in(2);
    let main = window.main_playlist(QUERY, skips);
    assert_eq!(main.is_some(), window.is_ready());
    if let Some(text) = main {
        assert_playlist(&text);
    }
    for kept in window.renditions() {
        if let Some(text) = window.media_playlist(kept.of.name, QUERY, skips) {
            assert_playlist(&text);
        }
    }
    if let Some(text) = window.manifest(QUERY) {
        assert!(assert_manifest(&text) > 0);
    }
    if let Some(poster) = window.poster() {
        assert!(poster.bytes.iter().all(|it| !it.is_empty()));
    }
}
