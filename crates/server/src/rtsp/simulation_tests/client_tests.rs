//! The clients of a simulation: each asks over real connections, at random, and knows what may be
//! answered.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{FILM_SECONDS, MS, SECOND, STEP_NS, World};
use crate::rtsp::LOOK_EVERY;
use crate::testing::seeds_tests::Random;

/// How long an answer may take, where the disk is slow and the clock does not leap.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);

/// What control may be late by in seeing that a session's time is over, and a client in seeing what
/// time it is.
const SLACK_NS: u64 = 300 * MS;

/// How long a film may wait for its first packet: for the disk, and for its turn.
const FIRST_PACKET_NS_MAX: u64 = 3 * SECOND;

/// What clients came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) requests: u64,
    pub(super) sessions: u64,
    pub(super) played: u64,
    pub(super) paused: u64,
    /// Sessions that were not known any more when something was asked of them.
    pub(super) timed_out: u64,
    pub(super) packets: u64,
}

impl Sums {
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            sessions: self.sessions + other.sessions,
            played: self.played + other.played,
            paused: self.paused + other.paused,
            timed_out: self.timed_out + other.timed_out,
            packets: self.packets + other.packets,
        }
    }
}

/// A session as its client knows it.
struct Session {
    id: String,
    /// Where its reports go.
    reports_to: SocketAddr,
    /// When its client gave a sign last.
    seen_ns: u64,
    /// What was answered to PLAY, until something else is played.
    playing: Option<Playing>,
    /// PLAY was answered, and not PAUSE behind it.
    has_played: bool,
    /// How many packets had left when it was answered that it pauses.
    paused_at: Option<usize>,
}

#[derive(Clone, Copy)]
struct Playing {
    /// How many packets had left before it was asked for.
    before: usize,
    /// The number of the first, as it was told.
    first: u16,
    /// When it was answered.
    at_ns: u64,
    /// Where it begins is so near to the end that little or nothing comes.
    is_at_end: bool,
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

struct Answer {
    status: u16,
    head: String,
}

pub(super) struct Client {
    random: Random,
    world: Rc<World>,
    connection: Option<Connection>,
    /// For packets and for reports, at ports one behind the other.
    ports: [UdpSocket; 2],
    session: Option<Session>,
    cseq: u32,
}

impl Client {
    pub(super) fn new(random: Random, world: &Rc<World>) -> Self {
        Self {
            random,
            world: Rc::clone(world),
            connection: None,
            ports: ports(),
            session: None,
            cseq: 0,
        }
    }

    /// Does this and that, and goes.
    pub(super) async fn live(mut self) {
        self.rest(2000).await;
        for _ in 0..5 + self.random.below(40) {
            self.act().await;
            self.check_packets();
            let rest_ms = match self.random.below(12) {
                0 => 40_000,
                1..4 => 10_000,
                _ => 1500,
            };
            self.rest(rest_ms * self.world.pace.times).await;
        }
        self.check_packets();
        if self.random.one_in(2) {
            self.tear_down().await;
        }
        let to = self.player();
        self.count(|sums, world| sums.packets += world.network.count(to) as u64);
    }

    async fn rest(&mut self, ms_max: u64) {
        sleep(Duration::from_millis(1 + self.random.below(ms_max))).await;
    }

    async fn act(&mut self) {
        if self.session.is_none() {
            return self.set_up().await;
        }
        match self.random.below(100) {
            0..40 => self.play().await,
            40..55 => self.pause().await,
            55..63 => self.keep_alive().await,
            63..75 => self.report(),
            75..82 => self.connection = None,
            82..86 => self.lie().await,
            86..90 => self.babble().await,
            90..94 => self.vanish(),
            _ => self.tear_down().await,
        }
    }

    fn player(&self) -> SocketAddr {
        self.ports[0].local_addr().expect("bound")
    }

