//! The client of `bench http`: asks, counts what arrives, and leaves it in the kernel.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_wire::pace::schedule::jain;
use rustix::net::{RecvFlags, recv};

use super::{LARGE, Load, Settings, small};

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
                bytes += download(address, settings.large_bytes, &AtomicU64::new(0))?;
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

/// All connections at once, each on a thread that sleeps unless something has come.
fn parallel(settings: &Settings, address: SocketAddr) -> io::Result<Loaded> {
    let arrived: Vec<_> = (0..settings.parallel).map(|_| AtomicU64::new(0)).collect();
    let total_bytes = settings.large_bytes * u64::from(settings.parallel);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let downloads: Vec<_> = arrived
            .iter()
            .map(|arrived| scope.spawn(|| download(address, settings.large_bytes, arrived)))
            .collect();
        let shares = scope.spawn(|| {
            let read = || {
                arrived
                    .iter()
                    .map(|arrived| arrived.load(Ordering::Relaxed))
            };
            while read().sum::<u64>() < total_bytes / 2 && !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            #[allow(
                clippy::cast_precision_loss,
                reason = "shares are compared to a thousandth"
            )]
            jain(read().map(|bytes| bytes as f64))
        });
        let ended: Vec<_> = downloads
            .into_iter()
            .map(|download| download.join().expect("no panic"))
            .collect();
        is_over.store(true, Ordering::Relaxed);
        let bytes = ended.into_iter().sum::<io::Result<u64>>()?;
        let evenness = shares.join().expect("no panic");
        Ok(Loaded {
            bytes,
            requests: settings.parallel.into(),
            evenness,
        })
    })
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
                skip(&stream, left, &AtomicU64::new(0))?;
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

/// Downloads the large file on a connection of its own and throws it away; the bytes of it that came.
fn download(address: SocketAddr, file_bytes: u64, arrived: &AtomicU64) -> io::Result<u64> {
    let mut stream = connect(address)?;
    ask(&mut stream, LARGE, false)?;
    let (begun, length) = head(&mut stream)?;
    if length != file_bytes {
        return Err(io::Error::other("the file has another length"));
    }
    skip(&stream, length - begun.len() as u64, arrived)?;
    // And no more.
    match stream.read(&mut [0])? {
        0 => Ok(length),
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
fn skip(stream: &TcpStream, bytes: u64, arrived: &AtomicU64) -> io::Result<()> {
    thread_local! {
        static NOWHERE: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; SKIP_BYTES]);
    }
    NOWHERE.with_borrow_mut(|nowhere| {
        let mut left = bytes;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(SKIP_BYTES).min(SKIP_BYTES);
            match recv(stream, &mut nowhere[..most], RecvFlags::TRUNC) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, count)) => {
                    left -= count as u64;
                    arrived.fetch_add(count as u64, Ordering::Relaxed);
                }
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
