//! The network's rows and curves.

use super::{Plan, Shape, Sheet};
use crate::primitives::{Better, Mark, Unit};

const PLACES: [(&str, &str); 4] = [
    ("loopback", "loopback"),
    ("loopback6", "loopback, IPv6"),
    ("veth", "between two namespaces"),
    ("remote", "remote"),
];

/// Fills in the group.
pub(super) fn fill(sheet: &mut Sheet<'_>) {
    for (place, told) in PLACES {
        round_trips(sheet, place, told);
    }
    for (place, told) in PLACES {
        connections(sheet, place, told);
    }
    for (place, told) in PLACES {
        remote_reads(sheet, place, told);
    }
    http_reads(sheet);
    let shape = Shape {
        title: "TCP bandwidth over message size, both ends on one processor",
        x: ("message", Unit::Bytes, true),
        y: ("bandwidth", Unit::BytesPerSecond, true),
    };
    let line = sheet.found.line("tcp_bandwidth_over_message", "loopback");
    let best = line.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    #[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    let marks = best.map(|(bytes, _)| Mark {
        name: "best message size, loopback".to_owned(),
        x: *bytes as f64,
    });
    sheet.curve(
        "tcp_bandwidth_over_message",
        &shape,
        marks.into_iter().collect(),
    );
}

fn round_trips(sheet: &mut Sheet<'_>, place: &str, told: &str) {
    let basics = sheet.basics;
    // There is no wire: two copies of 56 bytes are all the hardware does. Passes through the stack
    // are guessed at fifteen crossings each.
    let (crossing, switch) = (basics.crossing_ns, basics.switch_ns);
    let icmp_id = format!("rtt_icmp_{place}");
    let icmp = sheet.found.median(&icmp_id);
    let is_loopback = place.starts_with("loopback");
    let operation = format!("Round trip, ICMP, 56 bytes, {told}");
    let papers = match place {
        "loopback" => ["0.061 ms (ping)", "0.050 ms", ""],
        "remote" => ["1.42 ms (ping)", "1.14 ms", ""],
        _ => ["", "", ""],
    };
    let row = Plan::long_time(
        &icmp_id,
        &operation,
        (Some(2.0 * crossing), Some(30.0 * crossing)),
        papers[0],
    );
    sheet.row(&row, |ns| {
        format!(
            "The kernel answers by itself; no switch is needed: {:.0} crossings' time",
            ns / crossing
        )
    });
    for (protocol, passes, paper) in [("tcp", 70.0, papers[1]), ("udp", 45.0, papers[2])] {
        let id = format!("rtt_{protocol}_{place}");
        let operation = format!("Round trip, {}, 56 bytes, {told}", protocol.to_uppercase());
        let software = passes * crossing + 2.0 * switch;
        let base = if is_loopback || place == "veth" {
            Some(4.0 * crossing)
        } else {
            icmp
        };
        let row = Plan::long_time(&id, &operation, (base, Some(software)), paper);
        sheet.row(&row, |ns| match icmp {
            Some(icmp) => format!(
                "{:.1} times ICMP's: two processes are woken ({} of it), and the protocol has its \
                 say",
                ns / icmp,
                Unit::Ns.told(2.0 * switch)
            ),
            None => format!(
                "Two processes are woken: {} of it",
                Unit::Ns.told(2.0 * switch)
            ),
        });
    }
}

fn connections(sheet: &mut Sheet<'_>, place: &str, told: &str) {
    let basics = sheet.basics;
    let tcp = sheet.found.median(&format!("rtt_tcp_{place}"));
    let papers = match place {
        "loopback" => ["0.108 ms", "0.0121 ms", "445.8 MB/s"],
        "remote" => ["2.61 ms", "0.0221 ms", "8 MB/s"],
        _ => ["", "", ""],
    };
    let id = format!("tcp_setup_{place}");
    let operation = format!("Connection set-up, TCP, {told}");
    let row = Plan::long_time(
        &id,
        &operation,
        (tcp, Some(60.0 * basics.crossing_ns)),
        papers[0],
    );
    sheet.row(&row, |ns| match tcp {
        Some(tcp) => format!("A socket and a handshake: {:.1} round trips", ns / tcp),
        None => "A socket and a handshake".to_owned(),
    });
    let id = format!("tcp_teardown_{place}");
    let operation = format!("Connection teardown, TCP, {told}");
    let row = Plan::long_time(
        &id,
        &operation,
        (Some(basics.crossing_ns), Some(40.0 * basics.crossing_ns)),
        papers[1],
    );
    sheet.row(&row, |ns| match tcp {
        Some(tcp) => format!(
            "Closing does not wait for the other side: {:.1} round trips",
            ns / tcp
        ),
        None => "Closing does not wait for the other side".to_owned(),
    });
    let id = format!("tcp_bandwidth_{place}");
    let operation = format!("Bandwidth, TCP, {told}");
    // Copied in and copied out, on one processor.
    let copies = 1e9 / (2.0 * basics.copy_ns).max(1e-6);
    let row = Plan {
        unit: Unit::BytesPerSecond,
        better: Better::More,
        possible: (1.0, 1e9 / basics.copy_ns.max(1e-6)),
        ..Plan::long_time(
            &id,
            &operation,
            (Some(copies), Some(-copies / 2.0)),
            papers[2],
        )
    };
    sheet.row(&row, |rate| {
        format!(
            "{:.2} ns a byte, of which two copies are {:.2}",
            1e9 / rate,
            2.0 * basics.copy_ns
        )
    });
}

fn http_reads(sheet: &mut Sheet<'_>) {
    let basics = sheet.basics;
    let tcp = sheet.found.median("rtt_tcp_loopback");
    for order in ["sequential", "random"] {
        let id = format!("remote_read_{order}_http");
        let operation = format!("Remote file read, 4 KB, {order}, by HTTP from our server");
        // A request to be read, a file to be found and sent, a head to be written.
        let row = Plan::long_time(
            &id,
            &operation,
            (tcp, Some(HTTP_CROSSINGS * basics.crossing_ns)),
            "",
        );
        sheet.row(&row, |ns| match tcp {
            Some(tcp) => format!("{:.1} round trips: the rest is HTTP", ns / tcp),
            None => "A request, and its answer".to_owned(),
        });
    }
}

/// A guess: open, look, wait, send twice, close, and as much work again.
const HTTP_CROSSINGS: f64 = 60.0;

fn remote_reads(sheet: &mut Sheet<'_>, place: &str, told: &str) {
    let basics = sheet.basics;
    let tcp = sheet.found.median(&format!("rtt_tcp_{place}"));
    let bytes = sheet.found.known("remote_block_bytes").unwrap_or(4096.0);
    for (order, paper) in [("sequential", "2.85 ms (SMB)"), ("random", "3.43 ms (SMB)")] {
        let id = format!("remote_read_{order}_{place}");
        let operation = format!("Remote file read, 4 KB, {order}, {told}");
        let software = 4.0 * basics.copy_ns * bytes + 2.0 * basics.crossing_ns;
        let paper = if place == "remote" { paper } else { "" };
        let row = Plan::long_time(&id, &operation, (tcp, Some(software)), paper);
        sheet.row(&row, |ns| match tcp {
            Some(tcp) => format!(
                "A round trip is {:.0} % of it; the peer's file is in its cache",
                tcp / ns * 100.0
            ),
            None => "The peer's file is in its cache".to_owned(),
        });
    }
}
