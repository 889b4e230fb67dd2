//! The metrics of a server that has played and given away a film: what they say, how they are
//! written, and that the document lists them all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_server::admin::METRICS_CONNECTIONS_MAX;
use onrush_server::admin::exposition::{Metric, metrics as metrics_that_there_are};
use onrush_server::admin::status::{Channel, Status};
use onrush_testkit::http_client::Response;
use onrush_testkit::ports::free_udp_port;
use onrush_testkit::process::{Process, Signal};
use onrush_testkit::rtsp_client::Client;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use download_site::{LONG, ONRUSH, Raw, Site};

mod download_site;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.ts");

/// A server of the demo clip and of a channel that nobody feeds, and where its metrics are.
fn site() -> (Site, SocketAddr) {
    let channel = format!("--channel=news={}", free_address());
    let site = Site::new(&["--metrics=0", &channel], |root| {
        fs::copy(DEMO, root.join("demo.ts")).unwrap();
    });
    let metrics = metrics_address(&site.server);
    (site, metrics)
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_udp_port()))
}

fn metrics_address(server: &Process) -> SocketAddr {
    let line = server.wait_for_line("metrics ", LONG).unwrap();
    let address = line.trim_end_matches("/metrics").rsplit("//").next();
    address.unwrap().parse().unwrap()
}

fn get(address: SocketAddr, target: &str) -> Response {
    let response = Raw::connect(address).request("GET", target, "");
    assert_eq!(response.status, 200, "{response:?}");
    response
}

fn status(address: SocketAddr) -> Status {
    serde_json::from_str(&get(address, "/status").text()).unwrap()
}

/// Waits until what the server says of itself is so.
fn wait_until(address: SocketAddr, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
    let give_up = Instant::now() + LONG;
    loop {
        let status = status(address);
        if is_so(&status) {
            return status;
        }
        assert!(
            Instant::now() < give_up,
            "waited in vain until {what}: {status:#?}"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// The page, taken apart: families with their types, and samples by name and labels as written.
struct Page {
    types: BTreeMap<String, String>,
    samples: BTreeMap<(String, String), f64>,
}

impl Page {
    /// Reads the page and checks its form: HELP and TYPE once and before the samples, which stand
    /// together.
    fn read(text: &str) -> Self {
        let mut page = Self {
            types: BTreeMap::new(),
            samples: BTreeMap::new(),
        };
        let (mut helped, mut family) = (String::new(), String::new());
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, meaning) = help.split_once(' ').expect(line);
                assert!(meaning.ends_with('.'), "{line}");
                name.clone_into(&mut helped);
            } else if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').expect(line);
                assert_eq!(name, helped, "HELP comes first");
                let before = page.types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} stands twice");
                name.clone_into(&mut family);
            } else {
                let (sample, value) = line.rsplit_once(' ').expect(line);
                let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
                let labels = labels.strip_suffix('}').expect(line);
                let suffix = name.strip_prefix(&*family).expect(line);
                let is_histogram = page.types[&family] == "histogram";
                assert!(
                    match suffix {
                        "" => !is_histogram,
                        _ => is_histogram && ["_bucket", "_sum", "_count"].contains(&suffix),
                    },
                    "{line}"
                );
                let key = (name.to_owned(), labels.to_owned());
                let value = value.parse::<f64>().expect(line);
                assert_eq!(page.samples.insert(key, value), None, "{line} stands twice");
            }
        }
        page
    }

    fn value(&self, name: &str, labels: &str) -> f64 {
        let key = (name.to_owned(), labels.to_owned());
        *self.samples.get(&key).unwrap_or_else(|| panic!("{key:?}"))
    }

    /// The values of a name, over all its labels.
    fn sum(&self, name: &str) -> f64 {
        let of_name = self.samples.iter().filter(|((n, _), _)| n == name);
        of_name.map(|(_, value)| value).sum()
    }
}

