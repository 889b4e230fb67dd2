//! The multicast groups that are sent to: one for a film or channel and an address of ours, from
//! the first SETUP until its last session has gone.
//!
//! What sends to a group is a session like any other, whose client is the group: its reports, its
//! end and its place among the engines are nothing new. It has no connection and no requests; who
//! watches makes it [play](super::session::Session::prepare), and this file ends it.
//!
//! What is always sent has a group of its own for as long as the server runs, so that whoever was
//! told of it finds it there again, whatever came between. When a film is replaced, the new one is
//! sent there from then on, and those who watch the old one have to ask anew. A server that drains
//! sends it only for those who have sessions, and to no group once another has its place.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use onrush_wire::media::Scale;
use onrush_wire::pace::Speed;
use onrush_wire::rtsp::{Group as GroupAddress, Range, Reply, State, StatusCode, Transport};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::Control;
use super::client::Client;
use super::group::{Group, GroupTrackSpec};
use super::planning::plan_for_group;
use super::ports::{Hear, local_address};
use super::presentation::{LIVE_FOLDER, OnGroup, Presentation};
use super::refusals::log_refused;
use super::session::{End, Session};
use super::track_session::TrackSession;
use crate::multicast::{GroupRange, MulticastConfig};

/// Why what is always sent is sent no more.
const REPLACED: &str = "something else has its name, and its group";

/// How often it is tried to send what is always to be sent.
const ALWAYS_EVERY: Duration = Duration::from_secs(1);

/// The groups in use.
pub(super) struct Groups {
    config: MulticastConfig,
    table: RefCell<Vec<Entry>>,
    /// How many were given out, so that none is given out again at once.
    given: Cell<usize>,
    /// Those of what is always sent, with their ports, by the paths that are configured.
    kept: RefCell<HashMap<String, (IpAddr, u16)>>,
    /// Nothing is always sent any longer.
    is_over: Cell<bool>,
    hear: Rc<Hear>,
}

struct Entry {
    on: Rc<OnGroup>,
    /// The address that it is sent from.
    local: SocketAddr,
    /// It stays as long though nobody watches.
    kept_until: Cell<Option<Instant>>,
    is_always: bool,
}

impl Groups {
    pub(super) fn new(config: MulticastConfig, hear: Rc<Hear>) -> Self {
        Self {
            config,
            table: RefCell::default(),
            given: Cell::new(0),
            kept: RefCell::default(),
            is_over: Cell::new(false),
            hear,
        }
    }

    /// Whether there are any for a client that has spoken to that address.
    pub(super) fn serve(&self, local: SocketAddr) -> bool {
        let ip = local.ip();
        self.config.ranges.iter().any(|it| it.is_of_family(ip))
    }

    /// Whether what is at that path is always sent to a group.
    pub(super) fn is_always(&self, path: &str) -> bool {
        self.config.always.iter().any(|it| it == path)
    }

    /// The address that is sent from to clients of `local`.
    fn from(&self, local: SocketAddr) -> SocketAddr {
        let mut from = self.config.from.iter();
        match from.find(|it| it.is_ipv4() == local.is_ipv4()) {
            Some(&ip) => SocketAddr::new(ip, 0),
            None => local,
        }
    }

    /// Where what is sent to a group comes from, for clients of `local`, and one that it may go to.
    pub(super) fn way(&self, local: SocketAddr) -> Option<(SocketAddr, SocketAddr)> {
        let from = self.from(local);
        let mut ranges = self.config.ranges.iter();
        let range = ranges.find(|range| range.is_of_family(from.ip()))?;
        let mut to = SocketAddr::new(range.group(0)?, range.port);
        if let (SocketAddr::V6(to), SocketAddr::V6(from)) = (&mut to, from) {
            to.set_scope_id(from.scope_id());
        }
        Some((from, to))
    }

    /// Whether the description of a presentation, asked for by that URL, is to tell of a group.
    pub(super) fn are_asked_for(
        &self,
        presentation: &Presentation,
        uri: &str,
        local: SocketAddr,
    ) -> bool {
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        let asks = query.split('&').any(|it| it == "multicast");
        self.serve(local) && (asks || self.is_always(&presentation.path()))
    }

    fn find(&self, presentation: &Presentation, local: SocketAddr) -> Option<Rc<OnGroup>> {
        let table = self.table.borrow();
        let entry = table.iter().find(|entry| {
            // Links may have the same link-local addresses.
            local_address(entry.local) == local_address(local)
                && entry.on.presentation.is_same(presentation)
        });
        entry.map(|entry| Rc::clone(&entry.on))
    }

    /// The path of what is always sent to a group from `local`, if it is.
    fn always_path(&self, presentation: &Presentation, local: SocketAddr) -> Option<String> {
        let is_from = self.config.from.first() == Some(&local.ip());
        Some(presentation.path()).filter(|path| is_from && self.is_always(path))
    }

