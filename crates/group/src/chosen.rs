//! The cheapest of the ways that need no program: measured while it sends, here and to these
//! members.
//!
//! Which of `uring`, `sendmmsg` and `loop` is cheapest depends on kernel, device, packets and
//! members: a ring pays for trains and costs for single small packets. So each is given a few sends
//! in a row, single packets and trains apart, and the one whose middle one took least goes on; one
//! that refuses what another sends is quick for nothing, and does not. That is done anew now and
//! then, and when there are many more or far fewer members. Every send is a real one: nothing is
//! sent for measuring.

use std::cmp::Ordering;
use std::net::UdpSocket;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::direct::{Direct, Slots};
use super::members::Members;
use super::uring::Uring;
use super::{Choice, Options, Sender, Sent, Train, Way, open_way};

/// Sends by the cheapest.
pub(super) struct Chosen {
    ring: Ring,
    /// Of single packets, and of trains.
    trials: [Trial; 2],
    /// Of the last send, or of the first that there may be.
    pub(super) way: Way,
}

/// Who enters the kernel.
enum Ring {
    Open(Box<Uring>),
    None(Direct),
}

/// Which way is tried, and which is the cheapest as far as is known.
struct Trial {
    ways: Vec<Way>,
    best: Way,
    state: State,
}

enum State {
    /// The way is tried whose sends so far were these, and whose number is that of the ways before
    /// it, of which there are the middle ones.
    Trying {
        medians: Vec<Tried>,
        sends: Vec<Tried>,
    },
    /// So many sends are left until all is tried anew, with about so many members.
    Known { left: u32, members: usize },
}

/// A send that was timed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tried {
    /// The part of its packets that was refused.
    refused: f64,
    /// How long it took for each member.
    member_ns: f64,
}

/// The cheapest of the ways that need no program at a device, as far as each opens.
pub(super) fn choose_without_program(socket: &UdpSocket, options: &Options) -> Choice {
    let ring = match open_way(socket, Way::Uring, options) {
        Ok(Sender::Uring(uring)) => Ok(uring),
        Ok(_) => unreachable!("a way opens as itself"),
        Err(error) => Err(error),
    };
    Ok(match ring {
        Ok(uring) => {
            let reason = "the cheapest of uring, sendmmsg and loop, measured while it sends";
            let chosen = Chosen::with_ring(uring);
            let sender = Sender::Chosen(Box::new(chosen));
            (Way::Sendmmsg, reason.to_owned(), sender)
        }
        Err(no_ring) => match Direct::sendmmsg(socket) {
            Ok(direct) => {
                let reason = format!(
                    "not uring: {no_ring}; the cheaper of sendmmsg and loop, measured while it \
                     sends"
                );
                let chosen = Chosen::without_ring(direct);
                (Way::Sendmmsg, reason, Sender::Chosen(Box::new(chosen)))
            }
            Err(error) => {
                let reason = format!("not uring: {no_ring}; not sendmmsg: {error}");
                let sender = open_way(socket, Way::Loop, options)?;
                (Way::Loop, reason, sender)
            }
        },
    })
}

impl Chosen {
    pub(super) fn with_ring(uring: Box<Uring>) -> Self {
        Self::new(Ring::Open(uring), &[Way::Uring, Way::Sendmmsg])
    }

    pub(super) fn without_ring(direct: Direct) -> Self {
        Self::new(Ring::None(direct), &[Way::Sendmmsg])
    }

    fn new(ring: Ring, ways: &[Way]) -> Self {
        let single = [ways, &[Way::Loop]].concat();
        // A loop over the packets of trains is dearer by their number.
        let trials = [Trial::new(single), Trial::new(ways.to_vec())];
        Self {
            ring,
            trials,
            way: Way::Sendmmsg,
        }
    }

