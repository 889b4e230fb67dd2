//! One receive serves two processes: figure 1 of Seifert and Rehm's paper.
//!
//! Process C sends a message over a socket. Process A and process B, which both want it, have
//! attached one SysV segment, each at an address of its own; both pin the part that they use. A's
//! ring receives once, straight into the pinned pages, and B reads what arrived there. The example
//! ends with 0 if B saw what C sent.
//!
//! `cargo run --example one_receive_serves_two`

#![allow(clippy::print_stdout, reason = "an example tells what it does")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::thread;

use io_uring::{IoUring, opcode, types};
use onrush_lock::{Kind, Manager, Segment};

const SEGMENT_BYTES: usize = 1 << 20;
/// The message lies somewhere in the middle of the segment.
const MESSAGE_OFFSET: usize = 256 << 10;
const MESSAGE_BYTES: usize = 60 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(id) => process_b(id.parse()?),
        None => process_a(),
    }
}

/// Makes the segment, receives into it, and tells B, which it has started.
fn process_a() -> Result<(), Box<dyn Error>> {
    let segment = Segment::sysv(SEGMENT_BYTES)?;
    let id = segment.sysv_id().ok_or("it is a SysV segment")?;
    let mut b = Command::new(std::env::current_exe()?)
        .arg(id.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(b.stdout.take().ok_or("it is piped")?).lines();
    let ready = said.next().ok_or("B ended early")??;
    println!("A: B has attached segment {id} and pinned its part ({ready})");

    let manager = Manager::of_process();
    let start = segment.bytes().start + MESSAGE_OFFSET;
    let pinned = manager.lock(start..start + MESSAGE_BYTES, Kind::Pinned)?;
    let mut ring = IoUring::new(4)?;
    // SAFETY: the ring lives to the end of this function, and with it its descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    let _registered = manager.register(fd, pinned.bytes())?;

    receive(&mut ring, &process_c()?, start)?;
    println!("A: received {MESSAGE_BYTES} bytes into it, in 1 operation of A's");
    tell(&mut b)?;
    println!("B: {}", said.next().ok_or("B ended early")??);
    drop(ring);
    b.wait()?
        .success()
        .then_some(())
        .ok_or_else(|| "B saw something else".into())
}

/// Attaches the segment, pins its part of it, and reads what A has received.
fn process_b(id: i32) -> Result<(), Box<dyn Error>> {
    let segment = Segment::attach_sysv(id)?;
    let start = segment.bytes().start + MESSAGE_OFFSET;
    let pinned = Manager::of_process().lock(start..start + MESSAGE_BYTES, Kind::Pinned)?;
    println!("{} pages", pinned.bytes().len() / 4096);
    std::io::stdin().read_line(&mut String::new())?;
    let at = std::ptr::with_exposed_provenance::<u8>(start);
    // SAFETY: the part is mapped as long as the segment lives, and A has said that it has done
    // writing.
    let message = unsafe { std::slice::from_raw_parts(at, MESSAGE_BYTES) };
    if message != message_of_c() {
        return Err("the message is another".into());
    }
    println!("read the same {MESSAGE_BYTES} bytes, and has received nothing");
    Ok(())
}

/// A thread stands for the third process: it has nothing but the other end of A's socket.
fn process_c() -> Result<UnixDatagram, Box<dyn Error>> {
    let (ours, theirs) = UnixDatagram::pair()?;
    thread::spawn(move || theirs.send(&message_of_c()).expect("A has the other end"));
    Ok(ours)
}

fn message_of_c() -> Vec<u8> {
    let bytes = (0..MESSAGE_BYTES).map(|i| u8::try_from(i * 7 % 251).expect("below 251"));
    bytes.collect()
}

/// One receive, by the registered buffer.
fn receive(ring: &mut IoUring, from: &UnixDatagram, start: usize) -> Result<(), Box<dyn Error>> {
    let at = std::ptr::with_exposed_provenance_mut(start);
    let length = u32::try_from(MESSAGE_BYTES)?;
    let read = opcode::ReadFixed::new(types::Fd(from.as_raw_fd()), at, length, 0).build();
    // SAFETY: the range lies in the ring's buffer 0, whose pages are pinned; nobody reads it before
    // the operation has completed, which is waited for.
    unsafe { ring.submission().push(&read) }?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().ok_or("it was waited for")?;
    match usize::try_from(result.result()) {
        Ok(MESSAGE_BYTES) => Ok(()),
        Ok(bytes) => Err(format!("only {bytes} bytes came").into()),
        Err(_) => Err(std::io::Error::from_raw_os_error(-result.result()).into()),
    }
}

fn tell(b: &mut Child) -> Result<(), Box<dyn Error>> {
    Ok(writeln!(b.stdin.take().ok_or("it is piped")?, "received")?)
}
