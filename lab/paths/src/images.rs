//! Packet images: a window of the plan's packets as they will be on the wire, at a constant
//! stride.
//!
//! They are to these paths what the page cache is to `sendfile`: made once, by one copy, and sent
//! to any number of clients. A plan that does not fit is sent a window after the other.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;

use super::touch::{Touch, WINDOW_BYTES};
use super::{Job, OpenError, Plan, system};
use onrush_lock::memory::Area;
use onrush_lock::{BUFFER_BYTES_MAX, Segment, memfd};
use onrush_sys::pool::{HeaderSlab, Pin, Pool};

/// Places that one read scatters to, at the most (linux/uio.h, UIO_MAXIOV).
const PLACES_MAX: usize = 1024;

pub(super) struct Images {
    memory: Memory,
    stride: usize,
    capacity: usize,
    /// The packets whose images are there.
    held: Range<usize>,
}

enum Memory {
    /// The only chunk of a pool: what the engine's paths send from.
    Pool(Arc<Pool>, Option<Pin>),
    /// A file in memory, mapped for writing.
    File(Mapped),
}

struct Mapped {
    file: File,
    segment: Segment,
    is_used: bool,
}

impl Images {
    /// Room in ordinary memory, of huge pages or of base pages.
    pub(super) fn in_memory(plan: &Plan, bytes_max: usize, huge: bool) -> Result<Self, OpenError> {
        let (stride, capacity) = size(plan, bytes_max);
        let bytes = bytes_of(capacity, stride, BUFFER_BYTES_MAX);
        let area = if huge {
            Area::map(bytes)
        } else {
            Area::map_base(bytes)
        };
        let area = area?;
        let chunk_bytes = area.bytes_total();
        let pool = Arc::new(Pool::new(area, chunk_bytes));
        Ok(Self::new(Memory::Pool(pool, None), stride, capacity))
    }

    /// The same of huge pages, with a slab for headers beside the images; all in one registered
    /// buffer.
    pub(super) fn with_slab(
        plan: &Plan,
        bytes_max: usize,
    ) -> Result<(Self, HeaderSlab), OpenError> {
        // In one registered buffer, which holds a gigabyte at most: with room for the slab, a
        // sixteenth.
        let (stride, capacity) = size(plan, bytes_max.min(BUFFER_BYTES_MAX / 4 * 3));
        let chunk_bytes = (stride * capacity).next_multiple_of(4096);
        let area = Area::map(chunk_bytes + chunk_bytes / 8 + (64 << 10))?;
        let pool = Arc::new(Pool::with_slabs(area, chunk_bytes, 1));
        let slab = HeaderSlab::take_from(&pool).expect("room for slots");
        Ok((Self::new(Memory::Pool(pool, None), stride, capacity), slab))
    }

    /// Room in a memfd.
    pub(super) fn in_file(plan: &Plan, bytes_max: usize) -> Result<Self, OpenError> {
        let (stride, capacity) = size(plan, bytes_max);
        let mapped = Mapped::new(bytes_of(capacity, stride, BUFFER_BYTES_MAX));
        let mapped = mapped.map_err(system("make a file in memory for packet images"))?;
        Ok(Self::new(Memory::File(mapped), stride, capacity))
    }

    fn new(memory: Memory, stride: usize, capacity: usize) -> Self {
        Self {
            memory,
            stride,
            capacity,
            held: 0..0,
        }
    }

    /// Sees to it that the job's next packet has an image, and is touched. Which of the job's
    /// packets are ready now, from that on.
    pub(super) fn ensure(&mut self, job: &mut Job<'_>) -> io::Result<Range<usize>> {
        let first = job.packets.start;
        self.hold(job)?;
        // A train is within one registered buffer.
        let in_buffer = BUFFER_BYTES_MAX / self.stride;
        let left = in_buffer - (first - self.held.start) % in_buffer;
        let ready = first..self.held.end.min(job.packets.end).min(first + left);
        if job.touched.touch() != Touch::Checksum {
            return Ok(ready);
        }
        let some = (WINDOW_BYTES / self.stride).max(onrush_sys::path::TRAIN_PACKETS_MAX);
        let ready = first..ready.end.min(first + some);
        for number in ready.clone() {
            job.touched.once(number, |pass| {
                let plan = &job.source.plan;
                let bytes = plan.header_bytes()..plan.packet_bytes(number);
                pass.read(&self.image(number)[bytes]);
            });
        }
        Ok(ready)
    }