    /// A group that nobody has, or the one that what is always sent at a path had before.
    fn free(&self, local: SocketAddr, always: Option<&str>) -> Result<(IpAddr, u16), Reply> {
        let table = self.table.borrow();
        if table.len() >= self.config.groups_max {
            let most = self.config.groups_max;
            let note = format!("all {most} multicast groups are taken");
            log_refused(&note);
            return Err(Reply::refusal(StatusCode::NotEnoughBandwidth, &note));
        }
        let kept = self.kept.borrow();
        if let Some(&own) = always.and_then(|path| kept.get(path)) {
            return Ok(own);
        }
        let ranges = || self.config.ranges.iter();
        let of_family = || ranges().filter(|range| range.is_of_family(local.ip()));
        let all: usize = of_family().map(GroupRange::groups).sum();
        let nth = |mut n: usize| {
            of_family().find_map(|range| {
                let group = range.group(n).map(|ip| (ip, range.port));
                n = n.saturating_sub(range.groups());
                group
            })
        };
        let is_free = |(ip, _): &(IpAddr, u16)| {
            let mut taken = table.iter().map(|entry| entry.on.group.address().ip);
            let mut kept = kept.values();
            !taken.any(|it| it == *ip) && !kept.any(|(it, _)| it == ip)
        };
        // In turn: receivers that stay behind in one should not get another film. Of one more than
        // are taken one is free.
        let tried = 0..all.min(table.len() + kept.len() + 1);
        let given = self.given.get();
        let mut tried = tried.filter_map(|n| nth(given.wrapping_add(n) % all));
        tried.find(is_free).ok_or_else(|| {
            let note = "all groups of the range are taken";
            Reply::refusal(StatusCode::NotEnoughBandwidth, note)
        })
    }

    /// Whether something is sent also where nobody watches it, because it always is or somebody was
    /// told of it: while a server drains, that would keep it from its end.
    fn sends_unwatched(&self, control: &Control) -> bool {
        !self.is_over.get() && !control.statistics.drain.is_on()
    }

    /// Nothing of them is kept any longer.
    pub(super) fn clear(&self) {
        self.is_over.set(true);
        self.table.borrow_mut().clear();
    }
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups").finish_non_exhaustive()
    }
}

/// What is sent to a group of `presentation`, to those who have spoken to `local`; from now on, if
/// it was to none, unless another server has the groups.
///
/// # Errors
///
/// The reply that refuses it.
pub(super) fn join(
    control: &Rc<Control>,
    presentation: &Presentation,
    local: SocketAddr,
) -> Result<Rc<OnGroup>, Reply> {
    let groups = &control.groups;
    let local = groups.from(local);
    groups.sweep(control);
    if let Some(on) = groups.find(presentation, local) {
        return Ok(on);
    }
    if groups.is_over.get() {
        let note = "another server sends to the groups by now; connect anew";
        return Err(Reply::refusal(StatusCode::ServiceUnavailable, note));
    }
    let always = groups.always_path(presentation, local);
    if let Some(path) = &always {
        groups.end_replaced(control, path);
    }
    let (ip, rtp_port) = groups.free(local, always.as_deref())?;
    let address = GroupAddress {
        ip,
        rtp_port,
        ttl: groups.config.ttl,
        source: local.ip(),
    };
    let leader = lead(control, presentation, (address, local))?;
    let tracks = leader.tracks();
    let specs: Vec<_> = tracks
        .iter()
        .map(|track| GroupTrackSpec {
            ssrc: track.served().ssrc,
            clock_hz: track.clock_hz(),
        })
        .collect();
    let number = leader.id().number();
    let group = Group::new(address, number, &specs, (local, &groups.hear));
    let on = Rc::new(OnGroup {
        presentation: presentation.clone(),
        group: Rc::new(group),
    });
    let is_always = always.is_some();
    if let Some(path) = always {
        groups.kept.borrow_mut().insert(path, (ip, rtp_port));
    }
    groups.given.set(groups.given.get().wrapping_add(1));
    groups.table.borrow_mut().push(Entry {
        on: Rc::clone(&on),
        local,
        kept_until: Cell::new(None),
        is_always,
    });
    Ok(on)
}

/// A session that sends all tracks to a group, once it plays.
fn lead(
    control: &Rc<Control>,
    presentation: &Presentation,
    (address, local): (GroupAddress, SocketAddr),
) -> Result<Rc<Session>, Reply> {
    let mut peer = SocketAddr::new(address.ip, 0);
    if let (SocketAddr::V6(peer), SocketAddr::V6(local)) = (&mut peer, local) {
        peer.set_scope_id(local.scope_id());
    }
    let client = Client::new((local, peer), None, None);
    let mut tracks = Vec::new();
    for (track, rtp_port) in (0..presentation.tracks()).zip((address.rtp_port..).step_by(2)) {
        let transport = Transport::to_ports([rtp_port, rtp_port + 1]);
        let of = (presentation, track);
        tracks.push(TrackSession::open(control, of, &transport, "", &client)?);
    }
    let mut tracks = tracks.into_iter();
    let first = tracks.next().ok_or_else(|| {
        let note = "there is nothing in it to be sent";
        Reply::refusal(StatusCode::UnsupportedMediaType, note)
    })?;
    let session = Session::new(control.name(), control, presentation.clone(), first);
    tracks.for_each(|track| session.add(track));
    control.add(&session);
    Ok(session)
}

