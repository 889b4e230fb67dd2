//! The threads that read files and make chunks of images.
//!
//! They read past the page cache where the file system allows it (O_DIRECT): the store is the
//! cache, and a second copy of a film in the page cache would only push other things out.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use onrush_lock::Kind;
use onrush_lock::memory::{Buffer, MemoryError};
use onrush_sys::pool::Pin;
use onrush_wire::media::{Burst, FilePiece, Plan};
use tracing::debug;

use super::{ABSENT, FAILED, FOUND, NEEDED, PARTS_MAX, Request, Shared, Source, layout};
use crate::experiments::Fault;

/// What O_DIRECT aligns to: offset, length and memory. Every block device of today accepts 4096.
const DIRECT_ALIGN: usize = 4096;

/// Bytes read from a file in one call, at most. Packets that lie further apart, because there is
/// garbage between them, are read in several.
pub(super) const READ_BYTES_MAX: usize = 1 << 20;

/// What lies between two parts that are needed is read with them if it is no more: a read of its
/// own takes as long.
const GAP_BYTES_MAX: u64 = 128 << 10;

/// A read of more than so many times what is made of it may be made of several.
const SPARSE_TIMES: u64 = 2;

/// How long a builder rests that finds every chunk in use.
const POOL_FULL_PAUSE: Duration = Duration::from_millis(1);

/// A builder's own memory, taken once.
struct Builder<'a> {
    shared: &'a Arc<Shared>,
    /// Of whole pages, as O_DIRECT wants it.
    read: Buffer,
    bursts: Vec<Burst>,
    /// Bytes of padding in each of them.
    padding: Vec<u32>,
    /// How long it rests when it finds every chunk in use.
    pool_full_pause: Duration,
}

/// Why a chunk could not be built.
enum BuildError {
    /// Every chunk of the pool is in use. The readers will ask again.
    PoolFull,
    /// This part of a file with holes is not there yet.
    Missing(Range<u64>),
    /// The file is no longer what it was.
    Media(String),
}

/// Serves requests until the store stops, as the builder of that number.
pub(super) fn run(shared: &Arc<Shared>, number: usize, read: Buffer) {
    let mut builder = Builder {
        shared,
        read,
        bursts: Vec::new(),
        padding: Vec::new(),
        pool_full_pause: POOL_FULL_PAUSE,
    };
    while !shared.stopping.load(Ordering::Relaxed) {
        let Some(request) = shared.next_or_rest(number) else {
            continue;
        };
        let device = request.source.device();
        builder.serve(request);
        shared.lanes.end(device);
    }
}

/// Serves one request without a rest, and gives the buffer back.
#[cfg(any(test, feature = "testing"))]
pub(super) fn serve_once(shared: &Arc<Shared>, request: Request, read: Buffer) -> Buffer {
    let mut builder = Builder {
        shared,
        read,
        bursts: Vec::new(),
        padding: Vec::new(),
        pool_full_pause: Duration::ZERO,
    };
    builder.serve(request);
    builder.read
}

impl Shared {
    /// What is to be built next, for whoever builds alone.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn next_request(&self) -> Option<Request> {
        self.needed.pop().or_else(|| self.ahead.pop())
    }

    /// What the builder of that number builds next; or nothing, once it has rested and was woken.
    fn next_or_rest(&self, number: usize) -> Option<Request> {
        let next = || {
            let (request, goes_on) = self.lanes.next([&self.needed, &self.ahead])?;
            if goes_on {
                // Those that rest were woken for it when its disk had no room for them, and this
                // builder may have been the last of that disk.
                self.wake_builder();
            }
            Some(request)
        };
        if let Some(request) = next() {
            return Some(request);
        }
        let own = 1 << number;
        self.resting.fetch_or(own, Ordering::Relaxed);
        // In front of the last look; see `wake_builder`.
        fence(Ordering::SeqCst);
        let request = next();
        if request.is_none() {
            std::thread::park();
        }
        let was_woken = self.resting.fetch_and(!own, Ordering::Relaxed) & own == 0;
        if request.is_some() && was_woken {
            // For another request, which this one has no time for now.
            self.wake_builder();
        }
        request
    }
}

