//! What a viewer takes of the server's heap: his connection, his session, his stream, his places in
//! tables, and what the allocator adds. `--nocapture` shows it block by block.
//!
//! A test file of its own, because its allocator counts for the whole process. Of the
//! viewers' side only sockets stay, so that what else stays is the server's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onrush_server::config::Config;
use onrush_server::engine::admission::LOAD_UNLIMITED;
use onrush_server::server::Server;
use onrush_sys::thread::raise_open_files_limit;
use onrush_testkit::rtsp_client::{Client, Ports};
use onrush_wire::media::testing::{self, Packet};
use onrush_wire::media::ts::synth::constant_rate;

/// Bytes for a viewer of one track, all of them but what the kernel has for his sockets.
const BYTES_PER_VIEWER_MAX: i64 = 2048;

/// Bytes for each further track.
const BYTES_PER_TRACK_MAX: i64 = 1024;

/// Tracks that are watched.
const TRACKS_MAX: usize = 2;

/// As many as are counted together: tables that grow by doubling are as full as after a doubling.
const VIEWERS: usize = 64;

struct Counting;

/// Bytes that are taken, with what the allocator needs beside them.
static BYTES: AtomicI64 = AtomicI64::new(0);

/// Blocks of so many times 16 bytes.
static BLOCKS: [AtomicI64; 256] = [const { AtomicI64::new(0) }; 256];

/// glibc's word in front of each block.
const HEADER_BYTES: usize = 8;