    async fn set_up(&mut self) {
        let port = self.player().port();
        let transport = format!(
            "Transport: RTP/AVP;unicast;client_port={port}-{}\r\n",
            port + 1
        );
        let Some(answer) = self.ask("SETUP", "film.ts", &transport).await else {
            return;
        };
        assert_eq!(answer.status, 200, "{}", answer.head);
        let id = answer.value("Session").split(';').next().expect("a name");
        let transport = answer.value("Transport");
        let server_ports = transport.split("server_port=").nth(1).expect("ports");
        let first: u16 = server_ports
            .split('-')
            .next()
            .and_then(|it| it.parse().ok())
            .expect("one");
        self.session = Some(Session {
            id: id.to_owned(),
            reports_to: SocketAddr::from((Ipv4Addr::LOCALHOST, first + 1)),
            seen_ns: self.world.now_ns(),
            playing: None,
            has_played: false,
            paused_at: Some(self.world.network.count(self.player())),
        });
        self.count(|sums, _| sums.sessions += 1);
    }

    /// Plays from anywhere, also from behind the end, or on from where it is.
    async fn play(&mut self) {
        // A whole film each time would be most of what a quiet seed takes.
        let (first_s, plays_on_one_in) = match self.world.pace.is_quiet() {
            true => (FILM_SECONDS - 15, 8),
            false => (0, 2),
        };
        let from_s = first_s + self.random.below(FILM_SECONDS + 10 - first_s);
        let is_seek = !self.random.one_in(plays_on_one_in);
        let range = match is_seek {
            true => format!("Range: npt={from_s}-\r\n"),
            false => String::new(),
        };
        let before = self.world.network.count(self.player());
        let Some(answer) = self.ask_in_session("PLAY", &range).await else {
            return;
        };
        match answer.status {
            200 => {}
            // There is nothing more of it, or never was.
            457 => return assert!(!is_seek || from_s + 2 > FILM_SECONDS, "{}", answer.head),
            _ => panic!("{}", answer.head),
        }
        self.count(|sums, _| sums.played += 1);
        self.session.as_mut().expect("it was asked for").has_played = true;
        // It plays already what was asked for.
        let Some(info) = answer.find("RTP-Info") else {
            return;
        };
        let first = info
            .split("seq=")
            .nth(1)
            .and_then(|it| it.split(';').next());
        let first = first.and_then(|it| it.parse().ok()).expect("a number");
        let start = answer.find("Range").and_then(|it| it.strip_prefix("npt="));
        let start = start.and_then(|it| it.split('-').next()?.parse::<f64>().ok());
        let (at_ns, end_s) = (self.world.now_ns(), FILM_SECONDS as f64);
        let session = self.session.as_mut().expect("it was asked for");
        session.paused_at = None;
        session.playing = Some(Playing {
            before,
            first,
            at_ns,
            is_at_end: start.is_none_or(|start| start > end_s - 3.0),
        });
    }

    async fn pause(&mut self) {
        let Some(answer) = self.ask_in_session("PAUSE", "").await else {
            return;
        };
        let session = self.session.as_ref().expect("it was asked for");
        // What has ended stays so, and may be asked to pause as often as somebody likes.
        let statuses: &[u16] = if session.has_played {
            &[200]
        } else {
            &[200, 455]
        };
        assert!(statuses.contains(&answer.status), "{}", answer.head);
        self.check_packets();
        let count = self.world.network.count(self.player());
        let session = self.session.as_mut().expect("it was asked for");
        (session.playing, session.paused_at) = (None, Some(count));
        session.has_played = false;
        self.count(|sums, _| sums.paused += 1);
    }

    async fn keep_alive(&mut self) {
        let method = *["GET_PARAMETER", "OPTIONS"]
            .get(self.random.index(2))
            .expect("two");
        if let Some(answer) = self.ask_in_session(method, "").await {
            assert_eq!(answer.status, 200, "{}", answer.head);
        }
    }

