//! What our server counted in all: the status that it leaves when it stops (`--status-at-exit`).

use std::fs;
use std::path::Path;

use onrush_server::admin::status::{Engine, Status};

use crate::error::what_is;
use crate::stats::ratio;

/// The counters of all engines together, and the data path of the first; `None` if there is no
/// status in `file`.
pub(super) fn read(file: &Path) -> Option<Engine> {
    let status: Status = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
    let engines = status.engines.iter();
    let all = engines.fold(Engine::default(), |all, engine| all.and(engine));
    let path = status.engines.first().map(|engine| engine.path.clone());
    Some(Engine {
        path: path.unwrap_or_default(),
        ..all
    })
}

/// What is wrong if the server was `asked` for a data path, and sends by another.
pub(super) fn other_path(engine: &Engine, asked: Option<&str>) -> Option<String> {
    let (asked, path) = (asked?, &engine.path);
    (path != asked).then(|| {
        format!("{asked} cannot be had here, and the server took {path}; onrush doctor says why")
    })
}

/// Of the bursts, the part that left with the one before, because the engine was behind.
pub(super) fn joined(engine: &Engine) -> f64 {
    ratio(engine.bursts_joined, engine.lateness.count().max(1))
}

/// Bursts that left later than that.
pub(super) fn late(engine: &Engine, lateness_ns_max: i64) -> u64 {
    engine.lateness.count() - engine.lateness.up_to(lateness_ns_max)
}

/// What did not go as it should, a line for each sort: bursts that left later than
/// `lateness_ns_max` among them.
pub(super) fn trouble(engine: &Engine, lateness_ns_max: i64) -> Vec<String> {
    let (bursts, late) = (engine.lateness.count(), late(engine, lateness_ns_max));
    let ms = lateness_ns_max / 1_000_000;
    let (lags, sheds, refused) = (engine.lags, engine.sheds, engine.packets_refused);
    let (underruns, demotions) = (engine.underruns, engine.demotions);
    what_is! {
        late > 0 => "{late} of {bursts} bursts left more than {ms} ms late";
        lags > 0 => "{lags} times a stream was so late that its clock was moved";
        sheds > 0 => "{sheds} times a stream was left out, because all were late";
        underruns > 0 => "{underruns} bursts waited for their chunk";
        refused > 0 => "{refused} packets were refused by the kernel";
        demotions > 0 => "{demotions} times a data path was given up";
    }
}

#[cfg(test)]
mod tests {
    use onrush_server::admin::status::Histogram;

    use super::*;

    fn engine(packets: u64) -> Engine {
        Engine {
            packets,
            bursts_joined: 3,
            lags: 1,
            lateness: Histogram {
                buckets: vec![
                    (Some(0), 100),
                    (Some(20_000_000), 2),
                    (Some(20_100_000), 4),
                    (None, 1),
                ],
                sum: 7,
            },
            ..Engine::default()
        }
    }

    fn by_path(packets: u64) -> Engine {
        Engine {
            path: "sendmmsg".to_owned(),
            ..engine(packets)
        }
    }

    #[test]
    fn all_engines_of_a_status_count() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status.json");
        assert_eq!(read(&file), None);
        let status = Status {
            engines: vec![by_path(1000), engine(234)],
            ..Status::default()
        };
        fs::write(&file, serde_json::to_vec(&status).unwrap()).unwrap();
        let all = read(&file).unwrap();
        assert_eq!(
            (all.packets, all.bursts_joined, all.lateness.count()),
            (1234, 6, 214)
        );
        assert_eq!(other_path(&all, Some("sendmmsg")), None);
        assert_eq!(other_path(&all, None), None);
        let other = other_path(&all, Some("sendto")).unwrap();
        assert!(other.contains("the server took sendmmsg"), "{other}");
        fs::write(&file, "sessions served: 7; 1234 packets").unwrap();
        assert_eq!(read(&file), None);
    }

    #[test]
    fn trouble_is_told_by_its_counters_and_its_absence_is_not() {
        let expected = [
            "5 of 107 bursts left more than 20 ms late",
            "1 times a stream was so late that its clock was moved",
        ];
        assert_eq!(trouble(&engine(1), 20_000_000), expected);
        assert_eq!(trouble(&Engine::default(), 20_000_000), [""; 0]);
    }
}
