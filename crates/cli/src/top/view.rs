//! What is seen: the numbers, what they were before as small curves, and a line for each engine and
//! each live channel.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::{Duration, Instant};

use onrush_server::admin::status::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, RenderDirection, Row, Sparkline, Table};

use super::facts::{Fact, facts, shown};
use super::fetch::Fetched;
use super::rates::{ChannelRates, Rates};

/// Looks that are remembered: more than the widest terminal has columns.
const HISTORY_MAX: usize = 512;

/// A packet that leaves later is late, everywhere in this project.
const LATE_MS: f64 = 20.0;

/// Everything that is on the screen.
pub(crate) struct View {
    source: String,
    status: Status,
    rates: Option<Rates>,
    /// The newest first.
    history: VecDeque<Rates>,
    /// Since when the server does not answer, and why.
    trouble: Option<(Instant, String)>,
    is_paused: bool,
}

/// A curve: its name with its unit, digits behind the point, how a look becomes a number, how much
/// is an alarm.
type Curve = (&'static str, usize, fn(&Rates) -> Option<f64>, f64);

const CURVES: [Curve; 4] = [
    ("late p99.9, ms", 1, |rates| rates.late_p999_ms, LATE_MS),
    (
        "packets/s",
        0,
        |rates| Some(rates.packets_a_second),
        f64::INFINITY,
    ),
    (
        "CPU, % of a processor",
        1,
        |rates| Some(rates.process_cpu * 100.0),
        f64::INFINITY,
    ),
    (
        "playing",
        0,
        |rates| {
            let playing = u32::try_from(rates.playing).unwrap_or(u32::MAX);
            Some(f64::from(playing))
        },
        f64::INFINITY,
    ),
];

impl View {
    pub(crate) fn new(source: String, status: Status) -> Self {
        Self {
            source,
            status,
            rates: None,
            history: VecDeque::with_capacity(HISTORY_MAX),
            trouble: None,
            is_paused: false,
        }
    }

    /// Takes up a look. `None` if it is not to be seen; otherwise what happened since the one
    /// before, if that can be said.
    pub(crate) fn take(&mut self, fetched: Fetched) -> Option<Option<Rates>> {
        if self.is_paused {
            return None;
        }
        let status = match fetched {
            Ok(status) => *status,
            Err(error) => {
                let since = self
                    .trouble
                    .take()
                    .map_or_else(Instant::now, |(since, _)| since);
                self.trouble = Some((since, error));
                return Some(None);
            }
        };
        self.trouble = None;
        let rates = Rates::between(&self.status, &status);
        self.status = status;
        if let Some(rates) = &rates {
            self.history.truncate(HISTORY_MAX - 1);
            self.history.push_front(rates.clone());
        }
        self.rates.clone_from(&rates);
        Some(rates)
    }

    pub(crate) fn pause(&mut self) {
        self.is_paused = !self.is_paused;
    }

    /// Why there is nothing new, if so.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_ref().map(|(_, error)| error.as_str())
    }

    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let facts = facts(&self.status, self.rates.as_ref());
        let rows = u16::try_from(facts.len().div_ceil(2)).unwrap_or(u16::MAX);
        let engines = u16::try_from(self.status.engines.len() + 1).unwrap_or(u16::MAX);
        let channels = channel_rows(&self.status, self.rates.as_ref());
        let channel_lines = channels.len().min(1 + CHANNELS_SHOWN_MAX);
        let channel_lines = u16::try_from(channel_lines).unwrap_or(u16::MAX);
        let [title, numbers, upper, lower, table, live, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(rows),
            Constraint::Fill(1),
            Constraint::Fill(1),
            Constraint::Length(engines),
            Constraint::Length(channel_lines),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.title()).reversed(), title);
        let columns = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2);
        let halves = facts.chunks(usize::from(rows).max(1));
        for (half, area) in halves.zip(columns.areas::<2>(numbers)) {
            let lines: Vec<_> = half.iter().map(fact_line).collect();
            frame.render_widget(Paragraph::new(lines), area);
        }
        let places = [upper, lower].map(|area| columns.areas::<2>(area));
        for (curve, area) in CURVES.iter().zip(places.concat()) {
            self.draw_curve(curve, area, frame);
        }
        draw_table(self.engine_rows(), ENGINE_WIDTHS, table, frame);
        draw_table(channels, CHANNEL_WIDTHS, live, frame);
        frame.render_widget(Paragraph::new(self.foot()), foot);
    }

    /// All of it without curves, for `--once`.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.title());
        let mut line = |line: std::fmt::Arguments<'_>| {
            text.write_fmt(line).expect("a string takes all");
        };
        for (name, value) in facts(&self.status, self.rates.as_ref()) {
            line(format_args!("{name:<12} {value}\n"));
        }
        let engines = self.engine_rows().into_iter();
        let engines = engines.map(|cells| text_line(&cells, ENGINE_WIDTHS));
        let channels = channel_rows(&self.status, self.rates.as_ref()).into_iter();
        let channels = channels.map(|cells| text_line(&cells, CHANNEL_WIDTHS));
        text.extend(engines.chain(channels));
        text
    }

    fn title(&self) -> String {
        let status = &self.status;
        // Not by this machine's clock, which may be another's than the server's, or was set since.
        let up_s = Duration::from_nanos(status.process.up_ns).as_secs();
        format!(
            "onrush {} at {}, up {}",
            status.version,
            self.source,
            humantime::format_duration(Duration::from_secs(up_s))
        )
    }

    fn draw_curve(
        &self,
        &(name, decimals, value, alarm): &Curve,
        area: Rect,
        frame: &mut Frame<'_>,
    ) {
        let values: Vec<_> = self
            .history
            .iter()
            .take(usize::from(area.width))
            .map(|rates| value(rates).unwrap_or(0.0).max(0.0))
            .collect();
        let now = self.history.front().and_then(value);
        let most = values.iter().copied().fold(0.0, f64::max);
        let title = format!("{name}: {}, most {most:.decimals$} ", shown(now, decimals));
        let color = if now.is_some_and(|now| now > alarm) {
            Color::Red
        } else {
            Color::Green
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "for a picture; none is negative"
        )]
        let heights: Vec<_> = values.iter().map(|value| (value * 1000.0) as u64).collect();
        let curve = Sparkline::default()
            .block(Block::new().borders(Borders::TOP).title(title))
            .data(heights)
            .direction(RenderDirection::RightToLeft)
            .style(Style::new().fg(color));
        frame.render_widget(curve, area);
    }

    /// The heading, and a row for each engine.
    fn engine_rows(&self) -> Vec<[String; 9]> {
        let head = [
            "core",
            "path",
            "playing",
            "CPU %",
            "packets/s",
            "Mbit/s",
            "batch",
            "p50 ms",
            "p99.9",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        let rates = self.rates.as_ref().map(|rates| rates.engines.as_slice());
        for (i, engine) in self.status.engines.iter().enumerate() {
            let rates = rates.and_then(|rates| rates.get(i));
            let of = |value: fn(&super::rates::EngineRates) -> f64| rates.map(value);
            rows.push([
                engine.core.to_string(),
                engine.path.clone(),
                engine.playing.to_string(),
                shown(of(|e| e.cpu * 100.0), 1),
                shown(of(|e| e.packets_a_second), 0),
                shown(of(|e| e.mbit_a_second), 1),
                shown(rates.and_then(|e| e.batch_bursts), 1),
                shown(rates.and_then(|e| e.late_p50_ms), 1),
                shown(rates.and_then(|e| e.late_p999_ms), 1),
            ]);
        }
        rows
    }

    fn foot(&self) -> Line<'_> {
        let mut spans = vec![Span::from("q quit  p pause  ").dim()];
        if self.is_paused {
            spans.push(Span::from("paused ").yellow());
        }
        if let Some((since, error)) = &self.trouble {
            let seconds = since.elapsed().as_secs();
            spans.push(Span::from(format!("no answer for {seconds} s: {error}")).red());
        }
        Line::from(spans)
    }
}

