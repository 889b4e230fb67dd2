//! Turns of those transfers that could all go on now: least served first.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use onrush_wire::pace::schedule::{Member, Shares};

/// Who waits for a turn, and how to wake them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    shares: Shares,
    wakers: Vec<Option<Waker>>,
}

/// A transfer's place in the round, given back when dropped.
#[derive(Debug)]
pub(super) struct RoundSlot<'a> {
    turns: &'a Turns,
    member: Member,
}

/// Resolves when it is the place's turn. Until the turn is [`RoundSlot::spent`] nobody else's
/// comes; it is, before the task waits for anything else.
struct Turn<'a> {
    place: &'a RoundSlot<'a>,
    has_waited: bool,
    is_taken: bool,
}

impl Turns {
    pub(super) fn join(&self) -> RoundSlot<'_> {
        RoundSlot {
            turns: self,
            member: self.state.borrow_mut().shares.join(),
        }
    }

    /// How many transfers there are.
    pub(super) fn len(&self) -> usize {
        self.state.borrow().shares.len()
    }
}

impl RoundSlot<'_> {
    /// Waits for the turn.
    pub(super) async fn turn(&self) {
        Turn {
            place: self,
            has_waited: false,
            is_taken: false,
        }
        .await;
    }

    /// The turn, or a step without one, has moved so many bytes.
    pub(super) fn spent(&self, bytes: u64) {
        let mut state = self.turns.state.borrow_mut();
        state.shares.spent(self.member, bytes);
        state.wake_next();
    }
}

impl Drop for RoundSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.borrow_mut();
        state.shares.leave(self.member);
        state.wake_next();
    }
}

impl Future for Turn<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.place.turns.state.borrow_mut();
        let member = self.place.member;
        if self.has_waited && state.shares.next() == Some(member) {
            drop(state);
            self.is_taken = true;
            return Poll::Ready(());
        }
        state.shares.wait(member);
        state.remember(member, context.waker());
        if !self.has_waited {
            drop(state);
            // Lets all others that could go on say so first; only then it shows who has had least.
            self.has_waited = true;
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_taken {
            let mut state = self.place.turns.state.borrow_mut();
            state.shares.withdraw(self.place.member);
            state.wake_next();
        }
    }
}

impl State {
    fn remember(&mut self, member: Member, waker: &Waker) {
        let place = member.index();
        if self.wakers.len() <= place {
            self.wakers.resize(place + 1, None);
        }
        self.wakers[place] = Some(waker.clone());
    }

    fn wake_next(&mut self) {
        let next = self.shares.next().map(Member::index);
        if let Some(waker) = next.and_then(|place| self.wakers.get_mut(place)?.take()) {
            waker.wake();
        }
    }
}