    /// Sends `train` to all members.
    pub(super) fn send(&mut self, fd: RawFd, members: &mut Members, train: Train<'_>) -> Sent {
        let count = members.len();
        let trial = &mut self.trials[usize::from(train.packets() > 1)];
        // To one member, or with nothing to send, all do the same.
        if count < 2 || train.bytes.is_empty() {
            return send_by(&mut self.ring, Way::Sendmmsg, fd, members, train);
        }
        self.way = trial.next(count);
        let begin = trial.is_trying().then(Instant::now);
        let sent = send_by(&mut self.ring, self.way, fd, members, train);
        if let Some(begin) = begin {
            trial.took(Tried::new(begin.elapsed(), count, sent), count);
        }
        sent
    }

    pub(super) fn direct(&self) -> &Direct {
        match &self.ring {
            Ring::Open(uring) => &uring.direct,
            Ring::None(direct) => direct,
        }
    }

    pub(super) fn uring(&self) -> Option<&Uring> {
        match &self.ring {
            Ring::Open(uring) => Some(uring),
            Ring::None(_) => None,
        }
    }

    pub(super) fn uring_mut(&mut self) -> Option<&mut Uring> {
        match &mut self.ring {
            Ring::Open(uring) => Some(uring),
            Ring::None(_) => None,
        }
    }
}

fn send_by(ring: &mut Ring, way: Way, fd: RawFd, members: &mut Members, train: Train<'_>) -> Sent {
    let all = Slots::All(members.len());
    let direct = match (ring, way) {
        (Ring::Open(uring), Way::Uring) => return uring.send(fd, members, train),
        (Ring::Open(uring), _) => &mut uring.direct,
        (Ring::None(direct), _) => direct,
    };
    match way {
        Way::Loop => direct.send_each(fd, members, all, train),
        _ => direct.send(fd, members, all, train),
    }
}

impl Trial {
    fn new(ways: Vec<Way>) -> Self {
        Self {
            // What nobody knows better yet.
            best: Way::Sendmmsg,
            state: Self::begin(&ways),
            ways,
        }
    }

    fn begin(ways: &[Way]) -> State {
        match ways {
            [_] => State::Known {
                left: u32::MAX,
                members: 0,
            },
            _ => State::Trying {
                medians: Vec::with_capacity(ways.len()),
                sends: Vec::with_capacity(SENDS_TRIED),
            },
        }
    }

    fn is_trying(&self) -> bool {
        matches!(self.state, State::Trying { .. })
    }

    /// The way of the next send, which is to so many members.
    fn next(&mut self, members: usize) -> Way {
        if let State::Known {
            left,
            members: known,
        } = &mut self.state
        {
            let is_like_then = members <= *known * 4 && *known <= members * 4;
            if self.ways.len() == 1 || is_like_then && *left > 0 {
                *left = left.saturating_sub(1);
                return self.best;
            }
            self.state = Self::begin(&self.ways);
        }
        match &self.state {
            State::Trying { medians, .. } => self.ways[medians.len()],
            State::Known { .. } => self.best,
        }
    }

    /// The send by the way that is tried, to so many members, went like that.
    fn took(&mut self, tried: Tried, members: usize) {
        let State::Trying { medians, sends } = &mut self.state else {
            return;
        };
        sends.push(tried);
        if sends.len() < SENDS_TRIED {
            return;
        }
        // The first one pays for what the way before has left to be done.
        sends.remove(0);
        sends.sort_by(Tried::by_price);
        medians.push(sends[sends.len() / 2]);
        sends.clear();
        if medians.len() == self.ways.len() {
            let all = self.ways.iter().zip(medians.iter());
            let best = all.min_by(|a, b| a.1.by_price(b.1));
            self.best = *best.expect("there are ways").0;
            self.state = State::Known {
                left: SENDS_KNOWN,
                members,
            };
        }
    }
}

impl Tried {
    fn new(elapsed: Duration, members: usize, sent: Sent) -> Self {
        let as_f64 = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let all = sent.packets + sent.refused;
        Self {
            refused: as_f64(sent.refused) / as_f64(all.max(1)),
            member_ns: elapsed.as_secs_f64() * 1e9 / as_f64(members.max(1) as u64),
        }
    }

