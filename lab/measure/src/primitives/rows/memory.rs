//! The memory's rows and curves.

use onrush_primitives::bandwidth::Way;

use super::{Plan, Shape, Sheet, cycles};
use crate::primitives::staircase;
use crate::primitives::{Better, Mark, Unit, fault};

/// Fills in the group.
pub(super) fn fill(sheet: &mut Sheet<'_>) {
    latency(sheet);
    bandwidth(sheet);
    faults(sheet);
    curves(sheet);
}

fn latency(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    // Cycles as the vendors state them for the years since 2015; memory in nanoseconds.
    for (id, operation, base, paper) in [
        (
            "latency_l1",
            "Load from the first cache",
            4.0 * basics.cycle_ns,
            "1.3 ns",
        ),
        (
            "latency_l2",
            "Load from the second cache",
            14.0 * basics.cycle_ns,
            "3 ns",
        ),
        (
            "latency_l3",
            "Load from the third cache",
            50.0 * basics.cycle_ns,
            "10.8 ns",
        ),
        (
            "latency_memory",
            "Load from memory, huge pages",
            90.0,
            "48.5 ns",
        ),
    ] {
        let row = Plan::time(id, operation, (Some(base), None), paper);
        let bytes = sheet.found.known(&format!("{id}_bytes")).unwrap_or(0.0);
        sheet.row(&row, |ns| {
            format!(
                "Each load waits for the one before, in random order over {}: {}",
                Unit::Bytes.told(bytes),
                cycles(ns, basics)
            )
        });
    }
    pages(sheet);
}

fn pages(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let huge = sheet.found.median("latency_memory");
    let l2 = sheet.found.median("latency_l2");
    let row = Plan::time(
        "latency_memory_base",
        "Load from memory, 4 KB pages",
        (huge, l2),
        "",
    );
    sheet.row(&row, |ns| match huge {
        Some(huge) => format!(
            "{:.0} ns more than on huge pages, for finding the page",
            ns - huge
        ),
        None => "Pages must be found, too".to_owned(),
    });
    let walk = if crate::machine::is_virtual() {
        4.0
    } else {
        1.0
    };
    let row = Plan::time(
        "tlb_miss",
        "Page that the look-aside buffers do not know",
        (l2.map(|l2| l2 * walk), None),
        "",
    );
    let virtual_walk = if walk > 1.0 {
        "; under a hypervisor each step of the walk is a walk itself"
    } else {
        ""
    };
    sheet.row(&row, |ns| {
        format!(
            "What 4 KB pages cost more than huge ones over the same memory, {}{virtual_walk}",
            cycles(ns, basics)
        )
    });
}

fn bandwidth(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    // Two loads of 64 bytes a cycle is the most that any core does from its first cache.
    let most = BYTES_PER_CYCLE_MAX / basics.cycle_ns * 1e9;
    // A core has so many lines under way at once (Little's law).
    let lines = sheet
        .found
        .median("latency_memory")
        .map(|ns| LINES_UNDER_WAY * 64.0 / ns * 1e9);
    let over = sheet.found.known("bandwidth_bytes").unwrap_or(0.0);
    let latency = sheet.found.median("latency_memory");
    for way in Way::ALL {
        let id = format!("bandwidth_{}", way.name());
        let (operation, paper) = named(way);
        let part = lines.map(|lines| lines * expected_part(way));
        let row = of_bytes(&id, operation, (part, None), most, paper);
        sheet.row(&row, |rate| {
            let under_way = latency.map_or(0.0, |ns| rate * ns / 1e9 / LINE_BYTES);
            format!(
                "{:.1} bytes a cycle over {}: {under_way:.0} lines under way at once, where \
                 {LINES_UNDER_WAY:.0} were guessed",
                rate / 1e9 * basics.cycle_ns,
                Unit::Bytes.told(over)
            )
        });
    }
    let cores = sheet.found.known("cores").unwrap_or(1.0);
    for way in [Way::ReadSimd, Way::WriteNonTemporal, Way::CopyMemcpy] {
        let id = format!("bandwidth_all_{}", way.name());
        let one = sheet.found.median(&format!("bandwidth_{}", way.name()));
        let operation = format!("{}, all processors at once", named(way).0);
        let paper = match way {
            Way::ReadSimd => "22.21 GB/s (from another source)",
            Way::WriteNonTemporal => "22.13 GB/s (from another source)",
            _ => "",
        };
        let row = of_bytes(
            &id,
            &operation,
            (one.map(|one| one * cores), None),
            most * cores,
            paper,
        );
        sheet.row(&row, |rate| match one {
            Some(one) => format!(
                "{cores:.0} processors bring {:.2} times what one does",
                rate / one
            ),
            None => format!("{cores:.0} processors together"),
        });
    }
}

const BYTES_PER_CYCLE_MAX: f64 = 128.0;
/// A guess: processors of the last ten years have from 10 to 48 line buffers, and prefetchers
/// behind them.
const LINES_UNDER_WAY: f64 = 32.0;
const LINE_BYTES: f64 = 64.0;

