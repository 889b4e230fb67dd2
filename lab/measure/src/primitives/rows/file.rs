//! The file system's rows and curves.

use super::{DISK_READ_NS, Plan, Scale, Sheet, rows};
use crate::primitives::{Better, Unit, cache, file};

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
    rows! { sheet;
        Plan::long_time("file_cache", "File cache, in a memory group")
            .base(limit).adds(limit.map(|limit| -limit / 50.0)).paper("4 GB of 8 GB")
            .of(Unit::Bytes, Better::Neither).within(0.0, limit.unwrap_or(f64::MAX) * 1.1)
            => |bytes| match limit {
                Some(limit) => format!(
                    "A file of up to {:.0} % of the group's {} is read from memory the second \
                     time", bytes / limit * 100.0, Unit::Bytes.told(limit)),
                None => "A larger file is read from the disk again".to_owned(),
            };
    }
}

fn reads(sheet: &mut Sheet<'_>, suffix: &str, told: &str) {
    let basics = sheet.basics;
    let (crossing, copied) = (basics.crossing_ns, 4096.0 * basics.copy_ns);
    let software = 2.0 * basics.switch_ns + 10.0 * crossing;
    let size = sheet.found.known(&format!("file_bytes{suffix}"));
    let size = Unit::Bytes.told(size.unwrap_or(0.0));
    let sequential = sheet.found.median(&format!("file_read_sequential{suffix}"));
    for (order, paper) in [("sequential", "0.0439 ms"), ("random", "0.126 ms")] {
        let is_random = order == "random";
        let paper = if suffix.is_empty() { paper } else { "" };
        let [direct_id, cold_id, warm_id] =
            ["", "_cold", "_warm"].map(|way| format!("file_read{way}_{order}{suffix}"));
        let [direct_name, cold_name, warm_name] =
            ["past the cache", "cache dropped", "from the cache"]
                .map(|way| format!("File read, 4 KB, {order}, {way}{told}"));
        let direct = sheet.found.median(&direct_id);
        let base = direct.map(|ns| if is_random { ns } else { ns / 8.0 });
        rows! { sheet;
            Plan::long_time(&direct_id, &direct_name)
                .base(DISK_READ_NS).adds(software).paper(paper)
                => |ns| match sequential.filter(|_| is_random) {
                    Some(sequential) => format!(
                        "{:.2} times the time of reading in order, from {size}", ns / sequential),
                    None => format!(
                        "{:.0} MB/s, a block at a time, from {size}", 4096.0 / ns * 1e3),
                };
            Plan::long_time(&cold_id, &cold_name).base(base).adds(copied + crossing).paper(paper)
                => |ns| match direct {
                    Some(direct) => format!(
                        "{:.2} times the time past the cache: what is read ahead is not waited \
                         for", ns / direct),
                    None => "Through the cache".to_owned(),
                };
            Plan::long_time(&warm_id, &warm_name).base(copied).adds(3.0 * crossing)
                => |ns| format!("A crossing and a copy: {:.2} ns a byte", ns / 4096.0);
        }
    }
}

fn contention(sheet: &mut Sheet<'_>) {
    for (pattern, _, _) in file::PATTERNS {
        let id = format!("contention_{pattern}");
        let patterns = pattern.replace('_', ", ");
        let operation = format!("Contention, {patterns}, each process more adds");
        let line = sheet.found.line(file::CONTENTION_CURVE, pattern);
        let ends = line.first().zip(line.last());
        // A disk that serves one after the other: each process more adds the time of one.
        rows! { sheet;
            Plan::long_time(&id, &operation)
                .base(1.0).paper("0.2 of one's time; it expected 1")
                .of(Unit::One, Better::Less).within(-1.0, 1e3)
                => |_| match ends {
                    Some(((_, alone), (most, among))) => format!(
                        "A block takes {} alone and {} among {most} processes",
                        Unit::Ns.told(*alone), Unit::Ns.told(*among)),
                    None => "As a part of what one alone takes".to_owned(),
                };
        }
    }
}

fn curves(sheet: &mut Sheet<'_>) {
    use Scale::{Doubles, Grows};
    let knee = cache::knee(&sheet.found.line(cache::CURVE, "second read"));
    let limit = sheet.found.known("file_cache_limit");
    let marks = [("knee", knee), ("the group's limit", limit)];
    let marks = marks
        .into_iter()
        .filter_map(|(name, x)| Some((name.to_owned(), x?)));
    let title = (cache::CURVE, "Second read of a file, over its size");
    let bandwidth = ("bandwidth", Unit::BytesPerSecond, Grows);
    sheet.curve(title, ("file", Unit::Bytes, Grows), bandwidth, marks);
    let read = |scale| ("time of a read", Unit::Ns, scale);
    let over_file = "Time of a 4 KB read, over the file's size";
    let mounted = format!("{over_file}, mounted");
    for title in [
        (file::READ_CURVE, over_file),
        (file::MOUNTED_CURVE, &mounted),
    ] {
        sheet.curve(title, ("file", Unit::Bytes, Doubles), read(Doubles), None);
    }
    let over_processes = "Time of a 4 KB read, over processes that read at once";
    let processes = ("processes", Unit::One, Grows);
    sheet.curve(
        (file::CONTENTION_CURVE, over_processes),
        processes,
        read(Grows),
        None,
    );
}
