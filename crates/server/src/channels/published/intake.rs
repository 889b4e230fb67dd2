//! One track of a publisher: its packets are checked, counted and numbered anew.
//!
//! Whoever publishes, and however often, viewers get one run of numbers and one SSRC. A publisher
//! that comes back goes on where the one before has ended: by a packet, and by the time that has
//! passed. So does one whose numbers or timestamps begin anew under its SSRC, as those of a camera
//! do that restarts behind a server that goes on.

use std::net::SocketAddr;
use std::sync::Arc;

use onrush_wire::live::{Follower, Heard, Jitter, Lag, Note};
use onrush_wire::media::Track;
use onrush_wire::rtcp::SenderLine;
use onrush_wire::rtp::{HEADER_BYTES, Header, Numbering, Position, Stragglers, ticks_of};

use super::refused::Refused;
use crate::channels::config::SENDER_KEPT;

/// Takes the packets of a track.
#[derive(Debug)]
pub(super) struct Intake {
    payload_type: u8,
    clock_hz: u32,
    numbering: Numbering,
    follower: Follower,
    jitter: Jitter,
    lag: Lag,
    /// The source that is taken, and when it was heard last.
    source: Option<(u32, u64)>,
    /// The newest packet as its source has it, and when it came; also of the publisher before.
    newest: Option<(Position, u64)>,
    stragglers: Stragglers,
    /// How many numbers the newest is ahead of where others have ended; nothing where none has.
    ahead: Option<u32>,
    /// A report that came before the first packet.
    early: Option<SenderLine>,
    /// The middle of the last report's NTP time, and when it came.
    reported: (u32, u64),
    /// Reports one behind the other that have nothing to do with the packets, and whether that was
    /// said of the source.
    odd_reports: u32,
    is_odd_told: bool,
    /// How often sequence numbers have begun anew at 0.
    cycles: u32,
    /// What was lost up to the first packet of the source that is taken; nothing before that.
    lost_before: Option<i64>,
    /// What passes beside the time that has passed until the next source's first packet, in ns.
    gain_ns: i64,
    /// What was not taken.
    pub(super) counts: Refused,
}

/// How the packets of a track arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reception {
    pub(super) sender: u32,
    pub(super) lost: u32,
    pub(super) sequence_max: u32,
    pub(super) jitter: u32,
    /// The middle of the last report's NTP time, and when it came; 0 for none.
    pub(super) reported: (u32, u64),
}

/// A packet as viewers get it.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) bytes: Arc<[u8]>,
    pub(super) timestamp: u32,
    /// The report that waited for it.
    pub(super) early: Option<SenderLine>,
}

impl Intake {
    /// Of a track whose viewers get that SSRC.
    pub(super) fn new(track: &Track, ssrc: u32, silence_ns: u64) -> Self {
        Self {
            payload_type: track.payload_type,
            clock_hz: track.clock_hz,
            numbering: Numbering::own(Position::default(), ssrc),
            follower: Follower::new(silence_ns),
            jitter: Jitter::default(),
            lag: Lag::default(),
            source: None,
            newest: None,
            stragglers: Stragglers::default(),
            ahead: None,
            early: None,
            reported: (0, 0),
            odd_reports: 0,
            is_odd_told: false,
            cycles: 0,
            lost_before: None,
            gain_ns: 0,
            counts: Refused::default(),
        }
    }

    /// Another publisher begins, or the same anew; so much time passes beside the time that has.
    pub(super) fn begin(&mut self, gain_ns: i64) {
        // Of a track of which nothing came in between, all that has been gained.
        self.gain_ns = self.gain_ns.saturating_add(gain_ns);
        (self.source, self.early, self.jitter) = (None, None, Jitter::default());
        (self.reported, self.cycles, self.lag) = ((0, 0), 0, Lag::default());
    }

