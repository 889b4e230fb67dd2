//! Remote file read over our own server: 4 KB ranges of a file by HTTP, on one connection over
//! loopback.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use onrush_server::config::Config;
use onrush_server::server::Server;

use super::Found;
use super::WAIT_MAX;
use super::method::Method;
use super::scratch::Scratch;

/// A server, and a file that it serves.
#[derive(Debug)]
pub(super) struct Served {
    server: Server,
    file_bytes: u64,
    /// Last: the file goes with it.
    _scratch: Scratch,
}

const BLOCK_BYTES: u64 = 4096;
const NAME: &str = "blocks";

impl Served {
    /// Starts the server on a free port of loopback.
    pub(super) fn start(method: &Method) -> io::Result<Self> {
        let scratch = Scratch::new(method.folder())?;
        let file_bytes = if method.settings().quick {
            1 << 20
        } else {
            16 << 20
        };
        scratch.file(NAME, file_bytes)?;
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let mut config = Config {
            media_root: scratch.path().to_owned(),
            rtsp_addresses: vec![loopback],
            cache_bytes: 16 << 20,
            ..Config::default()
        };
        config.downloads.http_addresses = vec![loopback];
        config.downloads.ftp_addresses = Vec::new();
        let server = Server::start(config).map_err(io::Error::other)?;
        Ok(Self {
            server,
            file_bytes,
            _scratch: scratch,
        })
    }

    /// One round: in order, and mixed.
    pub(super) fn measure(&self, method: &Method, found: &mut Found) {
        for (order, factor) in [("sequential", 1_u64), ("random", 2_654_435_761)] {
            let samples = self.blocks(method, factor);
            found.try_samples(&format!("remote_read_{order}_http"), samples);
        }
    }

    fn blocks(&self, method: &Method, factor: u64) -> io::Result<Vec<f64>> {
        let address = self.server.http_addresses().first();
        let address = address.ok_or_else(|| io::Error::other("the server does not listen"))?;
        let mut stream = TcpStream::connect_timeout(address, WAIT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        let mut index = 0_u64;
        method.try_per_act(method.time(60), |times| {
            for _ in 0..times {
                let at = index.wrapping_mul(factor) % (self.file_bytes / BLOCK_BYTES) * BLOCK_BYTES;
                index += 1;
                block(&mut stream, at)?;
            }
            Ok(())
        })
    }
}

/// Asks for one block and reads the answer whole.
fn block(stream: &mut TcpStream, at: u64) -> io::Result<()> {
    let last = at + BLOCK_BYTES - 1;
    let request =
        format!("GET /{NAME} HTTP/1.1\r\nHost: onrush\r\nRange: bytes={at}-{last}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = [0; 8192];
    let mut filled = 0;
    loop {
        let room = answer.get_mut(filled..).filter(|room| !room.is_empty());
        let room = room.ok_or_else(|| io::Error::from(ErrorKind::InvalidData))?;
        filled += match stream.read(room)? {
            0 => return Err(io::Error::from(ErrorKind::UnexpectedEof)),
            read => read,
        };
        let head = answer[..filled]
            .windows(4)
            .position(|four| four == b"\r\n\r\n");
        if head.is_some() && !answer.starts_with(b"HTTP/1.1 206") {
            return Err(io::Error::other(
                "the server did not answer with the range that was asked for",
            ));
        }
        if head.is_some_and(|head| (filled - head - 4) as u64 >= BLOCK_BYTES) {
            return Ok(());
        }
    }
}
