//! Sends a small file by every path of the catalogue, each between marks that a tracer sees.
//!
//! ```text
//! strace -f -o trace target/debug/examples/count_crossings
//! ```
//!
//! In the trace each send stands between two attempts to open files that are not there, `/begin NAME` and
//! `/end NAME COUNT`, with the entries into the kernel that the path has counted itself.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use onrush_sys::path::catalogue::{Mover, Name, Plan, Source};

const PACKETS: u32 = 256;
const PAYLOAD_BYTES: u32 = 1316;
const HEADER_BYTES: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
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