/// The group that a description is to tell of: one that it asks for, or that is always sent to.
/// While the server drains it is one that is sent to anyway, and is not kept.
///
/// # Errors
///
/// The reply that refuses it.
pub(super) fn described(
    control: &Rc<Control>,
    presentation: &Presentation,
    uri: &str,
    local: SocketAddr,
) -> Result<Option<GroupAddress>, Reply> {
    let groups = &control.groups;
    if !groups.are_asked_for(presentation, uri, local) {
        return Ok(None);
    }
    if !groups.sends_unwatched(control) {
        groups.sweep(control);
        let on = groups.find(presentation, groups.from(local));
        return Ok(on.map(|on| on.group.address()));
    }
    let on = join(control, presentation, local)?;
    let kept_until = Instant::now() + control.config.limits.session_timeout;
    let table = groups.table.borrow();
    if let Some(entry) = table.iter().find(|entry| Rc::ptr_eq(&entry.on, &on)) {
        entry.kept_until.set(Some(kept_until));
    }
    Ok(Some(on.group.address()))
}

impl Groups {
    /// Ends what nobody watches, and keeps the rest alive.
    pub(super) fn look(&self, control: &Control) {
        self.sweep(control);
        let now = Instant::now();
        let sends_unwatched = self.sends_unwatched(control);
        let mut table = self.table.borrow_mut();
        table.retain(|entry| {
            let Some(leader) = control.leader(&entry.on.group) else {
                return false;
            };
            let is_kept = entry.kept_until.get().is_some_and(|until| now < until);
            let is_always = entry.is_always && sends_unwatched;
            if Rc::strong_count(&entry.on) > 1 || is_kept || is_always {
                leader.touch();
                return true;
            }
            leader.end(End::Unwatched);
            false
        });
    }

    /// Ends what was always sent as `path` while something else had that name.
    fn end_replaced(&self, control: &Control, path: &str) {
        let mut table = self.table.borrow_mut();
        table.retain(|entry| {
            let is_replaced = entry.is_always && entry.on.presentation.path() == path;
            if is_replaced && let Some(leader) = control.leader(&entry.on.group) {
                leader.end(End::Channel(REPLACED.to_owned()));
            }
            !is_replaced
        });
    }

    /// Forgets what has ended by itself.
    fn sweep(&self, control: &Control) {
        let mut table = self.table.borrow_mut();
        table.retain(|entry| control.leader(&entry.on.group).is_some());
    }
}

/// Sends what is at `path` to a group until another server has the place of this one: as soon as it
/// can be had, and from its beginning again when it is over.
pub(super) async fn send_always(control: Rc<Control>, path: String) {
    let Some(&ip) = control.groups.config.from.first() else {
        return;
    };
    let mut refused_before = None;
    while !control.groups.is_over.get() {
        let refused = begin(&control, &path, SocketAddr::new(ip, 0)).await.err();
        let status = refused.as_ref().map(Reply::status);
        // What is said beside a status may have another figure each time.
        if status != std::mem::replace(&mut refused_before, status) {
            log_always(&control, &path, ip, refused.as_ref());
        }
        sleep(ALWAYS_EVERY).await;
    }
}

/// Says in the log what has become of what is always to be sent.
fn log_always(control: &Control, path: &str, from: IpAddr, refused: Option<&Reply>) {
    let reason = refused.map(Reply::reason).unwrap_or_default();
    // A channel that nobody publishes yet, or of which nothing has come.
    let not_yet = [StatusCode::NotFound, StatusCode::ServiceUnavailable].map(u16::from);
    let is_missing = |refused: &Reply| not_yet.contains(&refused.status());
    let is_awaited = path.starts_with(LIVE_FOLDER) && refused.is_some_and(is_missing);
    match refused {
        Some(_) if is_awaited => info!("{path:?} is not sent to a group yet: {reason}"),
        Some(_) => warn!("{path:?} is not sent to a group from {from}: {reason}"),
        None if control.groups.sends_unwatched(control) => {
            info!("{path:?} is sent to a group from {from} by now");
        }
        None => {}
    }
}

/// Sends it from now on, if it is not sent, unless the server drains.
pub(super) async fn begin(
    control: &Rc<Control>,
    path: &str,
    local: SocketAddr,
) -> Result<(), Reply> {
    let is_wanted = || control.groups.sends_unwatched(control);
    if !is_wanted() {
        return Ok(());
    }
    let presentation = Presentation::open(control, path).await?;
    plan_for_group(control, &presentation, local).await;
    // Asked again: a drain that began meanwhile has ended all that there was.
    if !is_wanted() {
        return Ok(());
    }
    let on = join(control, &presentation, local)?;
    let Some(leader) = control.leader(&on.group) else {
        return Ok(());
    };
    let _turn = leader.turn.lock().await;
    if leader.state() == State::Playing {
        return Ok(());
    }
    let pace = (Scale::NORMAL, Speed::NORMAL);
    if let Some(start) = leader.prepare(Some(Range::default()), pace).await? {
        leader.start(start);
    }
    Ok(())
}
