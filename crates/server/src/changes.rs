//! Whether files are to be read again: when they have changed, and when they could not be read.

use std::mem;

/// How files were when they were read last.
#[derive(Debug)]
pub(crate) struct Seen<S> {
    stamp: S,
    /// They could not be read as they are now, which was told.
    is_told: bool,
}

impl<S: PartialEq> Seen<S> {
    pub(crate) const fn new(stamp: S) -> Self {
        Self {
            stamp,
            is_told: false,
        }
    }

    /// What they say, or what is wrong with them, if they are like `there` by now; `read` also says
    /// what they were like then. After an error that `may_pass`, which is told once, they are read
    /// again though they are as they were: a descriptor that lacked, or a file server.
    pub(crate) fn look<T, E>(
        &mut self,
        there: S,
        read: impl FnOnce() -> Result<(T, S), E>,
        may_pass: impl FnOnce(&E) -> bool,
    ) -> Option<Result<T, E>> {
        if there == self.stamp {
            self.is_told = false;
            return None;
        }
        let error = match read() {
            Ok((said, stamp)) => {
                (self.stamp, self.is_told) = (stamp, false);
                return Some(Ok(said));
            }
            Err(error) => error,
        };
        let may_pass = may_pass(&error);
        if !may_pass {
            self.stamp = there;
        }
        let was_told = mem::replace(&mut self.is_told, may_pass);
        (!(was_told && may_pass)).then_some(Err(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_read_in_the_next_round() {
        let mut seen = Seen::new(1);
        let mut look = |there, read: Result<&'static str, &'static str>| {
            let read = || read.map(|said| (said, there));
            seen.look(there, read, |error| *error == "io")
        };
        assert_eq!(look(1, Ok("not asked")), None);
        // It is told once.
        assert_eq!(look(2, Err("io")), Some(Err("io")));
        assert_eq!(look(2, Err("io")), None);
        assert_eq!(look(2, Ok("two")), Some(Ok("two")));
        assert_eq!(look(2, Ok("not asked")), None);
        // What is wrong with it stays so until it changes.
        assert_eq!(look(3, Err("io")), Some(Err("io")));
        assert_eq!(look(3, Err("wrong")), Some(Err("wrong")));
        assert_eq!(look(3, Ok("not asked")), None);
        assert_eq!(look(4, Err("io")), Some(Err("io")));
    }
}
