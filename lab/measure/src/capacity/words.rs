//! A server's last words, in its log: `sessions served: 7; 1234 packets in 171 bursts, 3 of them
//! joined, ...`.

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
    /// Those in `log`; `None` if it has none.
    pub(super) fn of(log: &str) -> Option<Self> {
        let line = log
            .lines()
            .rfind(|line| line.contains("sessions served: "))?;
        let before = |what: &str| -> Option<u64> {
            let (before, _) = line.split_once(what)?;
            before.rsplit(' ').next()?.parse().ok()
        };
        Some(Self {
            packets: before(" packets in ")?,
            bursts: before(" bursts, ")?,
            joined: before(" of them joined")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_them_count() {
        let line = |packets: u64| {
            format!(
                "2026 INFO onrush_server::rtsp: sessions served: 7; {packets} packets in 171 \
                 bursts, 3 of them joined, \
                 in 168 trains, 168 of them without a copy\n"
            )
        };
        let log = format!("x\n{}{}y\n", line(1), line(1234));
        let expected = LastWords {
            packets: 1234,
            bursts: 171,
            joined: 3,
        };
        assert_eq!(LastWords::of(&log), Some(expected));
        assert_eq!(LastWords::of("sessions served: 7; none"), None);
        assert_eq!(LastWords::of(""), None);
    }
}
