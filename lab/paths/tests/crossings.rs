//! Every path counts its entries into the kernel truly: as many as a tracer sees.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use onrush_paths::{Mover, Name, Plan, Source};
use onrush_testkit::require_programs;

const PACKETS: u32 = 256;
const PAYLOAD_BYTES: u32 = 1316;
const HEADER_BYTES: usize = 12;

#[test]
fn every_path_enters_the_kernel_as_often_as_it_says() {
    require_programs!("strace");
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(&trace);
    // The other test of this program.
    strace.arg(std::env::current_exe().unwrap());
    let output = strace
        .args(["--exact", "every_path_sends_between_marks"])
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");

    let trace = fs::read_to_string(trace).unwrap();
    let sends = sends(&trace);
    let over = |takes: fn(Name) -> bool| Name::ALL.into_iter().filter(|name| takes(*name)).count();
    let expected = over(Name::takes_udp) + over(Name::takes_tcp);
    assert_eq!(sends.len(), expected, "{trace}");
    for Seen {
        name,
        counted,
        seen,
    } in sends
    {
        assert_eq!(counted, seen.len(), "{name}: {seen:#?}");
        assert!(counted > 0, "{name}");
    }
}

/// By itself it says that every path sends; a tracer sees each send between two attempts to open
/// files that are not there, `/begin NAME` and `/end NAME COUNT`, with the entries that the path
/// has counted.
#[test]
fn every_path_sends_between_marks() -> Result<(), Box<dyn Error>> {
    for name in Name::ALL {
        let source = source(name.takes_headers(true))?;
        if name.takes_udp() {
            let receiver = UdpSocket::bind("127.0.0.1:0")?;
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(receiver.local_addr()?)?;
            send(name, "udp", &source, &socket)?;
        }
        if name.takes_tcp() {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let socket = TcpStream::connect(listener.local_addr()?)?;
            let (mut stream, _) = listener.accept()?;
            let draining = thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
            send(name, "tcp", &source, &socket)?;
            drop(socket);
            draining.join().expect("it does not panic")?;
        }
    }
    Ok(())
}

/// Twice: the first time the path takes the memory that it will need.
fn send(
    name: Name,
    over: &str,
    source: &Arc<Source>,
    socket: &impl AsFd,
) -> Result<(), Box<dyn Error>> {
    let packets = 0..source.plan.packets();
    let mut mover = Mover::open(name, source, 1 << 20)?;
    mover.send(socket, packets.clone())?;
    let before = mover.counters();
    mark(&format!("/begin {name} over {over}"));
    let sent = mover.send(socket, packets);
    let crossings = mover.counters().since(&before).crossings;
    mark(&format!("/end {name} over {over} {crossings}"));
    Ok(sent?)
}

fn mark(text: &str) {
    assert!(File::open(text).is_err(), "nobody has such a file");
}

fn source(has_headers: bool) -> Result<Arc<Source>, Box<dyn Error>> {
    let bytes = PACKETS * PAYLOAD_BYTES;
    let mut file = tempfile::tempfile()?;
    file.write_all(&vec![7; bytes as usize])?;
    let plan = Plan::regular(bytes.into(), PAYLOAD_BYTES)?;
    let plan = match has_headers {
        true => plan.with_headers(HEADER_BYTES, vec![0x80; PACKETS as usize * HEADER_BYTES])?,
        false => plan,
    };
    Ok(Arc::new(Source { file, plan }))
}

/// What the tracer saw of one send.
struct Seen<'a> {
    name: &'a str,
    /// What the path said.
    counted: usize,
    /// The calls of its thread.
    seen: Vec<&'a str>,
}

fn sends(trace: &str) -> Vec<Seen<'_>> {
    let mut sends = Vec::new();
    let mut lines = trace.lines();
    while let Some(line) = lines.next() {
        let Some(name) = marked(line, "\"/begin ") else {
            continue;
        };
        let thread = line.split(' ').next().unwrap();
        let mut seen = Vec::new();
        let counted = loop {
            let line = lines.next().expect("what begins ends");
            if let Some(end) = marked(line, "\"/end ") {
                let (ended, counted) = end.rsplit_once(' ').unwrap();
                assert_eq!(ended, name);
                break counted.parse().unwrap();
            }
            let (who, call) = line.split_once(' ').unwrap();
            let call = call.trim_start();
            // A call that others interrupt has two lines; signals are none.
            if who == thread && !call.starts_with(['<', '-', '+']) {
                seen.push(call);
            }
        };
        sends.push(Seen {
            name,
            counted,
            seen,
        });
    }
    sends
}

/// What stands in the line between `begin` and the end of the string.
fn marked<'a>(line: &'a str, begin: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(begin)?;
    rest.split('"').next()
}