    /// Sees to it that the job's next packet has an image.
    pub(super) fn hold(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        let first = job.packets.start;
        if !self.held.contains(&first) {
            self.held = 0..0;
            let end = job.source.plan.packets().min(first + self.capacity);
            let before = job.calls.counters.crossings;
            let written = self.write(job, first..end);
            job.calls.counters.crossings_prepare += job.calls.counters.crossings - before;
            written?;
            self.held = first..end;
        }
        Ok(())
    }

    /// A packet's image, and what of its stride is left.
    fn image(&self, packet: usize) -> &[u8] {
        let at = self.base().wrapping_byte_add(self.offset(packet));
        // SAFETY: `offset` has seen that the image is there, within memory of ours that is mapped;
        // only `write` changes it, by `&mut self`.
        unsafe { std::slice::from_raw_parts(at.cast_const().cast(), self.stride) }
    }

    pub(super) fn forget(&mut self) {
        self.held = 0..0;
    }

    /// Where in the memory a packet's image is.
    pub(super) fn offset(&self, packet: usize) -> usize {
        assert!(self.held.contains(&packet), "the packet has an image");
        let chunk = match &self.memory {
            Memory::Pool(pool, Some(pin)) => pool.offset(pin),
            _ => 0,
        };
        chunk + place_of(packet - self.held.start, self.stride, BUFFER_BYTES_MAX)
    }

    /// The images of a train.
    pub(super) fn place(&self, job: &Job<'_>, packets: Range<usize>) -> libc::iovec {
        let iov_len = usize::try_from(job.source.plan.bytes(packets.clone()));
        libc::iovec {
            iov_base: self.base().wrapping_byte_add(self.offset(packets.start)),
            iov_len: iov_len.expect("a train is below 64 KiB"),
        }
    }

    /// The pool they are in.
    pub(super) fn pool(&self) -> Option<&Arc<Pool>> {
        match &self.memory {
            Memory::Pool(pool, _) => Some(pool),
            Memory::File(_) => None,
        }
    }

    /// The file they are in.
    pub(super) fn file(&self) -> Option<RawFd> {
        match &self.memory {
            Memory::Pool(..) => None,
            Memory::File(mapped) => Some(mapped.file.as_raw_fd()),
        }
    }

    fn base(&self) -> *mut libc::c_void {
        match &self.memory {
            Memory::Pool(pool, _) => pool.area().base().as_ptr().cast(),
            Memory::File(mapped) => mapped.base().cast(),
        }
    }

    fn write(&mut self, job: &mut Job<'_>, packets: Range<usize>) -> io::Result<()> {
        let stride = self.stride;
        match &mut self.memory {
            Memory::Pool(pool, pin) => {
                if let Some(pin) = pin.take() {
                    pool.unpin(pin);
                }
                let mut claim = pool.claim().expect("nobody else has a pin of this pool");
                let written = write(job, packets, stride, claim.bytes_mut());
                *pin = Some(claim.publish(0));
                written
            }
            Memory::File(mapped) => {
                if mapped.is_used {
                    // What is in flight refers to the pages of the file before, which go when it is
                    // done.
                    *mapped = Mapped::new(mapped.segment.bytes().len())?;
                }
                mapped.is_used = true;
                let (start, bytes) = (mapped.base(), mapped.segment.bytes().len());
                // SAFETY: the mapping is ours and that long, nobody else refers to it, and the file
                // is known to nobody else who could cut it.
                let memory = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
                write(job, packets, stride, memory)
            }
        }
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        if let Memory::Pool(pool, pin) = &mut self.memory
            && let Some(pin) = pin.take()
        {
            pool.unpin(pin);
        }
    }
}

impl Mapped {
    fn new(bytes: usize) -> io::Result<Self> {
        let file = memfd(bytes).map_err(io::Error::other)?;
        Ok(Self {
            segment: Segment::map(&file, bytes).map_err(io::Error::other)?,
            file,
            is_used: false,
        })
    }

    fn base(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.segment.bytes().start)
    }
}

