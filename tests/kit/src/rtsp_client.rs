//! An RTSP client that sends what it is given, right or wrong.
//!
//! The [`Dialogue`] writes requests and reads answers without any I/O; [`Client`] is it on a
//! connection that blocks. Nothing is added to a request but what is named here.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Instant;

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Socket, Type};

use crate::connection::{Connection, unexpected};
pub use crate::connection::{WAIT_MAX, uninterrupted};
pub use crate::message::Response;
use crate::message::{Head, Malformed, lines, request};

/// One side of a connection, without the connection.
#[derive(Debug, Default)]
pub struct Dialogue {
    /// The number of the last request.
    pub cseq: u32,
    /// The session that requests belong to, once SETUP has named it.
    pub session: Option<String>,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    dialogue: Dialogue,
}

/// What lies at the start of the bytes that a server sent.
#[derive(Debug, Eq, PartialEq)]
pub enum Incoming {
    /// An answer, and how many bytes it took.
    Response(Response, usize),
    /// Something else of that length: a request of the server's, or interleaved data.
    Other(usize),
    /// Nothing whole yet.
    Partial,
}

/// A client's RTP and RTCP sockets: an even port and the one above it.
#[derive(Debug)]
pub struct Ports {
    /// For RTP.
    pub rtp: UdpSocket,
    /// For RTCP.
    pub rtcp: UdpSocket,
}

/// What [`Client::set_up`] and [`Client::play`] learn.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Session {
    /// The Session header's value, without parameters.
    pub id: String,
    /// The server's ports for RTP and RTCP.
    pub server_ports: (u16, u16),
    /// The synchronisation source the server announced.
    pub ssrc: u32,
}

/// The first packet, as RTP-Info announces it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RtpInfo {
    /// The stream's URL.
    pub url: String,
    /// The sequence number.
    pub sequence: u16,
    /// The timestamp.
    pub timestamp: u32,
}

impl Client {
    /// Connects. Every later wait for the server ends with an error after [`WAIT_MAX`].
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(Connection::connect(server)?))
    }

    /// The same, from an address of this host's own choice.
    pub fn connect_from(local: IpAddr, server: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(local, 0).into())?;
        socket.connect_timeout(&server.into(), WAIT_MAX)?;
        Ok(Self::over(Connection::over(socket.into())?))
    }

    fn over(connection: Connection) -> Self {
        Self {
            connection,
            dialogue: Dialogue::default(),
        }
    }

    /// Sends a request with the next CSeq and reads its answer, which must carry the same.
    pub fn request(
        &mut self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<Response> {
        self.send(method, uri, headers)?;
        let response = self.response()?;
        let cseq = self.dialogue.cseq;
        match response.header("CSeq").and_then(|c| c.parse().ok()) == Some(cseq) {
            true => Ok(response),
            false => Err(unexpected(format!(
                "request {cseq} was answered {response:?}"
            ))),
        }
    }

    /// Sends a request with the next CSeq, and does not wait for its answer.
    pub fn send(&mut self, method: &str, uri: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let request = self.dialogue.request(method, uri, headers);
        self.send_raw(request.as_bytes())
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection.send(bytes)
    }

    /// The next response. `UnexpectedEof` if the server closed instead.
    pub fn response(&mut self) -> io::Result<Response> {
        let (mut response, length) = self.connection.head()?;
        let length = usize::try_from(length.unwrap_or(0)).unwrap_or(usize::MAX);
        response.body = self.connection.take(length)?;
        Ok(response)
    }

    /// Whether the server has closed, or closes within [`WAIT_MAX`], and sends nothing before.
    pub fn is_closed(&mut self) -> bool {
        self.connection.is_closed()
    }

    /// Says that nothing more will come; answers can still be read.
    pub fn shut_down(&self) -> io::Result<()> {
        self.connection.stream.shutdown(Shutdown::Write)
    }

    /// Sets up the one track of the presentation at `uri`, for unicast to `ports`.
    pub fn set_up(&mut self, uri: &str, ports: &Ports) -> io::Result<Session> {
        let transport = ports.transport()?;
        let track = format!("{uri}/track1");
        let response = self.request("SETUP", &track, &[("Transport", &transport)])?;
        response
            .session()
            .ok_or_else(|| unexpected(format!("SETUP: {response:?}")))
    }

    /// Plays `range` of a session, or the rest of it.
    pub fn play(&mut self, uri: &str, id: &str, range: Option<&str>) -> io::Result<RtpInfo> {
        let mut headers = vec![("Session", id)];
        headers.extend(range.map(|range| ("Range", range)));
        let response = self.request("PLAY", uri, &headers)?;
        response
            .rtp_info()
            .ok_or_else(|| unexpected(format!("PLAY: {response:?}")))
    }

    /// The connection alone.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.connection.stream
    }

    /// Where the connection comes from.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.connection.stream.local_addr()
    }
}

