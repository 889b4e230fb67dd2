//! The client of `bench http`: asks, counts what arrives, and leaves it in the kernel.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use onrush_wire::pace::schedule::jain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, recv};

use super::{LARGE, Load, Settings, small};
use crate::window;

/// What a load brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    pub(super) bytes: u64,
    pub(super) requests: u64,
    pub(super) evenness: f64,
}

/// Downloads one file whole.
pub(super) fn fetch(address: SocketAddr, name: &str) -> io::Result<Vec<u8>> {
    let mut stream = connect(address)?;
    ask(&mut stream, name, false)?;
    let (mut body, length) = head(&mut stream)?;
    stream.read_to_end(&mut body)?;
    match body.len() as u64 == length {
        true => Ok(body),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Lays this load on a server.
pub(super) fn load(settings: &Settings, load: Load, address: SocketAddr) -> io::Result<Loaded> {
    match load {
        Load::One => {
            let mut bytes = 0;
            for _ in 0..settings.large_downloads {
                bytes += download(address, settings.large_bytes)?;
            }
            let requests = settings.large_downloads.into();
            Ok(Loaded {
                bytes,
                requests,
                evenness: 1.0,
            })
        }
        Load::Parallel => parallel(settings, address),
        Load::Small => many(settings, address),
    }
}

/// All connections at once, on one thread that takes a piece of each in turn: with a thread for
/// each it would be the client's scheduler that shares out.
fn parallel(settings: &Settings, address: SocketAddr) -> io::Result<Loaded> {
    // All are there before the first one asks.
    let streams = (0..settings.parallel).map(|_| connect(address));
    let mut streams = streams.collect::<io::Result<Vec<_>>>()?;
    for stream in &mut streams {
        window::keep(stream)?;
        ask(stream, LARGE, false)?;
    }
    let mut arrivals = Arrivals::new(streams.len(), settings.large_bytes);
    for (number, stream) in streams.iter_mut().enumerate() {
        arrivals.count(number, begin(stream, settings.large_bytes)?);
    }
    while arrivals.left > 0 {
        arrivals.take(&streams)?;
    }
    for stream in &mut streams {
        no_more(stream)?;
    }
    Ok(Loaded {
        bytes: arrivals.counts.iter().sum(),
        requests: settings.parallel.into(),
        evenness: arrivals.evenness(),
    })
}

/// What has arrived on connections that all download the same file.
struct Arrivals {
    file_bytes: u64,
    counts: Vec<u64>,
    /// Those that have not got all yet.
    left: usize,
    /// What had arrived when each had been looked at once, and when the first had all.
    window: [Vec<u64>; 2],
    /// Where what arrives is not written to.
    nowhere: Vec<u8>,
}

impl Arrivals {
    fn new(connections: usize, file_bytes: u64) -> Self {
        Self {
            file_bytes,
            counts: vec![0; connections],
            left: connections,
            window: [Vec::new(), Vec::new()],
            nowhere: vec![0; SKIP_BYTES],
        }
    }

    /// Waits until something has come on one of them, and takes a piece of each that has something.
    fn take(&mut self, streams: &[TcpStream]) -> io::Result<()> {
        let under_way = |counts: &[u64]| -> Vec<usize> {
            let numbers = (0..counts.len()).filter(|&number| counts[number] < self.file_bytes);
            numbers.collect()
        };
        let numbers = under_way(&self.counts);
        let asked = numbers.iter().map(|&number| &streams[number]);
        let mut asked: Vec<_> = asked
            .map(|stream| PollFd::new(stream, PollFlags::IN))
            .collect();
        if poll(&mut asked, Some(&SILENCE_MAX.try_into().expect("seconds")))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let ready: Vec<_> = asked
            .iter()
            .map(|asked| !asked.revents().is_empty())
            .collect();
        for (number, _) in numbers.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            let left = self.file_bytes - self.counts[number];
            let most = usize::try_from(left).map_or(SKIP_BYTES, |left| left.min(SKIP_BYTES));
            let (_, bytes) = recv(
                &streams[number],
                &mut self.nowhere[..most],
                RecvFlags::TRUNC | RecvFlags::DONTWAIT,
            )?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.count(number, bytes as u64);
        }
        if self.window[0].is_empty() {
            self.window[0].clone_from(&self.counts);
        }
        Ok(())
    }

    fn count(&mut self, number: usize, bytes: u64) {
        self.counts[number] += bytes;
        if self.counts[number] == self.file_bytes {
            self.left -= 1;
            if self.window[1].is_empty() {
                self.window[1].clone_from(&self.counts);
            }
        }
    }

    /// How even the shares were while all of them were under way: one that came first or was done
    /// first has had nobody to share with.
    fn evenness(&self) -> f64 {
        let [at_begin, at_end] = &self.window;
        let shares = at_begin.iter().zip(at_end);
        #[allow(
            clippy::cast_precision_loss,
            reason = "shares are compared to a thousandth"
        )]
        jain(shares.map(|(begin, end)| end.saturating_sub(*begin) as f64))
    }
}

