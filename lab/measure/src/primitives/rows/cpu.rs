//! The processor's rows.

use super::{Basics, Plan, Sheet, count, cycles};
use crate::primitives::{Better, Unit};
use crate::stats::Summary;

/// Fills in the group.
pub(super) fn fill(sheet: &mut Sheet<'_>) {
    code(sheet);
    calls(sheet);
    creation(sheet);
    switches(sheet);
}

fn code(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let cycle = basics.cycle_ns;
    let cycles_of = |number: f64| Some(number * cycle);
    let read = Plan::time(
        "clock_read",
        "Reading the clock, twice in step",
        (cycles_of(40.0), Some(0.0)),
        "33.7 cycles",
    );
    sheet.row(&read, |ns| {
        format!(
            "Two readings with their fences take {}, where the vendors' tables say about 20 each",
            cycles(ns, basics)
        )
    });
    let system = Plan::time(
        "clock_read_system",
        "Reading CLOCK_MONOTONIC_RAW",
        (cycles_of(20.0), cycles_of(40.0)),
        "",
    );
    sheet.row(&system, |ns| {
        format!(
            "The kernel's code in our address space takes {}",
            cycles(ns, basics)
        )
    });
    let clock = Plan {
        unit: Unit::Hertz,
        better: Better::More,
        possible: (1e7, 1e11),
        ..Plan::time(
            "processor_clock",
            "Processor's clock, by dependent additions",
            (None, None),
            "2.7 GHz (stated)",
        )
    };
    sheet.row(&clock, |hertz| {
        format!(
            "An addition that waits for the last one takes a cycle, {:.3} ns",
            1e9 / hertz
        )
    });
    loops(sheet);
    procedure_calls(sheet);
}

fn loops(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let cycle = basics.cycle_ns;
    let cycles_of = |number: f64| Some(number * cycle);
    let turn = Plan::time(
        "loop",
        "Loop, in registers",
        (cycles_of(1.0), Some(0.0)),
        "",
    );
    sheet.row(&turn, |ns| {
        format!("A subtraction and a jump back take {}", cycles(ns, basics))
    });
    let in_memory = Plan::time(
        "loop_in_memory",
        "Loop, its counter in memory",
        (cycles_of(6.0), Some(0.0)),
        "7.05 cycles/loop",
    );
    sheet.row(&in_memory, |ns| {
        let told = cycles(ns, basics);
        if ns < 2.0 * cycle {
            return format!(
                "{told} a turn: this processor keeps the counter in a register behind the \
                 program's back"
            );
        }
        format!("Each turn waits for what the last one stored: {told}")
    });
}

fn procedure_calls(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let turn = sheet.found.median("loop").unwrap_or(basics.cycle_ns);
    let none = sheet.found.median("call_0");
    for arguments in 0..=onrush_primitives::code::ARGUMENTS_MAX {
        let id = format!("call_{arguments}");
        let noun = if arguments == 1 {
            "argument"
        } else {
            "arguments"
        };
        let operation = format!("Procedure call, {arguments} {noun}, with its loop");
        let moved = count(arguments) * basics.cycle_ns / 4.0;
        let paper = match arguments {
            0 => "0.2 cycles above the clock's cost",
            7 => "5.2 cycles above the clock's cost",
            _ => "1 cycle with one more argument",
        };
        let row = Plan::time(
            &id,
            &operation,
            (Some(2.0 * basics.cycle_ns + moved), Some(turn)),
            paper,
        );
        sheet.row(&row, |ns| match none.filter(|_| arguments > 0) {
            Some(none) => argument_told((ns - none) / count(arguments), none, basics),
            None => format!("Call and return take {}", cycles(ns, basics)),
        });
    }
}

/// What one argument adds to a call without any. Less than a tenth of a cycle cannot be told from
/// nothing, and where the code lies moves a call by a cycle either way.
fn argument_told(each_ns: f64, none_ns: f64, basics: Basics) -> String {
    let none = cycles(none_ns, basics);
    let least_ns = basics.cycle_ns / 10.0;
    if each_ns > least_ns {
        let each = cycles(each_ns, basics);
        format!("Each argument adds {each} to the {none} of a call without")
    } else if each_ns < -least_ns {
        let less = cycles(-each_ns, basics);
        format!(
            "{less} less for each argument than the {none} of a call without: where the code lies \
             matters more"
        )
    } else {
        format!("In a register an argument adds nothing to the {none} of a call without")
    }
}

