//! An HTTP client that adds nothing to a request but a Host, and can send any bytes at all.

use std::io;
use std::net::{SocketAddr, TcpStream};

use crate::connection::{Connection, unexpected};
pub use crate::message::Response;
use crate::message::{lines, request};

/// One connection.
#[derive(Debug)]
pub struct Client {
    /// What it stands on, byte by byte.
    pub connection: Connection,
}

/// A request's text, with the header lines `more`.
#[must_use]
pub fn request_text(method: &str, target: &str, more: &str) -> String {
    request(method, target, "HTTP/1.1", &(lines([("Host", "h")]) + more))
}

impl Client {
    /// Connects; every later wait for the server ends with an error.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        let connection = Connection::connect(server)?;
        Ok(Self { connection })
    }

    /// The same over a connection that is there.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        let connection = Connection::over(stream)?;
        Ok(Self { connection })
    }

    /// Sends a request with the header lines `more`.
    pub fn ask(&mut self, method: &str, target: &str, more: &str) -> io::Result<()> {
        self.connection.send(request_text(method, target, more))
    }

    /// Sends a request with the header lines `more` and reads the answer.
    pub fn request(&mut self, method: &str, target: &str, more: &str) -> io::Result<Response> {
        self.ask(method, target, more)?;
        self.response(method == "HEAD")
    }

    /// The next answer, which must say how long it is.
    pub fn response(&mut self, is_head: bool) -> io::Result<Response> {
        let (mut response, length) = self.connection.head()?;
        if !is_head && !matches!(response.status, 100 | 204 | 304) {
            let length = length.and_then(|length| usize::try_from(length).ok());
            let length = length.ok_or_else(|| unexpected(format!("no length: {response:?}")))?;
            response.body = self.connection.take(length)?;
        }
        Ok(response)
    }

    /// What a GET of `target` is answered with, which is to be there.
    pub fn get(mut self, target: &str) -> io::Result<Vec<u8>> {
        let response = self.request("GET", target, "Connection: close\r\n")?;
        match response.status {
            200 => Ok(response.body),
            _ => Err(unexpected(format!("GET {target}: {response:?}"))),
        }
    }

    /// Asks for a file; how long its body is, all of which is still to be taken.
    pub fn begin(&mut self, target: &str, more: &str) -> io::Result<u64> {
        self.ask("GET", target, more)?;
        self.begun(target)
    }

    /// The same for what was asked for before.
    pub fn begun(&mut self, target: &str) -> io::Result<u64> {
        let (response, length) = self.connection.head()?;
        match length.filter(|_| response.status == 200) {
            Some(length) => Ok(length),
            None => Err(unexpected(format!("GET {target}: {response:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::testing::answered_with;

    #[test]
    fn requests_go_as_said_and_bodies_come_whole() {
        let answers = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
                        HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n\
                        HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nd";
        let (address, server) = answered_with(answers);
        let mut client = Client::connect(address).unwrap();
        let response = client.request("GET", "/a", "Range: bytes=0-\r\n").unwrap();
        assert_eq!(response.text(), "abc");
        assert_eq!(client.response(false).unwrap().status, 304);
        let error = client.response(false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let request = b"GET /a HTTP/1.1\r\nHost: h\r\nRange: bytes=0-\r\n\r\n";
        assert_eq!(server.join().unwrap(), request);
    }

    #[test]
    fn skipped_bodies_are_counted() {
        let (address, _server) =
            answered_with(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcdef");
        let mut client = Client::connect(address).unwrap();
        let length = client.begin("/", "").unwrap();
        client.connection.skip(length).unwrap();
        assert!(!client.connection.is_closed(), "one byte too many came");
        client.connection.skip(1).unwrap();
        assert!(client.connection.is_closed());
        assert!(client.connection.skip(1).is_err());
    }
}