/// Plays the demo clip: sockets of RTP and RTCP, the client, the URL and the session.
fn play(site: &Site) -> ([UdpSocket; 2], Client, String, String) {
    let rtsp = site.server.wait_for_line("listening  rtsp://", LONG);
    let rtsp = rtsp.unwrap();
    let rtsp = rtsp.rsplit("//").next().unwrap().trim_end_matches('/');
    let rtsp: SocketAddr = rtsp.parse().unwrap();
    // RTP's port is the lower one, whatever order they come in.
    let mut sockets = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.sort_by_key(|socket| socket.local_addr().unwrap().port());
    let ports = sockets.each_ref().map(|s| s.local_addr().unwrap().port());
    let mut client = Client::connect(rtsp).unwrap();
    let url = format!("rtsp://{rtsp}/demo.ts");
    let transport = format!("RTP/AVP;unicast;client_port={}-{}", ports[0], ports[1]);
    let track = format!("{url}/track1");
    let setup = client.request("SETUP", &track, &[("Transport", &transport)]);
    let session = setup.unwrap().session_id().unwrap().0.to_owned();
    let playing = client.request("PLAY", &url, &[("Session", &session)]);
    assert_eq!(playing.unwrap().status, 200);
    (sockets, client, url, session)
}

#[test]
fn a_film_that_was_played_and_downloaded_is_in_the_metrics() {
    let (site, metrics) = site();
    let quiet = status(metrics);
    assert_eq!((quiet.sessions.total, quiet.engines[0].packets), (0, 0));

    let film = fs::read(DEMO).unwrap();
    assert_eq!(site.get("/demo.ts", "").body.len(), film.len());
    assert_eq!(site.get("/none", "").status, 404);

    let (sockets, mut client, url, session) = play(&site);
    let is_over = Arc::new(AtomicBool::new(false));
    let receiver = receive(sockets[0].try_clone().unwrap(), Arc::clone(&is_over));
    let of_session = [("Session", &*session)];
    let playing = wait_until(metrics, "it plays", |status| status.engines[0].packets > 20);
    assert_eq!((playing.sessions.now, playing.sessions.connections), (1, 1));
    assert_eq!(
        (playing.engines[0].streams, playing.engines[0].playing),
        (1, 1)
    );
    let cache = playing.cache.unwrap();
    assert!(cache.chunks_in_use > 0 && cache.chunks_read > 0);
    wait_until(metrics, "streams have a cost", |s| {
        s.stream_cpu_ratio.is_some()
    });
    assert_eq!(
        client.request("PAUSE", &url, &of_session).unwrap().status,
        200
    );
    wait_until(metrics, "it pauses", |s| {
        (s.engines[0].streams, s.engines[0].playing) == (1, 0)
    });
    assert_eq!(
        client
            .request("TEARDOWN", &url, &of_session)
            .unwrap()
            .status,
        200
    );
    drop(client);
    let status = wait_until(metrics, "all is over", |status| {
        let engine = &status.engines[0];
        (
            engine.streams,
            engine.in_flight,
            status.sessions.connections,
        ) == (0, 0, 0)
    });

    let engine = &status.engines[0];
    is_over.store(true, Ordering::Relaxed);
    assert_eq!((engine.packets, engine.bytes), receiver.join().unwrap());
    assert_eq!(engine.lateness.count(), engine.batches.sum);
    assert!(engine.lateness.count() <= engine.packets && engine.batches.count() > 0);
    assert!(engine.crossings >= engine.batches.count());
    let downloads = status.downloads.unwrap();
    assert_eq!((downloads.transfers, downloads.active), (1, 0));
    assert_eq!(downloads.bytes, film.len() as u64);
    assert_eq!(downloads.http_answers, [0, 1, 0, 1, 0]);
    assert_eq!((status.sessions.now, status.sessions.total), (0, 1));

    let page = Page::read(&get(metrics, "/metrics").text());
    assert_eq!(page.sum("onrush_packets_total"), engine.packets as f64);
    assert_eq!(page.sum("onrush_sent_bytes_total"), engine.bytes as f64);
    assert_eq!(page.sum("onrush_trains_total"), engine.trains as f64);
    let locked_bytes = status.locked.pinned_bytes + status.locked.resident_bytes;
    assert_eq!(page.sum("onrush_locked_bytes"), locked_bytes as f64);
    assert_eq!(
        page.value("onrush_http_requests_total", "code=\"4xx\""),
        1.0
    );
    assert_eq!(
        page.value("onrush_rtsp_requests_total", "code=\"2xx\""),
        4.0
    );
    check_histograms(&page, engine.core);
}