fn of_bytes<'p>(
    id: &'p str,
    operation: &'p str,
    estimate: (Option<f64>, Option<f64>),
    most: f64,
    paper: &'p str,
) -> Plan<'p> {
    Plan {
        unit: Unit::BytesPerSecond,
        better: Better::More,
        possible: (1e6, most),
        ..Plan::time(id, operation, estimate, paper)
    }
}

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
    let page = onrush_lock::memory::page_bytes();
    #[allow(clippy::cast_precision_loss, reason = "a page is small")]
    let page = page as f64;
    // Fresh pages are emptied, and come from memory.
    let rate = sheet.found.median("bandwidth_write_memset");
    let zeroed = rate.map_or(page * basics.copy_ns, |rate| page / rate * 1e9);
    let row = Plan::time(
        "fault_minor",
        "Page fault, fresh memory",
        (Some(zeroed), Some(3.0 * basics.crossing_ns)),
        "",
    );
    sheet.row(&row, |ns| {
        format!(
            "Entering the kernel, finding a page and emptying it take {}",
            cycles(ns, basics)
        )
    });
    let minor = sheet.found.median("fault_minor");
    let row = Plan::time(
        "fault_huge",
        "Page fault, fresh huge page",
        (Some(512.0 * zeroed), Some(3.0 * basics.crossing_ns)),
        "",
    );
    sheet.row(&row, |ns| match minor {
        Some(minor) => format!(
            "{:.0} ns for each 4 KB of it, {:.1} times less than page by page",
            ns / 512.0,
            minor * 512.0 / ns
        ),
        None => format!("{:.0} ns for each 4 KB of it", ns / 512.0),
    });
    let row = Plan::time(
        "fault_file",
        "Page fault, file in the cache",
        (Some(0.0), Some(6.0 * basics.crossing_ns)),
        "",
    );
    sheet.row(&row, |ns| {
        format!(
            "Up to sixteen pages are mapped at once, {:.0} ns each",
            ns / 16.0
        )
    });
    disk_faults(sheet);
}

fn disk_faults(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let minor = sheet.found.median("fault_minor");
    let disk = sheet.found.median("fault_major");
    let row = Plan::time(
        "fault_major",
        "Page fault, one page from the disk",
        (
            Some(DISK_READ_NS),
            Some(2.0 * basics.switch_ns + basics.fault_ns),
        ),
        "1216083 cycles, 16 pages",
    );
    sheet.row(&row, |ns| match minor {
        Some(minor) => format!(
            "{:.0} times a fault of fresh memory: the disk, and two switches around it",
            ns / minor
        ),
        None => "The disk, and two switches around it".to_owned(),
    });
    let window = sheet.found.median("read_ahead_window");
    let ahead = window.map(|bytes| bytes * basics.copy_ns);
    let row = Plan::time(
        "fault_major_ahead",
        "Page fault from the disk, with read-ahead",
        (disk, ahead),
        "6.68 ns/byte",
    );
    sheet.row(&row, |ns| match window {
        Some(bytes) => format!(
            "It brings {}, {:.3} ns a byte",
            Unit::Bytes.told(bytes),
            ns / bytes
        ),
        None => "It brings what is around, too".to_owned(),
    });
    let stated = sheet.found.known("read_ahead_stated");
    let row = Plan {
        unit: Unit::Bytes,
        better: Better::Neither,
        possible: (0.0, 1e12),
        ..Plan::time(
            "read_ahead_window",
            "Read-ahead window of a page fault",
            (stated, None),
            "16 pages of 4 KB",
        )
    };
    sheet.row(&row, |bytes| match stated {
        Some(stated) => format!(
            "The device states {}; counted in the file cache after one fault: {}",
            Unit::Bytes.told(stated),
            Unit::Bytes.told(bytes)
        ),
        None => "Counted in the file cache after one fault".to_owned(),
    });
}

/// What a solid state disk takes for 4 KB, as its makers state it.
const DISK_READ_NS: f64 = 80_000.0;

fn curves(sheet: &mut Sheet<'_>) {
    #[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    let mut marks: Vec<Mark> = staircase::cache_steps(sheet.found)
        .iter()
        .enumerate()
        .map(|(index, step)| Mark {
            name: format!("end of cache {}, {:.2} ns a load", index + 1, step.below_ns),
            x: step.edge_bytes as f64,
        })
        .collect();
    marks.truncate(4);
    let shape = Shape {
        title: "Load latency over the memory it is from",
        x: ("memory", Unit::Bytes, true),
        y: ("time of a load", Unit::Ns, true),
    };
    sheet.curve(staircase::CURVE, &shape, marks);
    let shape = Shape {
        title: "Load latency by distance and order",
        ..shape
    };
    sheet.curve(staircase::STRIDES, &shape, Vec::new());
    let shape = Shape {
        title: "Bandwidth over the memory it is from",
        x: ("memory", Unit::Bytes, true),
        y: ("bandwidth", Unit::BytesPerSecond, true),
    };
    sheet.curve("bandwidth_over_size", &shape, Vec::new());
    let shape = Shape {
        title: "memcpy over size",
        x: ("size", Unit::Bytes, true),
        y: ("time of a copy", Unit::Ns, true),
    };
    sheet.curve("memcpy_over_size", &shape, Vec::new());
    let window = sheet.found.median("read_ahead_window");
    let marks = window.map(|x| Mark {
        name: "read-ahead window, counted in the file cache".to_owned(),
        x,
    });
    let shape = Shape {
        title: "Page faults over stride, file on the disk",
        x: ("stride", Unit::Bytes, true),
        y: ("time of a touch", Unit::Ns, true),
    };
    sheet.curve(fault::CURVE, &shape, marks.into_iter().collect());
    let shape = Shape {
        title: "Touches that wait for the disk, over stride",
        x: ("stride", Unit::Bytes, true),
        y: ("part of the touches", Unit::One, false),
    };
    let line = sheet
        .found
        .line("majors_over_stride", "touches that waited for the disk");
    // From here on every touch waits: the read-ahead window by time alone.
    #[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    let marks = line
        .iter()
        .find(|(_, part)| *part > 0.9)
        .map(|(stride, _)| Mark {
            name: "every touch waits for the disk: at most half the window lies ahead of a page"
                .to_owned(),
            x: *stride as f64,
        });
    sheet.curve("majors_over_stride", &shape, marks.into_iter().collect());
}