    /// Takes what came at `now_ns`; nothing if it is not this track's.
    pub(super) fn take(
        &mut self,
        from: SocketAddr,
        packet: &[u8],
        now_ns: u64,
        note: impl FnMut(Note),
    ) -> Option<Taken> {
        let header = Header::read(packet).filter(|it| it.payload_type == self.payload_type);
        let Some(header) = header else {
            self.counts.unannounced += 1;
            return None;
        };
        let position = Position {
            sequence: header.sequence,
            timestamp: header.timestamp,
        };
        let early = match &mut self.source {
            Some((ssrc, heard_ns)) if *ssrc == header.ssrc => {
                *heard_ns = now_ns;
                None
            }
            Some((_, heard_ns)) if now_ns.saturating_sub(*heard_ns) < sender_kept_ns() => {
                self.counts.foreign += 1;
                return None;
            }
            _ => {
                self.adopt(header.ssrc, position, now_ns);
                self.early.take().filter(|line| line.ssrc == header.ssrc)
            }
        };
        self.follower.follow(from, packet, now_ns, note);
        let lost = self.lost_in_all();
        self.lost_before.get_or_insert(lost);
        self.jitter.note(header.timestamp, now_ns, self.clock_hz);
        self.lag.note(header.timestamp, now_ns, self.clock_hz);
        if !self.place(position, now_ns) {
            self.counts.foreign += 1;
            return None;
        }
        let (head, rest) = packet.split_first_chunk::<HEADER_BYTES>()?;
        let head = self.numbering.header(head);
        Some(Taken {
            bytes: [&head[..], rest].concat().into(),
            timestamp: self.numbering.position(position).timestamp,
            early,
        })
    }

    /// Places a packet among those that came. Whether it has a place: not one of before its source
    /// began anew, nor one that is late by its number and far off by its timestamp, which is of
    /// before too, or the first of numbers that begin anew.
    fn place(&mut self, position: Position, now_ns: u64) -> bool {
        let Some(newest) = self.newest else {
            self.newest = Some((position, now_ns));
            return true;
        };
        let (Position { sequence, .. }, _) = newest;
        let has_jumped = self.jumps(position.timestamp, now_ns);
        let behind = sequence.wrapping_sub(position.sequence);
        if self.stragglers.is_late(position.sequence, sequence) {
            let is_before = self.ahead.is_some_and(|ahead| u32::from(behind) > ahead);
            return !is_before && !has_jumped;
        }
        // What is behind and not late has other numbers.
        let is_renumbered = (1..=u16::MAX / 2).contains(&behind);
        let step = position.sequence.wrapping_sub(sequence);
        if has_jumped || is_renumbered {
            let mut end = self.end(newest, now_ns);
            if !has_jumped {
                end.timestamp = position.timestamp;
            }
            // What is missing is seen to be: nobody is to take pieces of pictures for whole ones.
            end.sequence = match step {
                1..=MISSING_MAX => position.sequence,
                // The first of them, at the least.
                _ if is_renumbered => end.sequence.wrapping_add(1),
                _ => end.sequence,
            };
            self.go_on(end, position);
        } else {
            let step = u32::from(step);
            self.ahead = self.ahead.map(|ahead| ahead.saturating_add(step));
        }
        let is_wrapped = position.sequence < sequence;
        self.cycles = self.cycles.wrapping_add(u32::from(is_wrapped));
        self.newest = Some((position, now_ns));
        true
    }

    /// Whether timestamps begin anew with this one: it is far from the newest, and not because
    /// nothing came for as long.
    fn jumps(&self, timestamp: u32, now_ns: u64) -> bool {
        let Some((newest, at_ns)) = self.newest else {
            return false;
        };
        let step = timestamp.wrapping_sub(newest.timestamp).cast_signed();
        let ticks_max = self.clock_hz.saturating_mul(JUMP_SECONDS);
        // What was held up comes late, also where some of it was left out.
        let passed = ticks_of(now_ns.saturating_sub(at_ns), self.clock_hz.into());
        let is_held_up = step > 0 && step.unsigned_abs() <= passed;
        let is_far = step.unsigned_abs() > ticks_max && !is_held_up;
        is_far && self.off_ticks(timestamp, now_ns) > ticks_max
    }