/// One request after the other, on each of some connections, for a while.
fn many(settings: &Settings, address: SocketAddr) -> io::Result<Loaded> {
    let end = Instant::now() + Duration::from_nanos(settings.small_ns);
    thread::scope(|scope| {
        let ask_for_long = |connection: u32| -> io::Result<(u64, u64)> {
            let mut stream = connect(address)?;
            let (mut bytes, mut requests) = (0, 0);
            // Each begins with another file.
            let mut file = connection;
            while Instant::now() < end {
                ask(&mut stream, &small(file % settings.small_files), true)?;
                let (begun, length) = head(&mut stream)?;
                let left = length - begun.len() as u64;
                skip(&stream, left)?;
                bytes += length;
                requests += 1;
                file += 1;
            }
            Ok((bytes, requests))
        };
        let asking: Vec<_> = (0..settings.small_connections)
            .map(|connection| scope.spawn(move || ask_for_long(connection)))
            .collect();
        let mut loaded = Loaded {
            bytes: 0,
            requests: 0,
            evenness: 1.0,
        };
        let mut shares = Vec::new();
        for asked in asking {
            let (bytes, requests) = asked.join().expect("no panic")?;
            loaded.bytes += bytes;
            loaded.requests += requests;
            #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            shares.push(requests as f64);
        }
        loaded.evenness = jain(shares);
        Ok(loaded)
    })
}

/// Downloads the large file on a connection of its own and throws it away; the bytes of it that
/// came.
fn download(address: SocketAddr, file_bytes: u64) -> io::Result<u64> {
    let mut stream = connect(address)?;
    ask(&mut stream, LARGE, false)?;
    let begun = begin(&mut stream, file_bytes)?;
    skip(&stream, file_bytes - begun)?;
    no_more(&mut stream)?;
    Ok(file_bytes)
}

/// The head of an answer; the bytes of the body that came with it.
fn begin(stream: &mut TcpStream, file_bytes: u64) -> io::Result<u64> {
    let (begun, length) = head(stream)?;
    match length == file_bytes {
        true => Ok(begun.len() as u64),
        false => Err(io::Error::other("the file has another length")),
    }
}

/// The connection ends here.
fn no_more(stream: &mut TcpStream) -> io::Result<()> {
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other("more than the file came")),
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream, name: &str, stays: bool) -> io::Result<()> {
    let connection = if stays { "keep-alive" } else { "close" };
    let head = format!("GET /{name} HTTP/1.1\r\nHost: bench\r\nConnection: {connection}\r\n\r\n");
    stream.write_all(head.as_bytes())
}

/// Reads a head: what came behind it, and the length that it announces.
fn head(stream: &mut TcpStream) -> io::Result<(Vec<u8>, u64)> {
    let mut received = Vec::new();
    // Little, so that most of the body can be left in the kernel.
    let mut bytes = [0; 512];
    let end = loop {
        if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&bytes[..count]),
        }
    };
    let body = received.split_off(end);
    let text = String::from_utf8_lossy(&received).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    match length.filter(|_| text.starts_with("http/1.1 200 ")) {
        Some(length) => Ok((body, length)),
        None => Err(io::Error::other(format!("not what was asked for: {text}"))),
    }
}

/// Takes so many bytes off the connection without having them copied (tcp(7), `MSG_TRUNC`).
fn skip(stream: &TcpStream, bytes: u64) -> io::Result<()> {
    thread_local! {
        static NOWHERE: RefCell<Vec<u8>> = RefCell::new(vec![0; SKIP_BYTES]);
    }
    NOWHERE.with_borrow_mut(|nowhere| {
        let mut left = bytes;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(SKIP_BYTES).min(SKIP_BYTES);
            match recv(stream, &mut nowhere[..most], RecvFlags::TRUNC) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, count)) => left -= count as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })
}

const SKIP_BYTES: usize = 1 << 20;
/// A server that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
