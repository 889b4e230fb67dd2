//! Remote file read over our own server: 4 KB ranges of a file by HTTP, on one connection over
//! loopback.

use std::io;
use std::net::Ipv4Addr;

use onrush_server::config::Config;
use onrush_server::server::Server;
use onrush_testkit::http_client::Client;

use super::Found;
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
        let mut client = Client::connect(*address)?;
        let mut index = 0_u64;
        method.try_per_act(method.time(60), |times| {
            for _ in 0..times {
                let at = index.wrapping_mul(factor) % (self.file_bytes / BLOCK_BYTES) * BLOCK_BYTES;
                index += 1;
                block(&mut client, at)?;
            }
            Ok(())
        })
    }
}

/// Asks for one block and reads the answer whole.
fn block(client: &mut Client, at: u64) -> io::Result<()> {
    let range = format!("Range: bytes={at}-{}\r\n", at + BLOCK_BYTES - 1);
    let answer = client.request("GET", &format!("/{NAME}"), &range)?;
    match answer.status == 206 && answer.body.len() as u64 == BLOCK_BYTES {
        true => Ok(()),
        false => Err(io::Error::other(
            "the server did not answer with the range that was asked for",
        )),
    }
}
