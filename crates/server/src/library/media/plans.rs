//! Plans of a film's tracks, one for each way to cut a track into packets.
//!
//! Of a long film a plan takes seconds, unless only what has come of it is new. So nobody makes one
//! while he holds what all ask for, and whoever serves others meanwhile has it [made](planned)
//! elsewhere. A plan that is made stays: when more is known of the film there is one of that at
//! once.

#[cfg(test)]
use std::cell::RefCell;
use std::mem;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use onrush_wire::media::{CUTS_MAX, Cut, Plan};
use tokio::sync::Semaphore;
use tracing::error;

use super::segments::LastCut;
use super::{Known, Media, State};

/// Plans that are made at once for whoever waits for them: each takes all of a processor.
const PLANNING_MAX: usize = 2;

static TURNS: Semaphore = Semaphore::const_new(PLANNING_MAX);

/// Of each track, by the numbers of its cuts.
pub(super) type Plans = Box<[[Option<(Cut, Arc<Plan>)>; CUTS_MAX]]>;

/// Who makes plans of a film.
#[derive(Debug, Default)]
pub(super) struct Planning {
    /// Held while plans are made, and what is known of the film does not change then.
    making: Mutex<()>,
    /// Held by a thread that makes one: the next one waits for it without a thread.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Has the packets of a track planned, in bytes as [`Media::plan`] wants them, unless they are: on
/// a blocking thread. Dropping the future does not stop a plan that is being made; it serves the
/// next caller.
pub(crate) async fn planned(media: &Arc<Media>, track: usize, payload_bytes_max: usize) {
    if media.is_planned(track, payload_bytes_max) {
        return;
    }
    let own_turn = Arc::clone(&media.planning.turn).lock_owned().await;
    if media.is_planned(track, payload_bytes_max) {
        return;
    }
    let Ok(turn) = TURNS.acquire().await else {
        return;
    };
    let of = Arc::clone(media);
    let make = tokio::task::spawn_blocking(move || {
        // The thread's, not the client's, who may have gone.
        let _turns = (own_turn, turn);
        drop(of.plan(track, payload_bytes_max));
    });
    if let Err(failure) = make.await {
        error!("planning {:?}: {failure}", media.name());
    }
}

impl Media {
    /// The packets of a track, by now, if it can be cut into packets of at most so many bytes
    /// behind their RTP headers. The first time it goes through all samples of the track, so it may
    /// take a while.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn plan(&self, track: usize, payload_bytes_max: usize) -> Option<Arc<Plan>> {
        let at_hand = || self.state().planned(track, payload_bytes_max);
        if let (_, Some(plan)) = at_hand()? {
            return Some(plan);
        }
        let making = self.planning.making.lock();
        let _making = making.unwrap_or_else(PoisonError::into_inner);
        let (cut, plan) = at_hand()?;
        if plan.is_some() {
            return plan;
        }
        // It stays so for as long as nobody else makes plans.
        let known = self.state().known.clone();
        let plan = self.made(track, cut, &known, None);
        self.state().plans[track][cut.number()] = Some((cut, Arc::clone(&plan)));
        Some(plan)
    }

    /// Whether [`Self::plan`] has the answer at hand.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn is_planned(&self, track: usize, payload_bytes_max: usize) -> bool {
        let planned = self.state().planned(track, payload_bytes_max);
        planned.is_none_or(|(_, plan)| plan.is_some())
    }

    /// Changes what is known, and tells all sources. Whoever asks meanwhile is told what was known
    /// until then. For those who hold what is known of the growth.
    pub(super) fn publish(&self, change: impl FnOnce(&mut Known)) {
        let making = self.planning.making.lock();
        let _making = making.unwrap_or_else(PoisonError::into_inner);
        let (mut known, mut plans) = {
            let state = self.state();
            (state.known.clone(), state.plans.clone())
        };
        change(&mut known);
        for (track, plans) in plans.iter_mut().enumerate() {
            for (cut, plan) in plans.iter_mut().flatten() {
                *plan = self.made(track, *cut, &known, Some(&**plan));
            }
        }
        let mut state = self.state();
        let grows = known.grows;
        // What is let go of is dropped when nobody waits any more.
        let before = (
            mem::replace(&mut state.known, known),
            mem::replace(&mut state.plans, plans),
            LastCut::retire(&mut state.segments, grows),
        );
        self.film_keys.retire();
        for (sources, plans) in self.sources.iter().zip(&state.plans) {
            for (cut, source) in sources.iter().filter_map(OnceLock::get).flatten() {
                if let Some((_, plan)) = &plans[cut.number()] {
                    source.publish(Arc::clone(plan), state.known.goes_on());
                }
            }
        }
        drop(state);
        self.read.notify_waiters();
        drop(before);
    }

    /// A plan of what is known, made on from that of what was known before, if there is one.
    fn made(&self, track: usize, cut: Cut, known: &Known, before: Option<&Plan>) -> Arc<Plan> {
        #[cfg(test)]
        MAKING.with_borrow(|tell| tell.iter().for_each(|tell| tell()));
        let (index, burst_ns, goes_on) = (&known.index, self.settings.burst_ns, known.goes_on());
        Arc::new(match before {
            Some(before) => index.plan_continuing(track, cut, (burst_ns, goes_on), before),
            None => index.plan(track, cut, burst_ns, goes_on),
        })
    }
}

