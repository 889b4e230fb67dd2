//! The memory's rows and curves.

use onrush_primitives::bandwidth::Way;

use super::{DISK_READ_NS, Plan, Scale, Sheet, cycles, rows};
use crate::primitives::memory::WAYS_OF_TWO;
use crate::primitives::staircase;
use crate::primitives::{Better, Unit, fault};
use crate::stats::to_f64;

/// Fills in the group.
pub(super) fn fill(sheet: &mut Sheet<'_>) {
    latency(sheet);
    pages(sheet);
    bandwidth(sheet);
    bandwidth_of_two(sheet);
    faults(sheet);
    faults_without(sheet);
    disk_faults(sheet);
    faults_over_stride(sheet);
    curves(sheet);
}

fn latency(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let cycle = basics.cycle_ns;
    // Cycles as the vendors state them for the years since 2015; memory in nanoseconds.
    for (id, operation, base, paper) in [
        (
            "latency_l1",
            "Load from the first cache",
            4.0 * cycle,
            "1.3 ns",
        ),
        (
            "latency_l2",
            "Load from the second cache",
            14.0 * cycle,
            "3 ns",
        ),
        (
            "latency_l3",
            "Load from the third cache",
            50.0 * cycle,
            "10.8 ns",
        ),
        (
            "latency_memory",
            "Load from memory, huge pages",
            STATED_MEMORY_NS,
            "48.5 ns",
        ),
    ] {
        let bytes = sheet.found.known(&format!("{id}_bytes")).unwrap_or(0.0);
        rows! { sheet;
            Plan::time(id, operation).base(base).paper(paper)
                => |ns| format!(
                    "Each load waits for the one before, in random order over {}: {}",
                    Unit::Bytes.told(bytes), cycles(ns, basics));
        }
    }
}

fn pages(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let huge = sheet.found.median("latency_memory");
    let l2 = sheet.found.median("latency_l2");
    let (walk, virtual_walk) = match crate::machine::is_virtual() {
        true => (
            4.0,
            "; under a hypervisor each step of the walk is a walk itself",
        ),
        false => (1.0, ""),
    };
    rows! { sheet;
        Plan::time("latency_memory_base", "Load from memory, 4 KB pages").base(huge).adds(l2)
            => |ns| match huge {
                Some(huge) => format!(
                    "{:.0} ns more than on huge pages, for finding the page", ns - huge),
                None => "Pages must be found, too".to_owned(),
            };
        Plan::time("tlb_miss", "Page that the look-aside buffers do not know")
            .base(l2.map(|l2| l2 * walk))
            => |ns| format!(
                "What 4 KB pages cost more than huge ones over the same memory, {}{virtual_walk}",
                cycles(ns, basics));
    }
}

fn bandwidth(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    // Two loads of 64 bytes a cycle is the most that any core does from its first cache.
    let most = BYTES_PER_CYCLE_MAX / basics.cycle_ns * 1e9;
    // A core has so many lines under way at once (Little's law).
    let latency = sheet.found.median("latency_memory");
    let lines = latency.map(|ns| LINES_UNDER_WAY * 64.0 / ns * 1e9);
    let over = sheet.found.known("bandwidth_bytes").unwrap_or(0.0);
    for way in Way::ALL {
        let id = format!("bandwidth_{}", way.name());
        let (operation, paper) = named(way);
        rows! { sheet;
            Plan::time(&id, operation)
                .base(lines.map(|lines| lines * expected_part(way))).paper(paper)
                .of(Unit::BytesPerSecond, Better::More).within(1e6, most)
                => |rate| format!(
                    "{:.1} bytes a cycle over {}: {:.0} lines under way at once, where \
                     {LINES_UNDER_WAY:.0} were guessed",
                    rate / 1e9 * basics.cycle_ns, Unit::Bytes.told(over),
                    latency.map_or(0.0, |ns| rate * ns / 1e9 / LINE_BYTES));
        }
    }
    let cores = sheet.found.known("cores").unwrap_or(1.0);
    for (way, paper) in [
        (Way::ReadSimd, "22.21 GB/s (from another source)"),
        (Way::WriteNonTemporal, "22.13 GB/s (from another source)"),
        (Way::CopyMemcpy, ""),
    ] {
        let id = format!("bandwidth_all_{}", way.name());
        let one = sheet.found.median(&format!("bandwidth_{}", way.name()));
        let operation = format!("{}, all processors at once", named(way).0);
        rows! { sheet;
            Plan::time(&id, &operation)
                .base(one.map(|one| one * cores)).paper(paper)
                .of(Unit::BytesPerSecond, Better::More).within(1e6, most * cores)
                => |rate| match one {
                    Some(one) => format!(
                        "{cores:.0} processors bring {:.2} times what one does", rate / one),
                    None => format!("{cores:.0} processors together"),
                };
        }
    }
}

