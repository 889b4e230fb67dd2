//! Names, and who has them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use onrush_wire::rtp::StaticPayload;
use tokio::sync::oneshot;

use super::*;
use crate::channels::viewing::{LiveChannel, ViewerCommand};
use crate::testing::block_on;

fn channels() -> Arc<PublishedChannels> {
    PublishedChannels::new(&ChannelsConfig::default(), &Limits::default())
}

fn tracks() -> Vec<Track> {
    vec![StaticPayload::MP2T.into()]
}

#[test]
fn a_name_has_one_publisher_until_it_goes() {
    let channels = channels();
    let lease = channels.announce("live/a", tracks()).unwrap();
    assert!(channels.find("live/a").is_none(), "nothing is sent yet");
    lease.begin(Vec::new(), String::new(), Right::Always);
    let channel = channels.find("live/a").unwrap();
    let second = channels.announce("live/a", tracks());
    assert!(matches!(second, Err(PublishError::Taken)));
    channel.count_viewer(true);
    drop(lease);
    channels.sweep();
    let lease = channels.announce("live/a", tracks()).unwrap();
    assert!(Arc::ptr_eq(lease.channel(), &channel), "its viewers go on");
    drop(lease);
    let other = StaticPayload::of(0).unwrap().into();
    let lease = channels.announce("live/a", vec![other]).unwrap();
    assert!(!Arc::ptr_eq(lease.channel(), &channel));
    assert!(channel.end().unwrap().contains("other tracks"));
    drop(lease);
    channels.sweep();
    assert!(channels.all().is_empty(), "nobody watches");
    channels.stop();
}

/// Who publishes into a channel that has ended is heard by nobody.
#[test]
fn a_channel_that_ends_lets_its_publishers_go_at_once() {
    let channels = with_standby();
    let lease = channels.announce("live/a", tracks()).unwrap();
    let second = channels.announce("live/a", tracks()).unwrap();
    let woken = [(); 2].map(|()| Arc::<Woken>::default());
    for (lease, woken) in [&lease, &second].into_iter().zip(&woken) {
        let waker = Arc::clone(woken).into();
        assert!(!lease.is_dismissed(Some(&Context::from_waker(&waker))));
    }
    let count = || woken.each_ref().map(|it| it.0.load(Ordering::Relaxed));
    assert!(channels.dismiss("live/a"));
    assert_eq!(count(), [1, 0]);
    assert!(lease.is_dismissed(None) && !second.is_dismissed(None));
    channels.stop();
    assert_eq!(count(), [1, 1]);
    assert!(lease.is_dismissed(None) && second.is_dismissed(None));
    let late = channels.announce("live/b", tracks());
    assert!(matches!(late, Err(PublishError::Stopped)));
}

/// Who sweeps looks after all sessions.
#[test]
fn a_channel_that_met_a_bug_ends_nothing_else() {
    let channels = channels();
    let thread: JoinHandle<()> = thread::spawn(|| std::panic::resume_unwind(Box::new("a bug")));
    while !thread.is_finished() {
        thread::sleep(Duration::from_millis(1));
    }
    let ended = ("live/a".to_owned(), thread);
    channels.names().ended.push(ended);
    channels.sweep();
    assert!(channels.names().ended.is_empty());
    channels.stop();
}

