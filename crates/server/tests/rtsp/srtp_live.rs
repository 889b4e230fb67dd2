//! Live channels as encrypted packets, by a publisher and viewers that decrypt and see which key
//! stream each packet has taken.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrush_server::channels::config::SourceConfig;
use onrush_server::tls::{SrtpKeys, SrtpOffer, TlsConfig};
use onrush_testkit::http_client;
use onrush_testkit::interleaved::{InterleavedClient, Received};
use onrush_wire::srtp::{MikeyMessage, RtcpReceiver, RtpKeys, RtpReceiver};

use super::srtp::{savp, sets_up};
use super::tls::bridge;
use super::*;

const SDP: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
    a=rtpmap:96 H264/90000\r\na=control:streamid=0\r\n";

/// A picture that a decoder can start at, and another, as NAL unit headers.
const SYNC: u8 = 0x65;
const OTHER: u8 = 0x41;

/// A server with TLS, and what was published there.
struct Cam {
    fixture: Fixture,
    /// Where TLS is.
    at: SocketAddr,
    sent: Cell<u64>,
}

impl Cam {
    fn new(keys: SrtpKeys) -> Self {
        Self::with(keys, |_| {})
    }

    fn with(keys: SrtpKeys, change: impl FnOnce(&mut Config)) -> Self {
        let fixture = Fixture::with(|config| {
            change(config);
            config.rtsps_addresses = vec![(V4, 0).into()];
            config.metrics_address = Some((V4, 0).into());
            config.tls = TlsConfig {
                self_signed: Some(vec!["localhost".to_owned()]),
                srtp: SrtpOffer::Plain,
                srtp_keys: keys,
                ..TlsConfig::default()
            };
        });
        Self {
            at: bridge(fixture.server.rtsps_addresses()[0]),
            fixture,
            sent: Cell::new(0),
        }
    }

    fn channel(&self) -> serde_json::Value {
        let metrics = self.fixture.server.metrics_address().unwrap();
        let client = http_client::Client::connect(metrics).unwrap();
        let status = client.get("/status").unwrap();
        serde_json::from_slice::<serde_json::Value>(&status).unwrap()["channels"][0].take()
    }

    /// Waits until the channel has taken all that was sent.
    fn settle(&self) {
        wait_until("the channel has it", || {
            self.channel()["received"]["rtp"] == self.sent.get()
        });
    }

    /// Packets that were encrypted, and those whose numbers were used.
    fn encrypted(&self) -> [u64; 2] {
        let channel = self.channel();
        ["encrypted", "unencrypted"].map(|name| channel["sent"][name].as_u64().unwrap())
    }
}

/// One who publishes live/cam, a packet a picture.
struct Publisher<'a> {
    cam: &'a Cam,
    client: InterleavedClient,
    ssrc: u32,
    sequence: u16,
    pictures: u32,
}

impl<'a> Publisher<'a> {
    fn new(cam: &'a Cam, ssrc: u32, sequence: u16) -> Self {
        let mut client = InterleavedClient::connect(cam.fixture.address()).unwrap();
        let url = cam.fixture.url("live/cam");
        let started = Instant::now();
        // The one before has gone, which the server may not have seen yet.
        while announce(&mut client, &url) != 200 {
            assert!(started.elapsed() < WAIT_MAX, "the name is not free");
            std::thread::sleep(Duration::from_millis(20));
        }
        let transport = "RTP/AVP/TCP;unicast;interleaved=0-1;mode=record";
        client
            .set_up(&format!("{url}/streamid=0"), transport)
            .unwrap();
        assert_eq!(client.request("RECORD", &url, &[]).unwrap().status, 200);
        Self {
            cam,
            client,
            ssrc,
            sequence,
            pictures: 0,
        }
    }

    /// Sends a picture, and says what is in it.
    fn send(&mut self, nal: u8) -> Vec<u8> {
        let header = Header {
            marker: true,
            payload_type: 96,
            sequence: self.sequence,
            timestamp: self.pictures * 3600,
            ssrc: self.ssrc,
        };
        let payload = format!("{} of {}", self.pictures, self.ssrc);
        let payload = [&[nal], payload.as_bytes()].concat();
        let packet = [&header.to_bytes()[..], &payload].concat();
        self.client.send_frame(0, &packet).unwrap();
        self.sequence = self.sequence.wrapping_add(1);
        self.pictures += 1;
        self.cam.sent.update(|sent| sent + 1);
        payload
    }
}