    /// How far a timestamp is from what the newest packet and the time since say.
    fn off_ticks(&self, timestamp: u32, now_ns: u64) -> u32 {
        let Some((newest, at_ns)) = self.newest else {
            return 0;
        };
        let ticks = |ns: u64| ticks_of(ns, self.clock_hz.into());
        let expected = match now_ns.checked_sub(at_ns) {
            Some(since_ns) => newest.timestamp.wrapping_add(ticks(since_ns)),
            None => newest.timestamp.wrapping_sub(ticks(at_ns - now_ns)),
        };
        let off = timestamp.wrapping_sub(expected).cast_signed();
        off.unsigned_abs()
    }

    /// What would come now if the newest, which came then, were gone on with: the next number, and
    /// the time that has passed.
    fn end(&self, (newest, at_ns): (Position, u64), now_ns: u64) -> Position {
        let passed = ticks_of(now_ns.saturating_sub(at_ns), self.clock_hz.into());
        Position {
            sequence: newest.sequence.wrapping_add(1),
            timestamp: newest.timestamp.wrapping_add(passed.max(1)),
        }
    }

    /// What comes from `first` on has the numbers that it would have from `end` on.
    fn go_on(&mut self, end: Position, first: Position) {
        self.numbering = self.numbering.continued(end, first);
        self.ahead = Some(0);
    }

    /// A new source goes on where the one before has ended.
    fn adopt(&mut self, ssrc: u32, first: Position, now_ns: u64) {
        let gain_ns = std::mem::take(&mut self.gain_ns);
        if let Some(newest) = self.newest {
            // First, because a packet that was kept may have come before the last one.
            let end = self.end(newest, now_ns.saturating_add_signed(gain_ns));
            self.go_on(end, first);
        }
        (self.newest, self.lag, self.lost_before) = (None, Lag::default(), None);
        (self.odd_reports, self.is_odd_told) = (0, false);
        self.source = Some((ssrc, now_ns));
    }

    /// What a report of the publisher's says of the timestamps that viewers get; nothing if it is
    /// of another source, comes before the first packet, or has nothing to do with the packets:
    /// some senders stamp reports by another clock, or always alike.
    pub(super) fn report(&mut self, line: SenderLine, now_ns: u64) -> Option<u32> {
        match self.source {
            Some((ssrc, _)) if ssrc == line.ssrc => {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "the middle 32 bits, as LSR is defined"
                )]
                let middle = (line.ntp >> 16) as u32;
                self.reported = (middle, now_ns);
            }
            Some(_) => {
                self.counts.foreign += 1;
                return None;
            }
            None => {
                self.early = Some(line);
                return None;
            }
        }
        let ticks_max = self.clock_hz.saturating_mul(REPORT_SECONDS_MAX);
        if self.off_ticks(line.timestamp, now_ns) > ticks_max {
            self.odd_reports = self.odd_reports.saturating_add(1);
            return None;
        }
        self.odd_reports = 0;
        let position = Position {
            sequence: 0,
            timestamp: line.timestamp,
        };
        Some(self.numbering.position(position).timestamp)
    }

    /// Whether its source's reports are not used because of their timestamps, said once.
    pub(super) fn look_at_reports(&mut self) -> bool {
        let is_news = self.odd_reports >= ODD_REPORTS_MIN && !self.is_odd_told;
        self.is_odd_told |= is_news;
        is_news
    }

    /// What the publisher is told of how its packets arrive, once they do.
    pub(super) fn reception(&self) -> Option<Reception> {
        let (newest, _) = self.newest?;
        let lost = (self.lost_in_all() - self.lost_before?).max(0);
        Some(Reception {
            sender: self.source?.0,
            lost: u32::try_from(lost).unwrap_or(u32::MAX),
            sequence_max: self.cycles << 16 | u32::from(newest.sequence),
            jitter: self.jitter.ticks(),
            reported: self.reported,
        })
    }

    /// What did not come of all sources: less of it when something comes late (RFC 3550, section
    /// 6.4.1), or twice.
    fn lost_in_all(&self) -> i64 {
        let heard = self.follower.heard();
        heard.missing.cast_signed() - heard.behind.cast_signed()
    }

    /// When the newest packet came that viewers have got, of whichever publisher.
    pub(super) fn newest_ns(&self) -> Option<u64> {
        self.newest.map(|(_, at_ns)| at_ns)
    }

    /// What came so far.
    pub(super) fn heard(&self) -> Heard {
        self.follower.heard()
    }

    /// Where a silence has begun, said once.
    pub(super) fn look(&mut self, now_ns: u64) -> Option<Note> {
        self.follower.look(now_ns)
    }

    pub(super) fn is_heard(&self) -> bool {
        self.follower.is_heard()
    }

    pub(super) fn from(&self) -> Option<SocketAddr> {
        self.follower.from()
    }

    pub(super) fn jitter_ns(&self) -> u64 {
        self.jitter.ns(self.clock_hz)
    }

    pub(super) fn lag_ns(&self) -> u64 {
        self.lag.ns()
    }
}

