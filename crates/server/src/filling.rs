//! Makes the cache ready while the server serves.
//!
//! A thread of its own takes the memory piece by piece ([`Pool::grow`]), with patience, and off the
//! processors that send where there are others. The engines register each piece when it suits
//! them. Where memory cannot be had, or not be locked, the server goes on with what it has: that is
//! said once, and from then on the cache is as large as it is. Beside a server that is about to end
//! it is tried again meanwhile, because that one has as much. What a ring could not register is
//! not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onrush_lock::memory::{Pages, available_bytes};
use onrush_sys::pool::{Pool, Taken};
use onrush_sys::thread::{keep_off, step_back};
use tracing::{info, warn};

/// How long it waits for engines that have not registered what is ready; they wake for it.
const TAKEN_EVERY: Duration = Duration::from_millis(5);

/// How often memory is looked for that another server has.
pub(crate) const AGAIN_EVERY: Duration = Duration::from_secs(10);

/// How long, and how often, a piece that cannot be had is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub(crate) time_max: Duration,
    pub(crate) every: Duration,
}

/// The thread. Dropping it stops it, after two megabytes at the most.
#[derive(Debug)]
pub(crate) struct Filling {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Filling {
    /// Begins to make the rest of the pool's memory ready; `None` if all of it is. With `retry`
    /// there may be less memory than the pool is to have, until another server has ended.
    pub(crate) fn start(
        pool: Arc<Pool>,
        data_cores: &[usize],
        retry: Option<Retry>,
    ) -> io::Result<Option<Self>> {
        let (ready_bytes, cache_bytes) = pool.bytes_ready_of();
        if ready_bytes == cache_bytes {
            return Ok(None);
        }
        let (ready, all) = (mib(ready_bytes), mib(cache_bytes));
        info!("cache: {ready} of {all} are ready; the rest follows while the server serves");
        let stopping = Arc::new(AtomicBool::new(false));
        let (data_cores, is_stopping) = (data_cores.to_owned(), Arc::clone(&stopping));
        let run = move || {
            keep_off(&data_cores);
            step_back();
            fill(&pool, retry, &is_stopping);
        };
        let thread = std::thread::Builder::new().name("onrush-cache".to_owned());
        Ok(Some(Self {
            stopping,
            thread: Some(thread.spawn(run)?),
        }))
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If it panicked it has said so on its own.
            drop(thread.join());
        }
    }
}

fn fill(pool: &Pool, retry: Option<Retry>, stopping: &AtomicBool) {
    let began = Instant::now();
    let is_stopping = || stopping.load(Ordering::Relaxed);
    let (mut trouble, mut has_waited) = (None, false);
    while !is_stopping() {
        let is_growing = trouble.is_none() && pool.area().ready_bytes() < pool.area().bytes_total();
        // Also between the steps of a piece: engines may have registered the one before.
        let stops = || {
            pool.publish();
            is_stopping()
        };
        if is_growing && let Err(error) = grow(pool, retry.is_some(), stops) {
            trouble = Some(error);
            continue;
        }
        let taken = pool.publish();
        if taken == Taken::All
            && let Some(error) = &trouble
            && let Some(retry) = retry.filter(|it| began.elapsed() < it.time_max)
        {
            if !std::mem::replace(&mut has_waited, true) {
                let (ready, all) = pool.bytes_ready_of();
                let (ready, all) = (mib(ready), mib(all));
                info!("cache: {ready} of {all} until the server before this one ends: {error}");
            }
            std::thread::park_timeout(retry.every);
            trouble = None;
            continue;
        }
        match taken {
            Taken::Refused(error) => {
                trouble.get_or_insert(error);
                return end(pool, began, trouble);
            }
            Taken::All if !is_growing => return end(pool, began, trouble),
            Taken::All | Taken::Some if is_growing => {}
            Taken::All | Taken::Some => std::thread::park_timeout(TAKEN_EVERY),
        }
    }
}

