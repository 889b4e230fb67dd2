//! The processor's rows.

use super::{Basics, Plan, Scale, Sheet, cycles, rows};
use crate::primitives::cpu::{FORKS, SWEEP};
use crate::primitives::{Better, Unit};
use crate::stats::{Summary, to_f64};

/// Fills in the group.
pub(super) fn fill(sheet: &mut Sheet<'_>) {
    code(sheet);
    loops(sheet);
    procedure_calls(sheet);
    calls(sheet);
    creation(sheet);
    ends(sheet);
    switches(sheet);
    curves(sheet);
}

fn code(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let cycle = basics.cycle_ns;
    let told = |ns| cycles(ns, basics);
    rows! { sheet;
        Plan::time("clock_read", "Reading the clock, twice in step")
            .base(40.0 * cycle).adds(0.0).paper("33.7 cycles")
            => |ns| format!(
                "Two readings with their fences take {}, where the vendors' tables say about 20 \
                 each", told(ns));
        Plan::time("clock_read_system", "Reading CLOCK_MONOTONIC_RAW")
            .base(20.0 * cycle).adds(40.0 * cycle)
            => |ns| format!("The kernel's code in our address space takes {}", told(ns));
        Plan::time("processor_clock", "Processor's clock, by dependent additions")
            .of(Unit::Hertz, Better::More).within(1e7, 1e11).paper("2.7 GHz (stated)")
            => |hertz| format!(
                "An addition that waits for the last one takes a cycle, {:.3} ns", 1e9 / hertz);
        Plan::time("loop", "Loop, in registers").base(cycle).adds(0.0)
            => |ns| format!("A subtraction and a jump back take {}", told(ns));
        Plan::time("loop_in_memory", "Loop, its counter in memory")
            .base(6.0 * cycle).adds(0.0).paper("7.05 cycles/loop")
            => |ns| match ns < 2.0 * cycle {
                true => format!(
                    "{} a turn: this processor keeps the counter in a register behind the \
                     program's back", told(ns)),
                false => format!("Each turn waits for what the last one stored: {}", told(ns)),
            };
    }
}

/// What a loop's own work adds to what is done in it, and how many turns hide what the clock takes.
fn loops(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let cycle = basics.cycle_ns;
    let told = |ns| cycles(ns, basics);
    let found = sheet.found;
    for (what, noun, many, base) in [
        ("load", "Load", "ten", LOAD_CYCLES),
        ("add", "Addition", "sixteen", 1.0),
    ] {
        let (plain, unrolled) = (format!("{what}_plain"), format!("{what}_unrolled"));
        let alone = found.median(&plain);
        // A turn's subtraction and jump wait for nothing that the load or the addition does.
        rows! { sheet;
            Plan::time(&plain, &format!("{noun}, one in a turn of a loop"))
                .base(base * cycle).adds(0.0)
                => |ns| format!("With the loop's own work it takes {}", told(ns));
            Plan::time(&unrolled, &format!("{noun}, {many} in a turn of a loop"))
                .base(base * cycle).adds(0.0)
                => |ns| match alone {
                    Some(alone) => format!(
                        "{} each, {:.2} times less than one in a turn: each waits for the one \
                         before, and the loop's work is done beside them", told(ns), alone / ns),
                    None => format!("{} each", told(ns)),
                };
        }
    }
    for (id, told, turn_cycles) in [
        ("loop_flat_from", "in registers", 1.0),
        ("loop_in_memory_flat_from", "counter in memory", 6.0),
    ] {
        // The clock's forty cycles, spread over so many turns that they are a tenth of each.
        let operation = format!("Loop, {told}: turns from which a turn costs the same");
        rows! { sheet;
            Plan::time(id, &operation)
                .base(CLOCK_CYCLES / (0.1 * turn_cycles)).of(Unit::One, Better::Neither)
                .within(1.0, 8192.0).paper("128")
                => |turns| format!(
                    "From {turns:.0} turns on each costs what it costs in 8192, within a tenth; \
                     with fewer it is the clock that is measured");
        }
    }
}

/// A load from the first cache, as vendors state it.
const LOAD_CYCLES: f64 = 4.0;
/// Two readings of the clock, likewise.
const CLOCK_CYCLES: f64 = 40.0;

fn curves(sheet: &mut Sheet<'_>) {
    use Scale::{Doubles, Grows};
    let from = |id| sheet.found.median(id);
    let marks = [
        ("loop_flat_from", "in registers"),
        ("loop_in_memory_flat_from", "counter in memory"),
    ];
    let marks = marks.map(|(id, name)| Some((format!("flat from here, {name}"), from(id)?)));
    sheet.curve(
        (SWEEP, "What a turn of a loop costs, with the clock's cost"),
        ("turns", Unit::One, Doubles),
        ("time of a turn", Unit::Ns, Doubles),
        marks.into_iter().flatten(),
    );
    sheet.curve(
        (FORKS, "Process creation over memory that was touched"),
        ("memory", Unit::Bytes, Grows),
        ("fork, exit and wait", Unit::Ns, Grows),
        None,
    );
}

