//! The file system's rows and curves.

use super::{Plan, Shape, Sheet};
use crate::primitives::{Better, Mark, Unit, cache, file};

/// Fills in the group.
pub(super) fn fill(sheet: &mut Sheet<'_>) {
    file_cache(sheet);
    reads(sheet, "", "");
    reads(sheet, "_mounted", ", mounted");
    contention(sheet);
    curves(sheet);
}

fn file_cache(sheet: &mut Sheet<'_>) {
    let limit = sheet.found.known("file_cache_limit");
    let row = Plan {
        unit: Unit::Bytes,
        better: Better::Neither,
        possible: (0.0, limit.unwrap_or(f64::MAX) * 1.1),
        ..Plan::long_time(
            "file_cache",
            "File cache, in a memory group",
            (limit, limit.map(|limit| -limit / 50.0)),
            "4 GB of 8 GB",
        )
    };
    sheet.row(&row, |bytes| match limit {
        Some(limit) => format!(
            "A file of up to {:.0} % of the group's {} is read from memory the second time",
            bytes / limit * 100.0,
            Unit::Bytes.told(limit)
        ),
        None => "A larger file is read from the disk again".to_owned(),
    });
}

fn reads(sheet: &mut Sheet<'_>, suffix: &str, told: &str) {
    let basics = sheet.basics;
    let software = 2.0 * basics.switch_ns + 10.0 * basics.crossing_ns;
    let copied = 4096.0 * basics.copy_ns;
    let size = sheet
        .found
        .known(&format!("file_bytes{suffix}"))
        .unwrap_or(0.0);
    let size = Unit::Bytes.told(size);
    let sequential = sheet.found.median(&format!("file_read_sequential{suffix}"));
    for (order, paper) in [("sequential", "0.0439 ms"), ("random", "0.126 ms")] {
        let paper = if suffix.is_empty() { paper } else { "" };
        let id = format!("file_read_{order}{suffix}");
        let operation = format!("File read, 4 KB, {order}, past the cache{told}");
        let row = Plan::long_time(&id, &operation, (Some(DISK_READ_NS), Some(software)), paper);
        sheet.row(&row, |ns| match sequential.filter(|_| order == "random") {
            Some(sequential) => format!(
                "{:.2} times the time of reading in order, from {size}",
                ns / sequential
            ),
            None => format!(
                "{:.0} MB/s, a block at a time, from {size}",
                4096.0 / ns * 1e3
            ),
        });
        let direct = sheet.found.median(&id);
        let cold = format!("file_read_cold_{order}{suffix}");
        let operation = format!("File read, 4 KB, {order}, cache dropped{told}");
        let base = if order == "random" {
            direct
        } else {
            direct.map(|ns| ns / 8.0)
        };
        let row = Plan::long_time(
            &cold,
            &operation,
            (base, Some(copied + basics.crossing_ns)),
            paper,
        );
        sheet.row(&row, |ns| match direct {
            Some(direct) => format!(
                "{:.2} times the time past the cache: what is read ahead is not waited for",
                ns / direct
            ),
            None => "Through the cache".to_owned(),
        });
        let warm = format!("file_read_warm_{order}{suffix}");
        let operation = format!("File read, 4 KB, {order}, from the cache{told}");
        let row = Plan::long_time(
            &warm,
            &operation,
            (Some(copied), Some(3.0 * basics.crossing_ns)),
            "",
        );
        sheet.row(&row, |ns| {
            format!("A crossing and a copy: {:.2} ns a byte", ns / 4096.0)
        });
    }
}

/// What a solid state disk takes for 4 KB, as its makers state it.
const DISK_READ_NS: f64 = 80_000.0;

fn contention(sheet: &mut Sheet<'_>) {
    for (pattern, _, _) in file::PATTERNS {
        let id = format!("contention_{pattern}");
        let operation = format!(
            "Contention, {}, each process more adds",
            pattern.replace('_', ", ")
        );
        // A disk that serves one after the other: each process more adds the time of one.
        let row = Plan {
            unit: Unit::One,
            possible: (-1.0, 1e3),
            ..Plan::long_time(
                &id,
                &operation,
                (Some(1.0), None),
                "0.2 of one's time; it expected 1",
            )
        };
        let line = sheet.found.line(file::CONTENTION_CURVE, pattern);
        let ends = line
            .first()
            .zip(line.last())
            .map(|(first, last)| (first.1, *last));
        sheet.row(&row, |_| match ends {
            Some((alone, (most, among))) => format!(
                "A block takes {} alone and {} among {most} processes",
                Unit::Ns.told(alone),
                Unit::Ns.told(among)
            ),
            None => "As a part of what one alone takes".to_owned(),
        });
    }
}

fn curves(sheet: &mut Sheet<'_>) {
    let knee = cache::knee(&sheet.found.line(cache::CURVE, "second read"));
    let limit = sheet.found.known("file_cache_limit");
    let mut marks: Vec<Mark> = knee
        .map(|x| Mark {
            name: "knee".to_owned(),
            x,
        })
        .into_iter()
        .collect();
    marks.extend(limit.map(|x| Mark {
        name: "the group's limit".to_owned(),
        x,
    }));
    let shape = Shape {
        title: "Second read of a file, over its size",
        x: ("file", Unit::Bytes, false),
        y: ("bandwidth", Unit::BytesPerSecond, false),
    };
    sheet.curve(cache::CURVE, &shape, marks);
    for (id, title) in [
        (
            file::READ_CURVE,
            "Time of a 4 KB read, over the file's size",
        ),
        (
            file::MOUNTED_CURVE,
            "Time of a 4 KB read, over the file's size, mounted",
        ),
    ] {
        let shape = Shape {
            title,
            x: ("file", Unit::Bytes, true),
            y: ("time of a read", Unit::Ns, true),
        };
        sheet.curve(id, &shape, Vec::new());
    }
    let shape = Shape {
        title: "Time of a 4 KB read, over processes that read at once",
        x: ("processes", Unit::One, false),
        y: ("time of a read", Unit::Ns, false),
    };
    sheet.curve(file::CONTENTION_CURVE, &shape, Vec::new());
}
