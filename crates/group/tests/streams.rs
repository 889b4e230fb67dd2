//! Groups of TCP connections: loopback, real sockets, every byte compared.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_group::{STREAMS_MAX, StreamEnd, StreamError, StreamGroup, StreamOptions};
use onrush_testkit::rtsp_client::uninterrupted;

const LONG: Duration = Duration::from_secs(60);

/// The server's end of a connection, and the client's.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    (listener.accept().unwrap().0, client)
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| u8::try_from((i * 7 + i / 1000 + seed * 31) % 251).unwrap())
        .collect()
}

/// Writes where nobody needs what lies there any more, however long that takes.
fn write(group: &mut StreamGroup, start: usize, bytes: &[u8]) {
    let begin = Instant::now();
    loop {
        group.poll();
        match group.area_mut(start..start + bytes.len()) {
            Ok(area) => return area.copy_from_slice(bytes),
            Err(StreamError::InUse { .. }) => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < LONG, "{group:?}");
    }
}

#[test]
fn forty_connections_get_a_message_by_one_crossing() {
    let mut group = StreamGroup::open(&StreamOptions::default()).unwrap();
    let mut clients = Vec::new();
    for _ in 0..40 {
        let (server, client) = pair();
        group.add(server).unwrap();
        clients.push(client);
    }
    for (turn, bytes) in [1, 100, 8192].into_iter().enumerate() {
        let message = pattern(bytes, turn);
        write(&mut group, turn * 8192, &message);
        let before = group.counters().crossings;
        group.send(turn * 8192..turn * 8192 + bytes).unwrap();
        assert_eq!(group.counters().crossings - before, 1);
        for client in &mut clients {
            let mut got = vec![0; bytes];
            client.read_exact(&mut got).unwrap();
            assert!(got == message);
        }
    }
    // All have acknowledged it: it may be written.
    write(&mut group, 0, &pattern(3 * 8192, 9));
    let counters = group.counters();
    assert_eq!(counters.bytes, 40 * (1 + 100 + 8192));
    assert_eq!(
        (counters.zero_copy + counters.copied, counters.partial),
        (3 * 40, 0)
    );
    assert_eq!((group.len(), group.ended().len()), (40, 0));
}

#[test]
fn what_a_connection_has_no_room_for_follows() {
    const BYTES: usize = 1 << 20;
    let mut group = StreamGroup::open(&StreamOptions::default()).unwrap();
    let readers: Vec<_> = (0..3_u64)
        .map(|number| {
            let (server, mut client) = pair();
            // Whatever its mode is.
            server.set_nonblocking(number == 0).unwrap();
            group.add(server).unwrap();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(50 * number));
                let mut got = vec![0; 8 * BYTES];
                client.read_exact(&mut got).unwrap();
                got
            })
        })
        .collect();
    for turn in 0..8 {
        let start = turn % 2 * BYTES;
        write(&mut group, start, &pattern(BYTES, turn));
        group.send(start..start + BYTES).unwrap();
    }
    let begin = Instant::now();
    while readers.iter().any(|reader| !reader.is_finished()) {
        group.poll();
        thread::sleep(Duration::from_millis(1));
        assert!(begin.elapsed() < LONG, "{group:?}");
    }
    let expected: Vec<u8> = (0..8).flat_map(|turn| pattern(BYTES, turn)).collect();
    for reader in readers {
        assert!(reader.join().unwrap() == expected);
    }
    assert!(group.counters().partial > 0, "{group:?}");
    assert_eq!(group.counters().bytes, 3 * 8 * BYTES as u64);
}

