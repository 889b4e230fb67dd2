//! What a ring finds out by sends to a socket of its own: whether the kernel says what it copied,
//! and how trains with headers of their own leave from each registered buffer.

use std::io;
use std::ops::Range;

use io_uring::{cqueue, squeue};
use onrush_lock::memory::page_bytes;

use super::super::vectored::{self, Trial};
use super::super::{Path, Train};
use super::{TRIAL, UringRegisteredZc};

impl UringRegisteredZc {
    /// Whether the kernel says if it copied: Linux 6.2, and some releases of 6.1. To others the
    /// wish is EINVAL.
    pub(super) fn tells_usage(&mut self) -> bool {
        let Ok(trial) = Trial::new() else {
            return false;
        };
        let headers = None;
        let train = Train {
            headers,
            ..trial.train(0, 2)
        };
        let has_room = self.pool.area().bytes_total() >= Trial::BYTES;
        let entry = self.image_entry(&train);
        has_room && matches!(self.try_entry(entry), Ok(0))
    }

    /// Finds how trains with headers of their own leave, and of what pages the buffers are that are
    /// registered.
    pub(super) fn find_means(&mut self) {
        let registered = self.page_bytes.len();
        let buffers = self.pool.area().buffers().take(registered);
        for (number, buffer) in buffers.enumerate() {
            let means = vectored::try_out(&buffer, |train| self.try_train(train));
            if number == 0 {
                self.means = means;
            }
            if !self.means.is_zero_copy {
                return;
            }
            self.page_bytes[number] = means.page_bytes;
        }
    }

    /// The same of one more buffer. Only if all of its pages are huge the kernel takes them as such
    /// (io_uring/rsrc.c, `io_check_coalesce_buffer`), and a machine may have run out of them by
    /// now. What cannot be tried is taken for base pages, which is right for both.
    pub(super) fn page_bytes_of(&mut self, buffer: &Range<usize>) -> usize {
        // Nothing is linked to a trial, of which there may be two.
        let is_idle = self.queued == 0 && self.held.is_none() && self.room() > 1;
        match self.means.is_zero_copy && is_idle {
            true => vectored::try_out(buffer, |train| self.try_train(train)).page_bytes,
            false => page_bytes(),
        }
    }

    /// Sends a train of a trial, and waits until the kernel has let go of it: its errno, or 0.
    fn try_train(&mut self, train: &Train) -> io::Result<i32> {
        let entry = self.message_entry(train, true);
        self.try_entry(entry)
    }

    fn try_entry(&mut self, entry: squeue::Entry) -> io::Result<i32> {
        self.push(&entry.user_data(TRIAL));
        let (mut errno, mut released) = (None, false);
        while errno.is_none() || !released {
            self.enter(1, None)?;
            while let Some(entry) = self.ring.completion().next() {
                if entry.user_data() != TRIAL {
                    self.aside.push_back(entry);
                } else if cqueue::notif(entry.flags()) {
                    released = true;
                } else {
                    errno = Some(-entry.result().min(0));
                    released = !cqueue::more(entry.flags());
                }
            }
        }
        Ok(errno.unwrap_or(0))
    }
}