fn announce(client: &mut InterleavedClient, url: &str) -> u16 {
    let length = SDP.len().to_string();
    let headers = [
        ("Content-Type", "application/sdp"),
        ("Content-Length", &length),
    ];
    client.send("ANNOUNCE", url, &headers).unwrap();
    client.send_raw(SDP.as_bytes()).unwrap();
    match client.receive().unwrap() {
        Received::Response(response) => response.status,
        other => panic!("{other:?}"),
    }
}

/// What a description of the channel says: where its parts are, its key, and `a=crypto`.
fn describe(cam: &Cam, client: &mut Client, query: &str) -> (String, MikeyMessage, bool) {
    let url = format!("{}?{query}", cam.fixture.url("live/cam"));
    let response = client.request("DESCRIBE", &url, &[]).unwrap();
    assert_eq!(response.status, 200, "{}", response.reason);
    let base = response.header("Content-Base").unwrap().to_owned();
    let text = response.text();
    assert!(text.contains("m=video 0 RTP/SAVP "), "{text}");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("a=key-mgmt:mikey "));
    let message = STANDARD.decode(value.unwrap()).unwrap();
    (
        base.trim_end_matches('/').to_owned(),
        MikeyMessage::parse(&message).unwrap(),
        text.contains("a=crypto:"),
    )
}

/// What was encrypted with one key, by SSRC and index: no two packets may have one.
type KeyStreams = HashMap<(u32, u64), Vec<u8>>;

/// A viewer that decrypts.
struct Reader {
    viewer: Viewer,
    message: MikeyMessage,
    /// By SSRC, the index of the last packet.
    last: HashMap<u32, u64>,
}

/// A packet as it came, and its header and payload.
struct Read {
    sealed: Vec<u8>,
    header: Header,
    payload: Vec<u8>,
}

impl Reader {
    /// One who has asked over TLS, once the channel has all that was sent.
    fn new(cam: &Cam, query: &str) -> Self {
        Self::at(cam, cam.at, query)
    }

    fn at(cam: &Cam, at: SocketAddr, query: &str) -> Self {
        cam.settle();
        let mut client = Client::connect(at).unwrap();
        let (url, message, _) = describe(cam, &mut client, query);
        Self::of(client, &url, message)
    }

    fn of(client: Client, url: &str, message: MikeyMessage) -> Self {
        let viewer = sets_up(client, url, &message.key);
        Self {
            viewer,
            message,
            last: HashMap::new(),
        }
    }

    /// Begins to play: the numbers of the first packet.
    fn play(&mut self) -> (u16, u32) {
        self.viewer.play(None)
    }

    /// Decrypts so many packets, which follow each other.
    fn read(&mut self, count: usize, used: &mut KeyStreams) -> Vec<Read> {
        let packets = self.viewer.ports.receive(count).unwrap();
        let keys = RtpKeys::new(&self.message.key);
        let mut read = Vec::new();
        for sealed in packets {
            let clear = Header::read(&sealed).unwrap();
            let number = u64::from(clear.sequence);
            let index = match self.last.get(&clear.ssrc) {
                None => number,
                Some(last) => last + 1,
            };
            assert_eq!(index & 0xffff, number, "a number is missing, or too much");
            let mut packet = sealed.clone();
            let packet = keys.unprotect(index, &mut packet).unwrap().to_vec();
            self.last.insert(clear.ssrc, index);
            let before = used.insert((clear.ssrc, index), packet.clone());
            assert!(before.is_none_or(|it| it == packet), "a key stream twice");
            read.push(Read {
                sealed,
                header: clear,
                payload: packet[HEADER_BYTES..].to_vec(),
            });
        }
        read
    }
}

fn payloads(read: &[Read]) -> Vec<Vec<u8>> {
    read.iter().map(|read| read.payload.clone()).collect()
}

/// Sends so many pictures that are no sync samples.
fn send(publisher: &mut Publisher<'_>, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| publisher.send(OTHER)).collect()
}

