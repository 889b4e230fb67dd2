//! The network's rows and curves.

use super::{Plan, Scale, Sheet, rows};
use crate::primitives::network::{APART, SEGMENTS_OF_ROWS, SLOW_START};
use crate::primitives::{Better, Unit};
use crate::stats::to_f64;

const PLACES: [(&str, &str); 5] = [
    ("loopback", "loopback"),
    ("loopback6", "loopback, IPv6"),
    ("veth", "between two namespaces"),
    (APART, "between two namespaces, a processor each"),
    ("remote", "remote"),
];

/// Fills in the group.
pub(super) fn fill(sheet: &mut Sheet<'_>) {
    for rows in [
        round_trips,
        single_trips,
        connections,
        slow_start,
        remote_reads,
    ] {
        PLACES
            .into_iter()
            .for_each(|(place, told)| rows(sheet, place, told));
    }
    unwaited(sheet);
    http_reads(sheet);
    sheet.curve(
        (
            SLOW_START,
            "A message and its answer, on a fresh connection and a warmed one",
        ),
        ("segments", Unit::One, Scale::Doubles),
        ("time", Unit::Ns, Scale::Doubles),
        Some(("a fresh connection's window".to_owned(), WINDOW_SEGMENTS)),
    );
    let line = sheet.found.line("tcp_bandwidth_over_message", "loopback");
    let best = line.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let mark = best.map(|(bytes, _)| ("best message size, loopback".to_owned(), to_f64(*bytes)));
    let title = "TCP bandwidth over message size, both ends on one processor";
    sheet.curve(
        ("tcp_bandwidth_over_message", title),
        ("message", Unit::Bytes, Scale::Doubles),
        ("bandwidth", Unit::BytesPerSecond, Scale::Doubles),
        mark,
    );
}

fn round_trips(sheet: &mut Sheet<'_>, place: &str, told: &str) {
    // There is no wire: two copies of 56 bytes are all the hardware does. Passes through the stack
    // are guessed at fifteen crossings each.
    let (crossing, switch) = (sheet.basics.crossing_ns, sheet.basics.switch_ns);
    let icmp_id = format!("rtt_icmp_{place}");
    let icmp = sheet.found.median(&icmp_id);
    let papers = match place {
        "loopback" => ["0.061 ms (ping)", "0.050 ms", ""],
        "remote" => ["1.42 ms (ping)", "1.14 ms", ""],
        _ => ["", "", ""],
    };
    rows! { sheet;
        Plan::long_time(&icmp_id, &format!("Round trip, ICMP, 56 bytes, {told}"))
            .base(2.0 * crossing).adds(30.0 * crossing).paper(papers[0])
            => |ns| format!(
                "The kernel answers by itself; no switch is needed: {:.0} crossings' time",
                ns / crossing);
    }
    let base = match place {
        "remote" => icmp,
        _ => Some(4.0 * crossing),
    };
    let woken = Unit::Ns.told(2.0 * switch);
    for (protocol, passes, paper) in [("tcp", 70.0, papers[1]), ("udp", 45.0, papers[2])] {
        let id = format!("rtt_{protocol}_{place}");
        let operation = format!("Round trip, {}, 56 bytes, {told}", protocol.to_uppercase());
        rows! { sheet;
            Plan::long_time(&id, &operation)
                .base(base).adds(passes * crossing + 2.0 * switch).paper(paper)
                => |ns| match icmp {
                    Some(icmp) => format!(
                        "{:.1} times ICMP's: two processes are woken ({woken} of it), and the \
                         protocol has its say", ns / icmp),
                    None => format!("Two processes are woken: {woken} of it"),
                };
        }
    }
}