fn calls(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let cycles_of = |number: f64| Some(number * basics.cycle_ns);
    let getppid = sheet.found.median("getppid");
    let cached = Plan::time(
        "getpid_cached",
        "System call, answered from memory",
        (cycles_of(4.0), cycles_of(2.0)),
        "38.2 cycles with the clock",
    );
    sheet.row(&cached, |ns| match getppid {
        Some(real) => format!(
            "A call and a load take {}, {:.0} times less than asking the kernel",
            cycles(ns, basics),
            real / ns
        ),
        None => format!("A call and a load take {}", cycles(ns, basics)),
    });
    for (id, operation, paper) in [
        ("getpid", "System call, getpid", ""),
        (
            "getppid",
            "System call, getppid",
            "395.8 cycles with the clock",
        ),
    ] {
        let row = Plan::time(id, operation, (cycles_of(100.0), cycles_of(100.0)), paper);
        sheet.row(&row, |ns| {
            format!(
                "Into the kernel and back takes {}; its guards against speculation are part of \
             that",
                cycles(ns, basics)
            )
        });
    }
    windows(sheet);
    let crossing = sheet.found.median("time_crossing");
    let vdso = Plan::time(
        "time_vdso",
        "The time, by vDSO",
        (cycles_of(20.0), cycles_of(40.0)),
        "",
    );
    sheet.row(&vdso, |ns| match crossing {
        Some(real) => format!(
            "Kernel code without a crossing takes {}, {:.1} times less than with one",
            cycles(ns, basics),
            real / ns
        ),
        None => format!(
            "Kernel code without a crossing takes {}",
            cycles(ns, basics)
        ),
    });
    let vdso = sheet.found.median("time_vdso");
    let real = Plan::time(
        "time_crossing",
        "The time, by system call",
        (vdso, Some(basics.crossing_ns)),
        "",
    );
    sheet.row(&real, |ns| {
        format!(
            "Reading the clock and a crossing take {}",
            cycles(ns, basics)
        )
    });
}

fn windows(sheet: &mut Sheet<'_>) {
    let of = |id, operation, base| Plan {
        unit: Unit::One,
        ..Plan::time(id, operation, (Some(base), None), "")
    };
    let in_cycles = of(
        "getppid_cycles",
        "System call, getppid, in cycles of that moment",
        200.0,
    );
    sheet.row(&in_cycles, |_| {
        "Calls between additions, in windows of microseconds: what the clock does falls on both"
            .to_owned()
    });
    let spread = sheet.found.measured("getppid_cycles");
    let spread = spread.and_then(|measured| Summary::of(&measured.medians()));
    let repeats = Plan {
        better: Better::Neither,
        possible: (0.5, 2.0),
        ..of(
            "getppid_repeats",
            "The same twice, window about, ratio",
            1.0,
        )
    };
    sheet.row(&repeats, |ratio| {
        format!(
            "Two series of one call differ by {:.2} %; the rounds, seconds apart, by {:.1} %: that \
             is the machine",
            (ratio - 1.0).abs() * 100.0,
            spread.map_or(0.0, |summary| summary.spread() * 100.0)
        )
    });
}