fn fact_line((name, value): &Fact) -> Line<'static> {
    Line::from(vec![
        Span::from(format!("{name:<10}")).dim(),
        Span::from(value.clone()),
    ])
}

/// The heading, and a row for each live channel; nothing where there are none.
fn channel_rows(status: &Status, rates: Option<&Rates>) -> Vec<[String; 11]> {
    let head = [
        "channel", "state", "memb", "play", "in/s", "miss/s", "jit ms", "lag ms", "out/s",
        "Mbit/s", "lost/s",
    ];
    let head = (!status.channels.is_empty()).then(|| head.map(str::to_owned));
    let rows = status.channels.iter().enumerate().map(|(i, channel)| {
        let rates = rates.and_then(|rates| rates.channels.get(i));
        let of = |value: fn(&ChannelRates) -> f64, decimals| shown(rates.map(value), decimals);
        [
            channel.name.chars().take(NAME_COLUMNS_MAX).collect(),
            channel
                .state
                .as_str()
                .chars()
                .take(STATE_COLUMNS_MAX)
                .collect(),
            channel.members.to_string(),
            channel.players.to_string(),
            of(|c| c.datagrams_a_second, 0),
            of(|c| c.missing_a_second, 0),
            of(|c| c.jitter_ms, 1),
            of(|c| c.lag_ms, 0),
            of(|c| c.packets_a_second, 0),
            of(|c| c.mbit_a_second, 1),
            of(|c| c.packets_refused_a_second, 0),
        ]
    });
    head.into_iter().chain(rows).collect()
}

