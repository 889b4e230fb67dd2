//! Sessions opened and killed at random, a thousand a minute, leave nothing behind.
//!
//! `ONRUSH_SOAK_SECONDS` says for how long; the default keeps the whole suite short.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_server::admin::status::Status;
use onrush_testkit::http_client::Client;
use onrush_testkit::require_root;
use onrush_testkit::testbed::{Mode, SND_IPV6};

use common::{LONG, Site, Viewer, clip, watch, watch_from};

mod common;

// SPECIFICATION.md: 35
#[test]
fn sessions_opened_and_killed_at_random_leave_nothing_behind() {
    require_root!();
    let seconds = env::var("ONRUSH_SOAK_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let clip = clip(20.0);
    let ts: Arc<[u8]> = Arc::from(&*clip);
    let arguments = ["--session-timeout=5s", "--cache=4MiB", "--metrics=9554"];
    let site = Site::with_clip(&clip, Mode::Uso, &arguments);
    // Once before, so that what a first session leaves for the next ones is there already.
    watch(&site.testbed, "clip.ts", &ts, Some(18.0));
    let before = site.settled();
    let begin = Instant::now();
    let killed = AtomicU64::new(0);
    // A thousand a minute, and the whole time, whichever takes longer on this machine.
    let enough = || {
        let killed = killed.load(Ordering::Relaxed);
        assert!(
            begin.elapsed().as_secs() < seconds * 10 + 60,
            "only {killed} sessions"
        );
        begin.elapsed().as_secs() >= seconds && killed * 60 >= 1000 * seconds
    };
    thread::scope(|scope| {
        for seed in 0..KILLERS {
            let (site, killed, enough) = (&site, &killed, &enough);
            scope.spawn(move || {
                let mut random = Random(seed + 1);
                while !enough() {
                    live_and_die(site, &mut random);
                    killed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // The well-behaved one, over and over. By IPv6, because a killed client's session sends on
        // until it times out, and the kernel soon gives that client's port to somebody else.
        while !enough() {
            watch_from(&site.testbed, "clip.ts", &ts, Some(15.0), SND_IPV6.into());
        }
    });
    site.assert_returns_to(before);
    // A chunk that nobody gives back is missed by none while all of the clip is in the cache.
    let give_up = Instant::now() + LONG;
    while chunks_in_use(&site) > 0 {
        assert!(
            Instant::now() < give_up,
            "{} chunks are held",
            chunks_in_use(&site)
        );
        thread::sleep(Duration::from_millis(50));
    }
    watch(&site.testbed, "clip.ts", &ts, Some(18.0));
    site.stop();
}

/// Chunks of the cache that somebody holds, as the server tells.
fn chunks_in_use(site: &Site) -> u64 {
    let metrics = ([127, 0, 0, 1], 9554).into();
    let status = || Client::connect(metrics).unwrap().get("/status").unwrap();
    let status: Status = serde_json::from_slice(&site.testbed.snd.run(status)).unwrap();
    status.cache.expect("it serves files").chunks_in_use
}

/// One session, up to a random point of its life, and then gone in a random way.
fn live_and_die(site: &Site, random: &mut Random) {
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    for _ in 0..random.below(4) {
        match random.below(4) {
            0 => drop(viewer.play(Some(f64::from(random.below(19))))),
            1 => drop(viewer.ask("PAUSE", &[])),
            2 => drop(viewer.ask("GET_PARAMETER", &[])),
            _ => thread::sleep(Duration::from_millis(u64::from(random.below(300)))),
        }
    }
    match random.below(3) {
        0 => assert_eq!(viewer.ask("TEARDOWN", &[]).status, 200),
        // In the middle of a request.
        1 => drop(viewer.client.send_raw(b"PLAY rtsp://")),
        _ => {}
    }
}

/// A xorshift generator (Marsaglia, 2003): the test only needs variety that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(bound)).unwrap()
    }
}

const SECONDS: u64 = 20;
const KILLERS: u64 = 16;