/// A page of anybody's may have a name that is made to mean this machine.
#[test]
fn nothing_is_told_by_a_strangers_name() {
    let (_site, metrics) = site();
    let code = |target: &str, host: &str| {
        let mut raw = Raw::connect(metrics);
        raw.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        raw.response(false).status
    };
    for target in [
        "/metrics",
        "/status",
        "/admin",
        "/admin/sessions",
        "/api/v1/channels",
    ] {
        assert_eq!(code(target, "pages.example:9554"), 403, "{target}");
        for host in ["127.0.0.1:9554", "localhost", "[::1]:9554", "films"] {
            assert_eq!(code(target, host), 200, "{target} {host}");
        }
    }
    assert_eq!(code("/health", "pages.example:9554"), 200);
}

/// Counts packets and bytes until it is over and nothing is left: read all the time, no buffer
/// overflows.
fn receive(socket: UdpSocket, is_over: Arc<AtomicBool>) -> JoinHandle<(u64, u64)> {
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    // For what comes while it does not run; others than root have less room.
    set_socket_recv_buffer_size_force(&socket, 8 << 20).ok();
    thread::spawn(move || {
        let (mut packets, mut bytes, mut buffer) = (0, 0, [0; 2048]);
        loop {
            let was_over = is_over.load(Ordering::Relaxed);
            match socket.recv(&mut buffer) {
                Ok(received) => (packets, bytes) = (packets + 1, bytes + received as u64),
                Err(_) if was_over => return (packets, bytes),
                Err(_) => {}
            }
        }
    })
}

/// Buckets are cumulative, the last one has no end and holds all, and sum and count are there.
fn check_histograms(page: &Page, core: usize) {
    let histograms = page.types.iter().filter(|(_, kind)| *kind == "histogram");
    let names: Vec<_> = histograms.map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["onrush_batch_bursts", "onrush_burst_lateness_seconds"]
    );
    for name in names {
        let bucket = format!("{name}_bucket");
        let mut buckets: Vec<_> = page
            .samples
            .iter()
            .filter(|((n, _), _)| *n == bucket)
            .map(|((_, labels), value)| {
                let end = labels
                    .strip_prefix(&format!("core=\"{core}\",le=\""))
                    .unwrap();
                (end.trim_end_matches('"').parse::<f64>().unwrap(), *value)
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(
            buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1),
            "{buckets:?}"
        );
        let (end, all) = *buckets.last().unwrap();
        let of_core = format!("core=\"{core}\"");
        assert_eq!(
            (end, all),
            (
                f64::INFINITY,
                page.value(&format!("{name}_count"), &of_core)
            )
        );
        assert!(all > 0.0 && page.value(&format!("{name}_sum"), &of_core) >= 0.0);
    }
}

