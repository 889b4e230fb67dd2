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

use super::asking::{Asking, Part};
use super::tls::Identity;
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

/// What is asked, and where.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) address: SocketAddr,
    /// Where the same is served over TLS.
    pub(super) tls: Option<(SocketAddr, &'a Identity)>,
    /// What is to come, of loads that compare it.
    pub(super) parts: &'a [&'a Part],
}

/// Lays this load on a server.
pub(super) fn load(settings: &Settings, load: Load, target: Target<'_>) -> io::Result<Loaded> {
    let address = target.address;
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
        Load::Ts | Load::Cmaf | Load::OneTls | Load::TsTls | Load::CmafTls => {
            compared(settings, load, target)
        }
    }
}

/// Takes each of these parts from a server, and compares all of its bytes.
pub(super) fn check(load: Load, target: Target<'_>) -> io::Result<()> {
    let mut asking = target.connect(load)?;
    let mut parts = target.parts.iter();
    parts.try_for_each(|part| asking.fetch(part, true))
}

/// One request after the other, on each of some connections, for a while. Every answer is as long
/// as is to be; of those over TLS all bytes are compared, of others those of each
/// [`COMPARED_EVERY`]th.
fn compared(settings: &Settings, load: Load, target: Target<'_>) -> io::Result<Loaded> {
    let (connections, time_ns) = settings.of_segments();
    let end = Instant::now() + Duration::from_nanos(time_ns);
    on_connections(connections, |connection| {
        let mut asking = target.connect(load)?;
        let (mut bytes, mut requests) = (0, 0);
        // Each begins with another.
        let parts = target.parts.iter().cycle().skip(connection as usize);
        for part in parts.take_while(|_| Instant::now() < end) {
            asking.fetch(part, requests % COMPARED_EVERY == 0)?;
            bytes += part.bytes.len() as u64;
            requests += 1;
        }
        Ok((bytes, requests))
    })
}

impl Target<'_> {
    fn connect(&self, load: Load) -> io::Result<Asking> {
        match self.tls.filter(|_| load.is_tls()) {
            Some((address, identity)) => Asking::connect(address, Some(identity.client())),
            None => Asking::connect(self.address, None),
        }
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
    on_connections(settings.small_connections, |connection| {
        let mut client = Client::connect(address)?;
        let (mut bytes, mut requests) = (0, 0);
        // Each begins with another file.
        let mut file = connection;
        while Instant::now() < end {
            let length = client.begin(&format!("/{}", small(file % settings.small_files)), "")?;
            client.connection.skip(length)?;
            bytes += length;
            requests += 1;
            file += 1;
        }
        Ok((bytes, requests))
    })
}

/// All that so many connections bring, each on a thread of its own: bytes and requests.
fn on_connections(
    connections: u32,
    ask_for_long: impl Fn(u32) -> io::Result<(u64, u64)> + Sync,
) -> io::Result<Loaded> {
    let ask_for_long = &ask_for_long;
    thread::scope(|scope| {
        let asking: Vec<_> = (0..connections)
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

/// Of answers that could stay in the kernel, each so many-th is read and compared.
const COMPARED_EVERY: u64 = 32;
const CLOSE: &str = "Connection: close\r\n";
/// A server that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
