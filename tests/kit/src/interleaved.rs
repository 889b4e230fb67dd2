//! An RTSP client that takes its packets in the connection (RFC 2326, section 10.12).

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};

use crate::connection::{Connection, unexpected};
use crate::message::{Head, Response};
use crate::rtsp_client::{Dialogue, Incoming};

/// One connection, with sessions whose packets come on it.
#[derive(Debug)]
pub struct InterleavedClient {
    connection: Connection,
    dialogue: Dialogue,
    /// Frames that came while an answer was waited for, in their order.
    early: VecDeque<Frame>,
}

/// A packet, and the channel that it came on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    /// The channel.
    pub channel: u8,
    /// The packet.
    pub packet: Vec<u8>,
}

/// What came next.
#[derive(Debug)]
pub enum Received {
    /// A packet.
    Frame(Frame),
    /// An answer.
    Response(Response),
    /// A request of the server's, without a body.
    Request(Head),
}

impl InterleavedClient {
    /// Connects. Every later wait for the server ends with an error after a minute.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(Connection::connect(server)?))
    }

    /// The same over a connection that is there.
    #[must_use]
    pub fn over(connection: Connection) -> Self {
        Self {
            connection,
            dialogue: Dialogue::default(),
            early: VecDeque::new(),
        }
    }

    /// The socket.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.connection.stream
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection.send(bytes)
    }

    /// Sends a packet on a channel.
    pub fn send_frame(&mut self, channel: u8, packet: &[u8]) -> io::Result<()> {
        let bytes = u16::try_from(packet.len()).map_err(io::Error::other)?;
        let [high, low] = bytes.to_be_bytes();
        self.send_raw(&[&[b'$', channel, high, low], packet].concat())
    }

    /// Sends a request in the session that there is, and takes what comes up to its answer. Frames
    /// before it are kept for [`Self::frame`].
    pub fn request(
        &mut self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<Response> {
        self.send(method, url, headers)?;
        let cseq = self.dialogue.cseq.to_string();
        loop {
            match self.receive()? {
                Received::Frame(frame) => self.early.push_back(frame),
                Received::Response(response) if response.header("CSeq") == Some(&cseq) => {
                    return Ok(response);
                }
                other => return Err(unexpected(format!("request {cseq}: {other:?}"))),
            }
        }
    }

    /// Sends a request in the session that there is, and does not wait for its answer.
    pub fn send(&mut self, method: &str, url: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let request = self.dialogue.request(method, url, headers);
        self.connection.send(request)
    }

    /// Asks for a track by that Transport header, and keeps the session that it is answered with:
    /// the answer's Transport header.
    pub fn set_up(&mut self, track_url: &str, transport: &str) -> io::Result<String> {
        let response = self.request("SETUP", track_url, &[("Transport", transport)])?;
        let known = (response.session_id(), response.header("Transport"));
        let (Some((session, _)), Some(transport)) = known else {
            return Err(unexpected(format!("SETUP: {response:?}")));
        };
        self.dialogue.session = Some(session.to_owned());
        Ok(transport.to_owned())
    }

    /// The next frame, of those that came early too.
    pub fn frame(&mut self) -> io::Result<Frame> {
        if let Some(frame) = self.early.pop_front() {
            return Ok(frame);
        }
        match self.receive()? {
            Received::Frame(frame) => Ok(frame),
            other => Err(unexpected(format!("{other:?}"))),
        }
    }

    /// The next request of the server's. Frames before it are kept for [`Self::frame`].
    pub fn server_request(&mut self) -> io::Result<Head> {
        loop {
            match self.receive()? {
                Received::Frame(frame) => self.early.push_back(frame),
                Received::Request(request) => return Ok(request),
                other => return Err(unexpected(format!("{other:?}"))),
            }
        }
    }

    /// Frames that came before the last answer and were not taken.
    pub fn take_early(&mut self) -> Vec<Frame> {
        self.early.drain(..).collect()
    }

    /// What comes next on the connection.
    pub fn receive(&mut self) -> io::Result<Received> {
        loop {
            let received = &self.connection.received;
            // A packet that is half there says no more about what it is.
            let incoming = Incoming::parse(received, MESSAGE_BYTES_MAX);
            match incoming.map_err(|error| unexpected(format!("{error}: {received:?}")))? {
                Incoming::Response(response, bytes) => {
                    self.connection.received.drain(..bytes);
                    return Ok(Received::Response(response));
                }
                Incoming::Other(bytes) if received.first() == Some(&b'$') => {
                    let frame: Vec<_> = self.connection.received.drain(..bytes).collect();
                    let (channel, packet) = (frame[1], frame[4..].to_vec());
                    return Ok(Received::Frame(Frame { channel, packet }));
                }
                Incoming::Other(bytes) => {
                    let request: Vec<_> = self.connection.received.drain(..bytes).collect();
                    let head = Head::parse(&request).map_err(|error| unexpected(error.to_string()));
                    let (head, _) = head?.ok_or_else(|| unexpected("half a head".to_owned()))?;
                    return Ok(Received::Request(head));
                }
                Incoming::Partial if self.connection.receive()? == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Incoming::Partial => {}
            }
        }
    }
}

const MESSAGE_BYTES_MAX: usize = 64 << 10;
