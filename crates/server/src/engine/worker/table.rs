//! The streams of one worker, and when it is each one's turn.
//!
//! The table keeps account of who plays: the counter of [`WorkerShared::playing`], and the work
//! that is asked of the engine. So a stream begins to play, stops and is left out by its methods
//! alone.
//!
//! [`WorkerShared::playing`]: super::super::shared::WorkerShared::playing

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onrush_sys::pool::Pin;
use onrush_sys::prefetch::prefetch;
use onrush_wire::pace::Wheel;

use super::super::shared::{State, StreamShared, bump, drop_one};
use super::super::{EngineConfig, Play, Remote};
use super::entry::{StreamEntry, StreamOutlet};
use super::tick_ns;
use crate::store;

/// Slots of the wheel: at the default burst it turns in 2.5 s.
const WHEEL_SLOTS: u32 = 512;

/// Of one stream: its own, and its places on the wheel (24 bytes) and in the list of those that are
/// due.
#[cfg(test)]
pub(in super::super) const BYTES_PER_STREAM: usize =
    size_of::<Option<StreamEntry>>() + 24 + size_of::<u32>();

/// The streams of one worker, by number.
pub(super) struct StreamTable {
    /// As many as there ever were at once: numbers are used again before others are.
    entries: Vec<Option<StreamEntry>>,
    wheel: Wheel,
    /// Streams that were opened so far.
    opened: u64,
    /// Work of the streams that play and are sent, and of those that play and are left out.
    work_sent: u64,
    work_left_out: u64,
    store: Arc<store::Shared>,
    remote: Arc<Remote>,
}

impl StreamTable {
    /// It takes memory as streams come, and none while they play.
    pub(super) fn new(
        config: &EngineConfig,
        store: Arc<store::Shared>,
        remote: Arc<Remote>,
        now_ns: u64,
    ) -> Self {
        Self {
            entries: Vec::new(),
            wheel: Wheel::new(0, WHEEL_SLOTS, tick_ns(config), now_ns),
            opened: 0,
            work_sent: 0,
            work_left_out: 0,
            store,
            remote,
        }
    }

    /// Takes a stream in; it is paused.
    ///
    /// # Panics
    /// If there is one of that number.
    pub(super) fn insert(&mut self, number: u32, shared: Arc<StreamShared>, outlet: StreamOutlet) {
        let at = number as usize;
        if self.entries.len() <= at {
            self.entries.resize_with(at + 1, || None);
            self.wheel.grow(number + 1);
        }
        let place = &mut self.entries[at];
        assert!(place.is_none(), "a stream number belongs to one stream");
        *place = Some(StreamEntry::new(shared, outlet, self.opened));
        self.opened += 1;
    }

    /// How many streams it has room for by now.
    pub(super) fn places(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, number: u32) -> Option<&StreamEntry> {
        self.entries[number as usize].as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut StreamEntry> {
        self.entries[number as usize].as_mut()
    }

    /// Has the processor bring the stream's entry, which is wanted soon.
    pub(super) fn prefetch(&self, number: u32) {
        prefetch(&self.entries[number as usize]);
    }

    /// The same of what is behind its entry, which should be there by now.
    pub(super) fn prefetch_shared(&self, number: u32) {
        if let Some(stream) = self.get(number) {
            prefetch(&*stream.shared);
        }
    }

    /// The stream, if it plays.
    pub(super) fn playing_mut(&mut self, number: u32) -> Option<&mut StreamEntry> {
        self.get_mut(number).filter(|stream| stream.playing)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut StreamEntry)> {
        let entries = (0..).zip(self.entries.iter_mut());
        entries.filter_map(|(number, entry)| Some((number, entry.as_mut()?)))
    }

    /// Those that play and are left out, or are not.
    pub(super) fn playing(&self, is_shed: bool) -> impl Iterator<Item = u32> {
        let entries = (0..).zip(self.entries.iter());
        entries.filter_map(move |(number, entry)| {
            let stream = entry.as_ref()?;
            (stream.playing && stream.is_shed == is_shed).then_some(number)
        })
    }

    /// Lets go of a stream that does not play; its number is free for another.
    pub(super) fn remove(&mut self, number: u32) -> Option<StreamEntry> {
        let stream = self.entries[number as usize].take();
        debug_assert!(stream.as_ref().is_none_or(|stream| !stream.playing));
        self.remote.streams.give_back(number);
        stream
    }

    /// It is this stream's turn at that time, and not at the one said before.
    pub(super) fn wake_at(&mut self, number: u32, at_ns: u64) {
        self.wheel.insert(number, at_ns);
    }

    /// It is this stream's turn no more.
    pub(super) fn cancel(&mut self, number: u32) {
        self.wheel.remove(number);
    }

    /// Moves the streams whose turn it is in the tick of `now_ns` to `due`.
    pub(super) fn take_due(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        self.wheel.take_due(now_ns, due);
    }

    /// When it is the next one's turn.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.wheel.next_ns()
    }

    /// Begins to play, or goes on elsewhere. Gives the chunk back if there is no such stream, or it
    /// has no socket any more.
    pub(super) fn play(&mut self, number: u32, play: &Play, pin: Option<Pin>, renumbers: bool) {
        let lost = self.get(number).and_then(StreamEntry::lost);
        if let Some(errno) = lost {
            self.refuse(number, errno);
        }
        let stream = self.entries[number as usize].as_mut();
        let Some(stream) = stream.filter(|_| lost.is_none()) else {
            if let Some(pin) = pin {
                self.store.pool().unpin(pin);
            }
            return;
        };
        let (from, stop_before) = (play.from, play.stop_before);
        let reader = &mut stream.reader;
        reader.start(&stream.shared, &self.store, from, stop_before, pin);
        if !std::mem::replace(&mut stream.playing, true) {
            bump(&self.remote.shared.playing, 1);
            stream.demand = stream.shared.demand();
            self.work_sent += stream.demand.work();
        }
        stream.start(play, renumbers);
        self.wheel.insert(number, play.start_ns);
    }