// SPECIFICATION.md: 56
#[test]
fn the_document_lists_every_metric_and_no_other() {
    let (_site, metrics) = site();
    let response = get(metrics, "/metrics");
    assert_eq!(
        response.header("Content-Type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let page = Page::read(&response.text());
    let all = metrics_that_there_are();
    let known: BTreeSet<_> = all
        .iter()
        .map(|metric| (metric.name, metric.kind))
        .collect();
    assert_eq!(known.len(), all.len(), "each stands once");
    let exposed: BTreeSet<_> = page.types.iter().map(|(n, k)| (&**n, &**k)).collect();
    let missing: Vec<_> = known.difference(&exposed).collect();
    // Absent while nothing plays; and where there is no cluster, of which see tests/cluster.rs, or
    // no object store, of which see tests/objects.rs.
    let is_absent = |name: &str| {
        name.starts_with("onrush_cluster_")
            || name.starts_with("onrush_objects_")
            || ["onrush_node_info", "onrush_stream_cpu_ratio"].contains(&name)
    };
    let absent: Vec<_> = known.iter().filter(|(name, _)| is_absent(name)).collect();
    assert_eq!(missing, absent);
    assert!(exposed.is_subset(&known), "{exposed:?}");
    let of_metric = |metric: &Metric| {
        let labels: Vec<_> = metric.labels.iter().map(|of| format!("`{of}`")).collect();
        let (name, kind, help) = (metric.name, metric.kind, metric.help);
        format!("| `{name}` | {kind} | {} | {help} |", labels.join(", ")).replace("|  |", "| |")
    };
    let table: Vec<_> = all.iter().map(of_metric).collect();
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let is_row = |line: &&str| line.starts_with("| `onrush_") || line.starts_with("| `process_");
    let rows: Vec<_> = document.lines().filter(is_row).collect();
    let table_text = table.join("\n");
    assert_eq!(
        rows, table,
        "docs/metrics.md is to have this table:\n{table_text}\n"
    );
    for (name, kind) in &known {
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
        // OpenMetrics takes the ending off: both would be one family.
        let both = known
            .iter()
            .any(|(other, _)| *other == &*format!("{name}_total"));
        assert!(!both, "{name} is a gauge and a counter");
    }
    for (target, status) in [("/health", 200), ("/", 404), ("/status/", 404)] {
        let response = Raw::connect(metrics).request("GET", target, "");
        assert_eq!(response.status, status, "{target}");
    }
    assert_eq!(
        Raw::connect(metrics).request("POST", "/metrics", "").status,
        405
    );
}

#[test]
fn a_crowd_that_says_nothing_does_not_keep_a_scrape_out() {
    let (_site, metrics) = site();
    let crowd: Vec<_> = (0..METRICS_CONNECTIONS_MAX + 8)
        .map(|_| TcpStream::connect(metrics).unwrap())
        .collect();
    // Ten times what a place may be held without a word.
    let mut scrape = Raw::connect(metrics);
    let patience = Some(Duration::from_secs(20));
    scrape.stream.set_read_timeout(patience).unwrap();
    assert_eq!(scrape.request("GET", "/metrics", "").status, 200);
    drop(crowd);
}

#[test]
fn top_shows_a_server_to_scripts_and_says_who_is_none() {
    let (site, metrics) = site();
    let top = |options: &[&str], address: SocketAddr| {
        let mut command = Command::new(ONRUSH);
        command.args(["top", "--interval", "100ms"]).args(options);
        let output = command.arg(address.to_string()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, json, _) = top(&["--once", "--json"], metrics);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json["sessions"].as_u64()), (Some(0), Some(0)));
    assert_eq!(json["engines"].as_array().unwrap().len(), 1);
    assert_eq!(json["channels"][0]["state"], "waiting");
    let (code, text, _) = top(&["--once"], metrics);
    assert_eq!(code, Some(0));
    assert!(
        text.contains(&metrics.to_string()) && text.contains("0, 0 play") && text.contains("news"),
        "{text}"
    );
    // It speaks HTTP and is no metrics address.
    let (code, _, error) = top(&["--once"], site.http);
    assert_eq!(code, Some(2));
    assert!(error.contains("--metrics"), "{error}");
}

#[test]
fn explicit_addresses_switch_default_metrics_off() {
    let site = Site::new(&[], |_| ());
    let all = site.server.log();
    assert!(
        all.contains("stopping ") && !all.contains("metrics "),
        "{all}"
    );
}

/// Ends a program by a signal, which is to succeed, and reads what it has left.
fn end(server: &mut Process, signal: Signal, file: &Path) -> serde_json::Value {
    server.signal(signal).unwrap();
    assert!(server.wait(LONG).unwrap().success(), "{}", server.log());
    serde_json::from_str(&fs::read_to_string(file).expect("a status")).unwrap()
}

// SPECIFICATION.md: 57
#[test]
fn a_server_leaves_its_last_status_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status.json");
        let option = format!("--status-at-exit={}", file.display());
        let mut site = Site::new(&[&option, "--metrics=0"], |root| {
            fs::copy(DEMO, root.join("demo.ts")).unwrap();
        });
        let body = site.get("/demo.ts", "").body;
        assert!(!file.exists());
        // An engine that has nothing to send does not tick.
        let playing = play(&site);
        let metrics = metrics_address(&site.server);
        wait_until(metrics, "the engine ticks", |it| it.engines[0].ticks > 0);
        let status = end(&mut site.server, signal, &file);
        let status: Status = serde_json::from_value(status).unwrap();
        let downloads = status.downloads.unwrap();
        let done = (downloads.transfers, downloads.bytes, downloads.active);
        assert_eq!(done, (1, body.len() as u64, 0));
        assert_eq!(status.engines[0].streams, 0);
        assert!(status.engines[0].ticks > 0 && status.process.cpu_ns > 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        drop(playing);
    }
}