fn count(pointer: *mut u8, by: i64) {
    // SAFETY: the block was given by the system's allocator, which is glibc's malloc, and not given
    // back yet.
    let usable = unsafe { libc::malloc_usable_size(pointer.cast()) };
    let bytes = usable + HEADER_BYTES;
    BYTES.fetch_add(by * i64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
    BLOCKS[(bytes / 16).min(255)].fetch_add(by, Ordering::Relaxed);
}

// SAFETY: every call goes to the system allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system allocator's conditions.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            count(pointer, 1);
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(pointer, -1);
        // SAFETY: as above; the block came from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A viewer who watches: the sockets, of which the heap knows nothing.
struct Viewer {
    _connection: TcpStream,
    _ports: [Option<Ports>; TRACKS_MAX],
}

/// A viewer of so many tracks.
fn watch(server: SocketAddr, tracks: u8) -> Viewer {
    let mut client = Client::connect(server).expect("it listens");
    let url = format!("rtsp://{server}/film.ts");
    let mut ask = |method, url: &str, headers: &[(&str, &str)]| {
        let agent = ("User-Agent", "a player of usual length/1.0");
        let answer = client.request(method, url, &[&[agent], headers].concat());
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
        answer
    };
    ask("DESCRIBE", &url, &[("Accept", "application/sdp")]);
    let (mut ports, mut session) = (Default::default(), None::<String>);
    for (track, ports) in (1..=tracks).zip::<&mut [_; TRACKS_MAX]>(&mut ports) {
        let pair = Ports::bind(server.ip()).expect("loopback");
        let transport = pair.transport().expect("bound");
        let mut headers = vec![("Transport", &*transport)];
        headers.extend(session.as_deref().map(|session| ("Session", session)));
        let set_up = ask("SETUP", &format!("{url}/track{track}"), &headers);
        let (id, _) = set_up.session_id().expect("a session");
        session = Some(id.to_owned());
        *ports = Some(pair);
    }
    let session = session.expect("it has a track");
    ask("PLAY", &url, &[("Session", &session)]);
    Viewer {
        _connection: client.into_stream(),
        _ports: ports,
    }
}

/// A minute of so many tracks, each with fifty packets a second.
fn sounds(tracks: u8) -> Vec<u8> {
    let of = (0..tracks).map(|track| (96 + track, 48_000));
    let packets = (0..60 * 50_u64).flat_map(|number| {
        (0..tracks).map(move |track| Packet {
            track: track.into(),
            due_ns: number * 20_000_000,
            shown_later_ms: 0,
            marker: true,
            is_sync: number.is_multiple_of(50),
            is_split: false,
            bytes: vec![track; 200],
        })
    });
    testing::write(&of.collect::<Vec<_>>(), &packets.collect::<Vec<_>>())
}

/// A server for so many, with a film in `root`.
fn server(root: &Path, sessions_max: usize) -> Server {
    let mut config = Config {
        media_root: root.to_owned(),
        rtsp_addresses: vec![([127, 0, 0, 1], 0).into()],
        cache_bytes: 64 << 20,
        // What is asked is how much they take, not whether this machine keeps them on time.
        load_max_permille: LOAD_UNLIMITED,
        ..Config::default()
    };
    config.limits.sessions_max = sessions_max;
    Server::start(config).expect("a server")
}

/// Bytes, and blocks by size, when what was needed for a while is given back.
fn settled() -> (i64, Vec<i64>) {
    std::thread::sleep(Duration::from_millis(200));
    let blocks = BLOCKS.iter().map(|count| count.load(Ordering::Relaxed));
    (BYTES.load(Ordering::Relaxed), blocks.collect())
}

/// What a server takes at its start for each viewer that may come.
fn bytes_per_place(root: &Path) -> i64 {
    const MORE: usize = 4096;
    let [few, many] = [MORE, 2 * MORE].map(|sessions_max| {
        let (before, _) = settled();
        let _server = server(root, sessions_max);
        settled().0 - before
    });
    (many - few) / i64::try_from(MORE).expect("a few")
}

/// What a viewer takes.
struct Taken {
    bytes: i64,
    /// Those of them that are taken at the server's start.
    at_start: i64,
    /// Block by block.
    account: String,
}

/// What each viewer of all of that film's tracks takes.
#[allow(clippy::print_stdout, reason = "for who looks where bytes go")]
fn taken(film: &[u8], tracks: u8) -> Taken {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("film.ts"), film).expect("a few MB of disk");
    onrush_testkit::media::age(&root.path().join("film.ts")).expect("it is ours");
    let place = bytes_per_place(root.path());
    let server = server(root.path(), 4096);
    let address = server.addresses()[0];
    let mut viewers = Vec::with_capacity(2 * VIEWERS);
    viewers.extend((0..VIEWERS).map(|_| watch(address, tracks)));
    let (before, blocks) = settled();
    viewers.extend((0..VIEWERS).map(|_| watch(address, tracks)));
    let (after, blocks_after) = settled();
    let viewers = i64::try_from(VIEWERS).expect("a few");
    let each = (after - before) / viewers + place;
    let mut account =
        format!("{each} bytes for each of {viewers} viewers, {place} of them from the start:\n");
    for (i, (before, after)) in blocks.iter().zip(&blocks_after).enumerate() {
        let more = after - before;
        if more != 0 {
            writeln!(account, "{more:>6} blocks of {:>5}", i * 16).expect("a string takes all");
        }
    }
    println!("{account}");
    Taken {
        bytes: each,
        at_start: place,
        account,
    }
}

// SPECIFICATION.md: 19
#[test]
fn a_viewer_takes_so_much_with_all_that_the_allocator_adds() {
    raise_open_files_limit();
    let viewer = taken(&constant_rate(60 * 665, 0, 40_608), 1);
    let (account, at_start) = (&viewer.account, viewer.at_start);
    assert!(viewer.bytes <= BYTES_PER_VIEWER_MAX, "{account}");
    // They are counted: what he is and what the engine has for him. Nothing is taken before he is
    // there, or it would be taken for all who may come, on each engine.
    let later = viewer.bytes - at_start;
    assert!(later > 700 && at_start < 16, "{account}");
    let [one, two] = [1, 2].map(|tracks| taken(&sounds(tracks), tracks));
    let more = two.bytes - one.bytes;
    let accounts = format!("{more} bytes more:\n{}{}", one.account, two.account);
    assert!((200..=BYTES_PER_TRACK_MAX).contains(&more), "{accounts}");
}
