//! Which of a channel's publishers viewers get, and how they go on with the other.

use onrush_wire::live::{CatchUp, INGESTS_MAX, Kept, Lead, SenderClock, active_ingest};
use tracing::info;

use super::super::ingest::{BY_FRAME, CATCHING_UP_BYTES_MAX, Phase, Publishing};
use super::super::intake::Intake;
use super::{Core, WAIT_NS_MAX};
use crate::channels::tap::Tapped;

impl Core {
    /// Looks how the publishers of a channel stand in the cluster.
    pub(super) fn tend(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.tended_ns) < TEND_EVERY_NS {
            return;
        }
        self.tended_ns = now_ns;
        let path = self.channel.path();
        let all = self.ingests.iter_mut().flatten();
        let mut is_here = false;
        for own in all {
            own.state.has_right = own.right.is_held(path);
            is_here |= own.state.has_right;
        }
        let claims = self.ingests.iter().flatten();
        let claims = claims.filter_map(|own| own.right.claim());
        let is_alone = claims.clone().next().is_none();
        self.channel.set_elsewhere(!is_here && !is_alone);
        if !self.channel.seat().tend(path, claims) {
            self.dismiss_standby();
        }
        self.give_up(now_ns);
    }

    /// Another node's standby was first: whoever stands by here is let go.
    fn dismiss_standby(&self) {
        let others = (0..INGESTS_MAX).filter(|it| Some(*it) != self.active);
        let mut others = others.filter(|&it| {
            let own = self.ingests[it].as_ref();
            own.is_some_and(|own| own.right.claim().is_some())
        });
        if let Some(ingest) = others.next() {
            let path = self.channel.path();
            info!("channel {path}: another node has its standby; the one here is let go");
            self.channel.dismiss(ingest, true);
        }
    }

    /// Gives the channel up to the standby of another node, if nothing comes of it here.
    fn give_up(&mut self, now_ns: u64) {
        let silence_ns = self.standby_after_ns;
        let is_heard = |own: &Publishing| !own.state.is_silent(now_ns, silence_ns);
        if self.ingests.iter().flatten().any(is_heard) {
            return;
        }
        let own = self.active.and_then(|it| self.ingests[it].as_mut());
        let Some(own) = own.filter(|own| !own.has_given_up && own.state.has_right) else {
            return;
        };
        if own.right.claim().is_some_and(|it| it.give_up_to_standby()) {
            own.has_given_up = true;
            let path = self.channel.path();
            info!("channel {path}: nothing comes of its publisher; another node's standby goes on");
        }
    }

    /// Sees to it that viewers get the ingest that they are to get.
    pub(super) fn choose(&mut self, now_ns: u64) {
        let states = [0, 1].map(|it: usize| self.ingests[it].as_ref().map(|own| own.state));
        let times = (now_ns, self.standby_after_ns);
        let waiting = (self.idle_since_ns, self.channel.has_viewers());
        let next = active_ingest(self.active, states, times, waiting);
        let before = std::mem::replace(&mut self.active, next);
        let (Some(next), true) = (next, next != before) else {
            return;
        };
        self.channel.set_begun();
        let before = before.and_then(|it| self.ingests[it].as_mut());
        let has_right = before.as_ref().is_none_or(|it| it.state.has_right);
        let is_there = before.map(Publishing::stand_by).is_some();
        let Some(own) = &mut self.ingests[next] else {
            return;
        };
        // One that has just begun, and of which nothing can be kept, begins with what comes.
        match own.state.heard_ns {
            None => {
                own.phase = Phase::Live;
                self.go_on(self.lead.then(self.ended_ns(), now_ns));
            }
            Some(_) => {
                own.phase = Phase::Due(now_ns);
                self.switches += 1;
                let path = self.channel.path();
                let why = match (is_there, has_right) {
                    (true, true) => "nothing comes of the other publisher",
                    (true, false) => "it is this node's turn no longer, or by now",
                    (false, _) => "the other publisher has gone",
                };
                info!("channel {path} goes on with its standby: {why}");
            }
        }
        self.channel.set_active(self.active, self.switches);
    }

    /// Goes on with what was kept of the active ingest, and then with what comes of it.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let ended_ns = self.ended_ns();
        let Some(own) = self.active.and_then(|it| self.ingests[it].as_mut()) else {
            return;
        };
        let is_overdue = own.is_overdue(now_ns);
        if let (Phase::Due(_), Some(begins_ns)) = (&own.phase, own.reserve.begins_ns()) {
            let lead = self.lead.then(ended_ns, begins_ns);
            match lead.is_bounded() {
                true => {
                    let kept = own.reserve.take();
                    let catch_up = CatchUp::new(kept, CATCHING_UP_BYTES_MAX, now_ns);
                    own.phase = Phase::CatchingUp(catch_up);
                    self.go_on(lead);
                }
                // Viewers would get it too late from then on: the next sync sample.
                false => own.reserve.clear(),
            }
        } else if is_overdue {
            own.phase = Phase::Live;
            self.go_on(self.lead.then(ended_ns, now_ns));
        }
        while let Some(kept) = self.next_kept(now_ns) {
            let Some(ingest) = self.active else { return };
            let from = self.ingests[ingest].as_ref().map_or(BY_FRAME, |it| it.from);
            self.pass((ingest, kept.track), (from, &kept.bytes), kept.arrived_ns);
        }
    }

    /// The next packet of those that were kept that is to be sent by now.
    fn next_kept(&mut self, now_ns: u64) -> Option<Kept> {
        let own = self.ingests[self.active?].as_mut()?;
        let Phase::CatchingUp(catch_up) = &mut own.phase else {
            return None;
        };
        let next = catch_up.next_due(now_ns);
        if next.is_none() && catch_up.is_over() {
            own.phase = Phase::Live;
        }
        next
    }

    /// When the last packet came that viewers have got.
    fn ended_ns(&self) -> Option<u64> {
        self.intakes.iter().filter_map(Intake::newest_ns).max()
    }

    /// Viewers get another publisher's packets from now on: its numbers and its clock are its own.
    fn go_on(&mut self, lead: Lead) {
        let gain_ns = lead.gain_ns(std::mem::replace(&mut self.lead, lead));
        self.clock = SenderClock::default();
        for intake in &mut self.intakes {
            intake.begin(gain_ns);
        }
        self.audience.forget();
        self.taps.iter().for_each(|tap| tap.push(Tapped::Begin));
    }

    /// How long the thread waits at the most.
    pub(super) fn wait_ns_max(&self) -> u64 {
        let active = self.active.and_then(|it| self.ingests[it].as_ref());
        match active.map(|own| &own.phase) {
            Some(Phase::CatchingUp(_)) => CATCH_UP_STEP_NS,
            _ => WAIT_NS_MAX,
        }
    }
}

/// How often it is looked whose turn it is in a cluster.
const TEND_EVERY_NS: u64 = 50_000_000;

/// How often the thread looks what is due while it sends what was kept.
const CATCH_UP_STEP_NS: u64 = 5_000_000;