/// The paper's ways with two processors. Its figures are of another source, which had OpenMP.
fn bandwidth_of_two(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let most = 2.0 * BYTES_PER_CYCLE_MAX / basics.cycle_ns * 1e9;
    let lines = LINES_UNDER_WAY * LINE_BYTES / STATED_MEMORY_NS * 1e9;
    for way in WAYS_OF_TWO {
        let id = format!("bandwidth_two_{}", way.name());
        let one = sheet.found.median(&format!("bandwidth_{}", way.name()));
        let operation = format!("{}, two processors at once", named(way).0);
        let paper = match way {
            Way::ReadScalar => "22.03 GiB/s (from another source)",
            Way::ReadSimd => "22.21 GiB/s (from another source)",
            Way::WriteNonTemporal => "22.13 GiB/s (from another source)",
            _ => "22.14 GiB/s (from another source)",
        };
        rows! { sheet;
            Plan::time(&id, &operation)
                .base(2.0 * lines).paper(paper)
                .of(Unit::BytesPerSecond, Better::More).within(1e6, most)
                => |rate| match one {
                    Some(one) => format!(
                        "Two processors bring {:.2} times what one does", rate / one),
                    None => "Two processors together".to_owned(),
                };
        }
    }
}

/// A load from memory, as it is said of the years since 2015.
const STATED_MEMORY_NS: f64 = 90.0;
const BYTES_PER_CYCLE_MAX: f64 = 128.0;
/// A guess: processors of the last ten years have from 10 to 48 line buffers, and prefetchers
/// behind them.
const LINES_UNDER_WAY: f64 = 32.0;
const LINE_BYTES: f64 = 64.0;

fn named(way: Way) -> (&'static str, &'static str) {
    match way {
        Way::ReadScalar => ("Read, a word at a time", "9.19 GB/s"),
        Way::ReadUnrolled => ("Read, eight words a turn", "9.15 GB/s"),
        Way::ReadSimd => ("Read, widest registers", "13.30 GB/s"),
        Way::ReadPrefetch => (
            "Read, widest registers, asking ahead",
            "15.06 GB/s (from another source)",
        ),
        Way::WriteScalar => ("Write, a word at a time", "7.67 GB/s"),
        Way::WriteUnrolled => ("Write, eight words a turn", ""),
        Way::WriteSimd => ("Write, widest registers", "8.01 GB/s"),
        Way::WriteNonTemporal => ("Write, past the caches", "12.65 GB/s (from another source)"),
        Way::WriteMemset => ("Write, memset", "13.58 GB/s"),
        Way::CopyMemcpy => ("Copy, memcpy", ""),
        Way::CopyRep => ("Copy, rep movsb", ""),
    }
}

/// Of what a core can fetch: an ordinary write fetches the line first and writes it back later, a
/// copy reads and writes.
fn expected_part(way: Way) -> f64 {
    match way {
        Way::WriteScalar | Way::WriteUnrolled | Way::WriteSimd | Way::CopyMemcpy | Way::CopyRep => {
            0.5
        }
        _ => 1.0,
    }
}

