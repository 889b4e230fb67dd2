//! A server with a large cache serves while the cache becomes ready: the first client is answered,
//! and a film plays, without a copy, when most of the memory is still to come.

use std::fs;

use onrush_server::admin::status::{Cache, Status};
use onrush_testkit::http_client;
use onrush_testkit::require_root;
use onrush_testkit::rtsp_client::transport;
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{Mode, RCV_DEVICE};

use common::{LONG, Site, clip, wait_until};

mod common;

/// More than any machine makes ready in the moment before its first client comes; a machine that
/// has less takes what it has.
const CACHE: &str = "--cache=8GiB";
const METRICS: &str = "--metrics=127.0.0.1:9554";
const PORT: u16 = 20_000;

fn status(site: &Site) -> Status {
    let metrics = ([127, 0, 0, 1], 9554).into();
    let get = || {
        http_client::Client::connect(metrics)
            .unwrap()
            .get("/status")
            .unwrap()
    };
    serde_json::from_slice(&site.testbed.snd.run(get)).unwrap()
}

fn cache(status: &Status) -> &Cache {
    status.cache.as_ref().expect("it serves files")
}

// SPECIFICATION.md: 60
#[test]
fn a_film_plays_while_the_cache_becomes_ready() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(2.0)).unwrap();
    let site = Site::serve(testbed, media, &[CACHE, METRICS]);
    // What the sink counts it drops before anybody copies it.
    let sink = Sink::attach(&site.testbed.rcv, RCV_DEVICE, PORT..=PORT).unwrap();
    let mut client = site.connect();
    assert_eq!(client.request("OPTIONS", "*", &[]).unwrap().status, 200);
    let first = status(&site);
    let (bytes, ready) = (cache(&first).bytes, cache(&first).bytes_ready);
    assert!(
        0 < ready && ready < bytes,
        "{ready} of {bytes} at the first answer"
    );
    assert!(cache(&first).chunks > 0);
    // Nothing is told to be ready that is not locked.
    assert!(first.locked.pinned_bytes >= ready);

    let url = site.url("clip.ts");
    let track = format!("{url}/track1");
    let answer = client.request("SETUP", &track, &[("Transport", &transport(PORT))]);
    let session = answer.unwrap().session().expect("a session").id;
    client.play(&url, &session, None).unwrap();
    let seen = || sink.totals().unwrap().trains;
    wait_until("trains arrive", || seen() > 3);
    let during = status(&site);
    let (now, bytes) = (cache(&during).bytes_ready, cache(&during).bytes);
    assert!(now < bytes, "{now} of {bytes} while it plays");
    let engine = &during.engines[0];
    assert_eq!(engine.path, "uring_registered_zc");
    assert_eq!(engine.trains_copied, 0, "{engine:?}");
    wait_until("trains come back", || {
        status(&site).engines[0].trains_zero_copy > 3
    });
    // It goes on, without a step back.
    wait_until("more is ready", || cache(&status(&site)).bytes_ready > now);
    let log = site.stop();
    assert!(
        log.contains("the rest follows while the server serves"),
        "{log}"
    );
    assert!(log.contains("at the end: 0B pinned, 0B resident"), "{log}");
}

#[test]
fn a_cache_of_several_pieces_is_all_ready_at_last() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(2.0)).unwrap();
    let site = Site::serve(
        testbed,
        media,
        &["--cache=144MiB", METRICS, "--rtp-headers=own"],
    );
    let said = site
        .server
        .wait_for_line("cache: all 144.0 MiB are ready", LONG);
    assert!(said.is_some(), "{}", site.server.log_tail());
    let status = status(&site);
    assert_eq!(
        (cache(&status).bytes, cache(&status).bytes_ready),
        (144 << 20, 144 << 20)
    );
    assert_eq!(status.locked.pinned_bytes, 144 << 20);
    // Four pieces of 32 MiB and one of 16, each with slots for headers at its front.
    let set_aside = status.engines.len() as u64 * (512 << 10);
    let in_piece = |bytes: u64| (bytes - set_aside) / cache(&status).chunk_bytes;
    assert_eq!(
        cache(&status).chunks,
        4 * in_piece(32 << 20) + in_piece(16 << 20)
    );
    site.stop();
}
