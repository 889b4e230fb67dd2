//! A process that reads a file in blocks when it is told to.
//!
//! The reads are a child's, so that several really compete, and so that one can be put where memory
//! is scarce without us. The child makes bare system calls only; it is killed when this is dropped.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::counter::monotonic_raw_ns;
use super::map::{Memory, Pages};
use super::process::ends_within;
use super::switch::{end, fork};

/// The order of the blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pattern {
    /// From the beginning to the end, and again.
    Sequential,
    /// Any block, each time.
    Random,
}

/// What is read, and how.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of one read.
    pub block_bytes: usize,
    /// Bytes of the file that are read; a whole number of blocks.
    pub file_bytes: u64,
    /// In which order.
    pub pattern: Pattern,
}

/// A child that reads.
#[derive(Debug)]
pub struct Reader {
    orders: PipeWriter,
    answers: PipeReader,
    child: libc::pid_t,
}

impl Reader {
    /// Starts a child that may read `file`; it reads nothing yet. A file that was opened with
    /// `O_DIRECT` is read past the file cache.
    pub fn start(file: &File, plan: Plan) -> io::Result<Self> {
        let blocks = plan.file_bytes / plan.block_bytes.max(1) as u64;
        if blocks == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut buffer = Memory::map(plan.block_bytes, Pages::Base)?;
        buffer.touch(plan.block_bytes);
        let (orders_in, orders) = io::pipe()?;
        let (answers, answers_out) = io::pipe()?;
        let child = fork(|| {
            // Its copies of our ends, or it would never see them closed.
            for ours in [orders.as_raw_fd(), answers.as_raw_fd()] {
                // SAFETY: the child's copies, which it does not use.
                unsafe { libc::close(ours) };
            }
            let worker = Worker {
                file: file.as_raw_fd(),
                buffer: buffer.base().as_ptr().cast(),
                blocks,
                plan,
            };
            worker.apply(orders_in.as_raw_fd(), answers_out.as_raw_fd());
        })?;
        Ok(Self {
            orders,
            answers,
            child,
        })
    }

    /// Its process, to be put elsewhere.
    #[must_use]
    pub fn process(&self) -> i32 {
        self.child
    }

    /// Lets it read so many blocks, and says how long that took in ns, by the child's own clock.
    ///
    /// # Errors
    ///
    /// If it does not come to an end within `time_max`, or cannot read.
    pub fn read(&mut self, blocks: u64, time_max: Duration) -> io::Result<u64> {
        self.orders.write_all(&blocks.to_ne_bytes())?;
        self.wait(time_max)?;
        let mut answer = [0; 8];
        self.answers.read_exact(&mut answer)?;
        match u64::from_ne_bytes(answer) {
            FAILED => Err(io::Error::other("the child could not read")),
            time_ns => Ok(time_ns),
        }
    }

    /// Lets it read until it is dropped.
    pub fn read_on(&mut self) -> io::Result<()> {
        self.orders.write_all(&u64::MAX.to_ne_bytes())
    }

    fn wait(&self, time_max: Duration) -> io::Result<()> {
        match ends_within(&self.answers, time_max)? {
            true => Ok(()),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        end(self.child);
    }
}

/// An answer that is no time.
const FAILED: u64 = u64::MAX;

/// What the child knows. All of it was made before the fork.
struct Worker {
    file: i32,
    buffer: *mut libc::c_void,
    blocks: u64,
    plan: Plan,
}

impl Worker {
    fn apply(&self, orders: i32, answers: i32) {
        let (mut next, mut order) = (0, 0_u64);
        loop {
            let at = (&raw mut order).cast();
            // SAFETY: `order` is valid for its eight bytes; a pipe gives them together.
            if unsafe { libc::read(orders, at, size_of::<u64>()) } != 8 {
                return;
            }
            let answer = self.blocks(order, &mut next);
            let at = (&raw const answer).cast();
            // SAFETY: as above.
            if unsafe { libc::write(answers, at, size_of::<u64>()) } != 8 {
                return;
            }
        }
    }

    fn blocks(&self, count: u64, next: &mut u64) -> u64 {
        let begin = monotonic_raw_ns();
        for _ in 0..count {
            let block = match self.plan.pattern {
                Pattern::Sequential => *next % self.blocks,
                // A step of a linear congruential generator (Knuth, MMIX); its high bits are the
                // good ones.
                Pattern::Random => (*next >> 33) % self.blocks,
            };
            *next = match self.plan.pattern {
                Pattern::Sequential => block + 1,
                Pattern::Random => next
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407),
            };
            let offset = libc::off_t::try_from(block * self.plan.block_bytes as u64).unwrap_or(0);
            // SAFETY: the buffer is the child's copy of a mapping of at least one block.
            let read =
                unsafe { libc::pread(self.file, self.buffer, self.plan.block_bytes, offset) };
            if read != self.plan.block_bytes.cast_signed() {
                return FAILED;
            }
        }
        monotonic_raw_ns() - begin
    }
}

/// Reads a block at `offset` into a page-aligned buffer; the file may be open with `O_DIRECT`.
pub fn read_block(
    file: &File,
    buffer: &mut Memory,
    bytes: usize,
    offset: u64,
) -> io::Result<usize> {
    let bytes = bytes.min(buffer.bytes());
    let offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the buffer is ours alone (`&mut`) and at least `bytes` long.
    let read = unsafe {
        libc::pread(
            file.as_raw_fd(),
            buffer.base().as_ptr().cast(),
            bytes,
            offset,
        )
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Opens a file to be read past the file cache.
pub fn open_direct(path: &std::path::Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn reader(bytes: usize, file_bytes: u64, pattern: Pattern) -> io::Result<Reader> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, vec![1; bytes]).unwrap();
        let plan = Plan {
            block_bytes: 4096,
            file_bytes,
            pattern,
        };
        Reader::start(&File::open(path).unwrap(), plan)
    }

    #[test]
    fn it_reads_what_it_is_told_to_and_no_more() {
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let mut reader = reader(4 * 4096, 4 * 4096, pattern).unwrap();
            for blocks in [1, 9, 100] {
                assert!(reader.read(blocks, LONG).unwrap() > 0);
            }
            let io = std::fs::read_to_string(format!("/proc/{}/io", reader.process())).unwrap();
            let line = io.lines().find(|line| line.starts_with("syscr")).unwrap();
            let calls: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
            // Those of the orders too, one more that waits.
            assert!((113..=114).contains(&calls), "{calls}");
        }
    }

    #[test]
    fn it_can_be_stopped_while_it_reads_on() {
        let mut reader = reader(4096, 4096, Pattern::Sequential).unwrap();
        reader.read_on().unwrap();
        let process = format!("/proc/{}", reader.process());
        drop(reader);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(reader(4096, 0, Pattern::Sequential).is_err());
        let mut short = reader(4096, 8192, Pattern::Sequential).unwrap();
        assert!(short.read(2, LONG).is_err());
    }
}