#[test]
fn who_shares_a_channels_key_gets_the_same_bytes() {
    let cam = Cam::new(SrtpKeys::Shared);
    let mut publisher = Publisher::new(&cam, 7, 900);
    for query in ["srtp", "srtp=gcm"] {
        let mut used = KeyStreams::new();
        send(&mut publisher, 3);
        let mut sent = vec![publisher.send(SYNC)];
        sent.extend(send(&mut publisher, 5));
        let mut one = Reader::new(&cam, query);
        let (sequence, timestamp) = one.play();
        let first = one.read(6, &mut used);
        assert_eq!(payloads(&first), sent, "from the sync sample on");
        let header = first[0].header;
        assert_eq!((header.sequence, header.timestamp), (sequence, timestamp));
        assert_eq!(header.ssrc, one.viewer.session.ssrc);
        assert!(sequence < 1 << 14, "far from where numbers wrap");
        // A second one begins there, too, and all that comes is the same for both.
        sent.extend(send(&mut publisher, 4));
        let first: Vec<_> = first.into_iter().chain(one.read(4, &mut used)).collect();
        let mut two = Reader::new(&cam, query);
        assert_eq!(one.message.key, two.message.key, "a channel has one key");
        two.play();
        let second = two.read(10, &mut used);
        sent.extend(send(&mut publisher, 40));
        let all = |reader: &mut Reader, before: Vec<Read>, used: &mut KeyStreams| {
            let mut all = before;
            all.extend(reader.read(40, used));
            let sealed = all.iter().map(|read| read.sealed.clone());
            assert_eq!(payloads(&all), sent);
            sealed.collect::<Vec<_>>()
        };
        let sealed = all(&mut one, first, &mut used);
        assert!(sealed == all(&mut two, second, &mut used), "byte for byte");
        assert_eq!(cam.encrypted()[1], 0);
        for reader in [&one, &two] {
            let mut rtcp = RtcpReceiver::new(&reader.message.key);
            let report = reader.viewer.ports.rtcp(|_| true).unwrap();
            let report = rtcp.unprotect(&report).unwrap();
            assert_eq!(rtcp_types(&report)[..2], [SR, SDES]);
        }
    }
}

/// Whoever publishes decides the numbers that packets come with.
#[test]
fn a_publisher_that_comes_back_uses_no_key_stream_twice() {
    for keys in [SrtpKeys::Shared, SrtpKeys::Own] {
        let cam = Cam::new(keys);
        let mut used = KeyStreams::new();
        let mut publisher = Publisher::new(&cam, 7, 1000);
        let mut sent = vec![publisher.send(SYNC)];
        let mut reader = Reader::new(&cam, "srtp");
        reader.play();
        sent.extend(send(&mut publisher, 10));
        // Once more the last numbers, with other bytes: they are nobody's.
        publisher.sequence -= 3;
        send(&mut publisher, 3);
        sent.extend(send(&mut publisher, 1));
        assert_eq!(payloads(&reader.read(12, &mut used)), sent);
        wait_until("they are counted", || cam.encrypted() == [12, 3]);
        // Another begins with the numbers that the first had, and has its SSRC, too.
        cam.settle();
        drop(publisher);
        let mut publisher = Publisher::new(&cam, 7, 1000);
        publisher.pictures = 100;
        let mut sent = vec![publisher.send(SYNC)];
        sent.extend(send(&mut publisher, 10));
        let read = reader.read(11, &mut used);
        assert_eq!(payloads(&read), sent, "{keys:?}");
        let ssrcs: HashSet<_> = used.keys().map(|(ssrc, _)| ssrc).collect();
        assert_eq!(ssrcs.len(), 1, "its viewer goes on with one SSRC");
        // Its numbers begin anew without a word: the first packet is taken for a late one, and its
        // number stays free.
        publisher.sequence = 300;
        send(&mut publisher, 1);
        reader.last.values_mut().for_each(|last| *last += 1);
        let sent = send(&mut publisher, 5);
        assert_eq!(payloads(&reader.read(5, &mut used)), sent);
    }
}

