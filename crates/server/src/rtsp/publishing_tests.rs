//! Publishers on connections of their own.

use std::time::Duration;

use onrush_wire::rtsp::frame_prefix;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use super::connection::Connection;
use super::connection_slot::ConnectionSlot;
use super::*;
use crate::byte_stream::ByteStream;
use crate::channels::published::{PublishedChannels, Pulls};
use crate::users::{Authorizer, UsersConfig};

const URL: &str = "rtsp://127.0.0.1/live/cam";

/// A sound of 8 kHz.
const SDP: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n\
    m=audio 0 RTP/AVP 0\r\na=control:streamid=0\r\n";

/// A server that has no files.
fn control(change: impl FnOnce(&mut Config)) -> Rc<Control> {
    let mut config = Config::default();
    change(&mut config);
    let users = Authorizer::open(&UsersConfig::default(), Arc::default());
    let live = PublishedChannels::new(&config.channels, &config.limits);
    let content = Content {
        library: None,
        sending: Sending::when_wanted(&config),
        channels: Vec::new(),
        pulls: Pulls::start(&[], &live, None),
        published: live,
        authorizer: Arc::new(users.unwrap()),
    };
    Control::new(config, content, Arc::default())
}

/// A publisher's end of a connection.
struct Hand {
    stream: TcpStream,
    /// What came last to each request, behind what was asked before.
    heads: String,
}

impl Hand {
    async fn connect(control: &Rc<Control>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (served, peer) = listener.accept().await.unwrap();
        let slot = ConnectionSlot::take(control, peer).unwrap();
        let connection = Connection::new(slot, ByteStream::Plain(served)).unwrap();
        drop(spawn_local(connection.serve()));
        let heads = String::new();
        Self { stream, heads }
    }

    /// Asks for something of its session, as far as that is known; the status of the answer.
    async fn ask(&mut self, method: &str, url: &str, lines: &str, body: &str) -> u16 {
        let session = self.heads.lines().find(|it| it.starts_with("Session: "));
        let session = session.map_or_else(String::new, |it| format!("{it}\r\n"));
        let bytes = body.len();
        let request = format!(
            "{method} {url} RTSP/1.0\r\nCSeq: 1\r\n{session}{lines}\
             Content-Length: {bytes}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        self.heads.push_str(&head);
        status.unwrap()
    }

    /// One that records, by frames, what it has announced by `url`.
    async fn recording(control: &Rc<Control>, url: &str) -> Self {
        let mut hand = Self::connect(control).await;
        assert_eq!(hand.ask("ANNOUNCE", url, "", SDP).await, 200);
        let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1;mode=record\r\n";
        let track = format!("{url}/streamid=0");
        assert_eq!(hand.ask("SETUP", &track, transport, "").await, 200);
        assert_eq!(hand.ask("RECORD", url, "", "").await, 200);
        hand
    }
}

/// Twenty milliseconds of sound.
fn frame(number: u16) -> Vec<u8> {
    let mut packet = vec![0x80, 0];
    packet.extend(number.to_be_bytes());
    packet.extend((u32::from(number) * 160).to_be_bytes());
    packet.extend(7_u32.to_be_bytes());
    packet.extend([0xff; 160]);
    let bytes = u16::try_from(packet.len()).unwrap();
    [&frame_prefix(0, bytes)[..], &packet].concat()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(LocalSet::new().run_until(test));
}

/// An uplink that is slower than its encoder leaves each read in the middle of a frame.
#[test]
fn who_publishes_always_in_mid_frame_goes_on_and_is_told() {
    run(async {
        let control = control(|config| config.limits.request_time_max = Duration::from_secs(3));
        let mut hand = Hand::recording(&control, URL).await;
        let mut last = frame(0);
        let (half, mut told) = (last.len() / 2, Vec::new());
        hand.stream.write_all(&last[..half]).await.unwrap();
        // Twice as long as a frame may take, and past the first report.
        for number in 1..65 {
            sleep(Duration::from_millis(100)).await;
            let next = frame(number);
            let bytes = [&last[half..], &next[..half]].concat();
            hand.stream.write_all(&bytes).await.unwrap();
            last = next;
            match hand.stream.try_read_buf(&mut told) {
                Ok(0) => panic!("closed after {number}: {}", told.escape_ascii()),
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        assert!(told.starts_with(b"$\x01"), "{}", told.escape_ascii());
        assert!(
            !told.windows(4).any(|it| it == b"RTSP"),
            "{}",
            told.escape_ascii()
        );
        // Of half a frame that nothing follows the rest is not waited for.
        hand.stream.read_to_end(&mut told).await.unwrap();
        let is_refused = told.windows(12).any(|it| it == b"RTSP/1.0 408");
        assert!(is_refused, "{}", told.escape_ascii());
        control.content.published.stop();
    });
}

/// libavformat appends the name of a track to the whole URL.
#[test]
fn publishers_have_a_query_in_front_of_a_track() {
    run(async {
        let control = control(|_| {});
        drop(Hand::recording(&control, &format!("{URL}?token=a.b.c&x=/y")).await);
        control.content.published.stop();
    });
}
