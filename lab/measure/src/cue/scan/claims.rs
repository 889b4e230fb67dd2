//! What the paper claims, and what of it holds.

use super::cells::in_proportion;
use super::values::{
    Value, bytes_a_second, calls_a_second, involuntary, samples, system_ns_a_mb, turns,
};
use super::{Cell, ScanRecord, Set, State};
use crate::cue::Contestant;
use crate::stats::median;
use crate::table::Verdict;

/// Switches that were not voluntary, of all, under a schedule; none in the paper.
const INVOLUNTARY_MAX: f64 = 0.05;
/// System time a MB of transfers alone, of that beside metering processes; as much in the paper.
const ALONE_MAX: f64 = 1.1;

/// The paper's claims on its schedules: set, schedule, and the same in the proportions of today;
/// transfers and metering processes; what of it, and what the paper had.
type Claim = (Set, [(u32, u32); 2], (u32, u32), Quantity, &'static str);

const CLAIMS: [Claim; 9] = [
    (Set::One, [(3, 70), (3, 2)], (1, 1), Quantity::Calls, "1.18"),
    (
        Set::Two,
        [(4, 70), (4, 2)],
        (1, 1),
        Quantity::SystemTime,
        "0.96",
    ),
    (
        Set::Three,
        [(1, 16), (1, 1)],
        (1, 1),
        Quantity::SystemTime,
        "0.78",
    ),
    (
        Set::Four,
        [(1, 20), (1, 2)],
        (1, 1),
        Quantity::SystemTime,
        "0.78",
    ),
    (
        Set::Five,
        [(3, 16), (3, 1)],
        (2, 2),
        Quantity::Calls,
        "1.11",
    ),
    (
        Set::Five,
        [(3, 16), (3, 1)],
        (2, 2),
        Quantity::SystemTime,
        "0.64",
    ),
    (
        Set::Six,
        [(4, 16), (4, 1)],
        (2, 0),
        Quantity::Throughput,
        "2.36",
    ),
    (
        Set::Eight,
        [(4, 16), (4, 1)],
        (3, 0),
        Quantity::Throughput,
        "3.89",
    ),
    (
        Set::Nine,
        [(4, 16), (4, 1)],
        (4, 0),
        Quantity::Throughput,
        "5.87",
    ),
];

/// What the paper claims something of.
#[derive(Clone, Copy, Debug)]
enum Quantity {
    Calls,
    SystemTime,
    Throughput,
}

impl Quantity {
    fn told(self) -> (&'static str, Value) {
        match self {
            Self::Calls => ("calls left", calls_a_second),
            Self::SystemTime => ("system time a MB", system_ns_a_mb),
            Self::Throughput => ("throughput", bytes_a_second),
        }
    }
}

/// Each judged by its schedule in the proportions of today.
pub(super) fn of_paper(record: &ScanRecord) -> Vec<Verdict> {
    let cell = |set, contestant, transfers, meterings| Cell {
        set,
        contestant,
        transfers,
        meterings,
        state: State::Warm,
    };
    // A schedule over user-driven, whose transfers and metering processes are the set's.
    let over = |set, schedule, (transfers, meterings), value: Value| {
        let both = [in_proportion(schedule), Contestant::UserDriven];
        let pair = both.map(|it| cell(set, it, transfers, meterings));
        turns(record, pair, value)
    };
    let mut verdicts = Vec::new();
    for &(set, [theirs, ours], beside, quantity, paper) in &CLAIMS {
        let (words, value) = quantity.told();
        let told = over(set, ours, beside, value);
        let (k, t) = theirs;
        let what = format!("{set}, ({k},{t}): {words}, cue / user-driven (paper {paper})");
        verdicts.push(match quantity {
            Quantity::SystemTime => Verdict::at_most(what, told, 1.0, 2),
            _ => Verdict::at_least(what, told, 1.0, 2),
        });
    }
    let one = cell(Set::One, in_proportion((3, 2)), 1, 1);
    verdicts.push(Verdict::at_most(
        "set 1, (3,70): involuntary switches, of all (paper 0)",
        samples(record, &one, involuntary),
        INVOLUNTARY_MAX,
        3,
    ));
    let of = |set, meterings| {
        let cell = cell(set, in_proportion((4, 1)), 2, meterings);
        samples(record, &cell, system_ns_a_mb)
    };
    let beside = median(of(Set::Five, 2)).unwrap_or(f64::NAN);
    let alone = of(Set::Six, 0).into_iter().map(|it| it / beside);
    let alone = alone.filter(|it| !it.is_nan());
    verdicts.push(Verdict::at_most(
        "set 6, (4,16): system time a MB, alone / beside metering (paper 0.99)",
        alone,
        ALONE_MAX,
        2,
    ));
    verdicts
}

impl Set {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::One => "Set 1, tables 1 and 2: one transfer, one metering process",
            Self::Two => "Set 2, table 3: a schedule about as fast as user-driven",
            Self::Three => "Set 3, table 4: the pause spread over single blocks",
            Self::Four => "Set 4, table 4: the same with a longer pause",
            Self::Five => "Set 5, table 6: two transfers, two metering processes",
            Self::Six => "Set 6, tables 6 and 7: two transfers alone",
            Self::Eight => "Set 8, table 7: three",
            Self::Nine => "Set 9, table 7: four",
            Self::Ftp => "Table 8: FTP clients at once",
            Self::Schedules => "Every schedule",
            Self::Random => "Files sent block by block in no order",
        }
    }

    pub(super) fn paper(self) -> &'static str {
        match self {
            Self::One => {
                "paper: user-driven 4.6 s/MB, 2.3 s system, 29 switches/MB (74 % involuntary), \
                 12,552 calls/s; (3,70) 5.3 s, 2.1 s, 48 (all voluntary), 14,775"
            }
            Self::Two => {
                "paper: (4,70) takes 1.7 % longer, and 5.1 % more calls are made meanwhile"
            }
            Self::Three => {
                "paper: user-driven 3147 s, 1562 s system, 12,471 calls/s; (1,16) 2678 s, 1214 s, \
                 9890"
            }
            Self::Four => "paper: (1,20) 3022 s, 1213 s system, 10,422 calls/s",
            Self::Five => {
                "paper: user-driven 4.05 s/MB, 1.00 s system, 60 switches/MB, 10,463 calls/s; \
                 (3,16) 4.46 s, 0.64 s, 157, 11,571; (4,16) 3.17 s, 0.89 s, 97, 6032"
            }
            Self::Six => {
                "paper: (4,16) 3.13 s/MB, 0.88 s system, 97 switches/MB; user-driven 7.40 s"
            }
            Self::Eight => "paper: (4,16) 3.42 s/MB; user-driven 13.32 s",
            Self::Nine => "paper: (4,16) 3.23 s/MB; user-driven 18.97 s",
            Self::Ftp => {
                "paper, kB/s of each client, at 1 and 4: user-driven 400-410, 205-240; (1,16) \
                 260-280, 216-237; (3,16) 340-360, 204-225; (4,16) 350-370, 300-360; (4,70) 200, \
                 317"
            }
            Self::Schedules | Self::Random => "",
        }
    }
}
