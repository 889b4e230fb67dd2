//! Sessions as whoever watches the server sees them.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use onrush_wire::name::shown;
use onrush_wire::rtsp::State;

use super::Control;
use super::end::End;
use super::session::Session;
use super::track_session::TrackSession;
use crate::config::Config;
use crate::library::Media;
use crate::watching::{
    KnownFilm, Roster, SESSIONS_SHOWN_MAX, SessionEvent, SessionName, SessionRow, Wish, WishQueue,
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
            Wish::Films { answer } => drop(answer.send(films(&control))),
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

/// Films that the library knows, and those that are played still after they were replaced.
fn films(control: &Control) -> Vec<KnownFilm> {
    let mut sessions: HashMap<*const Media, (Arc<Media>, usize)> = HashMap::new();
    let known = control.content.library.as_ref().map(|it| it.known());
    for media in known.into_iter().flatten() {
        sessions.insert(Arc::as_ptr(&media), (media, 0));
    }
    for session in control.sessions.borrow().values() {
        if let Some(media) = session.media() {
            let entry = sessions.entry(Arc::as_ptr(media));
            entry.or_insert_with(|| (Arc::clone(media), 0)).1 += 1;
        }
    }
    let told = |(media, sessions): (Arc<Media>, usize)| KnownFilm {
        film: shown(media.name()).into_owned(),
        sources: media.source_numbers(),
        sessions,
    };
    sessions.into_values().map(told).collect()
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