/// What in the making and the end of a process takes the time: pages, and who waits.
fn ends(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let (crossing, switch) = (basics.crossing_ns, basics.switch_ns);
    let found = sheet.found;
    let [fork, unwaited] = ["fork", "exit_unwaited"].map(|id| found.median(id));
    // A page is counted, its entry copied, and both undone: three steps that no other processor
    // may see half done.
    let page = 3.0 * LOCKED_CYCLES * basics.cycle_ns;
    rows! { sheet;
        Plan::time("fork_page", "Process creation, each page of 4 KB that was touched")
            .base(page).adds(0.0).within(-1e6, 1e6)
            => |ns| match fork {
                Some(fork) => format!(
                    "{} to copy its entry and give it back: {:.0} pages are as much as the whole \
                     fork above", cycles(ns, basics), fork / ns.max(0.01)),
                None => format!("{} to copy its entry and give it back", cycles(ns, basics)),
            };
        Plan::time("fork_huge_page", "Process creation, each huge page that was touched")
            .base(page).adds(0.0).within(-1e7, 1e7)
            => |ns| format!("One entry for 2 MB: {}", cycles(ns, basics));
        Plan::time("exit_waited", "Process end, its parent waits")
            .base(2.0 * switch).adds(EXIT_CROSSINGS * crossing + WAKE_CROSSINGS * crossing)
            => |ns| match (unwaited, fork) {
                (Some(unwaited), Some(fork)) => format!(
                    "{:.0} % of fork, exit and wait; waking who waits is {} of it",
                    ns / fork * 100.0, Unit::Ns.told(ns - unwaited)),
                _ => "An address space is taken apart, and the parent woken".to_owned(),
            };
        Plan::time("exit_unwaited", "Process end, nobody waits")
            .base(2.0 * switch).adds(EXIT_CROSSINGS * crossing)
            => |ns| format!(
                "The parent gives the processor away meanwhile, and is not woken: {:.0} crossings' \
                 time", ns / crossing);
    }
}

/// An atomic addition, as vendors' tables have it.
const LOCKED_CYCLES: f64 = 20.0;
/// Guesses: an address space of some dozen mappings is unmapped, files are closed.
const EXIT_CROSSINGS: f64 = 60.0;
const WAKE_CROSSINGS: f64 = 10.0;

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
        let moved = to_f64(arguments) * basics.cycle_ns / 4.0;
        let paper = match arguments {
            0 => "0.2 cycles above the clock's cost",
            7 => "5.2 cycles above the clock's cost",
            _ => "1 cycle with one more argument",
        };
        rows! { sheet;
            Plan::time(&id, &operation).base(2.0 * basics.cycle_ns + moved).adds(turn).paper(paper)
                => |ns| match none.filter(|_| arguments > 0) {
                    Some(none) => argument_told((ns - none) / to_f64(arguments), none, basics),
                    None => format!("Call and return take {}", cycles(ns, basics)),
                };
        }
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
    let cycle = basics.cycle_ns;
    let told = |ns| cycles(ns, basics);
    let getppid = sheet.found.median("getppid");
    rows! { sheet;
        Plan::time("getpid_cached", "System call, answered from memory")
            .base(4.0 * cycle).adds(2.0 * cycle).paper("38.2 cycles with the clock")
            => |ns| match getppid {
                Some(real) => format!(
                    "A call and a load take {}, {:.0} times less than asking the kernel",
                    told(ns), real / ns),
                None => format!("A call and a load take {}", told(ns)),
            };
    }
    for (id, operation, paper) in [
        ("getpid", "System call, getpid", ""),
        (
            "getppid",
            "System call, getppid",
            "395.8 cycles with the clock",
        ),
    ] {
        rows! { sheet;
            Plan::time(id, operation).base(100.0 * cycle).adds(100.0 * cycle).paper(paper)
                => |ns| format!(
                    "Into the kernel and back takes {}; its guards against speculation are part \
                     of that", told(ns));
        }
    }
    windows(sheet);
    let crossing = sheet.found.median("time_crossing");
    let vdso = sheet.found.median("time_vdso");
    rows! { sheet;
        Plan::time("time_vdso", "The time, by vDSO").base(20.0 * cycle).adds(40.0 * cycle)
            => |ns| match crossing {
                Some(real) => format!(
                    "Kernel code without a crossing takes {}, {:.1} times less than with one",
                    told(ns), real / ns),
                None => format!("Kernel code without a crossing takes {}", told(ns)),
            };
        Plan::time("time_crossing", "The time, by system call").base(vdso).adds(basics.crossing_ns)
            => |ns| format!("Reading the clock and a crossing take {}", told(ns));
    }
}

