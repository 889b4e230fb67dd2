//! What tests of publishing share: a server, and publishers and viewers by hand.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(
    unreachable_pub,
    reason = "a module of test binaries is reached by nobody else"
)]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::interleaved::{InterleavedClient, Received};
use onrush_testkit::message::Response;
use onrush_testkit::testbed::Mode;
use onrush_wire::rtp::Header;

use super::common::{self, LONG, ONRUSH, Site};

/// A server that is heard on loopback too.
pub fn serve(arguments: &[&str]) -> Site {
    let (testbed, media) = Site::prepare(Mode::Uso);
    let mut command = testbed.snd.command(ONRUSH);
    command.args(common::serve_arguments(media.path()));
    command.args(["--rtsp=127.0.0.1:8554", "--metrics=127.0.0.1:9554"]);
    command.args(arguments);
    Site::serve_by(testbed, media, command)
}

/// What the server says of its first channel, once that is so.
pub fn channel(
    site: &Site,
    what: &str,
    is_so: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    nth_channel(site, (0, what), is_so)
}

/// Likewise of another.
pub fn nth_channel(
    site: &Site,
    (number, what): (usize, &str),
    is_so: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let give_up = Instant::now() + LONG;
    loop {
        let mut command = site.testbed.snd.command("curl");
        command.args(["-s", "http://127.0.0.1:9554/status"]);
        let output = command.output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let channel = status["channels"][number].clone();
        if is_so(&channel) {
            return channel;
        }
        let log = site.server.log_tail();
        assert!(Instant::now() < give_up, "{what}: {channel:#}\n{log}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A publisher by hand, on a connection of its own.
pub struct Hand {
    pub client: InterleavedClient,
    pub url: String,
    pub sequence: u16,
}

pub const SDP: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
    a=rtpmap:96 H264/90000\r\na=control:streamid=0\r\nm=audio 0 RTP/AVP 97\r\n\
    a=rtpmap:97 opus/48000/2\r\na=control:streamid=1\r\n";

impl Hand {
    pub fn connect(site: &Site, from_elsewhere: bool) -> Self {
        let (side, server) = match from_elsewhere {
            true => (&site.testbed.rcv, "10.77.0.1:8554"),
            false => (&site.testbed.snd, "127.0.0.1:8554"),
        };
        let address: SocketAddr = server.parse().unwrap();
        Self {
            client: side.run(|| InterleavedClient::connect(address)).unwrap(),
            url: format!("rtsp://{server}/live/cam"),
            sequence: 0,
        }
    }

    pub fn announce(&mut self, sdp: &str) -> Response {
        let length = sdp.len().to_string();
        let headers = [
            ("Content-Type", "application/sdp"),
            ("Content-Length", &length),
        ];
        self.client.send("ANNOUNCE", &self.url, &headers).unwrap();
        self.client.send_raw(sdp.as_bytes()).unwrap();
        match self.client.receive().unwrap() {
            Received::Response(response) => response,
            other => panic!("{other:?}"),
        }
    }

    pub fn ask(&mut self, method: &str) -> u16 {
        let url = self.url.clone();
        self.client.request(method, &url, &[]).unwrap().status
    }

    /// All of it, of both tracks.
    pub fn publish(site: &Site, sdp: &str) -> Self {
        Self::connect(site, false).record(sdp)
    }

    /// The same, of what is at its URL.
    pub fn record(self, sdp: &str) -> Self {
        let mut hand = self;
        assert_eq!(hand.announce(sdp).status, 200);
        for (track, channels) in [(0, "0-1"), (1, "2-3")] {
            let url = format!("{}/streamid={track}", hand.url);
            let transport = format!("RTP/AVP/TCP;unicast;interleaved={channels};mode=record");
            let answer = hand.client.set_up(&url, &transport).unwrap();
            assert!(
                answer.contains(&format!("interleaved={channels}")),
                "{answer}"
            );
        }
        assert_eq!(hand.ask("RECORD"), 200);
        hand
    }

    pub fn packet(&mut self, ssrc: u32, payload_type: u8, timestamp: u32, nal: u8) -> Vec<u8> {
        let header = Header {
            marker: true,
            payload_type,
            sequence: self.sequence,
            timestamp,
            ssrc,
        };
        self.sequence = self.sequence.wrapping_add(1);
        [&header.to_bytes()[..], &[nal, 1, 2, 3]].concat()
    }

    /// A picture of one packet.
    pub fn picture(&mut self, timestamp: u32, is_sync: bool) {
        let packet = self.packet(7, 96, timestamp, if is_sync { 0x65 } else { 0x41 });
        self.client.send_frame(0, &packet).unwrap();
    }
}

/// A viewer by hand: the numbers of what it gets.
pub struct Eyes {
    pub client: InterleavedClient,
    pub url: String,
}

impl Eyes {
    pub fn set_up(site: &Site) -> Self {
        let mut eyes = Self::connect(site);
        eyes.set_up_track(&format!("{}/track1", eyes.url));
        eyes
    }

    /// With URLs as the description of `?query` has them, of which PLAY has the whole's.
    pub fn set_up_as_described(site: &Site, query: &str) -> Self {
        let mut eyes = Self::connect(site);
        let url = format!("{}{query}", eyes.url);
        let described = eyes.client.request("DESCRIBE", &url, &[]).unwrap();
        assert_eq!(described.status, 200, "{described:?}");
        described
            .header("Content-Base")
            .unwrap()
            .clone_into(&mut eyes.url);
        eyes.set_up_track(&format!("{}track1", eyes.url));
        eyes
    }

    fn connect(site: &Site) -> Self {
        let address: SocketAddr = "10.77.0.1:8554".parse().unwrap();
        let client = site
            .testbed
            .rcv
            .run(|| InterleavedClient::connect(address))
            .unwrap();
        let url = site.url("live/cam");
        Self { client, url }
    }

    fn set_up_track(&mut self, track: &str) {
        let transport = "RTP/AVP/TCP;unicast;interleaved=0-1";
        self.client.set_up(track, transport).unwrap();
    }

    pub fn play(&mut self) -> Response {
        let url = self.url.clone();
        let response = self.client.request("PLAY", &url, &[]).unwrap();
        assert_eq!(response.status, 200, "{response:?}");
        response
    }

    /// The next RTP packet.
    pub fn next(&mut self) -> (Header, u8) {
        loop {
            let frame = self.client.frame().unwrap();
            if frame.channel == 0 {
                return (Header::read(&frame.packet).unwrap(), frame.packet[12]);
            }
        }
    }
}
