//! Texts that are kept, and how a channel ends.

use std::panic::resume_unwind;

use onrush_wire::rtp::StaticPayload;

use super::*;
use crate::channels::ChannelsConfig;
use crate::channels::published::PublishedChannels;
use crate::config::Limits;

fn sent(text: &str) -> SentText {
    SentText {
        bytes: Arc::from(text.as_bytes()),
        etag: text.into(),
    }
}

fn key(is_compressed: bool) -> (&'static str, bool, Option<Coding>) {
    ("video", false, is_compressed.then_some(Coding::Gzip))
}

/// A text of so many changes or more; if there is none, `made` is written.
async fn text(of: &LiveStream, changes: u64, is_compressed: bool, made: &str) -> String {
    let make = async { Ok::<_, ()>(sent(made)) };
    let sent = of.text(changes, key(is_compressed), make).await;
    sent.unwrap().etag.to_string()
}

/// A part comes between writing a playlist and compressing it.
#[tokio::test]
async fn no_text_passes_for_one_of_later_changes() {
    let stream = LiveStream::uncut();
    let before = stream.change_count();
    assert_eq!(text(&stream, before, false, "old").await, "old");
    stream.has_changed();
    assert_eq!(text(&stream, before, true, "old").await, "old");
    let now = stream.change_count();
    assert_eq!(text(&stream, now, true, "new").await, "new");
    assert_eq!(text(&stream, now, false, "new").await, "new");
    // Nothing is written twice, and who was late gets the newest.
    assert_eq!(text(&stream, now, true, "again").await, "new");
    assert_eq!(text(&stream, before, false, "again").await, "new");
}

#[tokio::test]
async fn texts_beyond_the_bound_are_not_kept() {
    let stream = LiveStream::uncut();
    let named = async |name: usize, made: &'static str| {
        let make = async { Ok::<_, ()>(sent(made)) };
        let sent = stream.text(0, (&name.to_string(), false, None), make).await;
        sent.unwrap().etag.to_string()
    };
    for name in 0..=LIVE_TEXTS_MAX {
        named(name, "first").await;
    }
    assert_eq!(stream.texts_kept(), LIVE_TEXTS_MAX);
    assert_eq!(named(LIVE_TEXTS_MAX - 1, "again").await, "first");
    assert_eq!(named(LIVE_TEXTS_MAX, "again").await, "again");
}

#[tokio::test]
async fn a_text_that_could_not_be_written_is_written_anew() {
    let stream = LiveStream::uncut();
    let fails = async { Err("short of memory") };
    let failed = stream.text(0, key(true), fails).await;
    assert_eq!(failed.unwrap_err(), "short of memory");
    assert_eq!(text(&stream, 0, true, "text").await, "text");
}

/// Who waits for its next part would wait in vain, and nobody have it cut anew.
#[test]
fn a_cutter_that_panics_closes_its_channel() {
    let channels = PublishedChannels::new(&ChannelsConfig::default(), &Limits::default());
    let lease = channels.announce("live/a", vec![StaticPayload::MP2T.into()]);
    let lease = lease.unwrap();
    let stream = LiveStream::uncut();
    let cutting = Cutting {
        stream: Arc::clone(&stream),
        path: "live/a".to_owned(),
        cutter: LiveCutter::transport(0),
        offset: WallOffset::now(),
        idle_ns: u64::MAX,
        source: Source::Published(Arc::clone(lease.channel())),
        kept_bytes: 0,
        stored_bytes: 0,
        writer: None,
    };
    let cut = || stream.stats.channels.load(Ordering::Relaxed);
    cutting.begin();
    assert_eq!(cut(), 1);
    let changes = stream.change_count();
    let thread: JoinHandle<()> = thread::spawn(move || {
        let _cutting = cutting;
        resume_unwind(Box::new("a bug"));
    });
    assert!(thread.join().is_err());
    assert!(stream.is_closed());
    assert_eq!((cut(), stream.change_count()), (0, changes + 1));
    // Its channel has no viewer left.
    drop(lease);
    channels.sweep();
    assert!(channels.all().is_empty());
    channels.stop();
}
