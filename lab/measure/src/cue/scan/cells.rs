//! What is measured: the paper's sets, and the schedules between and beyond them.

use super::super::{BLOCK_BYTES, BLOCK_BYTES_TODAY, Contestant};
use super::{Cell, SLICE_BLOCK_BYTES, Set, Settings, State};

/// A set of the paper: its schedules, each with what it is in the proportions of today; transfers,
/// and metering processes.
type PaperSet = (Set, &'static [[(u32, u32); 2]], u32, u32);

/// Pauses are a thirtieth of the paper's in the second, and no less than the millisecond that
/// timers have.
const SETS: [PaperSet; 8] = [
    (Set::One, &[[(3, 70), (3, 2)]], 1, 1),
    (Set::Two, &[[(4, 70), (4, 2)]], 1, 1),
    (Set::Three, &[[(1, 16), (1, 1)]], 1, 1),
    (Set::Four, &[[(1, 20), (1, 2)]], 1, 1),
    (Set::Five, &[[(3, 16), (3, 1)], [(4, 16), (4, 1)]], 2, 2),
    (Set::Six, &[[(4, 16), (4, 1)]], 2, 0),
    (Set::Eight, &[[(4, 16), (4, 1)]], 3, 0),
    (Set::Nine, &[[(4, 16), (4, 1)]], 4, 0),
];

/// Schedules of the FTP server, with blocks of 8 KiB: the paper's, and (4,16) in the proportions of
/// today.
const OF_FTP: [(u32, u32); 5] = [(1, 16), (3, 16), (4, 16), (4, 70), (2048, 1)];

/// The schedule that is judged while it yields, with blocks of 256 KiB.
pub(super) const YIELDED: (u32, u32) = (8, 4);

/// A schedule with blocks of 256 KiB.
pub(super) fn today((blocks, pause_ms): (u32, u32)) -> Contestant {
    Contestant::Fixed {
        block_bytes: BLOCK_BYTES_TODAY,
        blocks,
        pause_ms,
    }
}

/// The same while somebody waits.
pub(super) fn yielding((blocks, pause_ms): (u32, u32)) -> Contestant {
    Contestant::Yielding {
        block_bytes: BLOCK_BYTES_TODAY,
        blocks,
        pause_ms,
    }
}

/// The paper's schedule of a set in the proportions of today.
pub(super) fn in_proportion((blocks, pause_ms): (u32, u32)) -> Contestant {
    Contestant::Fixed {
        block_bytes: SLICE_BLOCK_BYTES,
        blocks,
        pause_ms,
    }
}

/// What is measured in each repeat.
pub(super) fn cells(settings: &Settings) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |set, contestant, (transfers, meterings), state| {
        cells.push(Cell {
            set,
            contestant,
            transfers,
            meterings,
            state,
        });
    };
    use Contestant::{Adaptive, Fair, Nobody, UserDriven};
    if settings.sets || !settings.transfers.is_empty() {
        for meterings in [1, 2] {
            add(Set::Schedules, Nobody, (0, meterings), State::Warm);
        }
    }
    for (set, schedules, transfers, meterings) in SETS.iter().filter(|_| settings.sets) {
        let beside = (*transfers, *meterings);
        add(*set, UserDriven, beside, State::Warm);
        add(*set, Fair, beside, State::Warm);
        add(*set, yielding(YIELDED), beside, State::Warm);
        for [(k, t), proportioned] in *schedules {
            add(*set, Contestant::fixed(*k, *t), beside, State::Warm);
            add(*set, in_proportion(*proportioned), beside, State::Warm);
        }
    }
    for &clients in &settings.ftp_clients {
        for contestant in of_ftp() {
            add(Set::Ftp, contestant, (clients, 0), State::Warm);
        }
    }
    for state in [State::Warm, State::Cold] {
        for &transfers in &settings.transfers {
            let ways = [
                UserDriven,
                Fair,
                Adaptive,
                today(YIELDED),
                yielding(YIELDED),
            ];
            for &meterings in [0].iter().chain(&settings.meterings) {
                for contestant in ways {
                    add(Set::Schedules, contestant, (transfers, meterings), state);
                }
            }
            for &meterings in &settings.meterings {
                for schedule in scanned(settings) {
                    let beside = (transfers, meterings);
                    add(Set::Schedules, today(schedule), beside, state);
                }
            }
            for contestant in ways {
                add(Set::Random, contestant, (transfers, 1), state);
            }
        }
    }
    cells
}

