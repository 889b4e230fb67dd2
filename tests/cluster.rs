//! Servers that are nodes of one cluster: three of them, and a server of NATS, in a namespace of
//! their own. What real players make of being sent on, and what follows when something is killed.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use onrush_server::admin::exposition::metrics as metrics_that_there_are;
use onrush_testkit::interleaved::InterleavedClient;
use onrush_testkit::netns::Netns;
use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root};
use rustix::process::Signal;

use cluster_site::{Cluster, FILMS, LONG_LIFE, NATS, SHORT_LIFE};
use common::{LONG, ONRUSH, gst_plays_to_the_end, wait_until};

mod cluster_site;
mod common;

/// `ffmpeg` counts the pictures that it gets from there.
fn ffmpeg(namespace: &Netns, url: &str) -> u64 {
    let mut command = namespace.command("ffmpeg");
    command.args(["-nostdin", "-v", "error"]);
    if url.starts_with("rtsp") {
        command.args(["-rtsp_transport", "tcp"]);
    }
    command.args(["-i", url, "-map", "0:v", "-c", "copy"]);
    command.args(["-progress", "-", "-f", "null", "-"]);
    let (status, log) = Process::run(&mut command, LONG).unwrap();
    let last = log.lines().rev().find_map(|it| it.strip_prefix("frame="));
    let pictures = last.and_then(|count| count.trim().parse().ok());
    match pictures {
        Some(pictures) if status.success() => pictures,
        _ => panic!("{url}: {log}"),
    }
}

fn gstreamer(namespace: &Netns, url: &str) -> Command {
    let mut command = namespace.command("gst-launch-1.0");
    command.args(["-q", "rtspsrc", "protocols=tcp"]);
    command.arg(format!("location={url}"));
    command.args(["!", "rtpmp2tdepay", "!", "fakesink"]);
    command
}

/// Each plays to the end, and is sent on once at the most: at the film's home not at all.
#[test]
fn players_find_the_home_of_a_film_from_each_node() {
    require_root!();
    require_programs!("nats-server", "ffmpeg", "gst-launch-1.0");
    let cluster = Cluster::start(LONG_LIFE);
    let home = cluster.home(0);
    let asked = |node| cluster.of_cluster(node, "rtsp_sent_on");
    let before: Vec<_> = (0..3).map(asked).collect();
    let mut pictures = Vec::new();
    for node in 0..3 {
        let url = cluster.rtsp_url(node, 0);
        pictures.push(ffmpeg(&cluster.namespace, &url));
        let list = format!("{}/hls/index.m3u8", cluster.http_url(node, 0));
        pictures.push(ffmpeg(&cluster.namespace, &list));
        let mut gst = gstreamer(&cluster.namespace, &url);
        gst_plays_to_the_end(&mut gst);
    }
    // Six seconds of 25 a second; the last one is what players leave behind.
    assert!(pictures.iter().all(|it| *it >= 140), "{pictures:?}");
    for (node, before) in before.into_iter().enumerate() {
        let is_home = node == home;
        let status = cluster.status(node);
        let sessions = &status["sessions"]["total"];
        assert_eq!(*sessions, if is_home { 6 } else { 0 }, "node {node}");
        let sent_on = if is_home { 0 } else { 2 };
        assert_eq!(asked(node) - before, sent_on, "node {node}");
        let by_http = cluster.of_cluster(node, "http_sent_on");
        assert_eq!(by_http, if is_home { 0 } else { 1 }, "node {node}");
        assert_eq!(cluster.of_cluster(node, "not_following"), 0);
        let page = String::from_utf8(cluster.told(node, "/metrics")).unwrap();
        let of_node = metrics_that_there_are().into_iter().filter(|metric| {
            metric.name.starts_with("onrush_cluster_") || metric.name == "onrush_node_info"
        });
        for metric in of_node {
            let line = format!("# TYPE {} {}\n", metric.name, metric.kind);
            assert!(page.contains(&line), "{line}: {page}");
        }
    }
}

/// Where a viewer is sent, without what it is called there; and that.
fn traced(location: Option<String>) -> (String, String) {
    let location = location.expect("it is sent on");
    let (before, behind) = location.split_once("trace=").expect(&location);
    let (trace, behind) = behind.split_at(16);
    assert!(trace.chars().all(|it| it.is_ascii_hexdigit()), "{location}");
    let behind = behind.strip_prefix('&').expect(&location);
    (format!("{before}{behind}"), trace.to_owned())
}

