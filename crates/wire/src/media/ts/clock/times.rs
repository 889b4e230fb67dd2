//! The times that an elementary stream's own packets carry (PES headers, ISO/IEC 13818-1, section
//! 2.4.3.7).
//!
//! A program's clock is taken from its references; these times tell what the references do not:
//! how long the last picture lasts, after which no reference comes, and whether the references can
//! be true at all.

use super::pcr::ns;
use super::{Clock, ClockBuilder, PCR_JUMP_TICKS_MAX, PCR_WRAP};

/// Streams whose times are followed.
pub(crate) const TIMED_STREAMS_MAX: usize = 8;

/// Time stamps that a clock may be judged by: no fewer, and over no less time.
const JUDGING_COUNT_MIN: u64 = 10;
const JUDGING_NS_MIN: u64 = 1_000_000_000;

/// References that run this many times slower or faster than the times of their streams are wrong.
pub const CLOCK_RATIO_MAX: u64 = 10;

/// Follows one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamTimes {
    clock: ClockBuilder,
    first: Option<Time>,
    latest: Option<Time>,
    count: u64,
    /// Steps that were none: back, or on by more than [`PCR_JUMP_TICKS_MAX`].
    breaks: u64,
    /// All steps together.
    elapsed_ticks: u64,
    /// The shortest step, which is how long what comes last is taken to be shown. Nothing tells: a
    /// long step before it need not be followed by another, and players take a picture's duration
    /// by the codec's rate.
    step_ticks: Option<u64>,
}

/// A time stamp, in ticks of the PCR, and the packet it stands in.
#[derive(Clone, Copy, Debug)]
struct Time {
    packet: u64,
    ticks: u64,
}

/// What a stream's times say of a clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It may be right.
    Agrees,
    /// It is wrong. How long the stream lasts by its own times, and by the clock.
    Contradicts { stream_ns: u64, clock_ns: u64 },
    /// The stream says too little.
    Unknown,
}

impl StreamTimes {
    /// Takes the payload of a packet that starts a PES packet.
    pub(crate) fn observe(&mut self, packet: u64, payload: &[u8]) {
        let Some(time) = decoding_time(payload) else {
            return;
        };
        let time = Time {
            packet,
            ticks: time * 300,
        };
        self.clock.observe(packet, time.ticks, false);
        self.count += 1;
        self.first.get_or_insert(time);
        if let Some(before) = self.latest.replace(time) {
            match (time.ticks + PCR_WRAP - before.ticks) % PCR_WRAP {
                0 => {}
                step @ 1..=PCR_JUMP_TICKS_MAX => {
                    self.elapsed_ticks = self.elapsed_ticks.saturating_add(step);
                    self.step_ticks = Some(self.step_ticks.map_or(step, |least| least.min(step)));
                }
                _ => self.breaks += 1,
            }
        }
    }

    /// What these times say of `clock`.
    pub(crate) fn judge(&self, clock: &Clock) -> Verdict {
        let (Some(first), Some(last)) = (self.first, self.latest) else {
            return Verdict::Unknown;
        };
        let stream_ns = ns(self.elapsed_ticks);
        let clock_ns = clock.time_ns(last.packet) - clock.time_ns(first.packet);
        let says_little =
            self.count < JUDGING_COUNT_MIN || stream_ns.max(clock_ns) < JUDGING_NS_MIN;
        // What a break hides is not counted in `stream_ns`.
        let is_slow = clock_ns.saturating_mul(CLOCK_RATIO_MAX) < stream_ns;
        let is_fast = stream_ns.saturating_mul(CLOCK_RATIO_MAX) < clock_ns;
        if says_little || stream_ns == 0 || self.breaks > self.count / 10 {
            Verdict::Unknown
        } else if is_slow || is_fast && self.breaks == 0 {
            Verdict::Contradicts {
                stream_ns,
                clock_ns,
            }
        } else if is_fast {
            Verdict::Unknown
        } else {
            Verdict::Agrees
        }
    }

    /// What these streams' stamps would be at media time 0 of `clock`, in ns: those of the one that
    /// comes first. 0 if none has stamps.
    pub(crate) fn start_ns<'a>(streams: impl Iterator<Item = &'a Self>, clock: &Clock) -> u64 {
        let first = streams.filter_map(|times| times.first);
        let first = first.min_by_key(|first| first.packet);
        first.map_or(0, |first| {
            ns(first.ticks).saturating_sub(clock.time_ns(first.packet))
        })
    }

    /// These times as a clock for a file of `packets` packets.
    pub(crate) fn into_clock(self, packets: u64) -> Option<Clock> {
        self.clock.finish(packets).0
    }

    /// When the last of what these streams hold has been shown, on `clock`; `None` if they do not
    /// tell.
    pub(crate) fn end_ns<'a>(
        streams: impl Iterator<Item = &'a Self> + Clone,
        clock: &Clock,
    ) -> Option<u64> {
        let streams = streams.filter(|times| times.breaks == 0 && times.elapsed_ticks > 0);
        let firsts = streams.clone().filter_map(|times| times.first);
        // Times are compared by their difference from one of them, because they may wrap.
        let base = firsts.clone().next()?.ticks;
        let since = |ticks: u64| {
            let since = (ticks + PCR_WRAP - base) % PCR_WRAP;
            let is_before = since > PCR_WRAP / 2;
            i128::from(since) - if is_before { i128::from(PCR_WRAP) } else { 0 }
        };
        let start = firsts.clone().map(|first| since(first.ticks)).min()?;
        let start_ns = firsts.map(|first| clock.time_ns(first.packet)).min()?;
        let end = streams.filter_map(|times| {
            let lasts = times.elapsed_ticks.saturating_add(times.step_ticks?);
            Some(since(times.first?.ticks) + i128::from(lasts))
        });
        let lasts = u64::try_from(end.max()? - start).ok()?;
        Some(start_ns.saturating_add(ns(lasts)))
    }
}

