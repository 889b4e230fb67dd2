//! Sessions as whoever watches the server sees them.

use std::rc::Rc;

use onrush_wire::rtsp::State;

use super::Control;
use super::end::End;
use super::session::Session;
use super::track_session::TrackSession;
use crate::config::Config;
use crate::watching::{
    Roster, SESSIONS_SHOWN_MAX, SessionEvent, SessionName, SessionRow, Wish, WishQueue,
};

/// Does what pages wish, until nobody can wish any more.
pub(super) async fn answer(control: Rc<Control>, mut wishes: WishQueue) {
    while let Some(wish) = wishes.recv().await {
        // Whoever asked may be gone.
        match wish {
            Wish::List {
                find,
                first,
                answer,
            } => {
                drop(answer.send(roster(&control, &find, first)));
            }
            Wish::End { number, answer } => {
                let is_there = control.sessions.borrow().contains_key(&number);
                control.tell(number, |session| {
                    session.end(End::Dismissed);
                });
                answer.send(is_there).unwrap_or_default();
            }
        }
    }
}

/// Tells whoever has the server in its program, if it wants to know.
pub(super) fn tell(config: &Config, event: SessionEvent, session: &Session) {
    if let Some(hook) = &config.session_hook {
        let name = SessionName {
            id: format!("{:016x}", session.id().number()),
            client: session.peer_ip().to_string(),
            film: session.presentation().path(),
        };
        hook.tell(event, &name);
    }
}

fn roster(control: &Control, find: &str, first: usize) -> Roster {
    let sessions = control.sessions.borrow();
    let is_meant = |session: &Session| {
        find.is_empty()
            || session.presentation().name().contains(find)
            || session.peer_ip().to_string().contains(find)
    };
    let mut meant: Vec<_> = sessions.values().filter(|it| is_meant(it)).collect();
    meant.sort_unstable_by_key(|session| session.id().number());
    let shown = meant.iter().skip(first).take(SESSIONS_SHOWN_MAX);
    Roster {
        all: sessions.len(),
        found: meant.len(),
        sessions: shown.map(|session| row(session)).collect(),
    }
}

fn row(session: &Session) -> SessionRow {
    let tracks = session.tracks();
    let lost = tracks.iter().filter_map(|track| track.arrival());
    let worst = lost.max_by_key(|(reception, _)| reception.lost);
    let is_live = session.media().is_none();
    SessionRow {
        id: format!("{:016x}", session.id().number()),
        client: session.peer_ip().to_string(),
        film: session.presentation().path(),
        transport: tracks.first().map_or("", |it| TrackSession::transport(it)),
        state: match session.state() {
            State::Init => "leaving",
            State::Ready => "ready",
            State::Playing => "playing",
            _ => "ended",
        },
        position_s: (!is_live).then(|| seconds(session.position_ns())),
        lost: worst.map(|(reception, _)| reception.lost),
        lost_ratio: worst.map(|(reception, _)| f64::from(reception.lost_fraction) / 256.0),
        jitter_ms: worst.map(|(reception, clock_hz)| {
            f64::from(reception.jitter) * 1000.0 / f64::from(clock_hz.max(1))
        }),
    }
}

#[allow(clippy::cast_precision_loss, reason = "it is shown in whole seconds")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