/// By one number: where it was sent on, where it came, what it played there.
#[test]
fn a_viewer_is_found_in_the_logs_of_both_nodes() {
    require_root!();
    require_programs!("nats-server", "ffmpeg", "gst-launch-1.0", "curl");
    let cluster = Cluster::start(LONG_LIFE);
    let home = cluster.home(0);
    let other = (home + 1) % 3;
    let lines = |node: usize, words: &[&str]| {
        let log = cluster.nodes[node].process.log();
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        let found = log.lines().filter(has_all).map(str::to_owned);
        found.collect::<Vec<_>>()
    };
    let traces = || {
        let there = format!(" to node node-{}, ", home + 1);
        let sent_on = lines(other, &["is sent on", "\"film-0.ts\"", &there]);
        let trace = |line: &String| {
            let (_, behind) = line.split_once("trace ").expect(line);
            behind[..16].to_owned()
        };
        sent_on.iter().map(trace).collect::<Vec<_>>()
    };
    // Asking for the home was told, too, and may come late.
    wait_until("it is told who asked", || !traces().is_empty());
    let mut seen = traces().len();
    // What the next viewer is called, as the node says that was asked.
    let mut next = || {
        wait_until("it is told who is sent on", || traces().len() > seen);
        seen += 1;
        assert_eq!(traces().len(), seen);
        traces().pop().unwrap()
    };
    // Each is said once.
    let assert_told = |trace: &str, words: &[&str]| {
        let words = [&[trace], words].concat();
        wait_until(&format!("{words:?}"), || !lines(home, &words).is_empty());
        assert_eq!(lines(home, &words).len(), 1, "{words:?}");
    };

    let url = cluster.rtsp_url(other, 0);
    for is_ffmpeg in [true, false] {
        if is_ffmpeg {
            ffmpeg(&cluster.namespace, &url);
        } else {
            let mut gst = gstreamer(&cluster.namespace, &url);
            gst_plays_to_the_end(&mut gst);
        }
        let trace = next();
        assert_told(&trace, &["is served here"]);
        assert_told(&trace, &["session ", " starts: "]);
        assert_told(&trace, &["session ", " ends ("]);
    }

    // By HTTP, in two ranges of the URL that it was sent to.
    let curl = |range: &str, url: &str| {
        let mut command = cluster.namespace.command("curl");
        command.args(["-sSfL", "-r", range, "-o", "/dev/null"]);
        command.args(["-w", "%{url_effective}", url]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let there = curl("0-9", &cluster.http_url(other, 0));
    let trace = next();
    let query = format!("?trace={trace}&redirects=1");
    assert!(there.ends_with(&query), "{there}");
    curl("10-19", &there);
    assert_told(&trace, &["is served here"]);
}

#[test]
fn who_does_not_follow_is_served_where_it_asks() {
    require_root!();
    require_programs!("nats-server");
    let cluster = Cluster::start(LONG_LIFE);
    let home = cluster.home(0);
    let other = (home + 1) % 3;
    let there = cluster.rtsp_url(home, 0);
    let url = cluster.rtsp_url(other, 0);
    // The rest of the query stays.
    let (status, location) = cluster.describe(other, &format!("{url}?x=y"));
    assert_eq!(status, 302);
    let (location, trace) = traced(location);
    assert_eq!(location, format!("{there}?x=y&redirects=1"));
    // What it is called stays.
    let (_, location) = cluster.describe(other, &format!("{url}?trace={trace}&redirects=1"));
    let (location, again) = traced(location);
    assert_eq!((location, again), (format!("{there}?redirects=2"), trace));
    // Twice is the most, whoever the home is.
    assert_eq!(
        cluster.describe(other, &format!("{url}?redirects=1")).0,
        302
    );
    assert_eq!(
        cluster.describe(other, &format!("{url}?redirects=2")).0,
        200
    );

    // A player of no name asks, is sent on, asks again, and plays here: SETUP, too.
    let address = SocketAddr::from((cluster.nodes[other].host, 8554));
    let connect = || InterleavedClient::connect(address);
    let mut player = cluster.namespace.run(connect).unwrap();
    let answer = player.request("DESCRIBE", &url, &[]).unwrap();
    assert_eq!(answer.status, 302);
    let answer = player.request("DESCRIBE", &url, &[]).unwrap();
    assert_eq!(answer.status, 200);
    let transport = "RTP/AVP/TCP;unicast;interleaved=0-1";
    player.set_up(&format!("{url}/track1"), transport).unwrap();
    assert_eq!(player.request("PLAY", &url, &[]).unwrap().status, 200);
    player.frame().unwrap();

    // A file and its playlist are one film: other viewers for each.
    let playlist = "/film-0.ts/hls/index.m3u8";
    for (target, viewer, another) in [("/film-0.ts", "a", "b"), (playlist, "c", "d")] {
        let host = cluster.nodes[home].host;
        let location = format!("http://{host}:8080{target}?redirects=1");
        let (status, told) = cluster.get(other, target, viewer);
        assert_eq!((status, traced(told).0), (307, location));
        assert_eq!(cluster.get(other, target, another).0, 307);
        assert_eq!(cluster.get(other, target, viewer), (200, None));
        assert_eq!(cluster.get(home, target, viewer), (200, None));
    }
    // What a playlist names, folders and pages are had where they are asked for.
    assert_eq!(
        cluster.get(other, "/film-0.ts/hls/main/index.m3u8", "c").1,
        None
    );
    assert_eq!(cluster.get(other, "/", "c"), (200, None));
    assert!(cluster.of_cluster(other, "not_following") >= 3);
}

/// Clients send a password to no other host than the one that they were given.
#[test]
fn who_logs_in_by_http_is_served_where_it_asks() {
    require_root!();
    require_programs!("nats-server", "curl");
    let mut cluster = Cluster::prepare(LONG_LIFE);
    let folder = tempfile::tempdir().unwrap();
    let [users, keys] = ["users", "keys"].map(|name| folder.path().join(name));
    fs::write(&keys, "0123456789abcdef0123456789abcdef\n").unwrap();
    let mut add = Command::new(ONRUSH);
    add.args(["user", "add"]).arg(&users).arg("anna");
    let mut add = add.stdin(Stdio::piped()).spawn().unwrap();
    add.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    assert!(add.wait().unwrap().success());
    let text = fs::read_to_string(&users).unwrap();
    let rights = "group everybody play /**\ngroup everybody admin /admin\n";
    fs::write(&users, text + rights).unwrap();
    let options = [
        format!("--users={}", users.display()),
        format!("--url-keys={}", keys.display()),
    ];
    for number in 1..=3 {
        let node = cluster.start_node_at(number, NATS, &options);
        cluster.nodes.push(node);
    }
    cluster.wait_for_nodes(3);
    let other = (cluster.home(0) + 1) % 3;
    let url = cluster.http_url(other, 0);

    let mut curl = cluster.namespace.command("curl");
    curl.args(["-sSL", "--digest", "-u", "anna:secret", "-o", "/dev/null"]);
    curl.args(["-w", "%{http_code} %{url_effective}", &url]);
    let output = curl.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, format!("200 {url}"), "{output:?}");
    assert_eq!(cluster.get(other, "/film-0.ts", "a"), (401, None));
    // What needs no password is sent on: what is signed, and what everybody may.
    let mut sign = Command::new(ONRUSH);
    sign.args(["sign", &url, "--keys"]).arg(&keys);
    let signed = String::from_utf8(sign.output().unwrap().stdout).unwrap();
    let (_, signed) = signed.trim().split_once(":8080").unwrap();
    assert_eq!(cluster.get(other, signed, "b").0, 307);
    let playlist = "/film-0.ts/hls/index.m3u8";
    assert_eq!(cluster.get(other, playlist, "c").0, 307);
    // A node that drains takes nobody more, and who has begun goes on.
    let (code, said) = cluster.command(other, &["drain"]);
    assert_eq!(code, Some(0), "{said}");
    for (range, told) in [("0-", "503 5"), ("188-", "206 ")] {
        let mut curl = cluster.namespace.command("curl");
        curl.args(["-sS", "--digest", "-u", "anna:secret", "-o", "/dev/null"]);
        curl.args(["-w", "%{http_code} %header{retry-after}", "-r", range, &url]);
        let output = curl.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, told, "{output:?}");
    }
}