    /// A report that says that somebody is there, and no more.
    fn report(&mut self) {
        let (now_ns, timeout_ns) = (self.world.now_ns(), self.world.pace.timeout_ns);
        let session = self.session.as_mut();
        // Of a session whose time is over it may be a sign yet, or not.
        let Some(session) = session.filter(|it| now_ns - it.seen_ns + SECOND < timeout_ns) else {
            return;
        };
        let report = [0x80, 201, 0, 1, 0, 0, 0, 7];
        drop(self.ports[1].send_to(&report, session.reports_to));
        session.seen_ns = now_ns;
    }

    /// Asks for what there is not, in sessions that never were.
    async fn lie(&mut self) {
        let (method, lines, status) = match self.random.below(3) {
            0 => ("PLAY", "Session: 0123456789abcdef0123456789abcdef\r\n", 454),
            1 => ("DESCRIBE", "Accept: text/html\r\n", 406),
            _ => ("SETUP", "Transport: RTP/AVP;multicast\r\n", 461),
        };
        if let Some(answer) = self.ask(method, "film.ts", lines).await {
            assert_eq!(answer.status, status, "{method}: {}", answer.head);
        }
    }

    /// Says what is no request, on its connection, which that ends.
    async fn babble(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            let words = b"what?\r\n\r\n";
            drop(connection.stream.write_all(words).await);
            self.world.begin_waiting();
            let answer = timeout(ANSWER_TIME_MAX, connection.answer()).await;
            self.world.end_waiting();
            if let Ok(Ok(answer)) = answer {
                assert_eq!(answer.status, 400, "{}", answer.head);
            }
        }
    }

    /// Goes without a word, and comes back as somebody else: its ports are closed, or stay open for
    /// nobody.
    fn vanish(&mut self) {
        (self.connection, self.session) = (None, None);
        let to = self.player();
        self.count(|sums, world| sums.packets += world.network.count(to) as u64);
        let before = std::mem::replace(&mut self.ports, ports());
        if self.random.one_in(2) {
            // A machine that was switched off answers nothing.
            std::mem::forget(before);
        }
    }

    async fn tear_down(&mut self) {
        if self.session.is_none() {
            return;
        }
        let Some(answer) = self.ask_in_session("TEARDOWN", "").await else {
            return;
        };
        assert_eq!(answer.status, 200, "{}", answer.head);
        let session = self.session.take().expect("it was asked for");
        let count = self.world.network.count(self.player());
        let lines = format!("Session: {}\r\n", session.id);
        if let Some(answer) = self.ask("GET_PARAMETER", "film.ts", &lines).await {
            assert_eq!(answer.status, 454, "{}", answer.head);
        }
        assert_eq!(
            self.world.network.count(self.player()),
            count,
            "packets of nobody"
        );
    }

    /// Asks something of its session. Whether that may be known is judged; nothing is told if it is
    /// not, or if the connection broke.
    async fn ask_in_session(&mut self, method: &str, lines: &str) -> Option<Answer> {
        let session = self.session.as_ref()?;
        let (seen_ns, asked_ns) = (session.seen_ns, self.world.now_ns());
        let lines = format!("Session: {}\r\n{lines}", session.id);
        let Some(answer) = self.ask(method, "film.ts", &lines).await else {
            // Whether it was done nobody knows.
            self.vanish();
            return None;
        };
        let (silent_ns, pace) = (asked_ns - seen_ns, self.world.pace);
        let has_leapt = self.world.leapt_ns.get() + SECOND >= asked_ns;
        if answer.status == 454 {
            assert!(
                silent_ns + SLACK_NS >= pace.timeout_ns,
                "gone after {silent_ns} ns: {method}"
            );
            self.session = None;
            self.count(|sums, _| sums.timed_out += 1);
            return None;
        }
        let look_ns = u64::try_from(LOOK_EVERY.as_nanos()).expect("short");
        let late_ns_max = look_ns + 4 * STEP_NS + SLACK_NS + pace.idle_step_ns;
        let known_ns_max = pace.timeout_ns + late_ns_max;
        assert!(
            has_leapt || silent_ns <= known_ns_max,
            "known after {silent_ns} ns: {method}"
        );
        let session = self.session.as_mut()?;
        session.seen_ns = asked_ns;
        Some(answer)
    }