/// The same, each by itself: what the paper tells of them.
fn single_trips(sheet: &mut Sheet<'_>, place: &str, told: &str) {
    let (crossing, switch) = (sheet.basics.crossing_ns, sheet.basics.switch_ns);
    for (protocol, passes, switches, papers) in [
        (
            "icmp",
            32.0,
            0.0,
            [
                "0.061 to 0.122 ms, sigma 0.009",
                "1.42 to 136.9 ms, sigma 17.0",
            ],
        ),
        (
            "tcp",
            74.0,
            2.0,
            [
                "0.050 to 1.354 ms, sigma 0.130",
                "1.144 to 10.66 ms, sigma 1.38",
            ],
        ),
        ("udp", 49.0, 2.0, ["", ""]),
    ] {
        let id = format!("rtt_single_{protocol}_{place}");
        let operation = format!("Single round trip, {}, {told}", protocol.to_uppercase());
        let paper = match place {
            "loopback" => papers[0],
            "remote" => papers[1],
            _ => "",
        };
        let all: Vec<f64> = match sheet.found.measured(&id) {
            Some(measured) => measured.rounds.concat(),
            None => Vec::new(),
        };
        rows! { sheet;
            Plan::long_time(&id, &operation)
                .base(passes * crossing).adds(switches * switch).paper(paper)
                => |_| spread_told(&all);
        }
    }
}

/// Least, most, mean and standard deviation of single ones, in words.
fn spread_told(all: &[f64]) -> String {
    let told = |ns| Unit::Ns.told(ns);
    let count = to_f64(all.len()).max(1.0);
    let mean = all.iter().sum::<f64>() / count;
    let squares: f64 = all.iter().map(|ns| (ns - mean) * (ns - mean)).sum();
    let sigma = (squares / (count - 1.0).max(1.0)).sqrt();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    format!(
        "Of {} the least took {}, the most {}, {} on average with a standard deviation of {}",
        all.len(),
        told(least),
        told(most),
        told(mean),
        told(sigma)
    )
}

/// A message of four windows on a fresh connection, and on one that has grown.
fn slow_start(sheet: &mut Sheet<'_>, place: &str, told: &str) {
    let basics = sheet.basics;
    let trip = 74.0 * basics.crossing_ns + 2.0 * basics.switch_ns;
    // As an Ethernet frame carries them, and loopback's frame of 64 KB.
    let segment_bytes = match place {
        "loopback" => 65_483.0,
        _ => 1448.0,
    };
    let copies = 2.0 * to_f64(SEGMENTS_OF_ROWS) * segment_bytes * basics.copy_ns;
    let [first_id, warm_id] = ["first", "warm"].map(|what| format!("tcp_{what}_{place}"));
    let warm = sheet.found.median(&warm_id);
    let operation = |state| format!("{SEGMENTS_OF_ROWS} segments, {state} connection, {told}");
    rows! { sheet;
        Plan::long_time(&first_id, &operation("fresh"))
            .base(WINDOWS * trip).adds(copies)
            => |ns| match warm {
                Some(warm) => format!(
                    "{:.2} times what the same takes on a warmed one; by the book {WINDOWS:.0} \
                     round trips, of ten segments, twenty, and the rest", ns / warm),
                None => "A window of ten segments, then of twenty, then the rest".to_owned(),
            };
        Plan::long_time(&warm_id, &operation("warmed"))
            .base(trip).adds(copies)
            => |ns| format!(
                "One round trip, {:.2} ns a byte in all",
                ns / to_f64(SEGMENTS_OF_ROWS) / segment_bytes);
    }
}

/// Segments that a fresh connection may have under way (RFC 6928).
const WINDOW_SEGMENTS: f64 = 10.0;
/// Round trips of four such windows, each of which may be twice the last.
const WINDOWS: f64 = 3.0;

/// What of a teardown is waking who waits.
fn unwaited(sheet: &mut Sheet<'_>) {
    let crossing = sheet.basics.crossing_ns;
    let waited = sheet.found.median("tcp_teardown_loopback");
    rows! { sheet;
        Plan::long_time("tcp_teardown_unwaited_loopback",
                "Connection teardown, TCP, loopback, nobody at its other end")
            .base(crossing).adds(40.0 * crossing)
            => |ns| match waited {
                Some(waited) => format!(
                    "{} less than where a peer waits and is woken", Unit::Ns.told(waited - ns)),
                None => "Nobody is woken".to_owned(),
            };
    }
}