impl State {
    /// How a track is cut into such packets, and its plan, if that is made; `None` if it cannot be.
    pub(super) fn planned(
        &self,
        track: usize,
        payload_bytes_max: usize,
    ) -> Option<(Cut, Option<Arc<Plan>>)> {
        let cut = self.known.index.cut(track, payload_bytes_max)?;
        let plan = self.plans[track][cut.number()].as_ref();
        Some((cut, plan.map(|(_, plan)| Arc::clone(plan))))
    }
}

#[cfg(test)]
thread_local! {
    static MAKING: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Has `tell` called before each plan that this thread makes from now on.
#[cfg(test)]
pub(crate) fn tell_of_plans(tell: impl Fn() + 'static) {
    MAKING.set(Some(Box::new(tell)));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::{self, File};
    use std::rc::Rc;
    use std::time::Duration;

    use onrush_wire::media::ScanOptions;
    use onrush_wire::media::ts::synth::constant_rate;
    use tempfile::TempDir;

    use super::*;
    use crate::library::identity::identify;
    use crate::library::media::Opened;
    use crate::library::scan::scan;
    use crate::library::settings::Settings;

    const PAYLOAD_BYTES: usize = 7 * 188;

    /// A film of half a minute, of which the first look takes in a part.
    fn long_film() -> (Arc<Media>, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long.ts");
        fs::write(&path, constant_rate(200_000, 0, 4061)).unwrap();
        onrush_testkit::media::age(&path).unwrap();
        let (file, identity) = identify(File::open(&path).unwrap()).unwrap();
        let settings = Settings {
            options: ScanOptions::default(),
            burst_ns: 20_000_000,
            growth_time_max: Duration::from_secs(1),
            reading: Arc::default(),
            saved: None,
        };
        let scanned = scan(&file, identity, &settings).unwrap().unwrap();
        let opened = Opened::new(path, file, &settings.reading.counters);
        let media = Media::new("long.ts".to_owned(), opened, scanned, settings).unwrap();
        (Arc::new(media), folder)
    }

    /// Control asks for it, of each film that is played, every second.
    #[test]
    fn what_is_known_is_told_while_plans_are_made() {
        let (media, _folder) = long_film();
        assert!(media.is_partial());
        let source = Arc::clone(media.source(0, PAYLOAD_BYTES, 64 << 10).unwrap());
        let (known, made) = (source.rtp_packets(), Rc::new(Cell::new(0)));
        let (of, count) = (Arc::clone(&media), Rc::clone(&made));
        tell_of_plans(move || {
            assert!(of.state.try_lock().is_ok(), "it is free");
            count.set(count.get() + 1);
        });
        while !media.read_behind(4 << 20) {}
        tell_of_plans(|| ());
        assert!(made.get() > 0 && source.rtp_packets() > known);
    }

    #[tokio::test]
    async fn whoever_awaits_a_plan_makes_none() {
        let (media, _folder) = long_film();
        tell_of_plans(|| panic!("it is made elsewhere"));
        assert!(!media.is_planned(0, PAYLOAD_BYTES));
        planned(&media, 0, PAYLOAD_BYTES).await;
        assert!(media.is_planned(0, PAYLOAD_BYTES));
        assert!(media.source(0, PAYLOAD_BYTES, 64 << 10).is_some());
        // It cannot be cut so.
        planned(&media, 0, 187).await;
        assert!(media.plan(0, 187).is_none());
        tell_of_plans(|| ());
    }
}