impl Request {
    pub(super) fn is_open(&self) -> bool {
        self.source.table.entry(self.chunk).load(Ordering::Relaxed) == self.urgency
    }

    /// Nobody has room for it. Nobody is told, or whoever waits would make it again at once, and
    /// not [a while later](super::ASK_AGAIN_EVERY).
    pub(super) fn take_back(self) {
        let entry = self.source.table.entry(self.chunk);
        let order = Ordering::Relaxed;
        // Of another in its place the other will tell.
        entry
            .compare_exchange(self.urgency, ABSENT, order, order)
            .ok();
    }
}

impl Builder<'_> {
    fn serve(&mut self, request: Request) {
        let Request {
            source,
            chunk,
            urgency,
            ..
        } = &request;
        // A panic is a bug of ours, which this file has shown. It shall neither leave its readers
        // waiting for ever nor take the thread from others. What it leaves behind is the claim,
        // which gives its chunk back, and the buffers, which hold nothing from one chunk to the
        // next.
        let built = catch_unwind(AssertUnwindSafe(|| self.build(source, *chunk)));
        let built = built.unwrap_or_else(|_| {
            let reason = "cannot be made into packets: a bug of the server, please report it";
            Err(BuildError::Media(reason.to_owned()))
        });
        let entry = match built {
            Ok(pin) => {
                let found = self.shared.pool.chunk_number(&pin) + FOUND;
                // Pinned until the hint is written, so that the hint is true for a moment at least.
                source.table.entry(*chunk).store(found, Ordering::Release);
                self.shared.pool.unpin(pin);
                self.shared
                    .counters
                    .chunks_built
                    .fetch_add(1, Ordering::Relaxed);
                self.shared.built(source, *chunk).notify_waiters();
                return;
            }
            Err(BuildError::PoolFull) => {
                self.shared
                    .counters
                    .pool_full
                    .fetch_add(1, Ordering::Relaxed);
                // Who is told that it failed asks again, and so at once that it would be a spin.
                // Those who look ahead do not, and would keep from the others what is given back
                // meanwhile.
                if *urgency == NEEDED {
                    std::thread::sleep(self.pool_full_pause);
                }
                ABSENT
            }
            Err(BuildError::Missing(part)) => return bring(self.shared, request, part),
            Err(BuildError::Media(reason)) => {
                source.fail(reason);
                FAILED
            }
        };
        source.table.entry(*chunk).store(entry, Ordering::Release);
        self.shared.built(source, *chunk).notify_waiters();
    }

    fn build(&mut self, source: &Source, chunk: u32) -> Result<Pin, BuildError> {
        source.backing.check().map_err(BuildError::Media)?;
        let mut claim = self.shared.pool.claim().ok_or(BuildError::PoolFull)?;
        // One plan for all of it: by the end there may be a longer one.
        let plan = source.plan();
        let chunk_bytes = claim.bytes_mut().len();
        let packets = source.held_in(chunk, &plan, chunk_bytes, &mut self.bursts);
        let of = (source, &*plan);
        self.write_images(of, packets.clone(), claim.bytes_mut())?;
        self.padding.clear();
        let padding = layout::padding(claim.bytes_mut(), &self.bursts);
        self.padding.extend(padding);
        if let Some(cipher) = &source.cipher {
            let (index, bursts) = (source.index_of(packets.start), &mut self.bursts);
            let runs = source.runs_held(chunk, &plan, chunk_bytes, &packets);
            let encrypted = cipher.encrypt(index, &runs, bursts, claim.bytes_mut());
            encrypted.map_err(BuildError::Media)?;
        }
        let last = packets.end.saturating_sub(1);
        let media_ns = plan.due_ns(packets.end) - plan.due_ns(packets.start);
        let part = layout::Part {
            first_packet: packets.start,
            last_image_bytes: plan.image_bytes(last),
            is_last_partial: plan.is_partial(last),
            media_ns,
        };
        layout::write_table(claim.bytes_mut(), part, &self.bursts, &self.padding);
        if self.shared.faults.has(Fault::WrongByte) {
            claim.bytes_mut()[plan.image_bytes(packets.start) / 2] ^= 1;
        }
        Ok(claim.publish(source.key(chunk)))
    }

    /// Reads the packets' bytes and writes their images: in one read, in several if much lies in
    /// between (the pictures, where sound is read), or in halves if they lie far apart. Where each
    /// packet needs the whole range, as of a large picture, halves do not help.
    fn write_images(
        &mut self,
        of: (&Source, &Plan),
        packets: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), BuildError> {
        let (source, plan) = of;
        if packets.is_empty() {
            return Ok(());
        }
        let range = plan.file_range(packets.clone());
        let count = packets.end - packets.start;
        let range_bytes = range.end - range.start;
        let fits = range_bytes <= READ_BYTES_MAX as u64;
        let is_dense = range_bytes <= SPARSE_TIMES * plan.images_bytes(packets.clone());
        if !is_dense {
            let parts = plan.file_parts(packets.clone(), GAP_BYTES_MAX);
            let bytes = parts.iter().map(aligned_bytes).sum::<usize>();
            if parts.len() > 1 && bytes <= BUFFER_BYTES {
                return self.write_parts(of, packets, &parts, out);
            }
        }
        if fits {
            let piece = self.read(source, range)?;
            return write(of, packets, &[piece], out);
        }
        let first = plan.file_range(packets.start..packets.start + 1);
        let is_large = first.end - first.start > READ_BYTES_MAX as u64;
        let needs_the_same = |packet: &u64| plan.file_range(*packet..packet + 1) == first;
        let middle = packets.start
            + match is_large {
                true => packets.clone().take_while(needs_the_same).count() as u64,
                false => count / 2,
            };
        let split = plan.images_bytes(packets.start..middle);
        let (front, back) = out.split_at_mut(usize::try_from(split).unwrap_or(usize::MAX));
        match is_large {
            true => self.write_scattered(of, packets.start..middle, front)?,
            false => self.write_images(of, packets.start..middle, front)?,
        }
        self.write_images(of, middle..packets.end, back)
    }

    /// Packets that need these parts of the file, all of which there is room for.
    fn write_parts(
        &mut self,
        of: (&Source, &Plan),
        packets: Range<u64>,
        parts: &[Range<u64>],
        out: &mut [u8],
    ) -> Result<(), BuildError> {
        let (mut pieces, mut rest) = (Vec::with_capacity(parts.len()), &mut self.read[..]);
        for part in parts {
            let (buffer, behind) = rest.split_at_mut(aligned_bytes(part));
            pieces.push(read(self.shared, of.0, part.clone(), buffer)?);
            rest = behind;
        }
        write(of, packets, &pieces, out)
    }

    /// One packet whose parts lie far from each other, or several of the same parts: each part is
    /// read for itself.
    fn write_scattered(
        &mut self,
        of: (&Source, &Plan),
        packets: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), BuildError> {
        let (source, plan) = of;
        let mut found = Vec::new();
        for part in plan.file_pieces(packets.start) {
            let piece = self.read(source, part.clone())?;
            let within = part.start - piece.offset..part.end - piece.offset;
            let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
            let bytes = &piece.bytes[at(within.start)..at(within.end)];
            found.push((part.start, bytes.to_vec()));
        }
        let pieces = found.iter().map(|(offset, bytes)| FilePiece {
            offset: *offset,
            bytes,
        });
        write(of, packets, &pieces.collect::<Vec<_>>(), out)
    }

    /// The file's bytes of `range`, at most [`READ_BYTES_MAX`] of them, and perhaps some around it.
    fn read(&mut self, source: &Source, range: Range<u64>) -> Result<FilePiece<'_>, BuildError> {
        let wanted = aligned_bytes(&range);
        read(self.shared, source, range, &mut self.read[..wanted])
    }
}

