//! Sessions go to another engine where one has too much to do.

use std::rc::Rc;

use tokio::task::{JoinSet, spawn_local};
use tracing::{debug, info};

use super::Control;
use super::session::Session;
use crate::engine::{EngineError, Shift};

/// Sessions that move at once, and in a second: the others play on meanwhile, and a look tells
/// whether it was enough.
const MOVES_MAX: usize = 256;

impl Control {
    /// Once a second: moves sessions from an engine that is late, or has promised much more than
    /// another, to that one. Those that are being asked something stay. In a task of its own: a
    /// device that does not let go of a train may hold a move up, and nothing else.
    pub(super) fn balance(self: &Rc<Self>) {
        let Some(data) = self.content.sending.get() else {
            return;
        };
        if let Some(shift) = data.engines().shift()
            && !self.balancing.replace(true)
        {
            let control = Rc::clone(self);
            drop(spawn_local(async move {
                control.apply_shift(shift).await;
                control.balancing.set(false);
            }));
        }
    }

    async fn apply_shift(self: &Rc<Self>, shift: Shift) {
        let Some(data) = self.content.sending.get() else {
            return;
        };
        let mut moves = JoinSet::new();
        let mut left = shift.work;
        for session in self.sessions.borrow().values() {
            if left == 0 || moves.len() == MOVES_MAX {
                break;
            }
            let tracks = session.tracks();
            let streams = tracks.iter().filter_map(|track| track.stored());
            let work = streams.filter_map(|it| it.stream.work_on(data.engines(), shift.from));
            let work: u64 = work.sum();
            if work > 0 {
                left = left.saturating_sub(work);
                let (control, session) = (Rc::clone(self), Rc::clone(session));
                moves.spawn_local(async move { control.relocate(&session, shift.to).await });
            }
        }
        let (mut moved, mut stayed) = (0, 0);
        while let Some(done) = moves.join_next().await {
            match done {
                Ok(Ok(())) => moved += 1,
                Ok(Err(error)) => {
                    debug!("a session stays where it is: {error}");
                    stayed += 1;
                }
                Err(panic) => debug!("moving a session: {panic}"),
            }
        }
        let [from, to] = [shift.from, shift.to].map(|engine| data.cores()[engine]);
        info!("{moved} sessions moved from processor {from} to {to}, {stayed} could not");
    }

    async fn relocate(&self, session: &Session, engine: usize) -> Result<(), EngineError> {
        let Some(data) = self.content.sending.get() else {
            return Ok(());
        };
        // So that it is not played or paused meanwhile.
        let _turn = session.turn.try_lock().map_err(|_| EngineError::Busy)?;
        for track in session.tracks() {
            if let Some(delivery) = track.stored() {
                delivery.stream.move_to(data.engines(), engine).await?;
            }
        }
        Ok(())
    }
}