/// Timestamps that step by more than the time that has passed began anew.
const JUMP_SECONDS: u32 = 3;

/// Packets that may be missing where they do (`MAX_DROPOUT` of RFC 3550, appendix A.1).
const MISSING_MAX: u16 = 3000;

/// A report may be so far from the packets: publishers are late, or ahead, by seconds.
const REPORT_SECONDS_MAX: u32 = 10;

/// One report alone may be of before a jump.
const ODD_REPORTS_MIN: u32 = 2;

fn sender_kept_ns() -> u64 {
    u64::try_from(SENDER_KEPT.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use onrush_wire::rtp::StaticPayload;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn intake() -> Intake {
        let track = StaticPayload::MP2T.into();
        Intake::new(&track, 77, SECOND)
    }

    fn packet(ssrc: u32, sequence: u16, timestamp: u32, payload_type: u8) -> Vec<u8> {
        let header = Header {
            marker: true,
            payload_type,
            sequence,
            timestamp,
            ssrc,
        };
        [&header.to_bytes()[..], b"payload"].concat()
    }

    fn take(intake: &mut Intake, packet: &[u8], now_ns: u64) -> Option<Header> {
        let from = ([10, 0, 0, 1], 5000).into();
        let taken = intake.take(from, packet, now_ns, |_| ())?;
        assert!(taken.bytes.ends_with(b"payload"));
        Header::read(&taken.bytes)
    }

    #[test]
    fn a_publisher_that_comes_back_goes_on() {
        let mut intake = intake();
        let first = take(&mut intake, &packet(1, 65_535, 1000, 33), 0).unwrap();
        assert_eq!(
            (first.ssrc, first.sequence, first.timestamp),
            (77, 65_535, 1000)
        );
        assert!(first.marker);
        take(&mut intake, &packet(1, 0, 1900, 33), SECOND / 100).unwrap();
        // One that came late is not the newest.
        take(&mut intake, &packet(1, 65_534, 100, 33), SECOND / 100).unwrap();
        intake.begin(0);
        let next = take(&mut intake, &packet(2, 500, 7, 33), SECOND + SECOND / 100).unwrap();
        assert_eq!(
            (next.ssrc, next.sequence, next.timestamp),
            (77, 1, 1900 + 90_000)
        );
        let after = take(&mut intake, &packet(2, 501, 107, 33), 2 * SECOND).unwrap();
        assert_eq!((after.sequence, after.timestamp), (2, 1900 + 90_100));
    }

    #[test]
    fn packets_of_others_are_counted_and_dropped() {
        let mut intake = intake();
        assert!(take(&mut intake, &packet(1, 1, 0, 33), 0).is_some());
        assert_eq!(take(&mut intake, &packet(2, 9, 0, 33), SECOND), None);
        assert_eq!(take(&mut intake, &packet(1, 2, 0, 96), SECOND), None);
        assert_eq!(take(&mut intake, b"short", SECOND), None);
        let counts = Refused {
            unannounced: 2,
            foreign: 1,
        };
        assert_eq!(intake.counts, counts);
        // Once the one is silent, the other goes on.
        let later = take(&mut intake, &packet(2, 10, 0, 33), 3 * SECOND).unwrap();
        assert_eq!((later.ssrc, later.sequence), (77, 2));
    }

    #[test]
    fn reports_are_of_the_source_that_is_taken() {
        let line = |ssrc| SenderLine {
            ssrc,
            ntp: 0,
            timestamp: 1000,
        };
        let mut intake = intake();
        assert_eq!(intake.report(line(1), 0), None, "no packet yet");
        let from = ([10, 0, 0, 1], 5000).into();
        let taken = intake.take(from, &packet(1, 1, 0, 33), 0, |_| ()).unwrap();
        assert_eq!(taken.early, Some(line(1)));
        assert_eq!(intake.report(line(1), 0), Some(1000));
        assert_eq!(intake.report(line(2), 0), None);
        assert_eq!(intake.counts.foreign, 1);
    }

    #[test]
    fn lost_is_what_did_not_come_of_one_source() {
        let mut intake = intake();
        let lost = |intake: &mut Intake, ssrc, sequences: &[u16], now_ns| {
            for &sequence in sequences {
                take(intake, &packet(ssrc, sequence, 0, 33), now_ns).unwrap();
            }
            let reception = intake.reception().unwrap();
            (reception.sender, reception.lost)
        };
        assert_eq!(lost(&mut intake, 1, &[10, 12], 0), (1, 1));
        assert_eq!(lost(&mut intake, 1, &[11], 0), (1, 0), "it is only late");
        assert_eq!(lost(&mut intake, 1, &[13, 13], 0), (1, 0), "it came twice");
        assert_eq!(lost(&mut intake, 1, &[20], 0), (1, 5));
        let late = lost(&mut intake, 1, &[65_357, 21], 0);
        assert_eq!(late, (1, 4), "by 200, and then it goes on");
        // Another source once that one is silent; and when the publisher comes back.
        assert_eq!(lost(&mut intake, 2, &[500], 3 * SECOND), (2, 0));
        assert_eq!(lost(&mut intake, 2, &[503], 3 * SECOND), (2, 2));
        intake.begin(0);
        assert_eq!(lost(&mut intake, 2, &[600], 4 * SECOND), (2, 0));
        assert_eq!(lost(&mut intake, 2, &[602], 4 * SECOND), (2, 1));
    }

    /// By its number the publisher is told how many have come.
    #[test]
    fn a_packet_that_is_very_late_is_not_the_newest() {
        let mut intake = intake();
        let mut newest = |sequence| {
            take(&mut intake, &packet(1, sequence, 0, 33), 0).unwrap();
            intake.reception().unwrap().sequence_max
        };
        assert_eq!(newest(20_000), 20_000);
        assert_eq!(newest(19_800), 20_000);
        assert_eq!(newest(20_001), 20_001);
        // Numbers that begin anew.
        assert_eq!(newest(3), 20_001);
        assert_eq!(newest(4), 1 << 16 | 4);
    }

    #[test]
    fn a_clock_that_jumps_is_made_good_and_a_pause_is_not() {
        let (mut intake, mut off) = (intake(), None);
        // Whether viewers' timestamps are the source's in another way than before.
        let mut jumps = |sequence, seconds: u32, now_s: u64| {
            let timestamp = seconds.wrapping_mul(90_000);
            let packet = packet(1, sequence, timestamp, 33);
            let taken = take(&mut intake, &packet, now_s * SECOND);
            let now = taken.map(|it| it.timestamp.wrapping_sub(timestamp));
            now.is_some_and(|now| off.replace(now).is_some_and(|before| before != now))
        };
        assert!(!jumps(1, 100, 0));
        // A pause; what was held up by the way, and comes at once.
        assert!(!jumps(2, 130, 30));
        assert!(!jumps(3, 131, 60) && !jumps(4, 132, 60));
        assert!(jumps(5, 140, 61) && !jumps(6, 141, 62));
        assert!(jumps(7, 90, 63) && !jumps(8, 91, 64));
        // One that comes late; numbers that begin anew.
        assert!(!jumps(6, 141, 64) && !jumps(30_000, 92, 65));
        assert!(!jumps(3, 7, 66), "it may be a packet that is late");
        assert!(jumps(4, 8, 67) && !jumps(5, 9, 68));
        // What was held up, where its sender has left out a part.
        assert!(!jumps(6, 14, 78) && !jumps(7, 15, 78));
    }

    /// As a camera's do that restarts, under the same SSRC where a server stands between.
    #[test]
    fn numbers_go_on_where_a_source_begins_anew() {
        let mut intake = intake();
        let mut given = |sequence, seconds: u32, now_s: u64| {
            let packet = packet(1, sequence, seconds * 90_000, 33);
            let taken = take(&mut intake, &packet, now_s * SECOND);
            let given = taken.map(|it| (it.sequence, it.timestamp / 90_000));
            (given, intake.counts.foreign)
        };
        assert_eq!(given(100, 1000, 0), (Some((100, 1000)), 0));
        assert_eq!(given(101, 1001, 1), (Some((101, 1001)), 0));
        // Timestamps alone; what is late of before, and of now.
        assert_eq!(given(102, 5, 3), (Some((102, 1003)), 0));
        assert_eq!(given(103, 6, 4), (Some((103, 1004)), 0));
        assert_eq!(given(101, 1001, 4), (None, 1));
        assert_eq!(given(102, 5, 4), (Some((102, 1003)), 1));
        // Where some are missing that is seen.
        assert_eq!(given(106, 900, 5), (Some((106, 1005)), 1));
        // Both: of the first nobody can know that it is no packet of before. It is missing then.
        assert_eq!(given(40_000, 2000, 6), (None, 2));
        assert_eq!(given(40_001, 2001, 7), (Some((108, 1007)), 2));
        assert_eq!(given(40_002, 2002, 8), (Some((109, 1008)), 2));
        // Numbers alone.
        assert_eq!(given(20_000, 2003, 9), (None, 3));
        assert_eq!(given(20_001, 2004, 10), (Some((111, 1010)), 3));
        assert_eq!(given(20_002, 2005, 11), (Some((112, 1011)), 3));
    }

    #[test]
    fn reports_that_are_not_of_the_packets_are_ignored() {
        let mut intake = intake();
        let report = |intake: &mut Intake, seconds: u32, now_s: u64| {
            let line = SenderLine {
                ssrc: 1,
                ntp: 1 << 32,
                timestamp: seconds.wrapping_mul(90_000),
            };
            intake.report(line, now_s * SECOND)
        };
        take(&mut intake, &packet(1, 1, 100 * 90_000, 33), 0).unwrap();
        assert_eq!(report(&mut intake, 90, 0), Some(90 * 90_000));
        // Nothing has come for a while.
        assert_eq!(report(&mut intake, 169, 60), Some(169 * 90_000));
        assert_eq!(report(&mut intake, 171, 60), None);
        assert!(!intake.look_at_reports(), "one alone");
        assert_eq!(report(&mut intake, 0, 65), None);
        assert!(intake.look_at_reports() && !intake.look_at_reports());
        assert_eq!(report(&mut intake, 170, 70), Some(170 * 90_000));
    }
}
