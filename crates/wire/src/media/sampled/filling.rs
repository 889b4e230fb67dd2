//! Pictures whose last packet is filled up, so that the next picture can follow them in one send.
//!
//! A send has packets of one size, of which only the last may be shorter, and the last packet of a
//! picture is shorter as a rule. Padding (RFC 3550, section 5.1) makes it as long as the others.
//! One packet takes 255 bytes of it; what is missing beyond that is taken from all packets of the
//! picture alike: each carries a little less, and is filled up. So a picture that is filled has as
//! many packets as before, and numbers and places to start stay.
//!
//! That costs bytes whether or not a sender joins pictures, so they are few: at most one in
//! [`PART_OF_BYTES`], and none for a picture that follows a filled one, because they leave
//! together.

use std::ops::Range;

use crate::media::packetizer::PacketSink;
use crate::rtp::HEADER_BYTES;

/// Of so many bytes of images one may be padding.
const PART_OF_BYTES: usize = 50;

/// Bytes of padding that a packet may have: the last of them says how many there are.
const PADDING_BYTES_MAX: usize = 255;

/// What is allowed in padding is kept for so many packets' payloads at the most.
const KEPT_PACKETS: usize = 2;

/// How a unit is cut into packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum PacketCut {
    /// As large as the path carries.
    #[default]
    Plain,
    /// Each packet carries so many bytes less, and is filled up to that.
    Filled { spared_bytes: u8 },
}

impl PacketCut {
    /// That of packets that carry so many bytes less and are filled up; at most 255.
    pub(super) fn filled(spared_bytes: usize) -> Self {
        let spared_bytes = u8::try_from(spared_bytes).expect("no more than padding makes up for");
        Self::Filled { spared_bytes }
    }

    /// Bytes that each packet carries less than it could.
    pub(super) fn spared_bytes(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Filled { spared_bytes } => spared_bytes.into(),
        }
    }

    /// As a column of numbers keeps it.
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Plain => 0,
            Self::Filled { spared_bytes } => 1 + i64::from(spared_bytes),
        }
    }

    /// The cut that has this number.
    pub(super) fn of_number(number: i64) -> Self {
        match u8::try_from(number - 1) {
            Ok(spared_bytes) => Self::Filled { spared_bytes },
            Err(_) => Self::Plain,
        }
    }
}

/// Decides which units of a track are filled, one after the other. What it says of a unit depends
/// on those before it alone, so that it stays as it is when a file grows.
#[derive(Clone, Debug, Default)]
pub(super) struct Filler {
    /// Bytes of padding that are allowed by now.
    allowed: usize,
    /// The last unit ends with a full packet: this one may follow it.
    was_full: bool,
}

impl Filler {
    /// How a unit is to be cut that has packets of these lengths unless it is filled, if it may be
    /// filled. `full_bytes` is the length of a full packet.
    pub(super) fn cut(&mut self, lengths: &[usize], full_bytes: usize) -> Option<PacketCut> {
        let images = lengths.iter().map(|bytes| HEADER_BYTES + bytes);
        let allowed = self.allowed + images.sum::<usize>() / PART_OF_BYTES;
        self.allowed = allowed.min(KEPT_PACKETS * full_bytes);
        let missing = full_bytes - lengths.last()?.min(&full_bytes);
        let followed_full = std::mem::replace(&mut self.was_full, missing == 0);
        let may_be = !followed_full
            && (1..=self.allowed).contains(&missing)
            && missing <= lengths.len() * PADDING_BYTES_MAX;
        may_be.then(|| PacketCut::filled(missing / lengths.len()))
    }

    /// Whether the unit is to be cut so, now that its packets' lengths are known both ways.
    pub(super) fn takes(&mut self, plain: &[usize], filled: &[usize], full_bytes: usize) -> bool {
        let [before, after] = [plain, filled].map(|lengths| lengths.iter().sum::<usize>());
        let Some(padding_bytes) = after.checked_sub(before) else {
            return false;
        };
        let takes = plain.len() == filled.len()
            && filled.last() == Some(&full_bytes)
            && padding_bytes <= self.allowed;
        if takes {
            self.allowed -= padding_bytes;
            self.was_full = true;
        }
        takes
    }
}

