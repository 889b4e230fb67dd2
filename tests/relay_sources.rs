//! Sources of `onrush relay`, built and in namespaces: no datagram comes back to its source, and
//! who may send.

use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::process::Process;
use onrush_testkit::require_root;
use onrush_testkit::rtsp_client::Client;
use onrush_testkit::testbed::{Options, SND_DEVICE, SND_IPV4, Testbed};
use rustix::net::netdevice::name_to_index;
use rustix::process::Signal;
use serde_json::{Value, json};

use common::{LONG, RTSP_PORT};
use relay_site::{MembersFile, Site, assert_silent, received, rtp, send_all};

mod common;
mod relay_site;

/// As in crates/server/src/relay/config.rs.
const SENDER_KEPT: Duration = Duration::from_secs(3);

#[test]
fn a_relay_does_not_start_with_a_cycle() {
    require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("members");
    std::fs::write(&file, "10.77.0.2:1\n10.77.0.1:5004\n").unwrap();
    let of_file = format!("5004 --members {}", file.to_str().unwrap());
    for (options, path) in [
        ("5004 --to 127.0.0.1:5004", "live -> live"),
        ("5004 --to [fd77::1]:5004", "live -> live"),
        (
            "10.77.0.1:5004 --to [::ffff:10.77.0.1]:5004",
            "live -> live",
        ),
        (of_file.as_str(), "live -> live"),
        (
            "a=5004 b=5006 --to a=10.77.0.1:5006 --to b=127.0.0.1:5004",
            "b -> a -> b",
        ),
        (
            "a=5004 b=10.77.0.1:5006 c=0.0.0.0:5008 --to a=10.77.0.1:5006 --to b=127.9.9.9:5008 \
             --to c=[::1]:5004",
            "c -> a -> b -> c",
        ),
    ] {
        for how in ["--delay=0ms", "--in-kernel"] {
            let options = options.split(' ').chain(["--rtsp=off", "--api=off", how]);
            let mut command = testbed.snd.command(common::ONRUSH);
            let mut relay = Process::start(command.arg("relay").args(options)).unwrap();
            // One that starts would not end by itself.
            let status = relay.wait(LONG).unwrap();
            let said = relay.wait_for_line(path, LONG).unwrap_or_default();
            let log = relay.log_tail();
            assert_eq!(status.code(), Some(2), "{path} {how}: {log}");
            assert!(
                said.contains("leave this member out"),
                "{path} {how}: {log}"
            );
        }
    }
}

/// Everybody may send, so that nothing but the refusal keeps datagrams from coming back.
#[test]
fn the_api_refuses_cycles_and_no_datagram_comes_back() {
    require_root!();
    for how in ["--delay=0ms", "--in-kernel"] {
        let inputs = ["live=5004", "b=10.77.0.1:5006", "c=5008"];
        let site = Site::start(&[&inputs[..], &["--rtsp=off", "--from-anybody", how]].concat());
        let ask = |method: &str, source: &str, members: &[&str]| {
            let body = json!({ "members": members }).to_string();
            site.ask(method, &format!("/sources/{source}/members"), &body)
        };
        assert_eq!(ask("POST", "live", &["10.77.0.1:5006"]).0, 200, "a chain");
        assert_eq!(ask("PUT", "b", &["[fd77::1]:5008"]).0, 200, "a chain");
        for method in ["POST", "PUT"] {
            for (source, member, path) in [
                ("c", "127.0.0.1:5004", "c -> live -> b -> c"),
                ("c", "[::ffff:127.0.0.1]:5004", "c -> live -> b -> c"),
                ("c", "[fd77::1]:5004", "c -> live -> b -> c"),
                ("b", "10.77.0.1:5004", "b -> live -> b"),
                ("b", "10.77.0.1:5006", "b -> b"),
            ] {
                let (status, why) = ask(method, source, &["10.77.0.2:9", member]);
                let why = why["error"].as_str().unwrap_or_default();
                assert!(
                    status == 409 && why.contains(path),
                    "{status} {path}: {why}"
                );
            }
        }
        let of = |source: &str| site.ask("GET", &format!("/sources/{source}"), "").1;
        assert_eq!(of("c")["members"], 0, "a list is taken whole or not at all");
        if how != "--in-kernel" {
            // Through all three, once.
            send_all(
                &site.source(true),
                &(0..10).map(|i| rtp(i, 500)).collect::<Vec<_>>(),
            );
            let datagrams = |source: &str| of(source)["received"]["datagrams"].clone();
            common::wait_until("the end of the chain", || datagrams("c") == 10);
            for source in ["live", "b", "c"] {
                assert_eq!(datagrams(source), 10, "{source}");
            }
        }
        // Where one member goes, another may come.
        assert_eq!(ask("PUT", "b", &["10.77.0.2:9"]).0, 200);
        assert_eq!(ask("POST", "c", &["127.0.0.1:5004"]).0, 200);
        site.stop();
    }
}

