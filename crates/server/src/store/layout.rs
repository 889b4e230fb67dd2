//! What is where in a chunk: images at constant stride, and behind them the table of their bursts.
//!
//! The table is part of the chunk so that it is built, pinned and given up with it, and a reader needs
//! nothing but the chunk.

use onrush_wire::media::Burst;

/// Bytes of the table's count.
const COUNT_BYTES: usize = 8;

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

/// How many images of `stride` bytes a chunk holds, if each may be a burst of its own.
#[must_use]
pub fn packets_per_chunk(chunk_bytes: usize, stride: usize) -> usize {
    chunk_bytes.saturating_sub(COUNT_BYTES) / (stride + ENTRY_BYTES)
}

/// Writes the table of `bursts`, whose packets are counted from `first_packet`, behind the images.
///
/// # Panics
/// If there are more bursts than [`packets_per_chunk`], or they are not of this chunk.
pub fn write_table(chunk: &mut [u8], stride: usize, first_packet: u64, bursts: &[Burst]) {
    let table = table_offset(chunk.len(), stride);
    let (count, entries) = chunk[table..].split_at_mut(COUNT_BYTES);
    count.copy_from_slice(&(bursts.len() as u64).to_ne_bytes());
    assert!(
        bursts.len() * ENTRY_BYTES <= entries.len(),
        "there is room for a burst an image"
    );
    for (burst, entry) in bursts.iter().zip(entries.chunks_exact_mut(ENTRY_BYTES)) {
        let first = u32::try_from(burst.first - first_packet).expect("the burst is of this chunk");
        entry[..4].copy_from_slice(&first.to_ne_bytes());
        entry[4..8].copy_from_slice(&burst.packets.to_ne_bytes());
        entry[8..].copy_from_slice(&burst.due_ns.to_ne_bytes());
    }
}

/// Burst number `number` of a chunk; `None` behind the last.
#[must_use]
pub fn burst(chunk: &[u8], stride: usize, number: u32) -> Option<ImageBurst> {
    let (count, entries) = chunk[table_offset(chunk.len(), stride)..].split_first_chunk()?;
    if u64::from(number) >= u64::from_ne_bytes(*count) {
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

fn table_offset(chunk_bytes: usize, stride: usize) -> usize {
    packets_per_chunk(chunk_bytes, stride) * stride
}

#[cfg(test)]
mod tests {
    use super::*;

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
            write_table(&mut chunk, stride, 1000, &bursts);
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
        write_table(&mut chunk, 1328, 0, &bursts);
    }

    #[test]
    fn a_chunk_too_small_for_one_image_holds_none() {
        assert_eq!(packets_per_chunk(1328, 1328), 0);
        assert_eq!(packets_per_chunk(1328 + 24, 1328), 1);
    }
}
