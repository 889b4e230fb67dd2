//! The network's rows and curves.

use super::{Plan, Scale, Sheet, rows};
use crate::primitives::{Better, Unit};
use crate::stats::to_f64;

const PLACES: [(&str, &str); 4] = [
    ("loopback", "loopback"),
    ("loopback6", "loopback, IPv6"),
    ("veth", "between two namespaces"),
    ("remote", "remote"),
];

/// Fills in the group.
pub(super) fn fill(sheet: &mut Sheet<'_>) {
    for rows in [round_trips, connections, remote_reads] {
        PLACES
            .into_iter()
            .for_each(|(place, told)| rows(sheet, place, told));
    }
    http_reads(sheet);
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
