//! The client of `bench http`: asks, counts what arrives, and leaves it in the kernel.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::connection::discard;
use onrush_testkit::http_client::Client;
use onrush_wire::pace::schedule::jain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::RecvFlags;

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
    Client::connect(address)?.get(&format!("/{name}"))
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
    let clients = (0..settings.parallel).map(|_| Client::connect(address));
    let mut clients = clients.collect::<io::Result<Vec<_>>>()?;
    for client in &mut clients {
        window::keep(&client.connection.stream)?;
        client.ask("GET", &format!("/{LARGE}"), CLOSE)?;
    }
    let mut arrivals = Arrivals::new(clients.len(), settings.large_bytes);
    for (number, client) in clients.iter_mut().enumerate() {
        let length = client.begun(LARGE)?;
        check_length(length, settings.large_bytes)?;
        arrivals.count(number, client.connection.received.drain(..).len() as u64);
    }
    while arrivals.left > 0 {
        arrivals.take(&clients)?;
    }
    for client in &mut clients {
        no_more(client)?;
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
}

impl Arrivals {
    fn new(connections: usize, file_bytes: u64) -> Self {
        Self {
            file_bytes,
            counts: vec![0; connections],
            left: connections,
            window: [Vec::new(), Vec::new()],
        }
    }

    /// Waits until something has come on one of them, and takes a piece of each that has something.
    fn take(&mut self, clients: &[Client]) -> io::Result<()> {
        let under_way = |counts: &[u64]| -> Vec<usize> {
            let numbers = (0..counts.len()).filter(|&number| counts[number] < self.file_bytes);
            numbers.collect()
        };
        let numbers = under_way(&self.counts);
        let asked = numbers
            .iter()
            .map(|&number| &clients[number].connection.stream);
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
            let stream = &clients[number].connection.stream;
            match discard(stream, left, RecvFlags::DONTWAIT)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.count(number, bytes),
            }
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
            let mut client = Client::connect(address)?;
            let (mut bytes, mut requests) = (0, 0);
            // Each begins with another file.
            let mut file = connection;
            while Instant::now() < end {
                let length =
                    client.begin(&format!("/{}", small(file % settings.small_files)), "")?;
                client.connection.skip(length)?;
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
    let mut client = Client::connect(address)?;
    check_length(client.begin(&format!("/{LARGE}"), CLOSE)?, file_bytes)?;
    client.connection.skip(file_bytes)?;
    no_more(&mut client)?;
    Ok(file_bytes)
}

fn check_length(length: u64, file_bytes: u64) -> io::Result<()> {
    match length == file_bytes {
        true => Ok(()),
        false => Err(io::Error::other("the file has another length")),
    }
}

/// The connection ends here.
fn no_more(client: &mut Client) -> io::Result<()> {
    match client.connection.is_closed() {
        true => Ok(()),
        false => Err(io::Error::other("more than the file came")),
    }
}

const CLOSE: &str = "Connection: close\r\n";
/// A server that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