#[test]
fn a_relay_leaves_its_last_status_behind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("status.json");
    let source = format!("news={}", free_address());
    let mut command = Command::new(ONRUSH);
    command.args(["relay", &source, "--rtsp=off", "--api=off", "--metrics=0"]);
    command.arg("--status-at-exit").arg(&file);
    let mut relay = Process::start(&mut command).unwrap();
    relay.wait_for_line("stopping ", LONG).expect("it relays");
    let metrics = metrics_address(&relay);
    let page = Page::read(&get(metrics, "/metrics").text());
    let state = "channel=\"news\",state=\"waiting\"";
    assert_eq!(page.value("onrush_channel_state", state), 1.0);
    assert!(!page.types.contains_key("onrush_cache_bytes"), "no files");
    assert_eq!(
        (status(metrics).cache, status(metrics).engines.len()),
        (None, 0)
    );
    let status = end(&mut relay, Signal::TERM, &file);
    assert_eq!(status["schema_version"], 1);
    assert_eq!(status["sources"][0]["name"], "news");
    assert_eq!(status["sources"][0]["received"]["datagrams"], 0);
    let channel: Channel = serde_json::from_value(status["sources"][0].clone()).unwrap();
    let again = serde_json::to_value(channel).unwrap();
    assert_eq!(again, status["sources"][0], "as in the status of a server");
}

#[test]
fn a_status_that_could_not_be_written_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none/status.json");
    for serve in [&["serve"][..], &["relay", "127.0.0.1:5004"]] {
        let mut command = Command::new(ONRUSH);
        command.args(serve).arg("--status-at-exit").arg(&file);
        let output = command.arg("--rtsp=127.0.0.1:0").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--status-at-exit"), "{error}");
        assert!(error.contains("No such file"), "{error}");
        assert_eq!(output.stdout, b"", "it has not begun");
    }
}

/// What is shipped for Grafana and Prometheus asks for nothing that there is not.
#[test]
fn shipped_dashboards_and_alerts_name_known_metrics() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).unwrap();
    let (board, rules) = (
        read("grafana/onrush.json"),
        read("prometheus/onrush.rules.yml"),
    );
    let parsed: serde_json::Value = serde_json::from_str(&board).unwrap();
    assert!(parsed["panels"].as_array().unwrap().len() > 10);
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let is_known = |name: &str| document.contains(&format!("| `{name}` |"));
    let mut named = BTreeSet::new();
    for text in [&board, &rules] {
        let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let words = text.split(|it: char| !is_part(it));
        named.extend(words.filter(|it| it.starts_with("onrush_") || it.starts_with("process_")));
    }
    assert!(named.len() > 30, "{named:?}");
    let endings = ["_bucket", "_sum", "_count"];
    let unknown: Vec<_> = named
        .iter()
        .filter(|name| {
            let stem = endings.iter().find_map(|it| name.strip_suffix(it));
            !is_known(name) && !stem.is_some_and(is_known)
        })
        .collect();
    assert_eq!(unknown, Vec::<&&str>::new());
    assert!(!is_known("onrush_no_such_metric"));
}
