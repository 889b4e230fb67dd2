//! One client's connection, plain or over TLS, on which bodies are compared with what they are to
//! be: as long, and byte for byte where they are looked at.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use onrush_testkit::http_client::{Client, request_text};
use onrush_testkit::message::{HEAD_BYTES_MAX, Head};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::tls::NAME;
use crate::window;

/// A resource, and what it is.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// As it is asked for.
    pub(super) path: String,
    /// As the first server sent it, or as it lies in the folder.
    pub(super) bytes: Vec<u8>,
}

/// A connection that stays.
pub(super) enum Asking {
    Plain(Client),
    Tls(Box<OverTls>),
}

/// The same over TLS.
pub(super) struct OverTls {
    stream: BufReader<StreamOwned<ClientConnection, Wide>>,
    /// What was received and not used yet.
    received: Vec<u8>,
}

/// A socket that is read in large pieces: the library asks for a few KiB at a time.
struct Wide(BufReader<TcpStream>);

/// What is read of a socket, and of what was decrypted, at once.
const READ_BYTES: usize = 128 << 10;

impl Asking {
    pub(super) fn connect(
        address: SocketAddr,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let client = Client::connect(address)?;
        window::keep(&client.connection.stream)?;
        let Some(tls) = tls else {
            return Ok(Self::Plain(client));
        };
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let tls = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
        let socket = Wide(BufReader::with_capacity(
            READ_BYTES,
            client.connection.stream,
        ));
        let stream = BufReader::with_capacity(READ_BYTES, StreamOwned::new(tls, socket));
        Ok(Self::Tls(Box::new(OverTls {
            stream,
            received: Vec::new(),
        })))
    }

    /// Asks for it, and takes all of the answer, whose length is always compared. What was
    /// decrypted has been through this processor anyway, and is compared as well; of the rest,
    /// which could stay in the kernel, only what `compares`.
    pub(super) fn fetch(&mut self, part: &Part, compares: bool) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.fetch(part),
            Self::Plain(client) => {
                let length = client.begin(&part.path, "")?;
                check_length(length, part)?;
                let connection = &mut client.connection;
                if !compares {
                    return connection.skip(length);
                }
                let mut compared = Compared { part, bytes: 0 };
                while let Some(left) = compared.left() {
                    compared.push(&connection.take(left.min(READ_BYTES))?)?;
                }
                Ok(())
            }
        }
    }
}

impl OverTls {
    fn fetch(&mut self, part: &Part) -> io::Result<()> {
        let text = request_text("GET", &part.path, "");
        let tls = self.stream.get_mut();
        tls.write_all(text.as_bytes())?;
        tls.flush()?;
        let mut compared = Compared { part, bytes: 0 };
        let begun = self.head(part)?;
        compared.push(&begun)?;
        while compared.left().is_some() {
            let read = self.stream.fill_buf()?;
            if read.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = read.len();
            compared.push(read)?;
            self.stream.consume(bytes);
        }
        Ok(())
    }

    /// Takes the head, and what of the body came with it.
    fn head(&mut self, part: &Part) -> io::Result<Vec<u8>> {
        loop {
            let parsed = Head::parse(&self.received).map_err(io::Error::other)?;
            if let Some((head, head_bytes)) = parsed {
                let length = head.content_length().map_err(io::Error::other)?;
                check_length(length.unwrap_or(0), part)?;
                let mut received = std::mem::take(&mut self.received);
                return Ok(received.split_off(head_bytes));
            }
            let read = self.stream.fill_buf()?;
            if read.is_empty() || self.received.len() > HEAD_BYTES_MAX {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = read.len();
            self.received.extend_from_slice(read);
            self.stream.consume(bytes);
        }
    }
}

/// As much of a body as was compared.
struct Compared<'a> {
    part: &'a Part,
    bytes: usize,
}

impl Compared<'_> {
    fn left(&self) -> Option<usize> {
        let left = self.part.bytes.len() - self.bytes;
        (left > 0).then_some(left)
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let expected = self.part.bytes[self.bytes..].get(..bytes.len());
        if expected != Some(bytes) {
            let path = &self.part.path;
            return Err(io::Error::other(format!("{path}: other bytes came")));
        }
        self.bytes += bytes.len();
        Ok(())
    }
}

fn check_length(length: u64, part: &Part) -> io::Result<()> {
    let (path, expected) = (&part.path, part.bytes.len() as u64);
    match length == expected {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{path}: {length} bytes came, and not {expected}"
        ))),
    }
}

impl Read for Wide {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Wide {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_and_more_of_them_are_seen() {
        let part = Part {
            path: "/x".to_owned(),
            bytes: b"abcd".to_vec(),
        };
        let pushed = |pieces: &[&[u8]]| {
            let mut compared = Compared {
                part: &part,
                bytes: 0,
            };
            let mut pushed = pieces.iter().map(|piece| compared.push(piece));
            pushed.all(|it| it.is_ok())
        };
        assert!(pushed(&[b"ab", b"", b"cd"]));
        assert!(!pushed(&[b"ab", b"ce"]) && !pushed(&[b"abc", b"de"]));
        assert!(check_length(4, &part).is_ok());
        assert!(check_length(3, &part).is_err() && check_length(5, &part).is_err());
    }
}