fn creation(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    // Guesses that the paper also makes; the sentence says what they were.
    let fork = (
        Some(2.0 * basics.switch_ns),
        Some(FORK_FAULTS * basics.fault_ns + FORK_CROSSINGS * basics.crossing_ns),
    );
    let row = Plan::time(
        "fork",
        "Process creation, fork, exit and wait",
        fork,
        "832389 cycles",
    );
    let (fault, switch) = (basics.fault_ns, basics.switch_ns);
    sheet.row(&row, |ns| {
        format!(
            "As long as {:.0} page faults or {:.0} switches: page tables are copied, then pages as \
             they are written",
            ns / fault,
            ns / switch
        )
    });
    let fork = sheet.found.median("fork");
    let vfork = (
        Some(2.0 * basics.switch_ns),
        Some(FORK_CROSSINGS * basics.crossing_ns),
    );
    let row = Plan::time("vfork", "Process creation, vfork, exit and wait", vfork, "");
    sheet.row(&row, |ns| match fork {
        Some(fork) => format!(
            "Without an address space of its own a child takes {:.0} % less than by fork",
            (1.0 - ns / fork) * 100.0
        ),
        None => "Without an address space of its own".to_owned(),
    });
    programs(sheet);
    let thread = (
        Some(2.0 * basics.switch_ns),
        Some(THREAD_FAULTS * basics.fault_ns + THREAD_CROSSINGS * basics.crossing_ns),
    );
    let row = Plan::time(
        "thread",
        "Kernel thread creation, exit and join",
        thread,
        "54525 cycles",
    );
    sheet.row(&row, |ns| match fork {
        Some(fork) => format!(
            "A thread takes {:.0} times less than a process; the paper saw 15",
            fork / ns
        ),
        None => "A stack, a clone, two switches".to_owned(),
    });
}

fn programs(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let fork = sheet.found.median("fork");
    let exec = Some(EXEC_FAULTS * basics.fault_ns + EXEC_CROSSINGS * basics.crossing_ns);
    let row = Plan::time(
        "fork_exec",
        "Process creation, fork and exec /bin/true",
        (fork, exec),
        "",
    );
    sheet.row(&row, |ns| match fork {
        Some(fork) => format!(
            "Becoming another program adds {} to the fork",
            Unit::Ns.told(ns - fork)
        ),
        None => "With another program".to_owned(),
    });
    let vfork = sheet.found.median("vfork");
    let fork_exec = sheet.found.median("fork_exec");
    let row = Plan::time(
        "spawn_exec",
        "Process creation, posix_spawn /bin/true",
        (vfork, exec),
        "",
    );
    sheet.row(&row, |ns| match fork_exec {
        Some(fork_exec) => format!(
            "Not copying our page tables saves {}",
            Unit::Ns.told(fork_exec - ns)
        ),
        None => "Our page tables are not copied".to_owned(),
    });
}

/// Pages that parent and child must copy or find again, about; the paper guesses in the same way.
const FORK_FAULTS: f64 = 40.0;
const FORK_CROSSINGS: f64 = 20.0;
const EXEC_FAULTS: f64 = 300.0;
const EXEC_CROSSINGS: f64 = 60.0;
const THREAD_FAULTS: f64 = 4.0;
const THREAD_CROSSINGS: f64 = 12.0;

fn switches(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let (getppid, thread) = (
        basics.crossing_ns,
        sheet.found.median("switch_thread_futex"),
    );
    for (id, operation, paper) in [
        (
            "switch_process_pipe",
            "Process context switch, by pipe",
            "387233 cycles, with a fork",
        ),
        (
            "switch_process_futex",
            "Process context switch, by futex",
            "",
        ),
        (
            "switch_thread_pipe",
            "Kernel thread context switch, by pipe",
            "6197 cycles, with a creation",
        ),
        (
            "switch_thread_futex",
            "Kernel thread context switch, by futex",
            "",
        ),
    ] {
        // Registers and queues are the kernel's work; a new address space costs its look-aside
        // buffers.
        let row = Plan::time(
            id,
            operation,
            (Some(400.0 * basics.cycle_ns), Some(10.0 * getppid)),
            paper,
        );
        sheet.row(&row, |ns| {
            match thread.filter(|_| id.starts_with("switch_process_futex")) {
                Some(thread) => format!(
                    "{}, {:.0} ns more than between threads of one address space",
                    cycles(ns, basics),
                    ns - thread
                ),
                None => format!(
                    "Waking, choosing and changing over take {}, {:.1} crossings",
                    cycles(ns, basics),
                    ns / getppid
                ),
            }
        });
    }
    for (id, operation) in [
        ("pipe_alone", "A byte through a pipe to oneself"),
        ("futex_alone", "A futex woken and not waited for"),
    ] {
        let row = Plan::time(
            id,
            operation,
            (Some(2.0 * getppid), Some(2.0 * getppid)),
            "",
        );
        sheet.row(&row, |ns| {
            format!("Two crossings and their work: {}", cycles(ns, basics))
        });
    }
}
