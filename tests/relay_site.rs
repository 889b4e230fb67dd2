//! What the tests of `onrush relay` share: a relay in a testbed, its sources and its members.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(
    unreachable_pub,
    reason = "a module of test binaries is reached by nobody else"
)]

use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::http_client::Client;
use onrush_testkit::process::Process;
use onrush_testkit::testbed::{
    Mode, Options, RCV_IPV4, RCV_IPV6, SND_IPV4, SND_IPV6, Testbed, stay_on_one_processor,
};
use onrush_wire::rtp::Header;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use tempfile::TempDir;

use super::common::{LONG, ONRUSH};

/// A relay in the sending side of a testbed; sources and members are on the other side.
pub struct Site {
    pub relay: Process,
    pub testbed: Testbed,
}

impl Site {
    pub fn start(arguments: &[&str]) -> Self {
        let testbed = Testbed::new(Options {
            mode: Mode::Uso,
            ..Options::default()
        })
        .unwrap();
        let relay = Self::relay(&testbed, arguments);
        Self { relay, testbed }
    }

    pub fn relay(testbed: &Testbed, arguments: &[&str]) -> Process {
        let mut command = testbed.snd.command(ONRUSH);
        let relay = Process::start(command.arg("relay").args(arguments)).unwrap();
        let ready = relay.wait_for_line("stopping", LONG);
        assert!(ready.is_some(), "no relay:\n{}", relay.log_tail());
        relay
    }

    /// A socket on the far side that sends to the relay's port 5004.
    pub fn source(&self, is_ipv4: bool) -> UdpSocket {
        let (own, relay): (IpAddr, IpAddr) = match is_ipv4 {
            true => (RCV_IPV4.into(), SND_IPV4.into()),
            false => (RCV_IPV6.into(), SND_IPV6.into()),
        };
        let socket = self.testbed.rcv.run(|| UdpSocket::bind((own, 0))).unwrap();
        socket.connect((relay, INPUT_PORT)).unwrap();
        socket
    }

    /// A receiver on the far side.
    pub fn member(&self, is_ipv4: bool) -> UdpSocket {
        let own: IpAddr = if is_ipv4 {
            RCV_IPV4.into()
        } else {
            RCV_IPV6.into()
        };
        let socket = self.testbed.rcv.run(|| UdpSocket::bind((own, 0))).unwrap();
        set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    }

    pub fn stop(mut self) -> String {
        let status = self.relay.interrupt(LONG).unwrap();
        let log = self.relay.log();
        assert_eq!(status.code(), Some(0), "{}", self.relay.log_tail());
        assert!(!log.contains("panicked"), "{log}");
        log
    }

    /// A connection to the control API.
    pub fn connect(&self) -> Client {
        let api = ([127, 0, 0, 1], 8555).into();
        self.testbed.snd.run(|| Client::connect(api)).unwrap()
    }

    /// A request to the control API, with the token that the relay printed.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
        let line = self.relay.wait_for_line("Bearer", LONG).unwrap();
        let token = line.split("Bearer ").nth(1).unwrap();
        let token = token.split('\'').next().unwrap();
        let head = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        let (status, body) = self.ask_raw(method, path, &head, body.as_bytes());
        let body = serde_json::from_slice(&body);
        (status, body.unwrap_or(serde_json::Value::Null))
    }

    pub fn ask_raw(&self, method: &str, path: &str, head: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut client = self.connect();
        let bytes = body.len();
        let head = format!("Connection: close\r\n{head}Content-Length: {bytes}\r\n");
        client.ask(method, path, &head).unwrap();
        // Refused before it is read, it may be cut off.
        client.connection.send(body).ok();
        let answer = client.response(false).unwrap();
        (answer.status, answer.body)
    }

    /// Asks for the counters of the only source until they are as they should be.
    pub fn wait_for(
        &self,
        what: &str,
        is_so: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let give_up = Instant::now() + LONG;
        loop {
            let (status, source) = self.ask("GET", "/sources/live", "");
            assert_eq!(status, 200, "{source}");
            if is_so(&source) {
                return source;
            }
            let log = self.relay.log_tail();
            assert!(Instant::now() < give_up, "{what}: {source:#}\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A file of members, replaced in one step.
pub struct MembersFile {
    folder: TempDir,
    pub path: PathBuf,
}

impl MembersFile {
    pub fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members");
        let file = Self { folder, path };
        file.write(text);
        file
    }

    pub fn write(&self, text: &str) {
        let beside = self.folder.path().join("beside");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &self.path).unwrap();
    }

    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// An RTP packet that no other is like.
pub fn rtp(sequence: u16, bytes: usize) -> Vec<u8> {
    let header = Header {
        marker: false,
        payload_type: 33,
        sequence,
        timestamp: u32::from(sequence) * 300,
        ssrc: 7,
    };
    let mut packet = header.to_bytes().to_vec();
    packet.extend((0..bytes - packet.len()).map(|i| (i ^ usize::from(sequence)).to_le_bytes()[0]));
    packet
}

/// Sends these in their order.
pub fn send_all(source: &UdpSocket, packets: &[Vec<u8>]) {
    // On a thread of its own: who is started by this one is to run where it likes.
    let send = || {
        stay_on_one_processor();
        for packet in packets {
            source.send(packet).unwrap();
        }
    };
    thread::scope(|scope| scope.spawn(send).join()).unwrap();
}

/// What arrives, in order, until so many have.
pub fn received(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let one = |_| {
        let bytes = socket.recv(&mut buffer).expect("it comes");
        buffer[..bytes].to_vec()
    };
    (0..count).map(one).collect()
}

pub fn assert_silent(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let nothing = socket.recv(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
}

/// Stops those who come and go when it is dropped.
pub struct Stopper<'a>(pub &'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whole transport packets of one PID, which count on where they left off.
pub fn transport_stream(packets: u8) -> Vec<u8> {
    let packet = |i| {
        let mut ts = vec![i; 188];
        ts[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
        ts
    };
    (0..packets).flat_map(packet).collect()
}

/// Where the relay takes its source in.
pub const INPUT_PORT: u16 = 5004;
