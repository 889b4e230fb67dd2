//! What is where in a chunk: images one behind the other from its front, and at its end the table
//! of their bursts.
//!
//! The table is part of the chunk so that it is built, pinned and given up with it, and a reader
//! needs nothing but the chunk. An entry is a [`Burst`]: images of one size, of which the last may
//! be shorter.

use onrush_wire::media::Burst;
use onrush_wire::rtp;

/// Bytes of the table's head, which is the last of a chunk: numbers of bursts and images, bytes of
/// the last image, whether it may become longer, and how long the media is.
const HEAD_BYTES: usize = 24;

/// Bytes of a table entry: where its images start, their bytes, the first image, padding in them,
/// bytes of an image, number of images, due time.
const ENTRY_BYTES: usize = 24;

/// Images of one chunk that lie one behind the other, of one size but for the last, which may be
/// shorter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Images {
    /// The first, counted in the chunk.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Where the first starts in the chunk.
    pub offset: u32,
    /// Bytes of all.
    pub bytes: u32,
    /// Bytes of one; the last may be shorter.
    pub segment_bytes: u16,
    /// When what they are due with is due, in ns since the start of the media.
    pub due_ns: u64,
    /// Of those bytes padding (RFC 3550, section 5.1), which sender reports leave out. It is known
    /// of a burst. Of a part of one it is as much as its share of the images: the parts add up.
    pub padding_bytes: u32,
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Contents {
    /// Images; fewer than fit while the file goes no further.
    pub images: u32,
    /// Bytes of the last one.
    pub last_image_bytes: u32,
    /// The last one would be longer if the file went on.
    pub is_last_partial: bool,
    /// From when the first is due until when the one after the last will be.
    pub media_ns: u64,
}

/// The part of a file that is written as a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The number of its first packet.
    pub first_packet: u64,
    /// Bytes of its last image.
    pub last_image_bytes: usize,
    /// That image would be longer if the file went on.
    pub is_last_partial: bool,
    /// How long its media is.
    pub media_ns: u64,
}

/// Bytes of a chunk that images and their entries share, and what an entry takes of them.
#[must_use]
pub fn room(chunk_bytes: usize) -> (usize, usize) {
    (chunk_bytes.saturating_sub(HEAD_BYTES), ENTRY_BYTES)
}

/// Bytes of padding in each of `bursts`, whose images lie at the front of `chunk`, in the clear.
///
/// # Panics
/// If they are not there.
pub(super) fn padding<'a>(chunk: &'a [u8], bursts: &'a [Burst]) -> impl Iterator<Item = u32> + 'a {
    bursts.iter().map(|burst| {
        let at = |offset: u64| usize::try_from(offset).expect("a chunk is in memory");
        let images = &chunk[at(burst.offset)..at(burst.offset + burst.bytes)];
        let images = images.chunks(burst.segment_bytes.into());
        images
            .map(|image| u32::from(rtp::padding_bytes(image)))
            .sum()
    })
}

/// Writes the table of `bursts`, which are those of `part`, behind the images; `padding` is what of
/// each is padding.
///
/// # Panics
/// If there is no room for them, they are not of this chunk, or `padding` is of fewer.
pub fn write_table(chunk: &mut [u8], part: Part, bursts: &[Burst], padding: &[u32]) {
    let images_end = bursts.last().map_or(0, |burst| burst.offset + burst.bytes);
    let table = table_offset(chunk.len(), bursts.len()).filter(|&table| images_end <= table as u64);
    let table = table.expect("there is room for a burst an image");
    let (entries, head) = chunk[table..].split_at_mut(bursts.len() * ENTRY_BYTES);
    let images: u32 = bursts.iter().map(|burst| burst.packets).sum();
    let count = u32::try_from(bursts.len()).expect("a chunk has few bursts");
    let last_image_bytes = u32::try_from(part.last_image_bytes).expect("a packet is below 64 KiB");
    head[..4].copy_from_slice(&count.to_ne_bytes());
    head[4..8].copy_from_slice(&images.to_ne_bytes());
    head[8..12].copy_from_slice(&last_image_bytes.to_ne_bytes());
    head[12..16].copy_from_slice(&u32::from(part.is_last_partial).to_ne_bytes());
    head[16..].copy_from_slice(&part.media_ns.to_ne_bytes());
    let entries = entries.chunks_exact_mut(ENTRY_BYTES);
    for ((number, burst), entry) in bursts.iter().enumerate().zip(entries) {
        let of_chunk = |number: u64| u32::try_from(number).expect("the burst is of this chunk");
        let packets = u16::try_from(burst.packets).expect("a chunk has fewer than 2^16 images");
        entry[..4].copy_from_slice(&of_chunk(burst.offset).to_ne_bytes());
        entry[4..8].copy_from_slice(&of_chunk(burst.bytes).to_ne_bytes());
        let first = u16::try_from(burst.first - part.first_packet);
        let first = first.expect("a chunk has fewer than 2^16 images");
        entry[8..10].copy_from_slice(&first.to_ne_bytes());
        // One byte in fifty is the most that a plan fills packets up with.
        let padding_bytes = u16::try_from(padding[number]).unwrap_or(u16::MAX);
        entry[10..12].copy_from_slice(&padding_bytes.to_ne_bytes());
        entry[12..14].copy_from_slice(&burst.segment_bytes.to_ne_bytes());
        entry[14..16].copy_from_slice(&packets.to_ne_bytes());
        entry[16..].copy_from_slice(&burst.due_ns.to_ne_bytes());
    }
}

