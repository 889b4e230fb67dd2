//! What viewers are told of the clock of a publisher.

use onrush_wire::rtp::{Header, StaticPayload};

use super::*;
use crate::channels::ChannelsConfig;
use crate::config::Limits;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Of a channel of one track.
fn core() -> Core {
    let tracks = vec![StaticPayload::MP2T.into()];
    let channel = PublishedChannel::new("live/door".to_owned(), tracks, || 7).unwrap();
    let settings = Settings {
        silence_ns: SECOND,
        standby_after_ns: SECOND,
        audience: AudienceSettings::new(&ChannelsConfig::default(), &Limits::default()),
    };
    Worker::new(Arc::new(channel), settings).core
}

/// go2rtc sends no sender reports at all.
#[test]
fn without_reports_lines_move_by_little() {
    let (mut core, mut before) = (core(), None);
    let (mut lines, mut late_ms) = (0, 0);
    for number in 0..1000_u32 {
        let sent_ns = u64::from(number) * 40 * MS;
        // Nothing comes for a second and a half when a line is due, and all of it then.
        let held_ns = match (124..161).contains(&number) {
            true => 161 * 40 * MS,
            false => 0,
        };
        late_ms = (late_ms * 7 + 5) % 31;
        // The clock of a camera that begins anew.
        let first = if number < 400 { 1000 } else { 7_000_000 };
        let header = Header {
            marker: true,
            payload_type: 33,
            sequence: u16::try_from(number).unwrap(),
            timestamp: first + number * 3600,
            ssrc: 1,
        };
        let arrived_ns = SECOND + held_ns.max(sent_ns + late_ms * MS);
        core.pass((0, 0), (BY_FRAME, &header.to_bytes()), arrived_ns);
        let line = core.channel.line(0).unwrap();
        assert!(!line.is_reported);
        let off_ns = line.at_ns.cast_signed() - i64::from(line.timestamp) * 1_000_000 / 90;
        if let Some((at_ns, before_ns)) = before.replace((line.at_ns, off_ns)) {
            let step_ns: i64 = off_ns - before_ns;
            assert!(step_ns.abs() < 5_000_000, "{number}: {step_ns}");
            lines += u32::from(line.at_ns != at_ns);
        }
    }
    assert!(lines >= 5, "{lines}");
}