impl Dialogue {
    /// The next request, in the session that there is.
    pub fn request(&mut self, method: &str, url: &str, headers: &[(&str, &str)]) -> String {
        self.cseq += 1;
        let cseq = self.cseq.to_string();
        let session = self.session.as_deref().map(|id| ("Session", id));
        let headers = headers.iter().copied().chain(session);
        let lines = lines([("CSeq", &*cseq)].into_iter().chain(headers));
        request(method, url, "RTSP/1.0", &lines)
    }
}

impl Incoming {
    /// Reads what is at the start of `bytes`; a message may be of `bytes_max` at the most.
    ///
    /// # Errors
    ///
    /// If it is none, or a longer one.
    pub fn parse(bytes: &[u8], bytes_max: usize) -> Result<Self, Malformed> {
        if let [b'$', _, high, low, ..] = *bytes {
            let frame = 4 + usize::from(u16::from_be_bytes([high, low]));
            let is_whole = bytes.len() >= frame;
            return Ok(if is_whole {
                Self::Other(frame)
            } else {
                Self::Partial
            });
        }
        let Some((head, body)) = Head::parse(bytes)? else {
            return Ok(Self::Partial);
        };
        let length = usize::try_from(head.content_length()?.unwrap_or(0));
        let end = length.ok().and_then(|length| body.checked_add(length));
        let end = end.filter(|&end| end <= bytes_max).ok_or(Malformed)?;
        if bytes.len() < end {
            return Ok(Self::Partial);
        }
        Ok(match head.into_response()? {
            Err(_) => Self::Other(end),
            Ok(mut response) => {
                response.body = bytes[body..end].to_vec();
                Self::Response(response, end)
            }
        })
    }
}

/// The Transport header that asks for unicast to the port `rtp` and to the one above it.
#[must_use]
pub fn transport(rtp: u16) -> String {
    format!("RTP/AVP;unicast;client_port={rtp}-{}", rtp + 1)
}

impl Response {
    /// The session's name, and its time-out in seconds.
    #[must_use]
    pub fn session_id(&self) -> Option<(&str, Option<u64>)> {
        let mut parts = self.header("Session")?.split(';').map(str::trim);
        let id = parts.next()?;
        let timeout = parts.find_map(|part| part.strip_prefix("timeout="));
        Some((id, timeout.and_then(|s| s.trim().parse().ok())))
    }

    /// What a successful SETUP tells.
    #[must_use]
    pub fn session(&self) -> Option<Session> {
        let transport = self.header("Transport")?;
        let value = |name| {
            let mut parameters = transport.split(';').filter_map(|part| part.split_once('='));
            parameters.find(|(n, _)| *n == name).map(|(_, value)| value)
        };
        let (rtp, rtcp) = value("server_port")?.split_once('-')?;
        Some(Session {
            id: self.session_id()?.0.to_owned(),
            server_ports: (rtp.parse().ok()?, rtcp.parse().ok()?),
            ssrc: u32::from_str_radix(value("ssrc")?, 16).ok()?,
        })
    }

    /// What a successful PLAY tells.
    #[must_use]
    pub fn rtp_info(&self) -> Option<RtpInfo> {
        let mut parts = self.header("RTP-Info")?.split(';');
        Some(RtpInfo {
            url: parts.next()?.strip_prefix("url=")?.to_owned(),
            sequence: parts.next()?.strip_prefix("seq=")?.parse().ok()?,
            timestamp: parts.next()?.strip_prefix("rtptime=")?.parse().ok()?,
        })
    }
}