/// Burst number `number` of a chunk; `None` behind the last.
#[must_use]
pub fn burst(chunk: &[u8], number: u32) -> Option<Images> {
    let (_, head) = chunk.split_last_chunk::<HEAD_BYTES>()?;
    let count = u32_at(head, 0);
    if number >= count {
        return None;
    }
    let table = table_offset(chunk.len(), count as usize)?;
    let entry = chunk[table + number as usize * ENTRY_BYTES..].first_chunk::<ENTRY_BYTES>()?;
    let [.., d0, d1, d2, d3, d4, d5, d6, d7] = *entry;
    Some(Images {
        offset: u32_at(entry, 0),
        bytes: u32_at(entry, 4),
        first: u16_at(entry, 8).into(),
        segment_bytes: u16_at(entry, 12),
        count: u16_at(entry, 14).into(),
        due_ns: u64::from_ne_bytes([d0, d1, d2, d3, d4, d5, d6, d7]),
        padding_bytes: u16_at(entry, 10).into(),
    })
}

/// What a chunk holds.
///
/// # Panics
/// If it is too small for a table.
#[must_use]
pub fn contents(chunk: &[u8]) -> Contents {
    let (_, head) = chunk
        .split_last_chunk::<HEAD_BYTES>()
        .expect("a chunk has a table");
    let [.., m0, m1, m2, m3, m4, m5, m6, m7] = *head;
    Contents {
        images: u32_at(head, 4),
        last_image_bytes: u32_at(head, 8),
        is_last_partial: u32_at(head, 12) != 0,
        media_ns: u64::from_ne_bytes([m0, m1, m2, m3, m4, m5, m6, m7]),
    }
}

impl Images {
    /// The number of the image after the last.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.first + self.count
    }

    /// The first `count` of them, or all if there are no more.
    #[must_use]
    pub fn take(self, count: u32) -> Self {
        if count >= self.count {
            return self;
        }
        Self {
            count,
            bytes: count * u32::from(self.segment_bytes),
            padding_bytes: self.padding_share(count),
            ..self
        }
    }

    /// What is left without the first `count` of them.
    #[must_use]
    pub fn skip(self, count: u32) -> Self {
        let count = count.min(self.count);
        let bytes = (count * u32::from(self.segment_bytes)).min(self.bytes);
        Self {
            first: self.first + count,
            count: self.count - count,
            offset: self.offset + bytes,
            bytes: self.bytes - bytes,
            padding_bytes: self.padding_bytes - self.padding_share(count),
            ..self
        }
    }

    /// What of the padding is counted with the first `count` of them.
    fn padding_share(&self, count: u32) -> u32 {
        let share = u64::from(self.padding_bytes) * u64::from(count);
        let share = share.checked_div(self.count.into()).unwrap_or(0);
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    /// These and `next`, which lie behind them, if all but the last are of one size.
    #[must_use]
    pub fn joined(self, next: Self) -> Option<Self> {
        let is_full = self.bytes == self.count * u32::from(self.segment_bytes);
        let is_last = next.count == 1 && next.bytes <= self.segment_bytes.into();
        (is_full && (is_last || self.segment_bytes == next.segment_bytes)).then_some(Self {
            count: self.count + next.count,
            bytes: self.bytes + next.bytes,
            padding_bytes: self.padding_bytes + next.padding_bytes,
            ..self
        })
    }
}

/// Where the table of a chunk begins that has so many bursts, if there is room for it.
fn table_offset(chunk_bytes: usize, bursts: usize) -> Option<usize> {
    chunk_bytes.checked_sub(HEAD_BYTES + bursts * ENTRY_BYTES)
}

/// The two bytes from `at` on, which are there.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |bytes| u16::from_ne_bytes(*bytes))
}