    /// A stream that does not play has another source from now on.
    pub(super) fn change_source(&mut self, number: u32, shared: Arc<StreamShared>) {
        if let Some(stream) = self.entries[number as usize].as_mut() {
            debug_assert!(!stream.playing);
            stream.reader.put_down(&self.store);
            stream.change_source(shared);
        }
    }

    /// The stream plays no more, but keeps its place and its chunks. Whether it played.
    pub(super) fn stop(&mut self, number: u32) -> bool {
        self.wheel.remove(number);
        let Some(stream) = self.entries[number as usize].as_mut() else {
            return false;
        };
        if !std::mem::take(&mut stream.playing) {
            return false;
        }
        drop_one(&self.remote.shared.playing);
        match std::mem::take(&mut stream.is_shed) {
            true => {
                self.work_left_out -= stream.demand.work();
                drop_one(&self.remote.shared.shed);
            }
            false => self.work_sent -= stream.demand.work(),
        }
        true
    }

    /// The stream plays no more, and gives its chunks back. Whether it played.
    pub(super) fn put_down(&mut self, number: u32) -> bool {
        let has_played = self.stop(number);
        if let Some(stream) = self.entries[number as usize].as_mut() {
            stream.reader.put_down(&self.store);
        }
        has_played
    }

    /// The stream has stopped, and says so, if it played.
    pub(super) fn end(&mut self, number: u32, state: State) {
        if self.put_down(number)
            && let Some(stream) = self.get(number)
        {
            stream.shared.set_state(state);
        }
    }

    /// The stream has failed, whether it plays or not, and says so.
    pub(super) fn fail(&mut self, number: u32, errno: i32) {
        self.put_down(number);
        if let Some(stream) = self.get_mut(number) {
            stream.set_errno(errno);
            stream.pausing_until_ns = None;
            stream.shared.set_state(State::SendFailed);
        }
    }

    /// The play that was asked for fails at once.
    fn refuse(&mut self, number: u32, errno: i32) {
        if let Some(stream) = self.get(number) {
            stream.shared.take_play();
        }
        self.fail(number, errno);
    }

    /// A stream that plays is sent no more, and gives its chunks back.
    pub(super) fn leave_out(&mut self, number: u32) {
        let Some(stream) = self.entries[number as usize].as_mut() else {
            return;
        };
        debug_assert!(stream.playing && !stream.is_shed);
        stream.reader.put_down(&self.store);
        stream.is_shed = true;
        self.work_sent -= stream.demand.work();
        self.work_left_out += stream.demand.work();
        bump(&self.remote.shared.shed, 1);
        bump(&self.remote.shared.sheds, 1);
    }

    /// A stream that is left out is sent again.
    pub(super) fn take_back(&mut self, number: u32) {
        let Some(stream) = self.entries[number as usize].as_mut() else {
            return;
        };
        debug_assert!(stream.playing && stream.is_shed);
        stream.is_shed = false;
        self.work_left_out -= stream.demand.work();
        self.work_sent += stream.demand.work();
        drop_one(&self.remote.shared.shed);
    }

    /// Work of the streams that play and are sent.
    pub(super) fn work_sent(&self) -> u64 {
        self.work_sent
    }

    /// Work of those that play and are left out.
    pub(super) fn work_left_out(&self) -> u64 {
        self.work_left_out
    }

    /// Nobody plays, and nobody holds a chunk.
    pub(super) fn put_all_down(&mut self) {
        for stream in self.entries.iter_mut().flatten() {
            stream.playing = false;
            stream.reader.put_down(&self.store);
        }
        self.remote.shared.playing.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use onrush_sys::wake::Waker;
    use onrush_wire::rtp::Numbering;

    use super::super::super::admission::Demand;
    use super::*;
    use crate::experiments::Faults;
    use crate::testing::{TestSource, store};

    #[test]
    fn memory_is_taken_as_streams_come() {
        let config = EngineConfig {
            streams_max: 1 << 20,
            ..EngineConfig::default()
        };
        let (store, test) = (store(1, Faults::default()), TestSource::lasting(100));
        let waker = Arc::new(Waker::new().expect("a descriptor"));
        let remote = Arc::new(Remote::new(&config, waker));
        let mut streams = StreamTable::new(&config, Arc::clone(store.shared()), remote, 0);
        assert_eq!(streams.places(), 0);
        for number in 0..100 {
            let (source, ends) = (Arc::clone(&test.source), Arc::default());
            let (numbering, demand) = (Numbering::default(), Demand::new(1));
            let shared = StreamShared::new(source, 1328, numbering, demand, ends);
            streams.insert(number, Arc::new(shared), StreamOutlet::Lost(libc::EIO));
            streams.wake_at(number, 1_000_000);
        }
        assert_eq!(streams.places(), 100);
        assert!(streams.entries.capacity() < 256);
        let mut due = Vec::new();
        streams.take_due(1_000_000_000, &mut due);
        due.sort_unstable();
        assert!(due.into_iter().eq(0..100));
    }
}