/// Who serves the clients of table 8.
fn of_ftp() -> impl Iterator<Item = Contestant> {
    let (blocks, pause_ms) = OF_FTP[4];
    let others = [
        Contestant::Vsftpd { sendfile: false },
        Contestant::Vsftpd { sendfile: true },
        Contestant::Fair,
        Contestant::Adaptive,
        Contestant::Yielding {
            block_bytes: BLOCK_BYTES,
            blocks,
            pause_ms,
        },
    ];
    let fixed = OF_FTP.map(|(k, t)| Contestant::fixed(k, t));
    others.into_iter().chain(fixed)
}

/// All k by all t, but for the one that is among the ways anyway.
fn scanned(settings: &Settings) -> impl Iterator<Item = (u32, u32)> {
    let (ks, ts) = &settings.schedules;
    let all = ks.iter().flat_map(|&k| ts.iter().map(move |&t| (k, t)));
    all.filter(|&schedule| schedule != YIELDED)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::Part;
    use super::*;

    #[test]
    fn nothing_is_measured_twice_and_all_of_the_paper_is() {
        let cells = cells(&Settings::full());
        for (at, cell) in cells.iter().enumerate() {
            assert!(!cells[..at].contains(cell), "{cell:?}");
        }
        for set in Set::ALL {
            assert!(cells.iter().any(|cell| cell.set == set), "{set}");
        }
        let of_five = cells.iter().filter(|cell| cell.set == Set::Five);
        assert!(
            of_five
                .clone()
                .all(|it| (it.transfers, it.meterings) == (2, 2))
        );
        assert_eq!(of_five.count(), 7);
    }

    #[test]
    fn all_parts_are_the_whole_and_each_has_its_own() {
        let full = Settings::full();
        let of = |part| cells(&full.clone().only(part));
        let parts = [Part::Sets, Part::Schedules, Part::Ftp].map(of);
        for cell in cells(&full) {
            let count = parts.iter().filter(|part| part.contains(&cell)).count();
            // What metering processes do alone is measured beside sets and beside schedules.
            let is_alone = cell.contestant == Contestant::Nobody;
            assert_eq!(count, if is_alone { 2 } else { 1 }, "{cell:?}");
        }
        let [sets, schedules, ftp] = parts;
        let kinds = |cells: Vec<Cell>| {
            cells
                .into_iter()
                .map(|cell| cell.set)
                .collect::<HashSet<_>>()
        };
        assert_eq!(kinds(ftp), HashSet::from([Set::Ftp]));
        assert_eq!(
            kinds(schedules),
            HashSet::from([Set::Schedules, Set::Random])
        );
        assert_eq!(kinds(sets).len(), Set::ALL.len() - 2);
    }

    #[test]
    fn a_set_has_as_many_files_as_a_schedule_lets_go() {
        let full = Settings::full();
        let of = |contestant, transfers| full.extent(contestant, transfers);
        let bytes = 12 << 20;
        assert_eq!(of(Contestant::Fair, 1), (60, bytes));
        assert_eq!(of(Contestant::UserDriven, 4), (15, bytes));
        // 512 pauses of 70 ms a file; 384 of 16 ms.
        assert_eq!(of(Contestant::fixed(3, 70), 1), (1, bytes));
        assert_eq!(of(Contestant::fixed(4, 16), 2), (2, bytes));
        assert_eq!(of(today((8, 4)), 1), (60, bytes));
        let quick = Settings::quick();
        assert_eq!(quick.extent(Contestant::fixed(4, 16), 1), (1, 1 << 20));
        assert_eq!(quick.extent(Contestant::fixed(3, 70), 1), (1, 1 << 20));
        assert_eq!(quick.extent(in_proportion((4, 1)), 1), (60, bytes));
    }
}
