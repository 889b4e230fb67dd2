//! Pulls as they are stopped.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::channels::ChannelsConfig;
use crate::config::Limits;

/// Two pulls whose threads end once both have been told to, and how many have seen that.
fn pulls() -> (Pulls, Arc<AtomicUsize>) {
    let all = [(); 2].map(|()| Arc::<Shared>::default());
    let told = Arc::<AtomicUsize>::default();
    let pull = |shared: &Arc<Shared>| {
        let (all, told) = (all.clone(), Arc::clone(&told));
        let wait = move || {
            let give_up = Instant::now() + Duration::from_secs(60);
            let is_told = |it: &Arc<Shared>| it.is_stopping.load(Ordering::Acquire);
            while !all.iter().all(is_told) && Instant::now() < give_up {
                thread::sleep(Duration::from_millis(1));
            }
            let count = usize::from(all.iter().all(is_told));
            told.fetch_add(count, Ordering::Relaxed);
        };
        Pull {
            config: Some(PullConfig {
                name: "door".to_owned(),
                url: "rtsp://192.0.2.1/".parse().unwrap(),
                is_on_demand: true,
            }),
            path: "live/door".to_owned(),
            shared: Arc::clone(shared),
            thread: Some(thread::spawn(wait)),
        }
    };
    let pulls = Pulls {
        channels: PublishedChannels::new(&ChannelsConfig::default(), &Limits::default()),
        cluster: None,
        all: Mutex::new(all.iter().map(pull).collect()),
    };
    (pulls, told)
}

#[test]
fn all_are_told_to_stop_before_one_is_waited_for() {
    let (stopped, told) = pulls();
    stopped.stop();
    assert_eq!(told.load(Ordering::Relaxed), 2);
    let (replaced, told) = pulls();
    replaced.replace(&[]);
    assert_eq!(told.load(Ordering::Relaxed), 2);
    replaced.stop();
}

/// Another node's is asked for again with each viewer.
#[test]
fn a_pull_without_a_thread_leaves_nothing_behind() {
    let channels = PublishedChannels::new(&ChannelsConfig::default(), &Limits::default());
    let spawn = |_: Pulling| Err(io::ErrorKind::WouldBlock.into());
    let started = Pull::start(None, "live/door", (&channels, None), spawn);
    assert_eq!(started.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(channels.pulled().is_empty());
}