/// Bytes of an image, and how many there is room for: at least one train's.
fn size(plan: &Plan, bytes_max: usize) -> (usize, usize) {
    let stride = plan.packet_bytes_max().max(1);
    let most = (bytes_max / stride).max(onrush_sys::path::TRAIN_PACKETS_MAX);
    (stride, plan.packets().clamp(1, most))
}

/// Where image `index` is: one behind the other, but for the end of each registered buffer, over
/// which none goes, because the kernel refuses a send from two (EFAULT).
fn place_of(index: usize, stride: usize, buffer_bytes: usize) -> usize {
    let in_buffer = buffer_bytes / stride;
    index / in_buffer * buffer_bytes + index % in_buffer * stride
}

/// What so many images need.
fn bytes_of(count: usize, stride: usize, buffer_bytes: usize) -> usize {
    place_of(count - 1, stride, buffer_bytes) + stride
}

/// All places of images, in order.
fn images(
    memory: &mut [u8],
    stride: usize,
    buffer_bytes: usize,
) -> impl Iterator<Item = &mut [u8]> {
    let buffers = memory.chunks_mut(buffer_bytes);
    buffers.flat_map(move |buffer| buffer.chunks_exact_mut(stride))
}

/// Writes the images of these packets: headers from the plan, payloads from the file straight to
/// their places, where they are changed if that is asked for.
fn write(
    job: &mut Job<'_>,
    packets: Range<usize>,
    stride: usize,
    memory: &mut [u8],
) -> io::Result<()> {
    let mut places: Vec<libc::iovec> = Vec::with_capacity(PLACES_MAX);
    let (mut start, mut end) = (0, 0);
    let numbers = packets.clone();
    for (number, image) in packets.zip(images(memory, stride, BUFFER_BYTES_MAX)) {
        let packet = job.source.plan.packet(number);
        let (header, mut rest) = image.split_at_mut(packet.header.len());
        header.copy_from_slice(packet.header);
        for piece in packet.pieces {
            let place;
            (place, rest) = rest.split_at_mut(piece.bytes as usize);
            if piece.offset != end || places.len() == PLACES_MAX {
                read(job, &mut places, start)?;
                start = piece.offset;
            }
            places.push(libc::iovec {
                iov_base: place.as_mut_ptr().cast(),
                iov_len: place.len(),
            });
            end = piece.offset + u64::from(piece.bytes);
        }
    }
    read(job, &mut places, start)?;
    if job.touched.touch().changes() {
        for (number, image) in numbers.zip(images(memory, stride, BUFFER_BYTES_MAX)) {
            let plan = &job.source.plan;
            let bytes = plan.header_bytes()..plan.packet_bytes(number);
            job.touched.change(number, &mut image[bytes]);
        }
    }
    Ok(())
}

/// Fills the places, which lie together in the file from `offset` on, and takes them off the list.
fn read(job: &mut Job<'_>, places: &mut Vec<libc::iovec>, mut offset: u64) -> io::Result<()> {
    let mut rest = places.as_mut_slice();
    while !rest.is_empty() {
        // SAFETY: the places were cut from one exclusive slice, each apart from the others.
        let read = unsafe { job.calls.read_scattered(&job.source.file, rest, offset) }?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        offset += read as u64;
        let mut read = read;
        let full = rest.iter().take_while(|place| {
            let is_full = place.iov_len <= read;
            read -= if is_full { place.iov_len } else { 0 };
            is_full
        });
        let full = full.count();
        rest = &mut rest[full..];
        if let Some(place) = rest.first_mut() {
            place.iov_base = place.iov_base.wrapping_byte_add(read);
            place.iov_len -= read;
        }
    }
    places.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_image_lies_in_two_registered_buffers() {
        let (stride, buffer_bytes, count) = (300, 1000, 11);
        let bytes = bytes_of(count, stride, buffer_bytes);
        assert_eq!(bytes, 3000 + 600);
        let mut memory = vec![0; bytes];
        let first = memory.as_ptr().addr();
        let places = images(&mut memory, stride, buffer_bytes);
        let places: Vec<_> = places.map(|image| image.as_ptr().addr() - first).collect();
        let expected: Vec<_> = (0..count)
            .map(|index| place_of(index, stride, buffer_bytes))
            .collect();
        assert_eq!(places, expected);
        let is_in_one = |at: &usize| at / buffer_bytes == (at + stride - 1) / buffer_bytes;
        assert!(places.iter().all(is_in_one), "{places:?}");
    }
}
