//! Streams go from one engine to another while they play.
//!
//! A stream is placed where least is promised when it is opened. Afterwards others leave, or a
//! processor is taken away from its engine. Then the engine that has it lets go of it: it queues
//! nothing more, waits until the kernel has let go of the last train, takes the socket out of its
//! ring's table, and hands socket, place and chunk back to control, which gives them to the other
//! engine. So every packet is handed over once, and in order; the next burst may be late by some
//! ticks. What is to move, and where to, [`shift`] decides.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onrush_sys::path::{PathName, prepare_socket};
use onrush_sys::pool::Pin;
use tokio::sync::oneshot;

use super::shared::State;
use super::{Command, EngineError, EngineSlot, Engines, Outlet, Play, Remote, Stream};

/// An engine that has promised so much more than another, of 1000, gives some of it away.
const GAP_PERMILLE: u64 = 200;

/// Of its streams, an engine that is late gives away one in so many at a time.
const LATE_SHARE: u64 = 4;

/// How often a full queue is tried again.
const AGAIN_EVERY: Duration = Duration::from_millis(1);

/// What an engine lets go of.
#[derive(Debug)]
pub(crate) struct Handover {
    /// Or why there is no descriptor for it: then the stream has stayed where it was.
    pub(crate) socket: io::Result<OwnedFd>,
    /// How it goes on, if it plays, and the chunk that it goes on from.
    pub(crate) play: Option<(Play, Option<Pin>)>,
}

/// A stream that is about to leave its engine.
#[derive(Debug)]
pub(crate) struct PendingMove {
    pub(super) to: oneshot::Sender<Handover>,
    /// As in [`Handover`]; the worker fills it in.
    pub(super) play: Option<(Play, Option<Pin>)>,
}

/// What an engine has promised, and how it keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Work, and what that takes of a second, in thousandths.
    pub(crate) work: u64,
    pub(crate) permille: u64,
    pub(crate) permille_max: u64,
    pub(crate) is_late: bool,
    pub(crate) has_stopped: bool,
}

/// Streams of so much work are to go from one engine to another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shift {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) work: u64,
}

/// What is to move, if anything: from an engine that is late, or else from the one that has
/// promised most, to the one that is on time and has promised least, and not more than it may
/// promise.
pub(crate) fn shift(loads: &[Load]) -> Option<Shift> {
    let running = || (0..).zip(loads).filter(|(_, load)| !load.has_stopped);
    let (to, least) = running()
        .filter(|(_, load)| !load.is_late)
        .min_by_key(|(_, load)| load.permille)?;
    let (from, most) = running()
        .filter(|&(i, load)| i != to && load.work > 0)
        .max_by_key(|(_, load)| (load.is_late, load.permille))?;
    let gap = most.permille.saturating_sub(least.permille);
    let wanted = match most.is_late {
        true => most.permille / LATE_SHARE,
        false if gap > GAP_PERMILLE => gap / 2,
        false => return None,
    };
    let room = least.permille_max.saturating_sub(least.permille);
    let part = u128::from(wanted.min(room));
    let work = u128::from(most.work) * part / u128::from(most.permille.max(1));
    let work = u64::try_from(work).unwrap_or(u64::MAX);
    (work > 0).then_some(Shift { from, to, work })
}

impl Engines {
    /// What is to move, if anything.
    pub(crate) fn shift(&self) -> Option<Shift> {
        let loads = self.engines.iter().map(|engine| {
            let (remote, admission) = (&engine.remote, &engine.remote.shared.admission);
            Load {
                work: admission.work(),
                permille: admission.load_promised(),
                permille_max: remote.load_max_permille,
                is_late: admission.is_late_for(LATE_SECONDS),
                has_stopped: remote.has_stopped(),
            }
        });
        shift(&loads.collect::<Vec<_>>())
    }
}

/// Streams are moved before they are left out or others are refused.
const LATE_SECONDS: u64 = 2;

impl Stream {
    /// What it asks of an engine; `None` while it moves, or if it stays where it is: what leaves on
    /// one connection leaves by one engine.
    pub(crate) fn work_on(&self, engines: &Engines, engine: usize) -> Option<u64> {
        let remote = &engines.engines[engine].remote;
        let slot = self.slot().filter(|_| self.connection.is_none())?;
        Arc::ptr_eq(&slot.remote, remote).then(|| self.shared().demand().work())
    }