fn faults(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let crossing = basics.crossing_ns;
    let page = to_f64(onrush_lock::memory::page_bytes());
    // Fresh pages are emptied, and come from memory.
    let rate = sheet.found.median("bandwidth_write_memset");
    let zeroed = rate.map_or(page * basics.copy_ns, |rate| page / rate * 1e9);
    let minor = sheet.found.median("fault_minor");
    rows! { sheet;
        Plan::time("fault_minor", "Page fault, fresh memory").base(zeroed).adds(3.0 * crossing)
            => |ns| format!(
                "Entering the kernel, finding a page and emptying it take {}", cycles(ns, basics));
        Plan::time("fault_huge", "Page fault, fresh huge page")
            .base(512.0 * zeroed).adds(3.0 * crossing)
            => |ns| match minor {
                Some(minor) => format!(
                    "{:.0} ns for each 4 KB of it, {:.1} times less than page by page",
                    ns / 512.0, minor * 512.0 / ns),
                None => format!("{:.0} ns for each 4 KB of it", ns / 512.0),
            };
        Plan::time("fault_file", "Page fault, file in the cache").base(0.0).adds(6.0 * crossing)
            => |ns| format!("Up to sixteen pages are mapped at once, {:.0} ns each", ns / 16.0);
    }
}

/// What in a fault takes the time: the same without emptying the page, and without entering the
/// kernel for each.
fn faults_without(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let zeroed = to_f64(onrush_lock::memory::page_bytes()) * basics.copy_ns;
    let minor = sheet.found.median("fault_minor");
    let part = |ns: f64| minor.map(|minor| (1.0 - ns / minor) * 100.0);
    rows! { sheet;
        Plan::time("fault_unzeroed", "Page fault, page that was there (shared memory, reused)")
            .base(0.0).adds(basics.fault_ns - zeroed)
            => |ns| match part(ns) {
                Some(part) => format!(
                    "Without finding a page and emptying it: {part:.0} % less than a fresh one"),
                None => "Without finding a page and emptying it".to_owned(),
            };
        Plan::time("fault_populated", "Page made ready, without a fault (MADV_POPULATE_WRITE)")
            .base(zeroed).adds(basics.fault_ns - zeroed - basics.crossing_ns)
            => |ns| match part(ns) {
                Some(part) => format!(
                    "Many pages in one call: {part:.0} % less than with a fault for each"),
                None => "Many pages in one call".to_owned(),
            };
    }
}

/// The paper's faults at a distance, in order and at random places within it.
fn faults_over_stride(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let waits = DISK_READ_NS + 2.0 * basics.switch_ns;
    for (stride, paper) in fault::STRIDES_OF_ROWS.into_iter().zip([
        ["896886 cycles", "820011 cycles"],
        ["1072101 cycles", "1156227 cycles"],
    ]) {
        // By the kernel's default window, 128 KiB around a fault.
        let part = (to_f64(stride) / STATED_WINDOW_BYTES).min(1.0);
        let order = sheet.found.median(&fault::row_of(stride, false));
        for (is_random, paper) in [false, true].into_iter().zip(paper) {
            let id = fault::row_of(stride, is_random);
            let told = if is_random {
                "at random within it"
            } else {
                "in order"
            };
            let operation = format!(
                "Touch of a cold file each {}, {told}",
                Unit::Bytes.told(to_f64(stride))
            );
            rows! { sheet;
                Plan::long_time(&id, &operation)
                    .base(part * waits).adds(part * basics.fault_ns).paper(paper)
                    => |ns| match order.filter(|_| is_random) {
                        Some(order) => format!("{:.2} times what it takes in order", ns / order),
                        None => {
                            "Some wait for the disk, others find what came with them".to_owned()
                        }
                    };
            }
        }
    }
}

/// Read around a fault, unless somebody changed it (linux/mm.h, VM_READAHEAD_PAGES).
const STATED_WINDOW_BYTES: f64 = 131_072.0;

