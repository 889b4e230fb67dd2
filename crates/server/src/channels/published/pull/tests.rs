//! Pulls as they are stopped, and sent on.

use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::AtomicUsize;

use onrush_wire::route::ChannelEntry;
use onrush_wire::route::channel::CHANNEL_FORMAT;

use super::*;
use crate::channels::ChannelsConfig;
use crate::cluster::ClusterConfig;
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

/// Somebody watches what another node has, and a reload says where to pull it from.
#[test]
fn a_configured_pull_replaces_the_one_from_another_node() {
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = PullConfig {
        name: "door".to_owned(),
        url: format!("rtsp://{}/door", there.local_addr().unwrap())
            .parse()
            .unwrap(),
        is_on_demand: false,
    };
    let connections = describe_always(there);
    let (shared, has_asked) = (Arc::<Shared>::default(), Arc::<AtomicBool>::default());
    let wait = {
        let (shared, has_asked) = (Arc::clone(&shared), Arc::clone(&has_asked));
        let connections = Arc::clone(&connections);
        move || {
            let give_up = Instant::now() + Duration::from_secs(60);
            while !shared.is_stopping.load(Ordering::Acquire) && Instant::now() < give_up {
                thread::sleep(Duration::from_millis(1));
            }
            // Time enough for the other to ask its source, if it does not wait.
            thread::sleep(Duration::from_millis(200));
            has_asked.store(connections.load(Ordering::Relaxed) > 0, Ordering::Relaxed);
        }
    };
    let of_node = Pull {
        config: None,
        path: "live/door".to_owned(),
        shared: Arc::clone(&shared),
        thread: Some(thread::spawn(wait)),
    };
    let pulls = Pulls {
        channels: PublishedChannels::new(&ChannelsConfig::default(), &Limits::default()),
        cluster: None,
        all: Mutex::new(vec![of_node]),
    };
    pulls.replace(std::slice::from_ref(&config));
    assert!(shared.is_stopping.load(Ordering::Acquire));
    let configs: Vec<_> = pulls.all().iter().map(|it| it.config.clone()).collect();
    assert_eq!(configs, [Some(config)]);
    let give_up = Instant::now() + Duration::from_secs(60);
    while connections.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < give_up, "its source is not asked");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(
        !has_asked.load(Ordering::Relaxed),
        "not before that one has ended"
    );
    pulls.stop();
}

/// Told that there is none, clients would take it for gone.
#[test]
fn a_channel_too_many_of_other_nodes_is_refused() {
    let member = ClusterMember::new(ClusterConfig {
        name: "c".to_owned(),
        node: "b".to_owned(),
        host: "b.example".to_owned(),
        capacity_bps: None,
        pulls_max: 1,
    });
    let entry = ChannelEntry {
        format: CHANNEL_FORMAT,
        channel: "live/there".to_owned(),
        node: "a".to_owned(),
        instance: 1,
        // Nobody listens there.
        rtsp: "127.0.0.1:1".to_owned(),
        token: 1,
    };
    member.leases(vec![Arc::new(entry)], Vec::new());
    let taken = |number| Pull {
        config: None,
        path: format!("live/{number}"),
        shared: Arc::default(),
        thread: None,
    };
    let pulls = Pulls {
        channels: PublishedChannels::new(&ChannelsConfig::default(), &Limits::default()),
        cluster: Some(member),
        all: Mutex::new((0..NODE_PULLS_MAX).map(taken).collect()),
    };
    assert!(matches!(pulls.want("live/there"), Err(PullsFull)));
    assert!(matches!(pulls.want("live/nowhere"), Ok(false)));
    assert!(matches!(pulls.want("live/0"), Ok(true)));
    // What is over leaves room.
    pulls.all()[0].shared.wanted().is_over = true;
    assert!(matches!(pulls.want("live/there"), Ok(true)));
    pulls.stop();
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

/// Whoever listens there answers each connection with a description, and what is asked after it
/// with success, without a look at it. Counts connections.
fn describe_always(listener: TcpListener) -> Arc<AtomicUsize> {
    let sdp = "v=0\r\nm=video 0 RTP/AVP 33\r\n";
    let head = format!("RTSP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", sdp.len());
    let answers = head + sdp + &"RTSP/1.0 200 OK\r\n\r\n".repeat(2);
    let connections = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut socket in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            socket.write_all(answers.as_bytes()).ok();
            kept.push(socket);
        }
    });
    connections
}

/// As if a source had shown a bug.
#[test]
fn a_source_is_asked_again_after_a_panic() {
    let channels = PublishedChannels::new(&ChannelsConfig::default(), &Limits::default());
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtsp://{}/door", there.local_addr().unwrap());
    let config = PullConfig {
        name: "door".to_owned(),
        url: url.parse().unwrap(),
        is_on_demand: false,
    };
    let connections = describe_always(there);
    let spawn = |pulling: Pulling| {
        // Borrowed for ever: who follows a source borrows it, too.
        std::mem::forget(pulling.sent_on.borrow_mut());
        pulling.spawn(None)
    };
    let mut pull = Pull::start(Some(&config), "live/door", (&channels, None), spawn).unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    while connections.load(Ordering::Relaxed) < 2 {
        assert!(Instant::now() < give_up, "it is not asked again");
        thread::sleep(Duration::from_millis(1));
    }
    pull.tell_to_stop();
    let ended = pull.thread.take().unwrap().join();
    assert!(ended.is_ok());
    channels.stop();
}

/// It would be its own silence that it takes for the source's.
#[test]
fn where_a_source_sends_on_to_is_asked_beside_it() {
    let channels = PublishedChannels::new(&ChannelsConfig::default(), &Limits::default());
    let config = PullConfig {
        name: "door".to_owned(),
        url: "rtsp://192.0.2.1/door".parse().unwrap(),
        is_on_demand: false,
    };
    let path = "live/door".to_owned();
    let pulling = Pulling {
        state: Arc::new(PullState::new(path.clone(), config.url.to_string())),
        config: Some(config),
        path,
        channels,
        cluster: None,
        shared: Arc::default(),
        sent_on: RefCell::default(),
    };
    let origin = pulling.origin(&mut NodeWay::default()).unwrap();
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!("rtsp://{}/door", there.local_addr().unwrap());
    let next = || pulling.next_source(&origin, Some(location.clone()));
    assert!(next().is_none());
    assert!(pulling.sent_on.borrow().is_asking());
    // What is said of a source is forgotten with it.
    pulling.sent_on.borrow_mut().forget();
    describe_always(there);
    let give_up = Instant::now() + Duration::from_secs(60);
    let found = loop {
        if let Some(source) = next() {
            break source;
        }
        assert!(Instant::now() < give_up, "it is not found");
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!((found.url.to_string(), found.tracks.len()), (location, 1));
}
