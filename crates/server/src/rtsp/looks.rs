//! Looks at the files of the library: beside each other where they lie on different disks, so that
//! one that does not answer delays nobody who is at another.

use std::collections::HashMap;
use std::hash::Hash;

use tokio::task::{JoinHandle, spawn_blocking};

use super::log_panic;

/// Looks that are under way, by what is looked at. No more than there are of that.
#[derive(Debug)]
pub(super) struct Looks<Of>(HashMap<Of, JoinHandle<()>>);

impl<Of> Default for Looks<Of> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<Of: Eq + Hash> Looks<Of> {
    /// Begins a look, unless the last one at the same is still under way.
    pub(super) async fn begin(&mut self, of: Of, look: impl FnOnce() + Send + 'static) {
        let ended: Vec<_> = self.0.extract_if(|_, look| look.is_finished()).collect();
        for (_, look) in ended {
            log_panic("looking at files", look.await);
        }
        self.0.entry(of).or_insert_with(|| spawn_blocking(look));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_look_that_hangs_delays_no_other() {
        let mut looks = Looks::default();
        let (answer, answers) = mpsc::channel::<()>();
        let hang = move || {
            answers.recv().ok();
        };
        looks.begin("hangs", hang).await;
        let seen = Arc::<[AtomicU32; 2]>::default();
        let looked = |at: usize| {
            let seen = Arc::clone(&seen);
            move || {
                seen[at].fetch_add(1, Ordering::Relaxed);
            }
        };
        let count = |at: usize| seen[at].load(Ordering::Relaxed);
        while count(1) < 3 {
            looks.begin("hangs", looked(0)).await;
            looks.begin("answers", looked(1)).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(count(0), 0, "one is under way");
        drop(answer);
        while count(0) == 0 {
            looks.begin("hangs", looked(0)).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
