//! A file that is played before all of it is read: the rest is read behind those who play it.

use std::io::ErrorKind;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use onrush_wire::media::{Continued, Index, Scanner};

use super::{Growth, Known, Media};
use crate::library::identity::Identity;
use crate::library::scan::{Read, read};

/// How often what is read behind those who play a file is published at the most.
pub(super) const PUBLISH_EVERY: Duration = Duration::from_millis(200);

/// So many times as long as it took to publish is read on before the next time: of a long film much
/// is copied for it, and reading waits meanwhile.
const PUBLISH_PAUSE: u32 = 4;

impl Media {
    /// Waits until all is known of the file up to a media time, or all of it; but not longer than
    /// `time_max`. Whether it is.
    pub async fn known_to(&self, time_ns: u64, time_max: Duration) -> bool {
        let wait = async {
            loop {
                let read = self.read.notified();
                let mut read = std::pin::pin!(read);
                read.as_mut().enable();
                let (index, is_partial) = {
                    let state = self.state();
                    let known = &state.known;
                    (Arc::clone(&known.index), known.estimate_ns.is_some())
                };
                if !is_partial || index.known_ns() > time_ns {
                    return;
                }
                read.await;
            }
        };
        tokio::time::timeout(time_max, wait).await.is_ok()
    }

    /// Reads on in a file of which not all is read yet: about `bytes_max`. Whether that was the
    /// rest. Blocks.
    pub(in crate::library) fn read_behind(&self, bytes_max: u64) -> bool {
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.identity();
        let Some(scanner) = growth.scanner.as_mut().filter(|_| self.is_partial()) else {
            return true;
        };
        let end = known.file_bytes;
        let reading = &self.settings.reading;
        let ended = match read(&self.opened.file, scanner, bytes_max, end, reading) {
            Ok(Ok(read)) => read != Read::Enough,
            Ok(Err(error)) => {
                self.give_up(&error.to_string());
                return true;
            }
            // The server is stopping.
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            // Those who play it will be told.
            Err(error) => {
                self.give_up(&error.to_string());
                return true;
            }
        };
        if ended {
            self.all_is_read(&mut growth);
        } else if Instant::now() >= growth.publish_at {
            let begun = Instant::now();
            let settled = growth.scanner.as_ref().map(Scanner::settled);
            self.continue_with(settled.and_then(Result::ok), |_| {});
            growth.publish_at = Instant::now() + pause(begun.elapsed());
        }
        ended
    }

    /// A file is read to where it ended when that began.
    fn all_is_read(&self, growth: &mut Growth) {
        let known = self.identity();
        let there = Identity::now(&self.opened.file, known);
        let is_same = there.is_ok_and(|there| there == known);
        let grows = !is_same || known.age() < self.settings.growth_time_max;
        let index = growth.scanner.as_ref().map(|scanner| match grows {
            true => scanner.settled(),
            false => scanner.clone().finish(),
        });
        let index = index.and_then(Result::ok);
        if let Some(index) = index.as_ref().filter(|_| !grows) {
            self.keep(index);
        }
        self.continue_with(index, |known| {
            (known.estimate_ns, known.grows) = (None, grows);
        });
        (growth.grew, growth.looked) = (Instant::now(), Instant::now());
        if !grows {
            growth.scanner = None;
        }
    }

    /// Publishes an index of more of the file, if there is one and it is of the same.
    fn continue_with(&self, index: Option<Index>, change: impl FnOnce(&mut Known)) {
        let continued = index.map(|index| index.continuing(&self.index()));
        self.publish(|known| {
            if let Some(Continued::More(index)) = continued {
                known.index = Arc::new(index);
            }
            change(known);
        });
    }
}

/// How long is read on until what is known is published again, which took so long.
fn pause(took: Duration) -> Duration {
    PUBLISH_EVERY.max(took * PUBLISH_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_to_publish_is_published_seldom() {
        let pauses = [0, 50, 51, 2000].map(|ms| pause(Duration::from_millis(ms)).as_millis());
        assert_eq!(pauses, [200, 200, 204, 8000]);
    }
}
