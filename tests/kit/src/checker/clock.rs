//! Whether timestamps follow the clock references (PCR) between them, but for one constant.

use super::{Fault, TS_BYTES};

/// The relation between timestamps and the PCRs of one PID, over one continuous stretch.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pid: Option<u16>,
    /// The timestamp and the PCR that differences are taken from.
    origin: Option<(u32, u64)>,
    pcr_previous: u64,
    /// What PCR minus timestamp may be, after all that was seen: lowest and highest, in ticks.
    offset: Option<(i64, i64)>,
    /// PCRs of the packet before, which the next timestamp bounds from above.
    pending: Vec<u64>,
    pending_packet: u64,
    pending_timestamp: u32,
}

impl Clock {
    pub(super) fn read(
        &mut self,
        packet: u64,
        timestamp: u32,
        payload: &[u8],
        pcrs: &mut u64,
    ) -> Option<Fault> {
        let mut fault = None;
        for pcr in std::mem::take(&mut self.pending) {
            // Every PCR narrows the bounds, also behind a fault.
            let found = self.bound(pcr, timestamp);
            if fault.is_none() {
                fault = found;
            }
            *pcrs += 1;
        }
        for ts in payload.chunks_exact(TS_BYTES) {
            let Some((pid, pcr, discontinuity)) = clock_reference(ts) else {
                continue;
            };
            if *self.pid.get_or_insert(pid) != pid {
                continue;
            }
            let jumped = pcr_between(self.pcr_previous, pcr);
            if discontinuity || !(0..=JUMP_TICKS).contains(&jumped) {
                *self = Self {
                    pid: self.pid,
                    ..Self::default()
                };
            }
            self.origin.get_or_insert((timestamp, pcr));
            self.pcr_previous = pcr;
            self.pending.push(pcr);
        }
        (self.pending_packet, self.pending_timestamp) = (packet, timestamp);
        fault
    }

    /// A PCR between the pending packet's timestamp and the `next` one.
    fn bound(&mut self, pcr: u64, next: u32) -> Option<Fault> {
        let (timestamp_origin, pcr_origin) = self.origin?;
        let at = pcr_between(pcr_origin, pcr);
        // A tick either way: both clocks are rounded.
        let lowest = at - ticks_between(timestamp_origin, next) - 1;
        let highest = at - ticks_between(timestamp_origin, self.pending_timestamp) + 1;
        let (low, high) = self.offset.unwrap_or((i64::MIN, i64::MAX));
        let (low, high) = (low.max(lowest), high.min(highest));
        if low <= high {
            self.offset = Some((low, high));
            return None;
        }
        self.offset = None;
        Some(Fault::TimestampOffPcr {
            packet: self.pending_packet,
            ticks: low - high,
        })
    }
}

/// PID, PCR base (90 kHz) and discontinuity indicator of a transport packet that has a PCR
/// (ISO/IEC 13818-1, 2.4.3.4).
fn clock_reference(ts: &[u8]) -> Option<(u16, u64, bool)> {
    if ts[3] & 0x20 == 0 || ts[4] < 7 || ts[5] & 0x10 == 0 {
        return None;
    }
    let pid = u16::from_be_bytes([ts[1] & 0x1f, ts[2]]);
    let base = u64::from(u32::from_be_bytes([ts[6], ts[7], ts[8], ts[9]])) << 1;
    Some((pid, base | u64::from(ts[10] >> 7), ts[5] & 0x80 != 0))
}

pub(super) fn ticks_between(from: u32, to: u32) -> i64 {
    i64::from(to.wrapping_sub(from).cast_signed())
}

/// Of 33-bit clocks.
fn pcr_between(from: u64, to: u64) -> i64 {
    (to.wrapping_sub(from) << 31).cast_signed() >> 31
}

/// Clock references further apart than this are a discontinuity: 100 ms are allowed.
const JUMP_TICKS: i64 = 90_000;