#[test]
fn late_viewers_get_numbers_that_have_not_wrapped() {
    let cam = Cam::new(SrtpKeys::Shared);
    let mut publisher = Publisher::new(&cam, 7, 0);
    publisher.send(SYNC);
    let mut first = Reader::new(&cam, "srtp");
    first.play();
    let mut used = KeyStreams::new();
    first.read(1, &mut used);
    // Told before numbers wrap, and not there yet.
    let mut client = Client::connect(cam.at).unwrap();
    let (url, early, has_crypto) = describe(&cam, &mut client, "srtp");
    assert!(early.key == first.message.key && has_crypto);
    for step in 1..=3_u16 {
        publisher.sequence = step.wrapping_mul(30_000);
        publisher.send(OTHER);
    }
    let sent = publisher.send(SYNC);
    cam.settle();
    first.viewer.ports.receive(4).unwrap();
    // Who comes shares a key with who comes then.
    let mut late = [0, 1].map(|_| Reader::new(&cam, "srtp"));
    assert_ne!(late[0].message.key, early.key);
    assert_eq!(late[0].message.key, late[1].message.key);
    let mut sealed = Vec::new();
    let mut of_late = KeyStreams::new();
    for late in &mut late {
        late.play();
        let read = late.read(1, &mut of_late);
        assert!(read[0].payload == sent && read[0].header.sequence < 1 << 14);
        sealed.push(read[0].sealed.clone());
    }
    assert!(sealed[0] == sealed[1], "byte for byte");
    // Who believes that the first ones have not wrapped gets others that have not.
    let mut early = Reader::of(client, &url, early);
    let (sequence, _) = early.play();
    let read = early.read(1, &mut used);
    assert_eq!(
        (&read[0].payload, read[0].header.sequence),
        (&sent, sequence)
    );
    assert_ne!(read[0].header.ssrc, first.viewer.session.ssrc);
    let sent = send(&mut publisher, 5);
    assert_eq!(payloads(&early.read(5, &mut used)), sent);
    for late in &mut late {
        assert_eq!(payloads(&late.read(5, &mut of_late)), sent);
    }
    // The first one plays on, with numbers that have wrapped.
    let mut receiver = RtpReceiver::new(&first.message.key);
    let mut last = first.viewer.ports.receive(5).unwrap();
    let clear = Header::read(&last[0]).unwrap();
    assert_eq!(clear.ssrc, first.viewer.session.ssrc);
    assert!(
        receiver.unprotect(&mut last[0]).is_err(),
        "as if none had wrapped"
    );
    let index = 1 << 16 | u64::from(Header::read(&last[4]).unwrap().sequence);
    let keys = RtpKeys::new(&first.message.key);
    let opened = keys.unprotect(index, &mut last[4]).unwrap();
    assert_eq!(opened[HEADER_BYTES..], sent[4]);
}

#[test]
fn a_viewer_that_has_paused_goes_on_alone() {
    for keys in [SrtpKeys::Shared, SrtpKeys::Own] {
        let cam = Cam::new(keys);
        // Who share a key take from the same key streams.
        let mut streams = <[KeyStreams; 2]>::default();
        let of_other = usize::from(keys == SrtpKeys::Own);
        let mut publisher = Publisher::new(&cam, 7, 65_530);
        publisher.send(SYNC);
        let mut reader = Reader::new(&cam, "srtp");
        reader.play();
        let first = reader.read(1, &mut streams[0])[0].header;
        let mut other = Reader::new(&cam, "srtp");
        other.play();
        other.read(1, &mut streams[of_other]);
        assert_eq!(reader.viewer.request("PAUSE", &[]).status, 200);
        let missed = send(&mut publisher, 3);
        let read = other.read(3, &mut streams[of_other]);
        assert_eq!(payloads(&read), missed);
        let mut sent = vec![publisher.send(SYNC)];
        other.read(1, &mut streams[of_other]);
        cam.settle();
        let (sequence, timestamp) = reader.play();
        sent.extend(send(&mut publisher, 5));
        let read = reader.read(6, &mut streams[0]);
        assert_eq!(payloads(&read), sent);
        let header = read[0].header;
        assert_eq!((header.sequence, header.timestamp), (sequence, timestamp));
        match keys {
            SrtpKeys::Shared => assert_ne!(header.ssrc, first.ssrc, "its numbers are others"),
            SrtpKeys::Own => assert_eq!(header.ssrc, first.ssrc),
        }
        let read = other.read(5, &mut streams[of_other]);
        assert_eq!(payloads(&read), sent[1..]);
    }
}

