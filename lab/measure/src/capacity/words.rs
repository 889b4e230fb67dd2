//! A server's last words: the status that it leaves behind (`--status-at-exit`).

use std::fs;
use std::path::Path;

use onrush_server::admin::status::{Engine, Status};

/// What ours says it has done, in all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LastWords {
    /// Packets sent.
    pub(super) packets: u64,
    /// The bursts they left in.
    pub(super) bursts: u64,
    /// Of those, the ones that left with the burst before, because the engine was behind.
    pub(super) joined: u64,
}

impl LastWords {
    /// Those in a file; `None` if it has none.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let status: Status = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
        let engines = status.engines.iter();
        let all = engines.fold(Engine::default(), |all, engine| all.and(engine));
        Some(Self {
            packets: all.packets,
            bursts: all.lateness.count(),
            joined: all.bursts_joined,
        })
    }
}

#[cfg(test)]
mod tests {
    use onrush_server::admin::status::Histogram;

    use super::*;

    #[test]
    fn all_engines_count() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status.json");
        assert_eq!(LastWords::read(&file), None);
        let engine = |packets| Engine {
            packets,
            bursts_joined: 3,
            lateness: Histogram {
                buckets: vec![(Some(0), 100), (None, 1)],
                sum: 7,
            },
            ..Engine::default()
        };
        let status = Status {
            engines: vec![engine(1000), engine(234)],
            ..Status::default()
        };
        fs::write(&file, serde_json::to_vec(&status).unwrap()).unwrap();
        let expected = LastWords {
            packets: 1234,
            bursts: 202,
            joined: 6,
        };
        assert_eq!(LastWords::read(&file), Some(expected));
        fs::write(&file, "sessions served: 7; 1234 packets").unwrap();
        assert_eq!(LastWords::read(&file), None);
    }
}
