//! What is where in a chunk: images at constant stride, and behind them the table of their bursts.
//!
//! The table is part of the chunk so that it is built, pinned and given up with it, and a reader needs
//! nothing but the chunk.

use onrush_wire::media::Burst;

/// Bytes of the table's head: numbers of bursts and images, bytes of the last image, and how long
/// the media is.
const HEAD_BYTES: usize = 24;

/// Bytes of a table entry: first image, number of images, due time.
const ENTRY_BYTES: usize = 16;

/// Images of one chunk that are handed over together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImageBurst {
    /// The first image, counted in the chunk.
    pub first: u32,
    /// How many.
    pub images: u32,
    /// When the first is due, in ns since the start of the media.
    pub due_ns: u64,
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Contents {
    /// Images; fewer than fit while the file goes no further.
    pub images: u32,
    /// Bytes of the last one, which may be shorter than the others.
    pub last_image_bytes: u32,
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
    /// How long its media is.
    pub media_ns: u64,
}

/// How many images of `stride` bytes a chunk holds, if each may be a burst of its own.
#[must_use]
pub fn packets_per_chunk(chunk_bytes: usize, stride: usize) -> usize {
    chunk_bytes.saturating_sub(HEAD_BYTES) / (stride + ENTRY_BYTES)
}

/// Writes the table of `bursts`, which are those of `part`, behind the images.
///
/// # Panics
/// If there are more bursts than [`packets_per_chunk`], or they are not of this chunk.
pub fn write_table(chunk: &mut [u8], stride: usize, part: Part, bursts: &[Burst]) {
    let table = table_offset(chunk.len(), stride);
    let (head, entries) = chunk[table..].split_at_mut(HEAD_BYTES);
    let images: u32 = bursts.iter().map(|burst| burst.packets).sum();
    let count = u32::try_from(bursts.len()).expect("a chunk has few bursts");
    let last_image_bytes = u32::try_from(part.last_image_bytes).expect("a packet is below 64 KiB");
    head[..4].copy_from_slice(&count.to_ne_bytes());
    head[4..8].copy_from_slice(&images.to_ne_bytes());
    head[8..12].copy_from_slice(&last_image_bytes.to_ne_bytes());
    head[16..].copy_from_slice(&part.media_ns.to_ne_bytes());
    assert!(
        bursts.len() * ENTRY_BYTES <= entries.len(),
        "there is room for a burst an image"
    );
    for (burst, entry) in bursts.iter().zip(entries.chunks_exact_mut(ENTRY_BYTES)) {
        let first =
            u32::try_from(burst.first - part.first_packet).expect("the burst is of this chunk");
        entry[..4].copy_from_slice(&first.to_ne_bytes());
        entry[4..8].copy_from_slice(&burst.packets.to_ne_bytes());
        entry[8..].copy_from_slice(&burst.due_ns.to_ne_bytes());
    }
}

/// Burst number `number` of a chunk; `None` behind the last.
#[must_use]
pub fn burst(chunk: &[u8], stride: usize, number: u32) -> Option<ImageBurst> {
    let (head, entries) =
        chunk[table_offset(chunk.len(), stride)..].split_first_chunk::<HEAD_BYTES>()?;
    let [a, b, c, d, ..] = *head;
    if number >= u32::from_ne_bytes([a, b, c, d]) {
        return None;
    }
    let entry = entries[number as usize * ENTRY_BYTES..].first_chunk::<ENTRY_BYTES>()?;
    let [a, b, c, d, e, f, g, h, due_ns @ ..] = *entry;
    Some(ImageBurst {
        first: u32::from_ne_bytes([a, b, c, d]),
        images: u32::from_ne_bytes([e, f, g, h]),
        due_ns: u64::from_ne_bytes(due_ns),
    })
}

/// What a chunk holds.
///
/// # Panics
/// If it is too small for a table.
#[must_use]
pub fn contents(chunk: &[u8], stride: usize) -> Contents {
    let head = chunk[table_offset(chunk.len(), stride)..]
        .first_chunk::<HEAD_BYTES>()
        .expect("a chunk has a table");
    let [
        _,
        _,
        _,
        _,
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        _,
        _,
        _,
        _,
        media_ns @ ..,
    ] = *head;
    Contents {
        images: u32::from_ne_bytes([a, b, c, d]),
        last_image_bytes: u32::from_ne_bytes([e, f, g, h]),
        media_ns: u64::from_ne_bytes(media_ns),
    }
}

fn table_offset(chunk_bytes: usize, stride: usize) -> usize {
    packets_per_chunk(chunk_bytes, stride) * stride
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(first_packet: u64) -> Part {
        Part {
            first_packet,
            last_image_bytes: 77,
            media_ns: 1 << 50,
        }
    }

    #[test]
    fn a_full_table_reads_back_and_touches_no_image() {
        for stride in [200, 1328] {
            let mut chunk = vec![0xaa; 64 * 1024];
            let images = packets_per_chunk(chunk.len(), stride);
            let bursts: Vec<_> = (0..images as u64)
                .map(|i| Burst {
                    first: 1000 + i,
                    packets: 1,
                    due_ns: i << 40,
                })
                .collect();
            write_table(&mut chunk, stride, part(1000), &bursts);
            let held = contents(&chunk, stride);
            assert_eq!((held.images as usize, held.last_image_bytes), (images, 77));
            assert_eq!(held.media_ns, 1 << 50);
            assert!(
                chunk[..images * stride].iter().all(|&b| b == 0xaa),
                "{stride}"
            );
            let count = u32::try_from(images).expect("few");
            for i in 0..count {
                let expected = ImageBurst {
                    first: i,
                    images: 1,
                    due_ns: u64::from(i) << 40,
                };
                assert_eq!(burst(&chunk, stride, i), Some(expected));
            }
            assert_eq!(burst(&chunk, stride, count), None);
        }
    }

    #[test]
    #[should_panic(expected = "room for a burst an image")]
    fn one_burst_more_than_images_is_our_own_bug() {
        let mut chunk = vec![0; 4096];
        let images = packets_per_chunk(chunk.len(), 1328);
        let bursts = vec![
            Burst {
                first: 0,
                packets: 1,
                due_ns: 0
            };
            images + 100
        ];
        write_table(&mut chunk, 1328, part(0), &bursts);
    }

    #[test]
    fn a_chunk_too_small_for_one_image_holds_none() {
        assert_eq!(packets_per_chunk(1328 + 39, 1328), 0);
        assert_eq!(packets_per_chunk(1328 + 40, 1328), 1);
    }
}