fn connections(sheet: &mut Sheet<'_>, place: &str, told: &str) {
    let basics = sheet.basics;
    let crossing = basics.crossing_ns;
    let tcp = sheet.found.median(&format!("rtt_tcp_{place}"));
    let papers = match place {
        "loopback" => ["0.108 ms", "0.0121 ms", "445.8 MB/s"],
        "remote" => ["2.61 ms", "0.0221 ms", "8 MB/s"],
        _ => ["", "", ""],
    };
    // Copied in and copied out, on one processor.
    let copies = 1e9 / (2.0 * basics.copy_ns).max(1e-6);
    let [setup, teardown, bandwidth] =
        ["setup", "teardown", "bandwidth"].map(|what| format!("tcp_{what}_{place}"));
    rows! { sheet;
        Plan::long_time(&setup, &format!("Connection set-up, TCP, {told}"))
            .base(tcp).adds(60.0 * crossing).paper(papers[0])
            => |ns| match tcp {
                Some(tcp) => format!("A socket and a handshake: {:.1} round trips", ns / tcp),
                None => "A socket and a handshake".to_owned(),
            };
        Plan::long_time(&teardown, &format!("Connection teardown, TCP, {told}"))
            .base(crossing).adds(40.0 * crossing).paper(papers[1])
            => |ns| match tcp {
                Some(tcp) => format!(
                    "Closing does not wait for the other side: {:.1} round trips", ns / tcp),
                None => "Closing does not wait for the other side".to_owned(),
            };
        Plan::long_time(&bandwidth, &format!("Bandwidth, TCP, {told}"))
            .base(copies).adds(-copies / 2.0).paper(papers[2])
            .of(Unit::BytesPerSecond, Better::More).within(1.0, 1e9 / basics.copy_ns.max(1e-6))
            => |rate| format!(
                "{:.2} ns a byte, of which two copies are {:.2}",
                1e9 / rate, 2.0 * basics.copy_ns);
    }
}

fn remote_reads(sheet: &mut Sheet<'_>, place: &str, told: &str) {
    let basics = sheet.basics;
    let tcp = sheet.found.median(&format!("rtt_tcp_{place}"));
    let bytes = sheet.found.known("remote_block_bytes").unwrap_or(4096.0);
    let software = 4.0 * basics.copy_ns * bytes + 2.0 * basics.crossing_ns;
    for (order, paper) in [("sequential", "2.85 ms (SMB)"), ("random", "3.43 ms (SMB)")] {
        let id = format!("remote_read_{order}_{place}");
        let operation = format!("Remote file read, 4 KB, {order}, {told}");
        let paper = if place == "remote" { paper } else { "" };
        rows! { sheet;
            Plan::long_time(&id, &operation).base(tcp).adds(software).paper(paper)
                => |ns| match tcp {
                    Some(tcp) => format!(
                        "A round trip is {:.0} % of it; the peer's file is in its cache",
                        tcp / ns * 100.0),
                    None => "The peer's file is in its cache".to_owned(),
                };
        }
    }
}

fn http_reads(sheet: &mut Sheet<'_>) {
    let crossing = sheet.basics.crossing_ns;
    let tcp = sheet.found.median("rtt_tcp_loopback");
    for order in ["sequential", "random"] {
        let id = format!("remote_read_{order}_http");
        let operation = format!("Remote file read, 4 KB, {order}, by HTTP from our server");
        // A request to be read, a file to be found and sent, a head to be written.
        rows! { sheet;
            Plan::long_time(&id, &operation).base(tcp).adds(HTTP_CROSSINGS * crossing)
                => |ns| match tcp {
                    Some(tcp) => format!("{:.1} round trips: the rest is HTTP", ns / tcp),
                    None => "A request, and its answer".to_owned(),
                };
        }
    }
}

/// A guess: open, look, wait, send twice, close, and as much work again.
const HTTP_CROSSINGS: f64 = 60.0;