/// Bytes that are read for a part of a file, which may begin and end anywhere.
fn aligned_bytes(part: &Range<u64>) -> usize {
    let align = DIRECT_ALIGN as u64;
    let aligned = (part.end - part.start / align * align).next_multiple_of(align);
    usize::try_from(aligned).unwrap_or(usize::MAX)
}

/// The file's bytes of `range`, and some around it, in a buffer of [`aligned_bytes`].
fn read<'a>(
    shared: &Shared,
    source: &Source,
    range: Range<u64>,
    buffer: &'a mut [u8],
) -> Result<FilePiece<'a>, BuildError> {
    let offset = range.start / DIRECT_ALIGN as u64 * DIRECT_ALIGN as u64;
    let counters = &shared.counters;
    let remote = source.backing.remote();
    let held = remote.map(|remote| remote.try_hold(std::slice::from_ref(&range)));
    if matches!(held, Some(None)) {
        return Err(BuildError::Missing(range));
    }
    // What has just been written is in the page cache, and reading past it would have it
    // written to the disk first.
    let reads_direct = !source.grows() && remote.is_none();
    let direct = reads_direct.then(|| source.backing.direct()).flatten();
    let read_direct = direct.map(|file| read_up_to(&file, buffer, offset));
    let read = match read_direct {
        Some(Ok(bytes)) => {
            counters
                .bytes_read_direct
                .fetch_add(bytes as u64, Ordering::Relaxed);
            Ok(bytes)
        }
        // Some file systems take the flag at open and refuse it here.
        Some(Err(e)) if e.raw_os_error() != Some(libc::EINVAL) => Err(e),
        _ => read_up_to(source.backing.file(), buffer, offset),
    };
    let bytes = read.map_err(|e| BuildError::Media(format!("cannot be read: {e}")))?;
    counters
        .bytes_read
        .fetch_add(bytes as u64, Ordering::Relaxed);
    let end = offset + bytes as u64;
    if end < range.end {
        return Err(BuildError::Media(format!(
            "truncated: it ends at byte {end} now"
        )));
    }
    Ok(FilePiece {
        offset,
        bytes: &buffer[..bytes],
    })
}