#[test]
fn without_the_registry_serving_goes_on() {
    require_root!();
    require_programs!("nats-server");
    let mut cluster = Cluster::start(SHORT_LIFE);
    let mut nats = cluster.nats.take().unwrap();
    nats.process.signal(Signal::KILL).unwrap();
    nats.process.wait(LONG).unwrap();
    for node in 0..3 {
        wait_until("it is noticed", || !cluster.is_registered(node));
        let said = "the registry is not reached, serving goes on";
        assert!(
            cluster.nodes[node]
                .process
                .wait_for_line(said, LONG)
                .is_some()
        );
        let (code, said) = cluster.command(node, &["status"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("registry   not reached: "), "{said}");
        // Nobody is known to be alive any more, so nobody is sent there.
        wait_until("it serves all by itself", || {
            cluster.of_cluster(node, "nodes") == 1
        });
        for film in 0..FILMS {
            let url = cluster.rtsp_url(node, film);
            assert_eq!(cluster.describe(node, &url).0, 200);
        }
    }
    cluster.nats = Some(cluster.start_nats());
    cluster.wait_for_nodes(3);
    for node in 0..3 {
        assert!(cluster.is_registered(node));
        assert!(cluster.of_cluster(node, "disconnects") >= 1);
        let (code, said) = cluster.command(node, &["status"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("registry   reached"), "{said}");
        assert_eq!(said.matches("\nnode  ").count(), 3, "{said}");
    }
}

#[test]
fn a_killed_node_is_forgotten_and_its_films_have_homes() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let mut cluster = Cluster::start(SHORT_LIFE);
    let film = cluster.film_of(2);
    let mut killed = cluster.nodes.pop().unwrap();
    killed.process.signal(Signal::KILL).unwrap();
    killed.process.wait(LONG).unwrap();
    cluster.wait_for_nodes(2);
    let home = cluster.home(film);
    for node in 0..2 {
        let pictures = ffmpeg(&cluster.namespace, &cluster.rtsp_url(node, film));
        assert!(pictures >= 140, "{pictures}");
        let gone = "nothing was heard of node node-3";
        assert!(
            cluster.nodes[node]
                .process
                .wait_for_line(gone, LONG)
                .is_some()
        );
    }
    // It comes back as another process, and has its film again.
    cluster.nodes.push(cluster.start_node(3));
    cluster.wait_for_nodes(3);
    assert_ne!(home, cluster.home(film));
    // One that ends says so: nobody waits for its time to be over.
    let mut leaving = cluster.nodes.pop().unwrap();
    assert_eq!(leaving.process.interrupt(LONG).unwrap().code(), Some(0));
    cluster.wait_for_nodes(2);
    let said = "node node-3 has left";
    assert!(cluster.nodes[0].process.wait_for_line(said, LONG).is_some());
}

#[test]
fn entries_that_are_none_are_ignored_and_told() {
    require_root!();
    require_programs!("nats-server");
    let cluster = Cluster::start(LONG_LIFE);
    let homes: Vec<_> = (0..FILMS).map(|film| cluster.home(film)).collect();
    cluster.publish("evil", b"\0 no JSON at all");
    cluster.publish(
        "future",
        br#"{"format":2,"node":"future","capacity_bps":9}"#,
    );
    let address = r#"{"format":1,"node":"inject","accepts":true,"capacity_bps":900000000000000,
        "addresses":{"rtsp":"evil:1\r\nLocation: rtsp://evil/","http":"evil:1/x"}}"#;
    cluster.publish("inject", address.as_bytes());
    // A node of another version, which says more than this one knows: it is one.
    let tomorrow = br#"{"format":1,"node":"tomorrow","capacity_bps":1,"accepts":false,"x":[]}"#;
    cluster.publish("tomorrow", tomorrow);
    for node in 0..3 {
        wait_until("all are seen", || {
            (
                cluster.of_cluster(node, "ignored"),
                cluster.of_cluster(node, "nodes"),
            ) == (3, 4)
        });
        for (key, reason) in [
            ("evil", "no entry of a node"),
            ("future", "an entry of form 2"),
            ("inject", "is no address"),
        ] {
            let said = format!("the registry's entry \"{key}\" is ignored: ");
            let line = cluster.nodes[node].process.wait_for_line(&said, LONG);
            assert!(line.is_some_and(|line| line.contains(reason)), "{key}");
        }
    }
    let now: Vec<_> = (0..FILMS).map(|film| cluster.home(film)).collect();
    assert_eq!(now, homes);

    let (code, said) = cluster.command(0, &["status"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("ignored    future: an entry of form 2"),
        "{said}"
    );
    assert!(said.contains("node       tomorrow, drains: "), "{said}");
    for key in ["evil", "future", "inject", "tomorrow"] {
        assert_eq!(
            cluster.command(1, &["forget", key]),
            (Some(0), String::new())
        );
    }
    for node in 0..3 {
        wait_until("all are forgotten", || {
            (
                cluster.of_cluster(node, "ignored"),
                cluster.of_cluster(node, "nodes"),
            ) == (0, 3)
        });
    }
    let (code, said) = cluster.command(2, &["forget", "evil"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("the registry has no such node"), "{said}");
    // One that is alive is there again.
    assert_eq!(cluster.command(0, &["forget", "node-2"]).0, Some(0));
    cluster.wait_for_nodes(3);
}

/// It says less than this version knows, and more: what is missing counts as none. It is the home
/// of every film by its size, and nobody can be sent there, since it names no address.
#[test]
fn a_node_of_the_previous_version_is_known_and_not_sent_to() {
    require_root!();
    require_programs!("nats-server");
    let cluster = Cluster::start(LONG_LIFE);
    let yesterday = br#"{"format":1,"node":"yesterday","capacity_bps":900000000000000,
        "accepts":true,"weight":7,"addresses":{"rtmp":"192.0.2.1:1935"},"films":[{"key":1}]}"#;
    cluster.publish("yesterday", yesterday);
    for node in 0..3 {
        wait_until("it is known", || cluster.of_cluster(node, "nodes") == 4);
        assert_eq!(cluster.of_cluster(node, "ignored"), 0);
        let said = "node yesterday is there, version";
        let told = cluster.nodes[node].process.wait_for_line(said, LONG);
        assert!(told.is_some(), "{said}");
        for film in 0..FILMS {
            let url = cluster.rtsp_url(node, film);
            assert_eq!(cluster.describe(node, &url), (200, None));
            let target = format!("/film-{film}.ts");
            let viewer = format!("of {node} and {film}");
            assert_eq!(cluster.get(node, &target, &viewer), (200, None));
        }
    }
    let (code, said) = cluster.command(0, &["status"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("node       yesterday"), "{said}");
}

#[test]
fn a_node_that_drains_sends_who_comes_to_the_others() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let cluster = Cluster::start(LONG_LIFE);
    let film = cluster.film_of(0);
    let (code, said) = cluster.command(0, &["drain"]);
    assert_eq!(code, Some(0), "{said}");
    let drains = |said: &str| said.contains("node       node-1, drains: ");
    wait_until("it is told", || drains(&cluster.command(1, &["status"]).1));
    let drains = |said: &str| said.contains("node       node-1, this one, drains: ");
    assert!(drains(&cluster.command(0, &["status"]).1));
    wait_until("its films are elsewhere", || cluster.home(film) != 0);
    assert_eq!(cluster.get(0, &format!("/film-{film}.ts"), "a").0, 307);
    let pictures = ffmpeg(&cluster.namespace, &cluster.rtsp_url(0, film));
    assert!(pictures >= 140, "{pictures}");
    assert_eq!(cluster.command(0, &["drain", "--stop"]).0, Some(0));
    wait_until("it takes them again", || cluster.home(film) == 0);
}

/// Each is told what to write instead.
#[test]
fn a_cluster_is_refused_that_cannot_be() {
    for (words, reason) in [
        (&["--cluster=a b"][..], "write up to 64 letters"),
        (&["--cluster=films"], "--cluster-nats"),
        (&["--cluster-node=a"], "--cluster"),
        (
            &["--cluster-nats=nats://u:secret@a"],
            "no password stands here",
        ),
        (&["--cluster-nats=http://a"], "write nats://HOST:PORT"),
    ] {
        let mut command = Command::new(ONRUSH);
        command.args(["serve", "--rtsp=127.0.0.1:0"]).args(words);
        let (status, log) = Process::run(&mut command, Duration::from_secs(60)).unwrap();
        assert_eq!(status.code(), Some(2), "{words:?}: {log}");
        assert!(log.contains(reason), "{words:?}: {log}");
    }
    let missing = ["--cluster=c", "--cluster-nats=nats://a", "--cluster-host=a"];
    let mut command = Command::new(ONRUSH);
    command.args(["serve", "--rtsp=127.0.0.1:0"]).args(missing);
    command.args(["--cluster-node=a", "--cluster-credentials=/nowhere"]);
    let (status, log) = Process::run(&mut command, LONG).unwrap();
    assert_eq!(status.code(), Some(2), "{log}");
    assert!(
        log.contains("cannot read the credentials in /nowhere"),
        "{log}"
    );
}