/// Makes the next piece ready. Of a pool that may have more than there is, only if there is room.
fn grow(pool: &Pool, asks_for_room: bool, stop: impl Fn() -> bool) -> Result<(), String> {
    let area = pool.area();
    let ready_bytes = area.ready_bytes();
    let piece_bytes = area.buffer_bytes().min(area.bytes_total() - ready_bytes);
    // Reserved pages are set aside already, and no part of what is available.
    let is_there = area.pages() == Pages::HugeReserved;
    if asks_for_room && !is_there && !has_room(ready_bytes, piece_bytes, available_bytes()) {
        return Err("there is no more memory to spare".to_owned());
    }
    pool.grow(stop).map_err(|error| error.to_string())
}

/// Whether a piece more leaves a quarter to others: as much as a server leaves that starts alone.
fn has_room(ready_bytes: usize, piece_bytes: usize, available_bytes: u64) -> bool {
    let all = available_bytes.saturating_add(ready_bytes as u64);
    (ready_bytes + piece_bytes) as u64 <= all / 4 * 3
}

/// Says what has come of it.
fn end(pool: &Pool, began: Instant, trouble: Option<String>) {
    let (_, wanted_bytes) = pool.bytes_ready_of();
    pool.end_growth();
    let (ready_bytes, _) = pool.bytes_ready_of();
    let ready = mib(ready_bytes);
    match trouble {
        None => info!(
            "cache: all {ready} are ready, after {:.1?}",
            began.elapsed()
        ),
        Some(trouble) => warn!(
            "cache: {ready} instead of {}, from now on: {trouble}",
            mib(wanted_bytes)
        ),
    }
}