    /// Moves to that engine, with all that it is doing. Until it is there it cannot be played or
    /// paused ([`EngineError::Busy`]). Without a descriptor for its socket it stays, and goes on.
    /// Whoever drops this half way drops the stream: it has stopped.
    pub(crate) async fn move_to(
        &self,
        engines: &Engines,
        engine: usize,
    ) -> Result<(), EngineError> {
        let to = &engines.engines[engine].remote;
        let from = self.slot().ok_or(EngineError::Busy)?;
        if Arc::ptr_eq(&from.remote, to) {
            return Ok(());
        }
        if to.has_stopped() {
            return Err(EngineError::Stopped);
        }
        let demand = self.shared().demand();
        Engines::admit(to, demand)?;
        let number = to
            .take_number()
            .inspect_err(|_| to.shared.admission.give_back(demand))?;
        let undo = || {
            to.streams.put_back(number);
            to.shared.admission.give_back(demand);
        };
        let (send, left) = oneshot::channel();
        let leaving = Box::new(PendingMove {
            to: send,
            play: None,
        });
        let leave = Command::Leave {
            stream: from.number,
            leaving,
        };
        if let Err(error) = from.remote.send(leave) {
            undo();
            return Err(error);
        }
        // From here on it is nobody's.
        let moving = Moving(self);
        self.set_slot(None);
        let Ok(Handover { socket, play }) = left.await else {
            undo();
            if !from.remote.has_stopped() {
                from.remote.shared.admission.give_back(demand);
            }
            return Err(EngineError::Stopped);
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                undo();
                self.go_on(from, play).await?;
                std::mem::forget(moving);
                return Err(EngineError::Socket(error));
            }
        };
        from.remote.shared.admission.give_back(demand);
        let slot = EngineSlot {
            remote: Arc::clone(to),
            number,
        };
        let arrived = self.arrive(slot, socket, play).await;
        // What is at no engine gives nothing back when it is dropped.
        if arrived.is_err() && self.slot().is_none() {
            undo();
        }
        arrived?;
        std::mem::forget(moving);
        Ok(())
    }

    /// Goes on there as it was when it left.
    async fn arrive(
        &self,
        slot: EngineSlot,
        socket: OwnedFd,
        play: Option<(Play, Option<Pin>)>,
    ) -> Result<(), EngineError> {
        if let Err(error) = self.open_at(&slot.remote, slot.number, socket).await {
            if let Some((_, Some(pin))) = play {
                self.store.pool().unpin(pin);
            }
            return Err(error);
        }
        self.go_on(slot, play).await
    }

    /// The engine has it, paused: it plays, if it has played before.
    async fn go_on(
        &self,
        slot: EngineSlot,
        play: Option<(Play, Option<Pin>)>,
    ) -> Result<(), EngineError> {
        let (remote, stream) = (Arc::clone(&slot.remote), slot.number);
        // Before it plays: who has seen it play may pause it.
        self.set_slot(Some(slot));
        if let Some((play, pin)) = play {
            self.shared().ask_play(&play);
            Self::send_retrying(&remote, Command::Play { stream, play, pin }).await?;
        }
        Ok(())
    }

    /// Is taken up by an engine.
    async fn open_at(
        &self,
        remote: &Remote,
        stream: u32,
        socket: OwnedFd,
    ) -> Result<(), EngineError> {
        let shared = self.shared();
        // Where paths differ, so do a socket's options; one of single packets cuts nothing on any.
        let path = match shared.sends_singly.load(Ordering::Relaxed) {
            true => PathName::Sendmmsg,
            false => remote.shared.path(),
        };
        prepare_socket(path, socket.as_raw_fd(), shared.segment_bytes)
            .map_err(EngineError::Socket)?;
        let open = Command::Open {
            stream,
            shared,
            outlet: Outlet::Socket(socket),
        };
        Self::send_retrying(remote, open).await
    }

    /// Gives a command to an engine, however many wait for it.
    async fn send_retrying(remote: &Remote, mut command: Command) -> Result<(), EngineError> {
        while !remote.has_stopped() {
            match remote.push(command) {
                Ok(()) => return Ok(()),
                Err(unsent) => command = unsent,
            }
            tokio::time::sleep(AGAIN_EVERY).await;
        }
        Err(EngineError::Stopped)
    }
}

/// A stream that is nobody's. Dropped, it has stopped.
struct Moving<'a>(&'a Stream);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.shared().set_state(State::Stopped);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDLE: Load = Load {
        work: 0,
        permille: 0,
        permille_max: 900,
        is_late: false,
        has_stopped: false,
    };

    fn busy(permille: u64) -> Load {
        Load {
            work: permille * 1000,
            permille,
            ..IDLE
        }
    }

    #[test]
    fn who_is_late_gives_to_who_is_not() {
        let late = Load {
            is_late: true,
            ..busy(400)
        };
        let moved = |from, to, work| Some(Shift { from, to, work });
        assert_eq!(shift(&[late, IDLE]), moved(0, 1, 100_000));
        assert_eq!(shift(&[busy(700), late]), moved(1, 0, 100_000));
        // Not more than there is room for, and to nobody who is late himself.
        assert_eq!(shift(&[busy(850), late]), moved(1, 0, 50_000));
        assert_eq!(shift(&[busy(900), late]), None);
        assert_eq!(shift(&[late, late]), None);
        assert_eq!(shift(&[late]), None);
        let gone = Load {
            has_stopped: true,
            ..IDLE
        };
        assert_eq!(shift(&[late, gone]), None);
        assert_eq!(
            shift(&[gone, late, busy(10), busy(5)]),
            moved(1, 3, 100_000)
        );
    }

    #[test]
    fn a_small_gap_is_left_alone_and_a_large_one_halved() {
        assert_eq!(shift(&[busy(200), IDLE]), None);
        let moved = shift(&[busy(300), busy(701)]);
        assert_eq!(
            moved,
            Some(Shift {
                from: 1,
                to: 0,
                work: 200_000
            })
        );
        assert_eq!(shift(&[IDLE, IDLE]), None);
        assert_eq!(shift(&[]), None);
    }

    proptest! {
        #[test]
        fn it_comes_to_rest(permille in proptest::collection::vec(0_u64..900, 1..9)) {
            let mut loads: Vec<_> = permille.into_iter().map(busy).collect();
            let all: u64 = loads.iter().map(|load| load.work).sum();
            for _ in 0..200 {
                let Some(Shift { from, to, work }) = shift(&loads) else {
                    break;
                };
                loads[from] = busy((loads[from].work - work) / 1000);
                loads[to] = busy((loads[to].work + work).div_ceil(1000));
                prop_assert!(loads[to].permille <= 900);
            }
            prop_assert_eq!(shift(&loads), None);
            prop_assert_eq!(loads.iter().map(|load| load.work).sum::<u64>() / 1000, all / 1000);
        }
    }
}