/// Has this part of a file with holes brought, and all else that is known to be needed for the
/// chunk, and puts the request back behind that. No builder waits for it.
fn bring(shared: &Arc<Shared>, mut request: Request, part: Range<u64>) {
    let source = Arc::clone(&request.source);
    let Some(remote) = source.backing.remote() else {
        return;
    };
    if request.parts.is_empty() {
        let packets = source.packets_of(request.chunk);
        request.parts = source.plan().file_parts(packets, GAP_BYTES_MAX);
        request.parts.truncate(PARTS_MAX / 2);
    }
    if request.parts.len() >= PARTS_MAX {
        let reason = format!("a chunk of it lies in more than {PARTS_MAX} parts of the file");
        return shared.fail(&request, reason);
    }
    request.parts.push(part);
    let (shared, parts) = (Arc::clone(shared), request.parts.clone());
    let then = move |held| match held {
        Ok(held) => {
            request.held = Some(held);
            shared.put_back(request);
        }
        Err(error) => {
            let error: io::Error = error;
            shared.fail(&request, format!("cannot be read: {error}"));
        }
    };
    remote.hold(&parts, Box::new(then));
}

fn write(
    (source, plan): (&Source, &Plan),
    packets: Range<u64>,
    pieces: &[FilePiece<'_>],
    out: &mut [u8],
) -> Result<(), BuildError> {
    let written = plan.write_images(packets, pieces, source.origin(), out);
    written.map_err(|error| BuildError::Media(error.to_string()))
}

/// The same open file once more, for direct input; `None` where the file system has none.
pub(crate) fn open_direct(file: &File) -> Option<File> {
    // By descriptor, not by name: the name may be another file's by now.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .ok()
}

/// Reads until `buffer` is full or the file ends.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // After a short direct read the offset is no longer aligned: that was the end.
            Err(e) if filled > 0 && e.raw_os_error() == Some(libc::EINVAL) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Room for a piece that starts and ends anywhere.
const BUFFER_BYTES: usize = READ_BYTES_MAX + 2 * DIRECT_ALIGN;

/// What files are read into, locked if this account may: a page that was swapped out would be read
/// back only to be written over.
pub(super) fn buffer() -> Result<Buffer, MemoryError> {
    let mut buffer = Buffer::map(BUFFER_BYTES)?;
    if let Err(error) = buffer.lock(Kind::Resident) {
        debug!("store: a buffer that can be swapped out: {error}");
    }
    Ok(buffer)
}
