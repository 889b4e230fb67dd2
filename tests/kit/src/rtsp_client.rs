//! An RTSP client that does as it is told, right or wrong.
//!
//! It adds nothing to a request but what [`Client::request`] says, and can send any bytes at all.
//! Every wait ends: a server that says nothing is an error, not a test that hangs.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Socket, Type};

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    cseq: u32,
    received: Vec<u8>,
}

/// What a server answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// What stands behind it.
    pub reason: String,
    /// Names as sent, values without the space around them.
    pub headers: Vec<(String, String)>,
    /// As long as Content-Length says.
    pub body: Vec<u8>,
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
        Self::over(TcpStream::connect_timeout(&server, WAIT_MAX)?)
    }

    /// The same, from an address of this host's own choice.
    pub fn connect_from(local: IpAddr, server: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(local, 0).into())?;
        socket.connect_timeout(&server.into(), WAIT_MAX)?;
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        stream.set_write_timeout(Some(WAIT_MAX))?;
        Ok(Self {
            stream,
            cseq: 0,
            received: Vec::new(),
        })
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
        let answered = response.header("CSeq").and_then(|c| c.parse().ok());
        if answered == Some(self.cseq) {
            Ok(response)
        } else {
            Err(unexpected(format!(
                "the answer to request {} was {response:?}",
                self.cseq
            )))
        }
    }

    /// Sends a request with the next CSeq, and does not wait for its answer.
    pub fn send(&mut self, method: &str, uri: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        self.cseq += 1;
        let headers: String = headers
            .iter()
            .map(|(n, v)| format!("{n}: {v}\r\n"))
            .collect();
        let head = format!(
            "{method} {uri} RTSP/1.0\r\nCSeq: {}\r\n{headers}\r\n",
            self.cseq
        );
        self.send_raw(head.as_bytes())
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next response. `UnexpectedEof` if the server closed instead.
    pub fn response(&mut self) -> io::Result<Response> {
        let head_bytes = loop {
            match self.received.windows(4).position(|w| w == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.receive()?,
            }
        };
        let head = String::from_utf8_lossy(&self.received[..head_bytes]).into_owned();
        let mut response =
            parse(&head).ok_or_else(|| unexpected(format!("not a response: {head:?}")))?;
        let body_bytes = match response.header("Content-Length").map(str::parse) {
            None => 0,
            Some(Ok(bytes)) => bytes,
            Some(Err(_)) => return Err(unexpected(format!("no length: {head:?}"))),
        };
        while self.received.len() < head_bytes + body_bytes {
            self.receive()?;
        }
        self.received.drain(..head_bytes);
        response.body = self.received.drain(..body_bytes).collect();
        Ok(response)
    }

    /// Whether the server has closed, or closes within [`WAIT_MAX`], and sends nothing before.
    pub fn is_closed(&mut self) -> bool {
        match self.receive() {
            Err(error) => !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ),
            Ok(()) => false,
        }
    }

    /// Says that nothing more will come; answers can still be read.
    pub fn shut_down(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
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

    /// Where the connection comes from.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let read = uninterrupted(|| self.stream.read(&mut bytes))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received.extend_from_slice(&bytes[..read]);
        Ok(())
    }
}

impl Response {
    /// The value of the first header of that name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.headers
            .iter()
            .find(named)
            .map(|(_, value)| value.as_str())
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
            id: self.header("Session")?.split(';').next()?.to_owned(),
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
        let (rtp, rtcp) = (
            self.rtp.local_addr()?.port(),
            self.rtcp.local_addr()?.port(),
        );
        Ok(format!("RTP/AVP;unicast;client_port={rtp}-{rtcp}"))
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

/// The longest wait for a server that says nothing. Long, because it only ends tests that fail.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Calls again what a signal interrupted. A ring of this process may wake any of its threads so
/// (task work of io_uring), and a read with a time-out is not restarted (signal(7)).
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn receive(socket: &UdpSocket) -> io::Result<Vec<u8>> {
    let mut datagram = vec![0; 2048];
    let bytes = uninterrupted(|| socket.recv(&mut datagram))?;
    datagram.truncate(bytes);
    Ok(datagram)
}

fn parse(head: &str) -> Option<Response> {
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let (status, reason) = lines.next()?.strip_prefix("RTSP/1.0 ")?.split_once(' ')?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    Some(Response {
        status: status.parse().ok()?,
        reason: reason.to_owned(),
        headers: lines.map(header).collect::<Option<_>>()?,
        body: Vec::new(),
    })
}

fn unexpected(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A server that answers the first request with these bytes, and closes.
    fn answered_with(answer: &'static [u8]) -> (Client, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let client = Client::connect(listener.local_addr().unwrap()).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(answer).unwrap();
            request
        });
        (client, server)
    }

    #[test]
    fn it_sends_what_it_is_told_and_reads_what_comes() {
        let (mut client, server) = answered_with(
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
    fn it_is_not_content_with_another_requests_answer() {
        let (mut client, _server) = answered_with(b"RTSP/1.0 200 OK\r\nCSeq: 2\r\n\r\n");
        let error = client.request("OPTIONS", "*", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
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
