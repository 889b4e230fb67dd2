//! A PLAY that is refused while something plays, under clocks of the test's own: engine and disk do
//! what they do when they are told to.

use std::net::SocketAddr;
use std::time::Duration;

use onrush_lock::memory::Area;
use onrush_sys::pool::Pool;
use onrush_testkit::rtsp_client::Ports;
use onrush_wire::media::Scale;
use onrush_wire::media::ts::synth::constant_rate;
use onrush_wire::pace::Speed;
use onrush_wire::rtsp::Range;
use tempfile::TempDir;
use tokio::task::{LocalSet, spawn_local, yield_now};

use super::session::Start;
use super::tests::set_up;
use super::*;
use crate::channels::published::{PublishedChannels, Pulls};
use crate::data::Data;
use crate::engine::testing::{ManualEngine, Network};
use crate::experiments::Faults;
use crate::store::Store;
use crate::store::testing::ManualBuilder;
use crate::testing::CHUNK_BYTES;
use crate::users::{Authorizer, UsersConfig};

const STEP: Duration = Duration::from_millis(5);

/// Steps that nothing takes longer than: a chunk is waited for for ten seconds.
const STEPS_MAX: usize = 4000;

struct Hand {
    control: Rc<Control>,
    now_ns: Arc<AtomicU64>,
    network: Arc<Network>,
    engine: ManualEngine,
    builder: ManualBuilder,
    /// The disk reads what it is asked for.
    reads: bool,
    _root: TempDir,
}

impl Hand {
    /// A server of `film.ts`, of a minute of 1 Mbit/s.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let film = root.path().join("film.ts");
        std::fs::write(&film, constant_rate(60 * 665, 0, 40_608)).unwrap();
        onrush_testkit::media::age(&film).unwrap();
        let now_ns = Arc::new(AtomicU64::new(1_000_000_000_000));
        let network = Arc::<Network>::default();
        let area = Area::map(64 * CHUNK_BYTES).unwrap();
        let pool = Arc::new(Pool::with_slabs(area, CHUNK_BYTES, 1));
        let builder = ManualBuilder::new(pool, Faults::default());
        let (engines, engine) = ManualEngine::open(&now_ns, builder.shared(), &network);
        let data = Data::by_hand(engines, Store::without_builders(builder.shared()));
        let config = Config {
            media_root: root.path().to_owned(),
            ..Config::default()
        };
        let live = PublishedChannels::new(&config.channels, &config.limits);
        let users = Authorizer::open(&UsersConfig::default(), Arc::default());
        let content = Content {
            library: Some(Arc::new(Library::new(&config).unwrap())),
            sending: Sending::by(data),
            channels: Vec::new(),
            pulls: Pulls::start(&[], &live, None),
            published: live,
            authorizer: Arc::new(users.unwrap()),
        };
        Self {
            control: Control::new(config, content, Arc::default()),
            now_ns,
            network,
            engine,
            builder,
            reads: true,
            _root: root,
        }
    }

    /// A session of the film. That is opened by a thread whose clock is not ours.
    async fn set_up(&self, rtp_port: u16) -> Rc<Session> {
        let control = Rc::clone(&self.control);
        let setting_up = spawn_local(async move { set_up(&control, rtp_port).await });
        while !setting_up.is_finished() {
            yield_now().await;
            std::thread::sleep(Duration::from_millis(1));
        }
        setting_up.await.unwrap()
    }

    /// Everybody does what is to be done now; then the clock goes on.
    async fn step(&mut self) {
        for _ in 0..8 {
            yield_now().await;
        }
        while let Some(reading) = self.reads.then(|| self.builder.begin()).flatten() {
            self.builder.finish(reading);
        }
        if self.engine.wakes_ns() <= self.now_ns.load(Ordering::Acquire) {
            self.engine.turn();
        }
        let step_ns = u64::try_from(STEP.as_nanos()).unwrap();
        self.now_ns.fetch_add(step_ns, Ordering::AcqRel);
        tokio::time::advance(STEP).await;
    }

    /// Goes on until that is done.
    async fn until<T: 'static>(&mut self, what: impl Future<Output = T> + 'static) -> T {
        let doing = spawn_local(what);
        for _ in 0..STEPS_MAX {
            if doing.is_finished() {
                return doing.await.unwrap();
            }
            self.step().await;
        }
        panic!("it is not done");
    }

    /// What a PLAY of `session` from `start_ns` on would do.
    async fn prepare(
        &mut self,
        session: &Rc<Session>,
        start_ns: u64,
    ) -> Result<Option<Start>, u16> {
        let session = Rc::clone(session);
        let range = Range {
            start_ns: Some(start_ns),
            ..Range::default()
        };
        let pace = (Scale::NORMAL, Speed::NORMAL);
        let prepared = self.until(async move { session.prepare(Some(range), pace).await });
        prepared.await.map_err(|reply| reply.status())
    }
}

/// RFC 2326, appendix A: what is refused changes no state.
#[test]
fn a_seek_that_is_refused_leaves_what_plays_playing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(LocalSet::new().run_until(async {
        let mut hand = Hand::new();
        let ports = Ports::bind([127, 0, 0, 1].into()).unwrap();
        let player: SocketAddr = ports.rtp.local_addr().unwrap();
        let session = hand.set_up(player.port()).await;
        let start = hand.prepare(&session, 0).await.unwrap().unwrap();
        session.start(start);
        for _ in 0..200 {
            hand.step().await;
        }
        let before = hand.network.count(player);
        assert!(before > 20, "{before}");

        hand.reads = false;
        let refused = hand.prepare(&session, 40_000_000_000).await;
        assert_eq!(refused.map(drop), Err(503));
        assert_eq!(session.state(), State::Playing);
        hand.reads = true;
        for _ in 0..200 {
            hand.step().await;
        }
        let numbers = hand.network.numbers(player, 0);
        assert!(numbers.len() > before + 20, "{} {before}", numbers.len());
        let goes_on = |it: &[u16]| it[0].wrapping_add(1) == it[1];
        assert!(numbers.windows(2).all(goes_on), "{numbers:?}");

        let start = hand.prepare(&session, 40_000_000_000).await.unwrap();
        assert!(start.is_some());
        let ended = session.end(End::Stopped).expect("the first reason");
        hand.until(async move { ended.await.unwrap() }).await;
    }));
}