/// The four bytes from `at` on, which are there.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(first_packet: u64) -> Part {
        Part {
            first_packet,
            last_image_bytes: 77,
            is_last_partial: true,
            media_ns: 1 << 50,
        }
    }

    proptest! {
        #[test]
        fn a_full_table_reads_back_and_touches_no_image(
            sizes in prop::collection::vec((13_u16..1500, 1_u32..40), 1..200),
        ) {
            let (mut first, mut offset) = (0, 0);
            let bursts: Vec<_> = sizes.iter().map(|&(segment_bytes, packets)| {
                let bytes = u64::from(segment_bytes) * u64::from(packets) - 1;
                let due_ns = first << 40;
                let at = (first + 1000, offset);
                first += u64::from(packets);
                offset += bytes;
                Burst { first: at.0, packets, due_ns, offset: at.1, bytes, segment_bytes }
            }).collect();
            let images_bytes = usize::try_from(offset).unwrap();
            let mut chunk = vec![0xaa; images_bytes + bursts.len() * ENTRY_BYTES + HEAD_BYTES];
            let padding: Vec<_> = (7..).take(bursts.len()).collect();
            write_table(&mut chunk, part(1000), &bursts, &padding);
            let held = contents(&chunk);
            prop_assert_eq!((u64::from(held.images), held.last_image_bytes), (first, 77));
            prop_assert!(held.is_last_partial && held.media_ns == 1 << 50);
            prop_assert!(chunk[..images_bytes].iter().all(|&b| b == 0xaa));
            for (number, expected) in (0..).zip(&bursts) {
                let read = burst(&chunk, number).unwrap();
                prop_assert_eq!(u64::from(read.first), expected.first - 1000);
                prop_assert_eq!(read.count, expected.packets);
                prop_assert_eq!(u64::from(read.offset), expected.offset);
                prop_assert_eq!(u64::from(read.bytes), expected.bytes);
                prop_assert_eq!(read.segment_bytes, expected.segment_bytes);
                prop_assert_eq!(read.due_ns, expected.due_ns);
                prop_assert_eq!(read.padding_bytes, number + 7);
            }
            prop_assert_eq!(burst(&chunk, u32::try_from(bursts.len()).unwrap()), None);
        }

        /// Taking and skipping parts images without a gap, whatever the last one's size.
        #[test]
        fn parts_of_images_are_all_of_them(
            count in 1_u32..50, last in 1_u32..=100, cut in 0_u32..60, padding_bytes in 0_u32..9000,
        ) {
            let bytes = (count - 1) * 100 + last;
            let images = Images {
                first: 7, count, offset: 3, bytes, segment_bytes: 100, due_ns: 1, padding_bytes,
            };
            let (front, back) = (images.take(cut), images.skip(cut));
            prop_assert_eq!(front.count + back.count, count);
            prop_assert_eq!(front.bytes + back.bytes, bytes);
            prop_assert_eq!(front.padding_bytes + back.padding_bytes, padding_bytes);
            prop_assert_eq!((front.end(), front.offset + front.bytes), (back.first, back.offset));
            let whole = front.joined(back);
            prop_assert!(back.count == 0 || whole == Some(images), "{:?}", whole);
        }
    }

    #[test]
    fn images_of_two_sizes_are_not_joined() {
        let images = |bytes, segment_bytes| Images {
            first: 0,
            count: 2,
            offset: 0,
            bytes,
            segment_bytes,
            due_ns: 0,
            padding_bytes: 0,
        };
        assert!(images(200, 100).joined(images(150, 100)).is_some());
        assert_eq!(images(199, 100).joined(images(200, 100)), None);
        assert_eq!(images(200, 100).joined(images(180, 90)), None);
        // One that is shorter may be the last, and one that is longer may not.
        let last = |bytes: u16| images(200, 100).joined(images(bytes.into(), bytes).take(1));
        let joined = last(90).expect("shorter");
        assert_eq!(
            (joined.count, joined.bytes, joined.segment_bytes),
            (3, 290, 100)
        );
        assert_eq!(last(101), None);
    }

    #[test]
    #[should_panic(expected = "room for a burst an image")]
    fn more_than_there_is_room_for_is_our_own_bug() {
        let mut chunk = vec![0; 1328 + ENTRY_BYTES + HEAD_BYTES - 1];
        let burst = Burst {
            first: 0,
            packets: 1,
            due_ns: 0,
            offset: 0,
            bytes: 1328,
            segment_bytes: 1328,
        };
        write_table(&mut chunk, part(0), &[burst], &[0]);
    }

    #[test]
    fn a_chunk_too_small_for_a_head_has_no_room() {
        assert_eq!(room(HEAD_BYTES), (0, ENTRY_BYTES));
        assert_eq!(room(HEAD_BYTES - 1).0, 0);
    }
}