    /// Whom every way refuses does not count: then time does.
    fn by_price(&self, other: &Self) -> Ordering {
        let refused = self.refused.total_cmp(&other.refused);
        refused.then(self.member_ns.total_cmp(&other.member_ns))
    }
}

/// Sends of a way in a row.
const SENDS_TRIED: usize = 8;
/// Sends until all ways are tried anew: what the dearer ones cost meanwhile is lost in them.
const SENDS_KNOWN: u32 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Way; 3] = [Way::Uring, Way::Sendmmsg, Way::Loop];

    /// Sends until nothing is tried any more, each way at its price; how often each had its turn.
    fn try_all(trial: &mut Trial, members: usize, price_ns: [f64; 3]) -> [usize; 3] {
        try_refusing(trial, members, price_ns, [0; 3])
    }

    /// The same; of four packets each way refuses so many.
    fn try_refusing(
        trial: &mut Trial,
        members: usize,
        price_ns: [f64; 3],
        refused: [u64; 3],
    ) -> [usize; 3] {
        let mut turns = [0; 3];
        loop {
            let way = trial.next(members);
            if !trial.is_trying() {
                return turns;
            }
            let number = ALL.iter().position(|&it| it == way).unwrap();
            turns[number] += 1;
            // One in the middle was held up, and the first pays for others.
            let is_odd = matches!(turns[number] % SENDS_TRIED, 1 | 5);
            let member_ns = if is_odd { 1e6 } else { price_ns[number] };
            let (refused, members_u32) = (refused[number], u32::try_from(members).unwrap());
            let sent = Sent {
                packets: 4 - refused,
                refused,
            };
            let elapsed = Duration::from_secs_f64(member_ns * f64::from(members_u32) / 1e9);
            trial.took(Tried::new(elapsed, members, sent), members);
        }
    }

    #[test]
    fn a_way_that_refuses_what_another_sends_is_not_cheap() {
        for (refused, best) in [
            ([4, 0, 0], Way::Loop),
            ([1, 1, 1], Way::Uring),
            ([2, 1, 3], Way::Sendmmsg),
        ] {
            let mut trial = Trial::new(ALL.to_vec());
            try_refusing(&mut trial, 480, [18.0, 700.0, 659.0], refused);
            assert_eq!(trial.best, best, "{refused:?}");
        }
    }

    #[test]
    fn the_cheapest_way_goes_on_whatever_held_some_sends_up() {
        for (price_ns, best) in [
            ([694.0, 620.0, 659.0], Way::Sendmmsg),
            ([18.0, 32.0, 661.0], Way::Uring),
            ([694.0, 700.0, 659.0], Way::Loop),
        ] {
            let mut trial = Trial::new(ALL.to_vec());
            assert_eq!(try_all(&mut trial, 480, price_ns), [SENDS_TRIED; 3]);
            assert_eq!((trial.best, trial.next(480)), (best, best));
        }
    }

    #[test]
    fn ways_are_tried_anew_after_many_sends_and_for_other_sizes() {
        let mut trial = Trial::new(ALL.to_vec());
        try_all(&mut trial, 100, [1.0, 2.0, 3.0]);
        // `try_all` has taken one itself.
        for _ in 1..SENDS_KNOWN {
            assert_eq!(trial.next(100), Way::Uring);
        }
        assert_eq!(try_all(&mut trial, 100, [2.0, 1.0, 3.0]), [SENDS_TRIED; 3]);
        assert_eq!(trial.best, Way::Sendmmsg);
        for (members, is_tried) in [(400, false), (25, false), (401, true), (24, true)] {
            let mut trial = Trial::new(ALL.to_vec());
            try_all(&mut trial, 100, [1.0, 2.0, 3.0]);
            trial.next(members);
            assert_eq!(trial.is_trying(), is_tried, "{members}");
        }
    }

    #[test]
    fn one_way_alone_is_not_tried() {
        let mut trial = Trial::new(vec![Way::Sendmmsg]);
        assert_eq!(trial.next(10), Way::Sendmmsg);
        assert!(!trial.is_trying());
    }
}