#[test]
fn a_members_file_that_closes_a_cycle_is_refused() {
    require_root!();
    let file = MembersFile::new("10.77.0.2:1\n");
    let members = format!("live={}", file.name());
    let site = Site::start(&["live=5004", "b=5006", "--rtsp=off", "--members", &members]);
    let back = json!({ "members": ["127.0.0.1:5004"] }).to_string();
    assert_eq!(site.ask("POST", "/sources/b/members", &back).0, 200);
    file.write("10.77.0.2:2\n10.77.0.1:5006\n");
    let said = site.relay.wait_for_line("the members stay", LONG).unwrap();
    assert!(said.contains("live -> b -> live"), "{said}");
    let (_, answer) = site.ask("GET", "/sources/live/members", "");
    assert_eq!(answer["members"][0]["address"], "10.77.0.2:1");
    assert_eq!(site.ask("DELETE", "/sources/b/members", &back).0, 200);
    // The same text once more.
    file.write("10.77.0.2:2\n10.77.0.1:5006\n");
    site.wait_for("both", |source| source["members"] == 2);
    site.stop();
}

#[test]
fn no_player_is_where_a_source_comes_in() {
    require_root!();
    let site = Site::start(&["live=5004", "b=5006", "--rtsp=[::]:8554"]);
    site.source(true).send(&rtp(1, 1328)).unwrap();
    site.wait_for("the source", |source| source["state"] == "live");
    let snd = &site.testbed.snd;
    // As every device that is up has one; for certain, and at once.
    let add = ["addr", "add", "fe80::77/64", "dev", SND_DEVICE, "nodad"];
    assert!(snd.tool("ip", add).unwrap().status.success());
    let device = snd.run(|| {
        let any = UdpSocket::bind((SND_IPV4, 0)).unwrap();
        name_to_index(any, SND_DEVICE).unwrap()
    });
    let link_local = "fe80::77".parse().unwrap();
    let link_local = SocketAddrV6::new(link_local, RTSP_PORT, 0, device);
    for address in [(SND_IPV4, RTSP_PORT).into(), SocketAddr::from(link_local)] {
        let mut player = snd.run(|| Client::connect(address)).unwrap();
        let url = "rtsp://10.77.0.1:8554/live/live/track1";
        for (ports, status) in [("5004-5005", 461), ("5006-5007", 461), ("5008-5009", 200)] {
            let transport = format!("RTP/AVP;unicast;client_port={ports}");
            let answer = player.request("SETUP", url, &[("Transport", &transport)]);
            assert_eq!(answer.unwrap().status, status, "{address} {ports}");
        }
    }
    site.stop();
}

/// A relay with a member, and two who send to it.
fn two_senders(options: &[&str]) -> (Site, UdpSocket, [UdpSocket; 2]) {
    let site = Site::start(&[&["5004", "--rtsp=off"], options].concat());
    let member = site.member(true);
    let body = json!({ "members": [member.local_addr().unwrap()] }).to_string();
    assert_eq!(site.ask("POST", "/sources/live/members", &body).0, 200);
    site.wait_for("the member", |source| source["members"] == 1);
    let senders = [site.source(true), site.source(true)];
    (site, member, senders)
}

fn from_others(answer: &Value) -> u64 {
    answer["received"]["from_others"].as_u64().unwrap()
}

