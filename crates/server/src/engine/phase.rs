//! When within a burst's time a stream begins, and so when each of its bursts leaves.

use serde::{Deserialize, Serialize};

use super::clock::TICKS_PER_BURST;

/// In step with others or not.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// At once: streams are spread as their viewers came.
    #[default]
    AsTheyCome,
    /// With all others, in one tick of each burst's time: three of four ticks have nothing to do.
    Aligned,
    /// Each in the tick that its number says: as many in each.
    Spread,
}

impl Phase {
    /// All, for whoever tries each.
    pub const ALL: [Self; 3] = [Self::AsTheyCome, Self::Aligned, Self::Spread];

    /// Its name on the command line and in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AsTheyCome => "as-they-come",
            Self::Aligned => "aligned",
            Self::Spread => "spread",
        }
    }

    /// When stream `number` begins that may begin at `from_ns`: within a burst's time.
    pub(super) fn start_ns(self, from_ns: u64, number: u32, tick_ns: u64) -> u64 {
        let slot = match self {
            Self::AsTheyCome => return from_ns,
            Self::Aligned => 0,
            Self::Spread => u64::from(number) % TICKS_PER_BURST,
        };
        let tick = from_ns.div_ceil(tick_ns);
        let ahead = (TICKS_PER_BURST + slot - tick % TICKS_PER_BURST) % TICKS_PER_BURST;
        (tick + ahead).saturating_mul(tick_ns)
    }
}

impl std::str::FromStr for Phase {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let phase = Self::ALL.into_iter().find(|phase| phase.as_str() == name);
        phase.ok_or_else(|| format!("no phase is named {name:?}; there are {names}"))
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stream_begins_soon_and_in_its_tick(
            from_ns in 0_u64..1 << 50,
            number in any::<u32>(),
            tick_ns in 1_u64..1 << 30,
        ) {
            let own = Phase::AsTheyCome.start_ns(from_ns, number, tick_ns);
            prop_assert_eq!(own, from_ns);
            for (phase, slot) in [(Phase::Aligned, 0), (Phase::Spread,
                u64::from(number) % TICKS_PER_BURST)] {
                let start_ns = phase.start_ns(from_ns, number, tick_ns);
                prop_assert_eq!(start_ns % tick_ns, 0);
                prop_assert_eq!(start_ns / tick_ns % TICKS_PER_BURST, slot);
                prop_assert!(start_ns >= from_ns
                    && start_ns < from_ns + (TICKS_PER_BURST + 1) * tick_ns);
            }
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for phase in Phase::ALL {
            assert_eq!(phase.to_string().parse(), Ok(phase));
        }
        assert!("".parse::<Phase>().is_err());
    }
}