/// The decoding time stamp at the start of a PES packet, in 90 kHz; the presentation time stamp is
/// it where there is no other.
fn decoding_time(pes: &[u8]) -> Option<u64> {
    let [0, 0, 1, id, _, _, marks, flags, _, rest @ ..] = pes else {
        return None;
    };
    // These have no such header: maps, padding, private stream 2, ECM, EMM, DSM-CC, H.222.1 type E,
    // directory.
    let is_plain = matches!(*id, 0xbc | 0xbe | 0xbf | 0xf0 | 0xf1 | 0xf2 | 0xf8 | 0xff);
    if is_plain || marks & 0xc0 != 0x80 {
        return None;
    }
    let at = match flags >> 6 {
        2 => 0,
        3 => 5,
        _ => return None,
    };
    let [a, b, c, d, e] = rest.get(at..)?.first_chunk::<5>()?.map(u64::from);
    Some((a >> 1 & 7) << 30 | b << 22 | c >> 1 << 15 | d << 7 | e >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::ts::synth::pes;

    /// A stream of PES packets: the packet each starts in, and its time in ms.
    fn times(seen: impl IntoIterator<Item = (u64, u64)>) -> StreamTimes {
        let mut times = StreamTimes::default();
        for (packet, ms) in seen {
            times.observe(packet, &pes(ms * 90, &[]));
        }
        times
    }

    /// A clock by which a packet lasts a millisecond.
    fn clock() -> Clock {
        Clock::constant(100_000, 188 * 8 * 1000)
    }

    #[test]
    fn decoding_times_are_read() {
        let time = (1 << 33) - 2;
        assert_eq!(decoding_time(&pes(time, b"x")), Some(time));
        let mut both = pes(5, &[0; 9]);
        both[7] = 0xc0;
        both.splice(14..19, [0x1f, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decoding_time(&both), Some((1 << 33) - 1));
        let plain = pes(5, &[]);
        for cut in 0..14 {
            assert_eq!(decoding_time(&plain[..cut]), None);
        }
        for (at, byte) in [(0, 1), (2, 0), (3, 0xbe), (6, 0), (7, 0)] {
            let mut other = plain.clone();
            other[at] = byte;
            assert_eq!(decoding_time(&other), None, "{at}");
        }
    }

    #[test]
    fn a_clock_is_judged_by_enough_times_and_gross_errors_only() {
        let contradicts = |stream_ms: u64, clock_ms: u64| Verdict::Contradicts {
            stream_ns: stream_ms * 1_000_000,
            clock_ns: clock_ms * 1_000_000,
        };
        let judge = |step: u64, packets: u64, count: u64| {
            times((0..count).map(|i| (i * packets, i * step))).judge(&clock())
        };
        assert_eq!(judge(40, 40, 100), Verdict::Agrees);
        assert_eq!(judge(400, 40, 100), Verdict::Agrees);
        assert_eq!(judge(440, 40, 101), contradicts(44_000, 4_000));
        assert_eq!(judge(40, 400, 101), Verdict::Agrees);
        assert_eq!(judge(40, 440, 101), contradicts(4_000, 44_000));
        // Too few, and too short.
        assert_eq!(judge(4000, 1, JUDGING_COUNT_MIN - 1), Verdict::Unknown);
        assert_eq!(judge(1000, 1, JUDGING_COUNT_MIN), contradicts(9_000, 9));
        assert_eq!(judge(90, 1, JUDGING_COUNT_MIN), Verdict::Unknown);
        // A slide show: hours are hidden in its breaks, and the clock that has them may be right.
        let slides = times((0..100).map(|i| (i * 900, i / 20 * 20_000 + i * 40)));
        assert_eq!(
            (slides.breaks, slides.judge(&clock())),
            (4, Verdict::Unknown)
        );
        // Times at random say nothing.
        let noise = times((0..100).map(|i| (i, i * 7_777_777 % (1 << 26))));
        assert_eq!(noise.judge(&clock()), Verdict::Unknown);
        assert_eq!(times([]).judge(&clock()), Verdict::Unknown);
    }

    #[test]
    fn the_end_is_that_of_the_last_picture() {
        let end = |streams: &[StreamTimes]| StreamTimes::end_ns(streams.iter(), &clock());
        let pictures = || times([(3, 700), (10, 740), (20, 780), (30, 4780)]);
        assert_eq!(end(&[pictures()]), Some(4_123_000_000));
        // Sound that begins before and ends after; the clocks of both wrap between the two
        // beginnings.
        let wrap_ms = (1 << 33) / 90;
        let late = times([(50, 90), (60, 1090)]);
        let early = times([(5, wrap_ms - 10), (9, wrap_ms + 9000)]);
        assert_eq!(
            end(&[late, early]).map(|ns| ns / 1_000_000),
            Some(5 + 18_020)
        );
        assert_eq!(end(&[]), None);
        assert_eq!(end(&[times([(1, 5)])]), None);
        assert_eq!(end(&[times([(1, 5), (2, 90_000)])]), None);
    }
}