/// For people.
pub(crate) fn mib(bytes: usize) -> String {
    let tenths = (bytes >> 10) * 10 / 1024;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use onrush_lock::memory::{Area, CAP_IPC_LOCK, PIECE_BYTES, has_capability};
    use onrush_lock::{Kind, LockError, Manager};
    use onrush_sys::path::{self, PathName};
    use onrush_sys::pool::PoolUser;
    use onrush_sys::wake::Waker;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::testing::wait_until;

    /// Of three pieces, of which the first is ready.
    fn pool() -> Arc<Pool> {
        let area = Area::reserve(3 * PIECE_BYTES, true, None).expect("96 MiB");
        area.grow(|| false).expect("32 MiB");
        Arc::new(Pool::new(area, 1 << 20))
    }

    fn user(pool: &Arc<Pool>) -> PoolUser {
        PoolUser::join(pool, &Arc::new(Waker::new().expect("an eventfd")))
    }

    fn filled(pool: &Arc<Pool>) -> Filling {
        let filling = Filling::start(Arc::clone(pool), &[], None).expect("a thread");
        filling.expect("there is something to do")
    }

    #[test]
    fn all_becomes_ready_and_then_there_is_nothing_to_do() {
        let pool = pool();
        let _filling = filled(&pool);
        wait_until("all is ready", || pool.chunks() == 96);
        assert_eq!(pool.bytes_ready_of(), (3 * PIECE_BYTES, 3 * PIECE_BYTES));
        let again = Filling::start(Arc::clone(&pool), &[], None).expect("no thread");
        assert!(again.is_none());
    }

    #[test]
    fn who_registers_nothing_keeps_nobody_from_stopping() {
        let pool = pool();
        let user = user(&pool);
        user.took(&user.next().expect("the first piece"));
        let filling = filled(&pool);
        wait_until("all is touched", || {
            pool.area().ready_bytes() == 3 * PIECE_BYTES
        });
        drop(filling);
        assert_eq!((pool.chunks(), pool.chunks_planned()), (32, 96));
    }

    /// Runs the test that asks once more, as an account that may do nothing special. True there.
    fn is_without_rights() -> bool {
        const MARK: &str = "ONRUSH_TEST_WITHOUT_RIGHTS";
        if std::env::var_os(MARK).is_some() {
            return true;
        }
        let name = std::thread::current().name().expect("a test's").to_owned();
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", &name]).env(MARK, "1");
        if has_capability(CAP_IPC_LOCK) {
            command.uid(65_531).gid(65_531);
        }
        let output = command.output().expect("this program");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
        false
    }

    /// The limit is met half way: at most three of eight pieces are ready, in the pool's account
    /// and in the manager's, and a path of the server has them.
    #[test]
    fn at_the_limit_of_locked_memory_it_goes_on_with_what_it_has() {
        const PIECE: usize = 1 << 20;
        if !is_without_rights() {
            return;
        }
        // Room for the rings themselves, and not for a fourth piece.
        let limit_bytes = 3 * PIECE as u64 + PIECE as u64 / 2;
        setrlimit(
            Resource::Memlock,
            Rlimit {
                current: Some(limit_bytes),
                maximum: Some(limit_bytes),
            },
        )
        .expect("less is always allowed");
        let area = Area::reserve_in_pieces(8 * PIECE, false, Some(Kind::Pinned), PIECE);
        let area = area.expect("8 MiB");
        area.grow(|| false).expect("1 MiB");
        let pool = Arc::new(Pool::new(area, PIECE / 4));
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let path = path::open(PathName::UringRegisteredZc, &pool, &waker);
        let mut path = path.expect("a mebibyte may be registered");
        let _filling = filled(&pool);
        wait_until("it is said", || {
            path.take_memory();
            pool.chunks_planned() < 32
        });
        // Some kernels count the rings themselves, too.
        let (ready_bytes, bytes) = pool.bytes_ready_of();
        assert!((PIECE..=3 * PIECE).contains(&ready_bytes), "{ready_bytes}");
        assert_eq!(bytes, ready_bytes);
        assert_eq!(Manager::of_process().totals().pinned_bytes, ready_bytes);
        assert!(!path.has_memory_to_take());
        let chunks = pool.chunks();
        assert_eq!(
            (chunks * PIECE / 4, pool.chunks_planned()),
            (ready_bytes, chunks)
        );
        let claims: Vec<_> = std::iter::from_fn(|| pool.claim()).collect();
        assert_eq!(claims.len(), chunks);
    }

    /// What another process has is there when that ends: here a limit is raised.
    #[test]
    fn beside_another_server_memory_is_looked_for_again() {
        const PIECE: usize = 256 << 10;
        if !is_without_rights() {
            return;
        }
        let limit = |bytes: usize| {
            let maximum = getrlimit(Resource::Memlock).maximum;
            let limit = Rlimit {
                current: Some(bytes as u64),
                maximum,
            };
            setrlimit(Resource::Memlock, limit).expect("a mebibyte may be locked");
        };
        limit(2 * PIECE);
        let area = Area::reserve_in_pieces(4 * PIECE, false, Some(Kind::Resident), PIECE);
        let area = area.expect("1 MiB");
        area.grow(|| false).expect("256 KiB");
        let pool = Arc::new(Pool::new(area, PIECE / 4));
        let retry = Retry {
            time_max: Duration::from_secs(60),
            every: Duration::from_millis(1),
        };
        let filling = Filling::start(Arc::clone(&pool), &[], Some(retry));
        let _filling = filling.expect("a thread").expect("something to do");
        wait_until("the limit is met", || pool.chunks() == 8);
        std::thread::sleep(20 * retry.every);
        assert_eq!((pool.chunks(), pool.chunks_planned()), (8, 16));
        limit(4 * PIECE);
        wait_until("the rest is ready", || pool.chunks() == 16);
    }

    #[test]
    fn a_quarter_is_left_of_what_there_is_without_the_cache() {
        assert!(has_room(0, 3, 4) && !has_room(0, 4, 4));
        assert!(has_room(30, 30, 50), "60 of 80");
        assert!(!has_room(30, 31, 50));
        assert!(has_room(30, 30, u64::MAX), "nothing is known of it");
    }

    #[test]
    fn a_refusal_leaves_what_there_is() {
        let pool = pool();
        let user = user(&pool);
        user.took(&user.next().expect("the first piece"));
        let _filling = filled(&pool);
        wait_until("a second piece", || user.next().is_some());
        user.refuse(LockError::NotPermitted);
        wait_until("it is said", || pool.chunks_planned() == 32);
        assert_eq!(pool.bytes_ready_of(), (PIECE_BYTES, PIECE_BYTES));
    }
}