    /// The answer to a request; nothing if the server has closed the connection, which it may do
    /// where nothing was said for long.
    async fn ask(&mut self, method: &str, path: &str, lines: &str) -> Option<Answer> {
        self.cseq += 1;
        let (server, cseq) = (self.world.server, self.cseq);
        let request =
            format!("{method} rtsp://{server}/{path} RTSP/1.0\r\nCSeq: {cseq}\r\n{lines}\r\n");
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection {
                stream: TcpStream::connect(server).await.expect("it listens"),
                received: Vec::new(),
            },
        };
        self.count(|sums, _| sums.requests += 1);
        self.world.begin_waiting();
        let asked_ns = self.world.now_ns();
        let answered = timeout(ANSWER_TIME_MAX, async {
            connection.stream.write_all(request.as_bytes()).await?;
            connection.answer().await
        });
        let answered = answered.await;
        self.world.end_waiting();
        let has_leapt = self.world.leapt_ns.get() >= asked_ns;
        match answered {
            Ok(Ok(answer)) => {
                assert_eq!(answer.value("CSeq"), cseq.to_string(), "{}", answer.head);
                self.connection = Some(connection);
                Some(answer)
            }
            Ok(Err(_)) => None,
            Err(_) => {
                assert!(has_leapt, "{method} is not answered");
                None
            }
        }
    }

    /// What has left for it is what was told.
    fn check_packets(&self) {
        let Some(session) = &self.session else {
            return;
        };
        let (network, player) = (&self.world.network, self.player());
        if let Some(count) = session.paused_at {
            assert_eq!(
                network.count(player),
                count,
                "packets come while it is paused"
            );
        }
        let Some(playing) = session.playing else {
            return;
        };
        let numbers = network.numbers(player, playing.before);
        let begin = numbers.iter().position(|number| *number == playing.first);
        let Some(begin) = begin else {
            let is_soon = self.world.now_ns() < playing.at_ns + FIRST_PACKET_NS_MAX;
            let has_leapt = self.world.leapt_ns.get() + SECOND >= playing.at_ns;
            assert!(
                is_soon || has_leapt || playing.is_at_end,
                "nothing comes after PLAY"
            );
            return;
        };
        let gap = numbers[begin..]
            .windows(2)
            .find(|it| it[0].wrapping_add(1) != it[1]);
        assert_eq!(gap, None, "after {}", playing.first);
    }

    fn count(&self, change: impl FnOnce(&mut Sums, &World)) {
        let mut sums = self.world.sums.get();
        change(&mut sums, &self.world);
        self.world.sums.set(sums);
    }
}

impl Connection {
    async fn answer(&mut self) -> io::Result<Answer> {
        loop {
            let end = self.received.windows(4).position(|it| it == b"\r\n\r\n");
            if let Some(end) = end {
                let head = self.received.drain(..end + 4).collect();
                let head = String::from_utf8(head).expect("a head is text");
                let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
                let status = status.unwrap_or_else(|| panic!("{head}"));
                let answer = Answer { status, head };
                let bytes = answer
                    .find("Content-Length")
                    .map_or(0, |it| it.parse().expect("one"));
                while self.received.len() < bytes {
                    self.receive().await?;
                }
                self.received.drain(..bytes);
                return Ok(answer);
            }
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl Answer {
    fn find(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.split("\r\n");
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn value(&self, name: &str) -> &str {
        self.find(name)
            .unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }
}

/// Two sockets at ports one behind the other, the first of which is even.
fn ports() -> [UdpSocket; 2] {
    loop {
        let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let port = first.local_addr().expect("bound").port();
        if port.is_multiple_of(2)
            && let Ok(second) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port + 1))
        {
            return [first, second];
        }
    }
}