/// Its name would be taken for ever, and a viewer's PLAY never be answered.
#[test]
fn a_channel_whose_thread_panics_ends_and_comes_back() {
    let channels = channels();
    let lease = channels.announce("live/a", tracks()).unwrap();
    lease.begin(Vec::new(), String::new(), Right::Always);
    let channel = channels.find("live/a").unwrap();
    // There is no such ingest.
    channel.send(Command::Hold(INGESTS_MAX, true));
    let (answer, before) = oneshot::channel();
    channel.command(ViewerCommand::Prepare(1, Vec::new(), answer));
    let give_up = Instant::now() + Duration::from_secs(20);
    while channel.end().is_none() {
        assert!(Instant::now() < give_up, "nobody is told");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(channel.end().unwrap().contains("bug"));
    assert!(lease.is_dismissed(None));
    let (answer, after) = oneshot::channel();
    channel.command(ViewerCommand::Prepare(2, Vec::new(), answer));
    block_on(async {
        assert!(before.await.is_err());
        assert!(after.await.is_err());
    });
    assert!(channels.find("live/a").is_none());
    // Its publisher may be back before it has gone.
    let again = channels.announce("live/a", tracks()).unwrap();
    assert!(!Arc::ptr_eq(again.channel(), &channel));
    drop(lease);
    assert!(channels.is_held("live/a"));
    while !channels.names().ended.is_empty() {
        assert!(Instant::now() < give_up, "its thread is not waited for");
        channels.sweep();
    }
    drop(again);
    channels.stop();
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_publisher_hears_what_was_refused_of_it() {
    let channels = channels();
    let lease = channels.announce("live/a", tracks()).unwrap();
    lease.begin(Vec::new(), String::new(), Right::Always);
    // Payload type 99, where 33 was announced.
    let packet = [&[0x80_u8, 99, 0, 1][..], &[0; 8], b"payload"].concat();
    (0..3).for_each(|_| lease.frame(0, false, packet.clone()));
    let give_up = Instant::now() + Duration::from_secs(20);
    while lease.refused().unannounced < 3 {
        assert!(Instant::now() < give_up, "{:?}", lease.refused());
        thread::sleep(Duration::from_millis(1));
    }
    lease.begin(Vec::new(), String::new(), Right::Always);
    assert_eq!(lease.refused(), Refused::default());
    drop(lease);
    channels.stop();
}

fn with_standby() -> Arc<PublishedChannels> {
    let config = ChannelsConfig {
        standby: vec!["live/*".parse().unwrap()],
        ..ChannelsConfig::default()
    };
    PublishedChannels::new(&config, &Limits::default())
}

#[test]
fn a_channel_has_one_standby_if_it_is_to() {
    let channels = with_standby();
    let first = channels.announce("live/a", tracks()).unwrap();
    let second = channels.announce("live/a", tracks()).unwrap();
    let third = channels.announce("live/a", tracks()).unwrap_err();
    assert!(matches!(third, PublishError::Full), "{third}");
    drop(first);
    // The other one is there: the channel goes on.
    channels.sweep();
    assert_eq!(channels.all().len(), 1);
    let first = channels.announce("live/a", tracks()).unwrap();
    assert!(Arc::ptr_eq(first.channel(), second.channel()));
    drop((first, second));
    channels.sweep();
    assert!(channels.all().is_empty());
    let _first = channels.announce("other/a", tracks()).unwrap();
    let second = channels.announce("other/a", tracks());
    assert!(matches!(second, Err(PublishError::Taken)));
    channels.stop();
}

#[test]
fn a_standby_of_other_tracks_is_told_what_differs() {
    let channels = with_standby();
    let track = |encoding: &'static str, parameters: &str| Track {
        medium: onrush_wire::media::Medium::Video,
        payload_type: 96,
        encoding: encoding.into(),
        clock_hz: 90_000,
        channels: None,
        format_parameters: Some(parameters.to_owned()),
    };
    let own = vec![track("H264", "a=1")];
    let _first = channels.announce("live/a", own.clone()).unwrap();
    for (other, told) in [
        (
            vec![track("H265", "a=1")],
            "track 1 is H265/90000 as 96 and not H264/90000 as 96",
        ),
        (
            vec![track("H264", "a=2")],
            "parameters of track 1 are others",
        ),
        ([own.clone(), own.clone()].concat(), "it has 2 and not 1"),
    ] {
        let error = channels.announce("live/a", other).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
    assert!(channels.announce("live/a", own).is_ok());
    channels.stop();
}

#[test]
fn names_are_as_many_as_may_be_and_no_more() {
    let channels = channels();
    let take = |n: usize| channels.announce(&format!("live/{n}"), tracks());
    let all: Vec<_> = (0..PUBLISHED_MAX).map(|n| take(n).unwrap()).collect();
    assert!(matches!(take(PUBLISHED_MAX), Err(PublishError::TooMany)));
    drop(all);
    channels.sweep();
    assert!(take(PUBLISHED_MAX).is_ok());
    channels.stop();
}

#[test]
fn names_are_short_and_no_tracks() {
    let channels = channels();
    let long = "x/".repeat(PARTS_MAX);
    for path in ["", "a b", "a//b", "a/track1", &format!("{long}x"), "a\n"] {
        let refused = channels.announce(path, tracks());
        assert!(matches!(refused, Err(PublishError::Name)), "{path}");
    }
    assert!(
        channels
            .announce(long.trim_end_matches('/'), tracks())
            .is_ok()
    );
    channels.stop();
}