#[test]
fn each_viewer_of_a_channel_has_a_key_of_its_own() {
    let cam = Cam::new(SrtpKeys::Own);
    let mut publisher = Publisher::new(&cam, 7, 65_530);
    let mut sent = vec![publisher.send(SYNC)];
    // Without TLS, too, because the server is told so.
    let readers = [cam.at, cam.fixture.address()];
    let mut readers = readers.map(|at| Reader::at(&cam, at, "srtp=gcm"));
    assert_ne!(readers[0].message.key, readers[1].message.key);
    for reader in &mut readers {
        reader.play();
    }
    sent.extend(send(&mut publisher, 60));
    for reader in &mut readers {
        let read = reader.read(61, &mut KeyStreams::new());
        assert_eq!(payloads(&read), sent);
        assert!(read[0].header.sequence < 1 << 14);
        let mut receiver = RtpReceiver::new(&reader.message.key);
        for read in read {
            receiver.unprotect(&mut read.sealed.clone()).unwrap();
        }
    }
}

#[test]
fn what_a_channel_cannot_be_sent_by_is_refused() {
    let cam = Cam::new(SrtpKeys::Shared);
    let mut publisher = Publisher::new(&cam, 7, 0);
    publisher.send(SYNC);
    let mut client = Client::connect(cam.at).unwrap();
    let (url, ..) = describe(&cam, &mut client, "srtp");
    let (ports, track) = (Ports::bind(V4).unwrap(), format!("{url}/track1"));
    for (transport, status) in [
        ("RTP/AVP/TCP;interleaved=0-1".to_owned(), 461),
        ("RTP/AVP;multicast".to_owned(), 461),
        (savp(&ports), 200),
    ] {
        let headers = [("Transport", &*transport)];
        let response = client.request("SETUP", &track, &headers).unwrap();
        assert_eq!(response.status, status, "{transport}");
    }
    // Who has no description is told a key of its own.
    let mut client = Client::connect(cam.at).unwrap();
    let track = format!("{}/track1", cam.fixture.url("live/cam"));
    let headers = [("Transport", &*savp(&ports))];
    let response = client.request("SETUP", &track, &headers).unwrap();
    assert_eq!(response.status, 200);
    assert!(response.header("KeyMgmt").is_some());
}

/// It sends RTP with a transport stream in it, and nobody rebases its numbers for plain viewers.
#[test]
fn an_input_that_begins_anew_uses_no_key_stream_twice() {
    for keys in [SrtpKeys::Shared, SrtpKeys::Own] {
        // A place of this process's own, where nothing else is bound.
        let [.., high, low] = std::process::id().to_be_bytes();
        let input = SocketAddr::from(([127, high, low, 77], 5004));
        let cam = Cam::with(keys, |config| {
            config.channels.sources = vec![SourceConfig {
                name: "cam".to_owned(),
                input: input.to_string().parse().unwrap(),
                members: Vec::new(),
                members_file: None,
                described: None,
            }];
        });
        let socket = UdpSocket::bind((V4, 0)).unwrap();
        let send = |ssrc, sequence: u16, count: u16| {
            let payload = |number: u16| {
                let [high, low] = number.to_be_bytes();
                let mut packet = [0xff; 188];
                packet[..6].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10, high, low]);
                packet.to_vec()
            };
            let sent = (0..count).map(|number| {
                let header = Header {
                    marker: false,
                    payload_type: 33,
                    sequence: sequence.wrapping_add(number),
                    timestamp: 0,
                    ssrc,
                };
                let payload = payload(sequence ^ number ^ u16::try_from(ssrc).unwrap());
                let packet = [&header.to_bytes()[..], &payload].concat();
                socket.send_to(&packet, input).unwrap();
                cam.sent.set(cam.sent.get() + 1);
                payload
            });
            sent.collect::<Vec<_>>()
        };
        send(7, 65_000, 1);
        let mut reader = Reader::new(&cam, "srtp");
        assert_eq!(reader.viewer.request("PLAY", &[]).status, 200);
        let mut used = KeyStreams::new();
        // The wrap, the same numbers from another source, and once more from the first.
        for (ssrc, sequence) in [(7, 65_530), (8, 65_530), (7, 65_530)] {
            let sent = send(ssrc, sequence, 12);
            assert_eq!(payloads(&reader.read(12, &mut used)), sent);
        }
        // Without a word: the first of these is taken for one that came late.
        let sent = send(7, 60_000, 5);
        assert_eq!(payloads(&reader.read(4, &mut used)), sent[1..]);
        wait_until("it is counted", || cam.encrypted()[1] == 1);
    }
}
