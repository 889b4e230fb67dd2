//! The processor alone: a loop, plain and unrolled, a chain of additions, a procedure call with 0
//! to 7 arguments.

use std::arch::asm;
use std::hint::black_box;

/// Arguments that [`call`] can pass.
pub const ARGUMENTS_MAX: usize = 7;

/// Goes round an empty loop `times` times: a subtraction and a jump, in registers.
#[inline(never)]
pub fn spin(times: u64) {
    if times == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: counts a register of its own down to 0; no memory, no stack.
    unsafe {
        asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) times => _, options(nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("2:", "subs {n}, {n}, \
                    #1", "b.ne 2b", n = inout(reg) times => _, options(nomem, nostack));
    }
}

/// Goes round a loop whose counter lives in memory, as a compiler writes it that does not optimise:
/// the paper's loop. Each step loads, changes and stores the counter, and waits for the step
/// before.
#[inline(never)]
pub fn spin_in_memory(times: u64) {
    let mut counter = 0_u64;
    while counter < times {
        // SAFETY: `counter` is a valid, aligned u64 of this function.
        let value = unsafe { (&raw const counter).read_volatile() };
        // SAFETY: as above.
        unsafe { (&raw mut counter).write_volatile(value + 1) };
    }
}

/// Additions in one turn of [`add`].
pub const ADDITIONS: u64 = 16;