/// Waits until the group's descriptor says that there is something to be heard.
fn wait(group: &StreamGroup) {
    let mut ring = libc::pollfd {
        fd: group.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let wait_ms = libc::c_int::try_from(LONG.as_millis()).unwrap();
    let ready = uninterrupted(|| {
        // SAFETY: one descriptor is waited for, in a structure that is writable.
        match unsafe { libc::poll(&raw mut ring, 1, wait_ms) } {
            -1 => Err(io::Error::last_os_error()),
            ready => Ok(ready),
        }
    });
    assert_eq!(ready.unwrap(), 1, "{group:?}");
}

/// What a call asks of the kernel it hands over: else nothing would ever come of it.
#[test]
fn who_waits_for_the_descriptor_alone_goes_on() {
    const BYTES: usize = 8 << 20;
    let ways: [fn(&mut StreamGroup); 2] = [StreamGroup::poll, |group| {
        drop(group.area_mut(BYTES..BYTES + 1));
    }];
    for go_on in ways {
        let mut group = StreamGroup::open(&StreamOptions {
            area_bytes: BYTES + 4096,
            ..StreamOptions::default()
        })
        .unwrap();
        let (server, mut client) = pair();
        group.add(server).unwrap();
        write(&mut group, 0, &pattern(BYTES, 1));
        group.send(0..BYTES).unwrap();
        let reader = thread::spawn(move || {
            let mut got = vec![0; BYTES];
            client.read_exact(&mut got).unwrap();
            got
        });
        while group.counters().bytes < BYTES as u64 {
            wait(&group);
            go_on(&mut group);
        }
        assert!(group.counters().partial > 0, "{group:?}");
        assert!(reader.join().unwrap() == pattern(BYTES, 1));
    }
}

#[test]
fn who_does_not_read_delays_nobody_and_is_reset() {
    const BYTES: usize = 512 << 10;
    const PARTS: usize = 8;
    let options = StreamOptions {
        streams_max: 3,
        area_bytes: PARTS * BYTES,
        behind_max: PARTS - 1,
    };
    let mut group = StreamGroup::open(&options).unwrap();
    let (server, mut deaf) = pair();
    let deaf_id = group.add(server).unwrap();
    let read = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let readers = read.clone().map(|read| {
        let (server, mut client) = pair();
        group.add(server).unwrap();
        thread::spawn(move || {
            let mut got = vec![0; 40 * BYTES];
            for message in got.chunks_mut(BYTES) {
                client.read_exact(message).unwrap();
                read.fetch_add(1, Ordering::Relaxed);
            }
            got
        })
    });
    let mut ended = Vec::new();
    for turn in 0..40 {
        // A part more than anybody may be behind, so that there is always one to be written.
        let start = turn % PARTS * BYTES;
        // At the readers' pace, however little of the processor they get.
        let begin = Instant::now();
        while read.iter().any(|it| it.load(Ordering::Relaxed) + 2 < turn) {
            group.poll();
            thread::sleep(Duration::from_millis(1));
            assert!(begin.elapsed() < LONG, "{group:?}");
        }
        write(&mut group, start, &pattern(BYTES, turn));
        group.send(start..start + BYTES).unwrap();
        ended.extend(group.ended());
    }
    let begin = Instant::now();
    while readers.iter().any(|reader| !reader.is_finished()) {
        group.poll();
        thread::sleep(Duration::from_millis(1));
        assert!(begin.elapsed() < LONG, "{group:?}");
    }
    let expected: Vec<u8> = (0..40).flat_map(|turn| pattern(BYTES, turn)).collect();
    for reader in readers {
        assert!(reader.join().unwrap() == expected);
    }
    assert_eq!(ended, [(deaf_id, StreamEnd::Behind)]);
    assert_eq!(group.len(), 2);
    let error = deaf.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
}

#[test]
fn a_peer_that_goes_ends_alone_and_its_place_is_anothers() {
    let options = StreamOptions {
        streams_max: 2,
        area_bytes: 4096,
        behind_max: 1000,
    };
    let mut group = StreamGroup::open(&options).unwrap();
    let (server, client) = pair();
    let gone = group.add(server).unwrap();
    let (server, mut stays) = pair();
    let stays_id = group.add(server).unwrap();
    let refused = group.add(pair().0);
    assert!(matches!(
        refused,
        Err(StreamError::StreamsMax { streams_max: 2 })
    ));
    drop(client);
    let (begin, mut sent) = (Instant::now(), 0);
    let ended = loop {
        write(&mut group, 0, b"tick");
        group.send(0..4).unwrap();
        sent += 4;
        let ended = group.ended();
        if !ended.is_empty() {
            break ended;
        }
        assert!(begin.elapsed() < LONG, "{group:?}");
    };
    let [(id, StreamEnd::Refused(errno))] = ended[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(id, gone);
    assert!([libc::EPIPE, libc::ECONNRESET].contains(&errno), "{errno}");
    let (server, mut next) = pair();
    let next_id = group.add(server).unwrap();
    assert_ne!(next_id, gone);
    assert!(group.remove(gone).is_none());
    write(&mut group, 0, b"tock");
    group.send(0..4).unwrap();
    let mut got = vec![0; sent + 4];
    stays.read_exact(&mut got).unwrap();
    assert!(got.ends_with(b"ticktock"));
    next.read_exact(&mut got[..4]).unwrap();
    assert_eq!(&got[..4], b"tock");
    // Given back as it was.
    let server = group.remove(stays_id).unwrap();
    assert!(group.remove(stays_id).is_none());
    assert_eq!(server.peer_addr().unwrap(), stays.local_addr().unwrap());
    drop(server);
    assert_eq!(stays.read(&mut got).unwrap(), 0);
}

#[test]
fn limits_of_streams_and_area_hold() {
    for (streams_max, fits) in [
        (0, false),
        (1, true),
        (STREAMS_MAX, true),
        (STREAMS_MAX + 1, false),
    ] {
        let options = StreamOptions {
            streams_max,
            area_bytes: 4096,
            behind_max: 1,
        };
        let opened = StreamGroup::open(&options);
        assert_eq!(opened.is_ok(), fits, "{streams_max}: {opened:?}");
    }
    let options = StreamOptions {
        area_bytes: 4096,
        ..StreamOptions::default()
    };
    let mut group = StreamGroup::open(&options).unwrap();
    let area_bytes = 4096..(2 << 20) + 1;
    for (start, end) in [
        (0, 0),
        (5, 5),
        (9, 8),
        (0, 1 << 30),
        (usize::MAX, usize::MAX),
    ] {
        for refused in [
            group.send(start..end).err(),
            group.area_mut(start..end).err(),
        ] {
            let Some(StreamError::Outside {
                area_bytes: had, ..
            }) = refused
            else {
                panic!("{start}..{end}: {refused:?}");
            };
            assert!(area_bytes.contains(&had));
        }
    }
    // To nobody nothing is sent, and nobody needs it.
    group.send(0..4096).unwrap();
    assert_eq!((group.counters().crossings, group.is_empty()), (0, true));
    group.area_mut(0..4096).unwrap().fill(1);
}