/// Fills packets up to `full_bytes`, as far as padding can, and passes them on.
pub(super) struct Filling<'a> {
    sink: &'a mut dyn PacketSink,
    full_bytes: usize,
    /// Bytes of the packet that is being told.
    open: usize,
}

impl<'a> Filling<'a> {
    pub(super) fn new(sink: &'a mut dyn PacketSink, full_bytes: usize) -> Self {
        Self {
            sink,
            full_bytes,
            open: 0,
        }
    }
}

impl PacketSink for Filling<'_> {
    fn literal(&mut self, bytes: &[u8]) {
        self.open += bytes.len();
        self.sink.literal(bytes);
    }

    fn sample(&mut self, sample: usize, part: Range<usize>) {
        self.open += part.len();
        self.sink.sample(sample, part);
    }

    fn end(&mut self, marker: bool) {
        let missing = self
            .full_bytes
            .saturating_sub(std::mem::take(&mut self.open));
        if let Some(missing) = u8::try_from(missing).ok().filter(|&missing| missing > 0) {
            self.sink.pad(missing);
        }
        self.sink.end(marker);
    }

    fn advance(&mut self, ticks: u32) {
        self.sink.advance(ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: usize = 1460;

    /// Which of units of so many bytes are filled, and the bytes of padding, by a packetizer that
    /// cuts everywhere.
    fn filled(units: &[usize]) -> (Vec<bool>, usize) {
        let mut filler = Filler::default();
        let mut padding_bytes = 0;
        let cut = |bytes: usize, each: usize| -> Vec<usize> {
            let lengths = (0..bytes).step_by(each);
            lengths.map(|at| each.min(bytes - at)).collect()
        };
        let one = |&bytes: &usize| {
            let plain = cut(bytes, FULL);
            let Some(how) = filler.cut(&plain, FULL) else {
                return false;
            };
            let mut lengths = cut(bytes, FULL - how.spared_bytes());
            for it in &mut lengths {
                *it = if FULL - *it <= 255 { FULL } else { *it };
            }
            let takes = filler.takes(&plain, &lengths, FULL);
            padding_bytes += usize::from(takes) * (lengths.iter().sum::<usize>() - bytes);
            takes
        };
        (units.iter().map(one).collect(), padding_bytes)
    }

    #[test]
    fn of_two_pictures_one_is_filled() {
        // 14 packets each, 440 bytes short of full.
        let (filled, padding_bytes) = filled(&[20_000; 8]);
        let expected = [false, true, false, true, false, true, false, true];
        assert_eq!((&filled[..], padding_bytes), (&expected[..], 4 * 440));
    }

    #[test]
    fn what_cannot_be_filled_is_left() {
        // Too small for what is missing, and full as it is, so that the next needs none.
        assert_eq!(filled(&[100, 20_000, 100, 100]).0, [false; 4]);
        let (filled, _) = filled(&[40 * FULL, 40 * FULL - 9, 40 * FULL - 9, 40 * FULL - 9]);
        assert_eq!(filled, [false, false, true, false]);
    }

    #[test]
    fn padding_is_at_most_one_byte_in_fifty() {
        for step in [1, 37, 1399, 2801] {
            let units: Vec<_> = (0..2000).map(|at| 900 + at * step % 30_011).collect();
            let (filled, padding_bytes) = filled(&units);
            let bytes: usize = units.iter().map(|it| it + 12 * it.div_ceil(FULL)).sum();
            assert!(filled.iter().any(|&it| it), "by {step}");
            assert!(
                padding_bytes * PART_OF_BYTES <= bytes,
                "{padding_bytes} of {bytes}"
            );
        }
    }
}