impl Ports {
    /// Binds a pair on `ip`. Receives on them end with an error after [`WAIT_MAX`].
    pub fn bind(ip: IpAddr) -> io::Result<Self> {
        let mut last = io::ErrorKind::AddrInUse.into();
        for _ in 0..100 {
            let rtp = UdpSocket::bind((ip, 0))?;
            let port = rtp.local_addr()?.port();
            if port % 2 == 1 {
                continue;
            }
            match UdpSocket::bind((ip, port + 1)) {
                Ok(rtcp) => {
                    for socket in [&rtp, &rtcp] {
                        socket.set_read_timeout(Some(WAIT_MAX))?;
                    }
                    // Nothing is to be lost while a busy machine lets nobody read; others than root
                    // have less room.
                    set_socket_recv_buffer_size_force(&rtp, RECEIVE_BUFFER_BYTES).ok();
                    return Ok(Self { rtp, rtcp });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The Transport header that asks for them.
    pub fn transport(&self) -> io::Result<String> {
        Ok(transport(self.rtp.local_addr()?.port()))
    }

    /// The next `count` RTP packets.
    pub fn receive(&self, count: usize) -> io::Result<Vec<Vec<u8>>> {
        (0..count).map(|_| receive(&self.rtp)).collect()
    }

    /// The next RTCP datagram that `wanted` says so of; others are passed over, for [`WAIT_MAX`] at
    /// most.
    pub fn rtcp(&self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
        let started = Instant::now();
        while started.elapsed() < WAIT_MAX {
            let datagram = receive(&self.rtcp)?;
            if wanted(&datagram) {
                return Ok(datagram);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// The types of an RTCP datagram's packets, in their order; what cannot be read ends the list.
#[must_use]
pub fn rtcp_types(mut datagram: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let Some(&[_, kind, high, low]) = datagram.first_chunk() {
        let bytes = 4 * (1 + usize::from(u16::from_be_bytes([high, low])));
        let Some(rest) = datagram.get(bytes..) else {
            break;
        };
        types.push(kind);
        datagram = rest;
    }
    types
}

const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

fn receive(socket: &UdpSocket) -> io::Result<Vec<u8>> {
    let mut datagram = vec![0; 2048];
    let bytes = uninterrupted(|| socket.recv(&mut datagram))?;
    datagram.truncate(bytes);
    Ok(datagram)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread::JoinHandle;

    use super::*;
    use crate::connection::testing::answered_with;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn client_answered_with(answer: &'static [u8]) -> (Client, JoinHandle<Vec<u8>>) {
        let (address, server) = answered_with(answer);
        (Client::connect(address).unwrap(), server)
    }

    #[test]
    fn requests_go_as_given_and_answers_are_read() {
        let (mut client, server) = client_answered_with(
            b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nSession: ab;timeout=60\r\nContent-Length: 3\r\n\
              Transport: RTP/AVP;server_port=6-7;ssrc=00ff\r\n\
              RTP-Info: url=rtsp://h/t;seq=5;rtptime=9\r\n\r\nabcRTSP/1.0 404 Not Found\r\n\r\n",
        );
        let response = client.request("OPTIONS", "*", &[("X", "y")]).unwrap();
        assert_eq!(
            server.join().unwrap(),
            b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nX: y\r\n\r\n"
        );
        assert_eq!(
            (response.status, response.body.as_slice()),
            (200, &b"abc"[..])
        );
        let session = response.session().unwrap();
        assert_eq!(
            (session.id.as_str(), session.server_ports, session.ssrc),
            ("ab", (6, 7), 255)
        );
        let info = response.rtp_info().unwrap();
        assert_eq!(
            (info.url.as_str(), info.sequence, info.timestamp),
            ("rtsp://h/t", 5, 9)
        );
        assert_eq!(client.response().unwrap().status, 404);
        assert!(client.is_closed());
    }

    #[test]
    fn another_requests_answer_is_refused() {
        let (mut client, _server) = client_answered_with(b"RTSP/1.0 200 OK\r\nCSeq: 2\r\n\r\n");
        let error = client.request("OPTIONS", "*", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn messages_are_read_whole_and_the_rest_is_left() {
        let bytes = b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 3\r\n\r\nabcRTSP";
        let Ok(Incoming::Response(response, end)) = Incoming::parse(bytes, 100) else {
            panic!("a response");
        };
        assert_eq!((response.status, &response.body[..]), (200, &b"abc"[..]));
        assert_eq!(&bytes[end..], b"RTSP");
        for cut in 0..end {
            let parsed = Incoming::parse(&bytes[..cut], 100);
            assert_eq!(parsed, Ok(Incoming::Partial), "{cut}");
        }
        assert!(Incoming::parse(bytes, end).is_ok());
        assert_eq!(Incoming::parse(bytes, end - 1), Err(Malformed));
    }

    #[test]
    fn what_is_no_answer_is_skipped_or_refused() {
        let parse = |bytes| Incoming::parse(bytes, 1000);
        assert_eq!(parse(b"$\x00\x00\x02abRTSP"), Ok(Incoming::Other(6)));
        assert_eq!(parse(b"$\x00\x00\x02a"), Ok(Incoming::Partial));
        let request = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
        assert_eq!(parse(request), Ok(Incoming::Other(request.len())));
        for malformed in [
            &b"RTSP/1.0 2x0 OK\r\n\r\n"[..],
            b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"RTSP/1.0 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
            b"RTSP/1.0 \xff\xff\xff\r\n\r\n",
        ] {
            assert_eq!(parse(malformed), Err(Malformed), "{malformed:?}");
        }
    }

    #[test]
    fn sessions_name_their_time_out_or_not() {
        for (value, session) in [
            ("abc;timeout=30", ("abc", Some(30))),
            ("abc", ("abc", None)),
            ("abc; timeout=x", ("abc", None)),
        ] {
            let bytes = format!("RTSP/1.0 200 OK\r\nSession: {value}\r\n\r\n");
            let Ok(Incoming::Response(response, _)) = Incoming::parse(bytes.as_bytes(), 1000)
            else {
                panic!("a response");
            };
            assert_eq!(response.session_id(), Some(session));
        }
    }

    #[test]
    fn ports_are_a_pair() {
        let ports = Ports::bind(LOOPBACK).unwrap();
        let rtp = ports.rtp.local_addr().unwrap().port();
        assert_eq!(rtp % 2, 0);
        assert_eq!(
            ports.transport().unwrap(),
            format!("RTP/AVP;unicast;client_port={rtp}-{}", rtp + 1)
        );
    }

    #[test]
    fn rtcp_types_stop_at_what_is_cut() {
        let datagram = [0x80, 201, 0, 1, 0, 0, 0, 1, 0x81, 203, 0, 1, 0, 0, 0, 1];
        assert_eq!(rtcp_types(&datagram), [201, 203]);
        assert_eq!(rtcp_types(&datagram[..15]), [201]);
    }
}