/// Adds `turns` times [`ADDITIONS`] numbers, each to the sum before: a cycle each on every
/// processor we know, whatever its clock is just now.
#[inline(never)]
#[must_use]
pub fn add(turns: u64) -> u64 {
    let mut sum = black_box(1_u64);
    let one = black_box(1_u64);
    for _ in 0..turns {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: adds registers; no memory, no stack.
        unsafe {
            asm!(
                ".rept 16", "add {s}, {o}", ".endr",
                s = inout(reg) sum, o = in(reg) one, options(nomem, nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: adds registers; no memory, no stack.
        unsafe {
            asm!(
                ".rept 16", "add {s}, {s}, {o}", ".endr",
                s = inout(reg) sum, o = in(reg) one, options(nomem, nostack),
            );
        }
    }
    sum
}

/// Adds as [`add`] does, one addition in each turn of the loop.
#[inline(never)]
#[must_use]
pub fn add_plain(turns: u64) -> u64 {
    let mut sum = black_box(1_u64);
    if turns == 0 {
        return sum;
    }
    let one = black_box(1_u64);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: adds registers and counts one of its own down to 0; no memory, no stack.
    unsafe {
        asm!(
            "2:", "add {s}, {o}", "dec {n}", "jnz 2b",
            s = inout(reg) sum, o = in(reg) one, n = inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            "2:", "add {s}, {s}, {o}", "subs {n}, {n}, #1", "b.ne 2b",
            s = inout(reg) sum, o = in(reg) one, n = inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
    sum
}

/// A ring of pointers in a line or two of the first cache: [`Ring::plain`] and [`Ring::unrolled`]
/// go round it.
#[derive(Debug)]
pub struct Ring {
    nodes: Box<[usize; NODES]>,
}

/// A prime, so that no number of loads in a turn comes round at the same place.
const NODES: usize = 11;

/// Loads in one turn of [`Ring::unrolled`]: the paper's ten.
pub const LOADS: u64 = 10;

impl Ring {
    /// A ring.
    #[must_use]
    pub fn new() -> Self {
        let mut nodes = Box::new([0; NODES]);
        for place in 0..NODES {
            nodes[place] = (&raw const nodes[(place + 1) % NODES]).expose_provenance();
        }
        Self { nodes }
    }

    /// Loads `turns` times, each from where the last load said, a load in each turn of the loop. At
    /// which node it ended.
    #[inline(never)]
    #[must_use]
    pub fn plain(&self, turns: u64) -> usize {
        let mut at = (&raw const self.nodes[0]).expose_provenance();
        if turns == 0 {
            return 0;
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: each node has the address of a node, in memory that `self` owns; a register of
        // its own is counted down to 0. Only reads.
        unsafe {
            asm!(
                "2:", "mov {at}, [{at}]", "dec {n}", "jnz 2b",
                at = inout(reg) at, n = inout(reg) turns => _, options(readonly, nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            asm!(
                "2:", "ldr {at}, [{at}]", "subs {n}, {n}, #1", "b.ne 2b",
                at = inout(reg) at, n = inout(reg) turns => _, options(readonly, nostack),
            );
        }
        self.node_at(at)
    }

    /// The same with [`LOADS`] loads in each turn.
    #[inline(never)]
    #[must_use]
    pub fn unrolled(&self, turns: u64) -> usize {
        let mut at = (&raw const self.nodes[0]).expose_provenance();
        if turns == 0 {
            return 0;
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `plain`.
        unsafe {
            asm!(
                "2:", ".rept 10", "mov {at}, [{at}]", ".endr", "dec {n}", "jnz 2b",
                at = inout(reg) at, n = inout(reg) turns => _, options(readonly, nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as in `plain`.
        unsafe {
            asm!(
                "2:", ".rept 10", "ldr {at}, [{at}]", ".endr", "subs {n}, {n}, #1", "b.ne 2b",
                at = inout(reg) at, n = inout(reg) turns => _, options(readonly, nostack),
            );
        }
        self.node_at(at)
    }

    fn node_at(&self, address: usize) -> usize {
        let first = (&raw const self.nodes[0]).addr();
        (address - first) / size_of::<usize>()
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

/// Calls a procedure with `arguments` integers `times` times, by its address, so that it cannot be
/// inlined.
///
/// # Panics
///
/// If there are more than [`ARGUMENTS_MAX`].
#[inline(never)]
pub fn call(arguments: usize, times: u64) {
    match arguments {
        0 => call_0(times),
        1 => call_1(times),
        2 => call_2(times),
        3 => call_3(times),
        4 => call_4(times),
        5 => call_5(times),
        6 => call_6(times),
        7 => call_7(times),
        more => panic!("{more} arguments; there are procedures with up to {ARGUMENTS_MAX}"),
    }
}

/// A procedure that takes its arguments where the platform's calling convention puts them and does
/// nothing with them, and a loop that calls it.
macro_rules! procedure {
    ($take:ident, $call:ident, $($argument:ident $value:expr),*) => {
        #[inline(never)]
        extern "C" fn $take($($argument: u64),*) {
            $(
                // SAFETY: no instruction at all; said to use the argument, so that it must be
                // passed.
                unsafe { asm!("/* {0} */", in(reg) $argument, options(nomem, nostack)) };
            )*
        }

        fn $call(times: u64) {
            let take = black_box($take as extern "C" fn($(procedure!(@type $argument)),*));
            for _step in 0..times {
                take($(_step + $value),*);
            }
        }
    };
    (@type $argument:ident) => { u64 };
}

procedure!(take_0, call_0,);
procedure!(take_1, call_1, a 0);
procedure!(take_2, call_2, a 0, b 1);
procedure!(take_3, call_3, a 0, b 1, c 2);
procedure!(take_4, call_4, a 0, b 1, c 2, d 3);
procedure!(take_5, call_5, a 0, b 1, c 2, d 3, e 4);
procedure!(take_6, call_6, a 0, b 1, c 2, d 3, e 4, f 5);
procedure!(take_7, call_7, a 0, b 1, c 2, d 3, e 4, f 5, g 6);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_addition_is_made() {
        assert_eq!(add(0), 1);
        assert_eq!(add(1000), 1 + 1000 * ADDITIONS);
        assert_eq!(add_plain(0), 1);
        assert_eq!(add_plain(1000), 1001);
    }

    #[test]
    fn every_load_of_a_ring_is_made_plain_or_unrolled() {
        let ring = Ring::new();
        for turns in [0, 1, 10, 11, 1000] {
            let place = |loads: u64| usize::try_from(loads % NODES as u64).unwrap();
            assert_eq!(ring.plain(turns), place(turns));
            assert_eq!(ring.unrolled(turns), place(turns * LOADS));
        }
    }

    #[test]
    fn loops_and_calls_come_to_their_end() {
        for times in [0, 1, 1000] {
            spin(times);
            spin_in_memory(times);
            for arguments in 0..=ARGUMENTS_MAX {
                call(arguments, times);
            }
        }
    }

    #[test]
    #[should_panic(expected = "up to 7")]
    fn more_arguments_than_there_are_procedures_for_are_refused() {
        call(ARGUMENTS_MAX + 1, 1);
    }
}