/// The first row is the heading.
fn draw_table<const N: usize>(
    rows: Vec<[String; N]>,
    widths: [u16; N],
    area: Rect,
    frame: &mut Frame<'_>,
) {
    let mut rows = rows
        .into_iter()
        .map(|cells| Row::new(cells.map(|cell| Line::from(cell).right_aligned())));
    let head = rows.next().unwrap_or_default().bold();
    let widths = widths.map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

fn text_line<const N: usize>(cells: &[String; N], widths: [u16; N]) -> String {
    let cells = cells.iter().zip(widths.map(usize::from));
    let mut line: String = cells
        .map(|(cell, width)| format!("{cell:>width$} "))
        .collect();
    line.push('\n');
    line
}

/// 80 columns with the spaces between.
const ENGINE_WIDTHS: [u16; 9] = [4, 19, 7, 6, 9, 8, 6, 6, 6];
const CHANNEL_WIDTHS: [u16; 11] = [12, 7, 5, 5, 5, 6, 6, 6, 6, 6, 6];

/// A longer name is cut.
const NAME_COLUMNS_MAX: usize = 12;

/// A longer word for a state is cut.
const STATE_COLUMNS_MAX: usize = 7;

/// Lines of channels on a terminal; `--once` and `--json` have all.
const CHANNELS_SHOWN_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use onrush_server::admin::status::{
        Admission, Cache, Channel, Downloads, Engine, Handshakes, Histogram, Hls, Locked, Process,
        Received, SCHEMA_VERSION, Sent, Sessions, Users,
    };
    use onrush_server::channels::ChannelState;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    /// A server after so many seconds of 100 packets each, in bursts of which one in 100 is 30 ms
    /// late.
    fn status(second: u64) -> Status {
        let engine = Engine {
            core: 1,
            path: "uring_registered_zc".to_owned(),
            streams: 3,
            playing: 2,
            packets: 1_000_000 * second,
            bytes: 1_250_000_000 * second,
            crossings: 200 * second,
            ticks: 200 * second,
            own_headers_path: "uring_vectored_zc".to_owned(),
            bursts_joined: 12 * second,
            shed: 7,
            sheds: 9,
            cpu_ns: 250_000_000 * second,
            admission: Admission {
                load_promised: 0.5,
                load_measured: 0.25,
                load_max: Some(0.9),
                train_ns: 801,
                is_late: second > 3,
            },
            lateness: Histogram {
                buckets: vec![(Some(-1_500_000), 99 * second), (Some(30_000_000), second)],
                sum: 0,
            },
            batches: Histogram {
                buckets: vec![(Some(4), 25 * second)],
                sum: 100 * second,
            },
            ..Engine::default()
        };
        Status {
            schema_version: SCHEMA_VERSION,
            version: "0.1.0".to_owned(),
            at_ns: 1_000_000_000 * second,
            sessions: Sessions {
                now: 3,
                total: 3 + second,
                refused: 2 * second,
                connections: 3,
                answers: [0; 5],
            },
            engines: vec![engine],
            stream_cpu_ratio: None,
            cluster: None,
            objects: None,
            cache: Some(Cache {
                bytes: 1 << 30,
                bytes_ready: 1 << 30,
                chunk_bytes: 256 << 10,
                chunks: 4096,
                chunks_in_use: 8,
                chunks_read: 100 * second,
                chunks_built: 25 * second,
                full: 0,
                bytes_read: 5_000_000 * second,
                bytes_read_direct: 0,
            }),
            indexes: None,
            locked: Locked {
                pinned_bytes: 1 << 30,
                resident_bytes: 0,
            },
            channels: vec![channel(second)],
            downloads: Some(Downloads {
                http_connections: 4,
                active: 1,
                transfers: 1,
                bytes: 100_000 * second,
                ..Downloads::default()
            }),
            users: Users::default(),
            hls: Hls {
                sent_bytes: 25_000 * second,
                ..Hls::default()
            },
            tls: Handshakes::default(),
            process: Process {
                cpu_ns: 500_000_000 * second,
                resident_bytes: 1 << 30,
                files: 20,
                files_max: 1024,
                started_s: 1,
                up_ns: 90_000_000_000 + second,
            },
        }
    }

    /// 380 packets a second to each of three.
    fn channel(second: u64) -> Channel {
        Channel {
            name: "a-rather-long-name".to_owned(),
            state: ChannelState::Live,
            members: 2,
            players: 1,
            received: Received {
                datagrams: 380 * second,
                missing: 5 * second,
                jitter_ns: 2_500_000,
                lag_ns: 700_000_000,
                ..Received::default()
            },
            sent: Sent {
                packets: 1140 * second,
                bytes: 1_500_000 * second,
                ..Sent::default()
            },
            ..Channel::default()
        }
    }

    fn watched() -> View {
        let mut view = View::new("127.0.0.1:9554".to_owned(), status(0));
        for second in 1..4 {
            let rates = view.take(Ok(Box::new(status(second))));
            assert!(rates.unwrap().is_some());
        }
        view
    }

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn an_interval_is_what_lies_between_two_looks() {
        let rates = watched().rates.unwrap();
        let json = serde_json::to_value(&rates).unwrap();
        for (name, value) in [
            ("seconds", 1.0),
            ("packets_a_second", 1e6),
            ("mbit_a_second", 10_000.0),
            ("late_p50_ms", -1.5),
            ("late_p999_ms", 30.0),
            ("batch_bursts", 4.0),
            ("joined", 0.12),
            ("packets_a_crossing", 5000.0),
            ("engines_cpu", 0.25),
            ("process_cpu", 0.5),
            ("stream_cpu", 0.125),
            ("cache_hits", 0.75),
            ("refused_a_second", 2.0),
            ("download_mbit_a_second", 1.0),
        ] {
            assert_eq!(json[name].as_f64(), Some(value), "{name}");
        }
        assert_eq!(rates.line().len(), Rates::HEAD.len());
        let mut anew = status(5);
        anew.process.started_s = 2;
        assert_eq!(Rates::between(&status(4), &anew), None);
        assert_eq!(Rates::between(&status(4), &status(4)), None);
    }

    #[test]
    fn how_long_it_runs_is_not_asked_of_this_clock() {
        let text = watched().text();
        assert!(text.contains(", up 1m 30s\n"), "started in 1970: {text}");
    }

    #[test]
    fn an_engine_that_lets_nobody_in_is_seen() {
        let mut view = watched();
        assert!(!view.text().contains("closed"), "{}", view.text());
        drop(view.take(Ok(Box::new(status(4)))));
        let text = view.text();
        assert!(text.contains("801 ns a train, late: closed"), "{text}");
    }

    #[test]
    fn every_terminal_shows_what_it_has_room_for() {
        let view = watched();
        for (width, height) in [(80, 24), (200, 50), (132, 30)] {
            let screen = drawn(&view, width, height);
            for text in [
                "onrush 0.1.0 at 127.0.0.1:9554",
                "3, 2 play, 1.0/s new",
                "1000000/s",
                "10000.0 Mbit/s",
                "p50 -1.5, p99.9 30.0 ms",
                "4.0 bursts, 12 % joined",
                "5000.0 packets, 200/s",
                "0/s lags",
                "6 in all, 2.0/s; 7 shed",
                "50.0 of 90 %, 801 ns a train ",
                "3 RTSP, 4 HTTP, 0 FTP",
                "late p99.9, ms: 30.0, most 30.0",
                "uring_registered_zc",
                "a-rather-lon",
                "2.5    700   1140   12.0",
                "1 run, 1.0 Mbit/s",
                "q quit  p pause",
                "█",
            ] {
                assert!(screen.contains(text), "{width}x{height}: {text}\n{screen}");
            }
        }
        for (width, height) in [(1, 1), (20, 5), (500, 3)] {
            drawn(&view, width, height);
        }
        assert!(
            view.text().contains("p50 -1.5, p99.9 30.0 ms"),
            "{}",
            view.text()
        );
    }

    #[test]
    fn channels_have_lines_if_there_are_any() {
        let mut view = watched();
        let lines = |view: &View| {
            let text = view.text();
            let lines = text
                .lines()
                .rev()
                .take_while(|line| !line.contains("uring"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let shown = lines(&view);
        assert_eq!(shown.len(), 2, "{shown:?}");
        let words: Vec<_> = shown[0].split_whitespace().collect();
        let expected = "a-rather-lon live 2 1 380 5 2.5 700 1140 12.0 0";
        assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
        let json = serde_json::to_value(view.rates.as_ref().unwrap()).unwrap();
        assert_eq!(json["channels"][0]["name"], "a-rather-long-name");
        assert_eq!(json["channels"][0]["packets_a_second"], 1140.0);
        view.status.channels = vec![channel(3); 64];
        let screen = drawn(&view, 80, 24);
        assert_eq!(screen.matches("a-rather-lon").count(), CHANNELS_SHOWN_MAX);
        assert_eq!(lines(&view).len(), 65);
        view.status.channels.clear();
        assert!(lines(&view).is_empty(), "{}", view.text());
    }

    #[test]
    fn who_goes_away_is_told_of_and_who_comes_back_is_welcome() {
        let mut view = watched();
        assert_eq!(view.take(Err("it is gone".to_owned())), Some(None));
        assert!(drawn(&view, 80, 24).contains("no answer for 0 s: it is gone"));
        assert!(view.take(Ok(Box::new(status(9)))).unwrap().is_some());
        assert!(!drawn(&view, 80, 24).contains("no answer"));
        view.pause();
        assert_eq!(view.take(Ok(Box::new(status(10)))), None);
        assert!(drawn(&view, 80, 24).contains("paused"));
        view.pause();
        let rates = view.take(Ok(Box::new(status(19)))).unwrap().unwrap();
        assert!((rates.seconds - 10.0).abs() < 1e-9, "the pause counts in");
    }
}
