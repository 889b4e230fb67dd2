//! Remote file read over our own server: 4 KB ranges of a file by HTTP, on one connection over
//! loopback.

use std::io;
use std::net::Ipv4Addr;

use onrush_server::config::Config;
use onrush_server::server::Server;
use onrush_testkit::http_client::Client;

use super::Found;
use super::blocks::{BLOCK_BYTES, ORDERS, Order};
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

const NAME: &str = "blocks";

impl Served {
    /// Starts the server on a free port of loopback.
    pub(super) fn start(method: &Method) -> io::Result<Self> {
        let scratch = Scratch::new(method.folder())?;
        let file_bytes = method.much(1 << 20, 16 << 20);
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
        let address = self.server.http_addresses().first();
        let address = address.ok_or_else(|| io::Error::other("the server does not listen"));
        let client = address.and_then(|address| Client::connect(*address));
        let ids = ["remote_read_sequential_http", "remote_read_random_http"];
        if let Some(mut client) = found.there(&ids, client) {
            for (id, factor) in ids.into_iter().zip(ORDERS) {
                let order = Order::new(self.file_bytes, factor);
                let samples = order.measure(method, 60, |at| block(&mut client, at));
                found.try_samples(id, samples);
            }
        }
    }
}

/// Asks for one block and reads the answer whole.
fn block(client: &mut Client, at: u64) -> io::Result<()> {
    let range = format!("Range: bytes={at}-{}\r\n", at + BLOCK_BYTES as u64 - 1);
    let answer = client.request("GET", &format!("/{NAME}"), &range)?;
    match answer.status == 206 && answer.body.len() == BLOCK_BYTES {
        true => Ok(()),
        false => Err(io::Error::other(
            "the server did not answer with the range that was asked for",
        )),
    }
}
