//! A child that leaves when it is told to, while its parent waits for it or does not: what the end
//! of a process takes, apart from its making.

use std::io::{self, Read};
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::process::{WaitOptions, waitpid};

use super::process::{CHILD_SECONDS_MAX, pid, wait_at_most};
use super::switch::{end, fork};

/// A child that has done nothing but wait to be told to leave.
#[derive(Debug)]
pub struct Leaver {
    /// It leaves when this is closed.
    orders: Option<io::PipeWriter>,
    child: libc::pid_t,
}

/// What its parent does while a child leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parent {
    /// Sleeps until the child, as it ends, wakes it.
    Waits,
    /// Gives the processor away (`sched_yield`) until the child has gone: nobody is to be woken.
    Yields,
}

impl Leaver {
    /// Forks it, and waits until it waits.
    pub fn start() -> io::Result<Self> {
        let (orders_in, orders) = io::pipe()?;
        let (mut ready, ready_out) = io::pipe()?;
        let child = fork(|| {
            // SAFETY: the child's copy, which it does not use: or it would never see it closed.
            unsafe { libc::close(orders.as_raw_fd()) };
            let mut byte = 0_u8;
            // SAFETY: `byte` is readable for the one byte that is written.
            unsafe { libc::write(ready_out.as_raw_fd(), (&raw const byte).cast(), 1) };
            // SAFETY: `byte` is valid for the one byte that may be read.
            unsafe { libc::read(orders_in.as_raw_fd(), (&raw mut byte).cast(), 1) };
        })?;
        let leaver = Self {
            orders: Some(orders),
            child,
        };
        // Or it would be there never, if it has been killed.
        drop(ready_out);
        ready.read_exact(&mut [0])?;
        Ok(leaver)
    }

    /// Tells it to leave, and returns when it has, and is taken away.
    pub fn leave(mut self, parent: Parent) -> io::Result<()> {
        drop(self.orders.take());
        let child = std::mem::replace(&mut self.child, 0);
        match parent {
            Parent::Waits => wait_at_most(child, CHILD_SECONDS_MAX * 1000),
            Parent::Yields => yield_until_gone(child),
        }
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        if self.child != 0 {
            end(self.child);
        }
    }
}

fn yield_until_gone(child: libc::pid_t) -> io::Result<()> {
    for turn in 0_u32.. {
        match waitpid(Some(pid(child)), WaitOptions::NOHANG) {
            Err(Errno::INTR) | Ok(None) => {}
            Err(error) => return Err(error.into()),
            Ok(Some(_)) => return Ok(()),
        }
        if turn == YIELDS_MAX {
            break;
        }
        rustix::thread::sched_yield();
    }
    // Others keep the processor from it: it is waited for, and that is no sample.
    wait_at_most(child, CHILD_SECONDS_MAX * 1000)?;
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "a child did not leave while the processor was given to it",
    ))
}

/// More than a child needs that has the processor to itself in between.
const YIELDS_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_leaves_when_it_is_told_to_and_not_before() {
        for parent in [Parent::Waits, Parent::Yields] {
            let leaver = Leaver::start().unwrap();
            let child = leaver.child;
            let there = waitpid(Some(pid(child)), WaitOptions::NOHANG).unwrap();
            assert!(there.is_none(), "it has left already");
            leaver.leave(parent).unwrap();
            // SAFETY: takes integers; signal 0 only asks.
            assert_ne!(unsafe { libc::kill(child, 0) }, 0, "it is gone");
        }
        let leaver = Leaver::start().unwrap();
        let process = format!("/proc/{}", leaver.child);
        drop(leaver);
        assert!(!std::path::Path::new(&process).exists());
    }
}