fn disk_faults(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let [minor, disk, window] =
        ["fault_minor", "fault_major", "read_ahead_window"].map(|id| sheet.found.median(id));
    let stated = sheet.found.known("read_ahead_stated");
    rows! { sheet;
        Plan::time("fault_major", "Page fault, one page from the disk")
            .base(DISK_READ_NS).adds(2.0 * basics.switch_ns + basics.fault_ns)
            .paper("1216083 cycles, 16 pages")
            => |ns| match minor {
                Some(minor) => format!(
                    "{:.0} times a fault of fresh memory: the disk, and two switches around it",
                    ns / minor),
                None => "The disk, and two switches around it".to_owned(),
            };
        Plan::time("fault_major_ahead", "Page fault from the disk, with read-ahead")
            .base(disk).adds(window.map(|bytes| bytes * basics.copy_ns)).paper("6.68 ns/byte")
            => |ns| match window {
                Some(bytes) => format!(
                    "It brings {}, {:.3} ns a byte", Unit::Bytes.told(bytes), ns / bytes),
                None => "It brings what is around, too".to_owned(),
            };
        Plan::time("read_ahead_window", "Read-ahead window of a page fault")
            .base(stated).paper("16 pages of 4 KB")
            .of(Unit::Bytes, Better::Neither).within(0.0, 1e12)
            => |bytes| match stated {
                Some(stated) => format!(
                    "The device states {}; counted in the file cache after one fault: {}",
                    Unit::Bytes.told(stated), Unit::Bytes.told(bytes)),
                None => "Counted in the file cache after one fault".to_owned(),
            };
    }
}

fn curves(sheet: &mut Sheet<'_>) {
    use Scale::{Doubles, Grows};
    let over = |what| (what, Unit::Bytes, Doubles);
    let time = |what| (what, Unit::Ns, Doubles);
    let bandwidth = ("bandwidth", Unit::BytesPerSecond, Doubles);
    let steps = (1..5).zip(staircase::cache_steps(sheet.found));
    let marks = steps.map(|(level, step)| {
        let name = format!("end of cache {level}, {:.2} ns a load", step.below_ns);
        (name, to_f64(step.edge_bytes))
    });
    let title = (staircase::CURVE, "Load latency over the memory it is from");
    sheet.curve(title, over("memory"), time("time of a load"), marks);
    let title = (staircase::STRIDES, "Load latency by distance and order");
    sheet.curve(title, over("memory"), time("time of a load"), None);
    let title = (
        "bandwidth_over_size",
        "Bandwidth over the memory it is from",
    );
    sheet.curve(title, over("memory"), bandwidth, None);
    let title = ("memcpy_over_size", "memcpy over size");
    sheet.curve(title, over("size"), time("time of a copy"), None);
    for (id, title) in fault::EACH {
        sheet.curve(
            (id, title),
            ("touch", Unit::One, Grows),
            time("time of a touch"),
            None,
        );
    }
    let window = sheet.found.median("read_ahead_window");
    let counted = "read-ahead window, counted in the file cache";
    let mark = window.map(|x| (counted.to_owned(), x));
    let title = (fault::CURVE, "Page faults over stride, file on the disk");
    sheet.curve(title, over("stride"), time("time of a touch"), mark);
    let waits = "touches that waited for the disk";
    let line = sheet.found.line("majors_over_stride", waits);
    // From here on every touch waits: the read-ahead window by time alone.
    let all = "every touch waits for the disk: at most half the window lies ahead of a page";
    let first = line.iter().find(|(_, part)| *part > 0.9);
    let mark = first.map(|(stride, _)| (all.to_owned(), to_f64(*stride)));
    let title = (
        "majors_over_stride",
        "Touches that wait for the disk, over stride",
    );
    sheet.curve(
        title,
        over("stride"),
        ("part of the touches", Unit::One, Grows),
        mark,
    );
}