#[test]
fn only_the_first_sender_is_relayed_until_it_is_silent() {
    require_root!();
    for how in ["--delay=0ms", "--in-kernel"] {
        let (site, member, [one, other]) = two_senders(&[how]);
        let packets = |first: u16| (first..first + 5).map(|i| rtp(i, 900)).collect::<Vec<_>>();
        send_all(&one, &packets(0));
        send_all(&other, &packets(100));
        // Of another IP version, and so another sender.
        send_all(&site.source(false), &packets(200));
        let last = Instant::now();
        send_all(&one, &packets(5));
        let expected = [packets(0), packets(5)].concat();
        assert!(received(&member, 10) == expected, "{how}");
        // What the thread says may be of the round before.
        let answer = site.wait_for("refusals", |source| {
            from_others(source) == 10 && source["received"]["datagrams"] == 10
        });
        assert_eq!(answer["received"]["source_changes"], 0, "{how}: {answer:#}");
        assert_eq!(answer["from"], one.local_addr().unwrap().to_string());
        let said = "which is refused as long as";
        let line = site.relay.wait_for_line(said, LONG).unwrap();
        assert!(
            line.contains(&other.local_addr().unwrap().to_string()),
            "{line}"
        );
        // An encoder that was started again.
        let taken_over = |source: &Value| {
            other.send(&rtp(300, 900)).unwrap();
            source["from"] == other.local_addr().unwrap().to_string()
        };
        site.wait_for("the other", taken_over);
        assert!(last.elapsed() >= SENDER_KEPT, "{how}: too soon");
        assert!(received(&member, 1)[0] == rtp(300, 900), "{how}");
        let before = from_others(&site.ask("GET", "/sources/live", "").1);
        one.send(&rtp(10, 900)).unwrap();
        let answer = site.wait_for("the first", |source| from_others(source) > before);
        assert_eq!(answer["received"]["source_changes"], 1, "{how}: {answer:#}");
        assert_eq!(site.relay.wait_for_lines(said, 2, LONG).len(), 2, "{how}");
        let log = site.stop();
        assert_eq!(log.matches(said).count(), 2, "once for each sender: {log}");
    }
}

#[test]
fn from_anybody_relays_whoever_sends() {
    require_root!();
    for how in ["--delay=0ms", "--in-kernel"] {
        let (site, member, senders) = two_senders(&["--from-anybody", how]);
        for number in 0..10 {
            let sender = &senders[usize::from(number % 2)];
            sender.send(&rtp(number, 900)).unwrap();
            assert!(received(&member, 1)[0] == rtp(number, 900), "{how}");
        }
        let answer = site.wait_for("all", |source| source["received"]["datagrams"] == 10);
        assert_eq!(from_others(&answer), 0, "{how}: {answer:#}");
        assert_eq!(answer["received"]["source_changes"], 9, "{how}: {answer:#}");
        site.stop();
    }
}

#[test]
fn a_stray_datagram_keeps_no_stream_out() {
    require_root!();
    for how in ["--delay=0ms", "--in-kernel"] {
        let (site, member, [stray, encoder]) = two_senders(&[how]);
        stray.send(b"is anybody there?").unwrap();
        assert_eq!(received(&member, 1)[0], b"is anybody there?", "{how}");
        send_all(&encoder, &[rtp(1, 900), rtp(2, 900)]);
        assert!(received(&member, 2) == [rtp(1, 900), rtp(2, 900)], "{how}");
        stray.send(b"is anybody there?").unwrap();
        site.wait_for("a refusal", |source| from_others(source) == 1);
        assert_silent(&member);
        site.stop();
    }
}

/// What the sender sent while the relay was stopped is still to be taken in when the other's
/// datagram is.
#[test]
fn a_relay_that_was_held_up_keeps_its_sender() {
    require_root!();
    let (site, member, [one, other]) = two_senders(&[]);
    one.send(&rtp(1, 900)).unwrap();
    assert!(received(&member, 1)[0] == rtp(1, 900));
    site.relay.signal(Signal::STOP).unwrap();
    thread::sleep(SENDER_KEPT + SENDER_KEPT / 2);
    other.send(&rtp(100, 900)).unwrap();
    one.send(&rtp(2, 900)).unwrap();
    site.relay.signal(Signal::CONT).unwrap();
    assert!(
        received(&member, 1)[0] == rtp(2, 900),
        "{}",
        site.relay.log_tail()
    );
    site.wait_for("a refusal", |source| from_others(source) == 1);
    site.stop();
}