fn windows(sheet: &mut Sheet<'_>) {
    let spread = sheet.found.measured("getppid_cycles");
    let spread = spread.and_then(|measured| Summary::of(measured.medians()));
    let spread = spread.map_or(0.0, |summary| summary.spread() * 100.0);
    rows! { sheet;
        Plan::time("getppid_cycles", "System call, getppid, in cycles of that moment")
            .base(200.0).of(Unit::One, Better::Less)
            => |_| "Calls between additions, in windows of microseconds: what the clock does \
                    falls on both";
        Plan::time("getppid_repeats", "The same twice, window about, ratio")
            .base(1.0).of(Unit::One, Better::Neither).within(0.5, 2.0)
            => |ratio| format!(
                "Two series of one call differ by {:.2} %; the rounds, seconds apart, by \
                 {spread:.1} %: that is the machine", (ratio - 1.0).abs() * 100.0);
    }
}

/// What creation takes is guessed, as the paper also does: so many switches, faults and crossings.
/// The sentence says what they were.
fn creation(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let (fault, switch) = (basics.fault_ns, basics.switch_ns);
    let of = |faults, crossings| faults * fault + crossings * basics.crossing_ns;
    let [fork, vfork, fork_exec] = ["fork", "vfork", "fork_exec"].map(|id| sheet.found.median(id));
    let exec = of(EXEC_FAULTS, EXEC_CROSSINGS);
    rows! { sheet;
        Plan::time("fork", "Process creation, fork, exit and wait")
            .base(2.0 * switch).adds(of(FORK_FAULTS, FORK_CROSSINGS)).paper("832389 cycles")
            => |ns| format!(
                "As long as {:.0} page faults or {:.0} switches: page tables are copied, then \
                 pages as they are written", ns / fault, ns / switch);
        Plan::time("vfork", "Process creation, vfork, exit and wait")
            .base(2.0 * switch).adds(of(0.0, FORK_CROSSINGS))
            => |ns| match fork {
                Some(fork) => format!(
                    "Without an address space of its own a child takes {:.0} % less than by fork",
                    (1.0 - ns / fork) * 100.0),
                None => "Without an address space of its own".to_owned(),
            };
        Plan::time("fork_exec", "Process creation, fork and exec /bin/true").base(fork).adds(exec)
            => |ns| match fork {
                Some(fork) => format!(
                    "Becoming another program adds {} to the fork", Unit::Ns.told(ns - fork)),
                None => "With another program".to_owned(),
            };
        Plan::time("spawn_exec", "Process creation, posix_spawn /bin/true").base(vfork).adds(exec)
            => |ns| match fork_exec {
                Some(fork_exec) => format!(
                    "Not copying our page tables saves {}", Unit::Ns.told(fork_exec - ns)),
                None => "Our page tables are not copied".to_owned(),
            };
        Plan::time("thread", "Kernel thread creation, exit and join")
            .base(2.0 * switch).adds(of(THREAD_FAULTS, THREAD_CROSSINGS)).paper("54525 cycles")
            => |ns| match fork {
                Some(fork) => format!(
                    "A thread takes {:.0} times less than a process; the paper saw 15", fork / ns),
                None => "A stack, a clone, two switches".to_owned(),
            };
    }
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
    let told = |ns| cycles(ns, basics);
    let crossing = basics.crossing_ns;
    let thread = sheet.found.median("switch_thread_futex");
    let (process_paper, thread_paper) =
        ("387233 cycles, with a fork", "6197 cycles, with a creation");
    for (id, operation, paper) in [
        (
            "switch_process_pipe",
            "Process context switch, by pipe",
            process_paper,
        ),
        (
            "switch_process_futex",
            "Process context switch, by futex",
            "",
        ),
        (
            "switch_thread_pipe",
            "Kernel thread context switch, by pipe",
            thread_paper,
        ),
        (
            "switch_thread_futex",
            "Kernel thread context switch, by futex",
            "",
        ),
    ] {
        // Registers and queues are the kernel's work; a new address space costs its look-aside
        // buffers.
        rows! { sheet;
            Plan::time(id, operation)
                .base(400.0 * basics.cycle_ns).adds(10.0 * crossing).paper(paper)
                => |ns| match thread.filter(|_| id == "switch_process_futex") {
                    Some(thread) => format!(
                        "{}, {:.0} ns more than between threads of one address space",
                        told(ns), ns - thread),
                    None => format!(
                        "Waking, choosing and changing over take {}, {:.1} crossings",
                        told(ns), ns / crossing),
                };
        }
    }
    for (id, operation) in [
        ("pipe_alone", "A byte through a pipe to oneself"),
        ("futex_alone", "A futex woken and not waited for"),
    ] {
        rows! { sheet;
            Plan::time(id, operation).base(2.0 * crossing).adds(2.0 * crossing)
                => |ns| format!("Two crossings and their work: {}", told(ns));
        }
    }
}
