//! The registration cache of a ring, and what it lends.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use onrush_lock::{Budget, Cache, CacheCounters, Keep, Loan, Uncached};

use crate::arguments::{Out, range, read};
use crate::error::{Failure, ONRUSH_ERROR_BUSY, ONRUSH_ERROR_HANDLE, guarded};
use crate::handle::{self, close, open, with};

/// Keeps registrations of sealed memory alone.
pub const ONRUSH_KEEP_SEALED: i32 = 0;
/// Keeps those of other private memory, too, which is watched.
pub const ONRUSH_KEEP_WATCHED: i32 = 1;

/// The registration will be found again.
pub const ONRUSH_CACHED: i32 = 0;
/// It is not: the cache keeps sealed memory alone, and this is not.
pub const ONRUSH_UNCACHED_NOT_SEALED: i32 = 1;
/// It is not: there is no userfaultfd here.
pub const ONRUSH_UNCACHED_NO_WATCHER: i32 = 2;
/// It is not: another userfaultfd has the memory.
pub const ONRUSH_UNCACHED_WATCHED_BY_OTHERS: i32 = 3;
/// It is not: the memory is shared, and others change it unreported.
pub const ONRUSH_UNCACHED_SHARED: i32 = 4;
/// It is not: it is a file's mapping.
pub const ONRUSH_UNCACHED_FILE: i32 = 5;
/// It is not: its contents were discarded a moment ago.
pub const ONRUSH_UNCACHED_DISCARDED: i32 = 6;
/// It is not: it is more than the budget, or all that is kept is in use.
pub const ONRUSH_UNCACHED_BUDGET: i32 = 7;
/// It is not, for a reason that this header does not know.
pub const ONRUSH_UNCACHED_OTHER: i32 = 8;

/// A ring's cache. 0 is none.
pub type onrush_cache_t = u64;

/// What a cache may keep.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_cache_options_t {
    /// ONRUSH_KEEP_SEALED or ONRUSH_KEEP_WATCHED.
    pub keep: i32,
    /// Registrations, 1 to 16384.
    pub entries_max: u32,
    /// Bytes that they pin. RLIMIT_MEMLOCK counts all of each huge page that they touch.
    pub bytes_max: u64,
}

/// The right to use registered memory in operations of the cache's ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_loan_t {
    /// What `onrush_cache_release` wants.
    pub number: u64,
    /// For an operation's `buf_index`.
    pub buffer: u16,
    /// ONRUSH_CACHED, or why it will not be found again.
    pub uncached: i32,
}

/// What a cache has done.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_cache_counters_t {
    /// Requests that found a registration.
    pub hits: u64,
    /// Requests that made one.
    pub misses: u64,
    /// Requests whose registration was not kept.
    pub uncached: u64,
    /// Registrations that were given up because their memory has changed.
    pub invalidations: u64,
    /// Registrations that were given up for room.
    pub evictions: u64,
    /// Registrations that are kept now.
    pub kept: u64,
    /// Bytes that they pin.
    pub kept_bytes: u64,
    /// Loans that are out now.
    pub loans: u64,
}

/// A cache, and what of it is out.
pub(crate) struct LendingCache {
    cache: Cache,
    /// By place, how often it was given out and what it stands for.
    loans: Vec<(u32, Option<Loan>)>,
    vacant: Vec<u32>,
}

impl LendingCache {
    fn lend(&mut self, loan: Loan) -> u64 {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.loans.push((0, None));
            u32::try_from(self.loans.len() - 1).expect("loans hold memory of the address space")
        });
        let slot = &mut self.loans[place as usize];
        *slot = (slot.0.wrapping_add(1), Some(loan));
        u64::from(slot.0) << 32 | u64::from(place)
    }

    fn take_back(&mut self, number: u64) -> Result<(), Failure> {
        let place = u32::try_from(number & u64::from(u32::MAX)).expect("32 bits");
        let slot = self.loans.get_mut(place as usize);
        let loan = slot.filter(|slot| u64::from(slot.0) == number >> 32);
        let loan = loan.and_then(|slot| slot.1.take()).ok_or_else(|| {
            Failure::new(
                ONRUSH_ERROR_HANDLE,
                format_args!("{number:#x} is no loan that is out; it was given back already?"),
            )
        })?;
        self.vacant.push(place);
        self.cache.release(loan);
        Ok(())
    }

    fn out(&self) -> usize {
        self.loans.len() - self.vacant.len()
    }
}

impl handle::Kind for LendingCache {
    const NAME: &'static str = "cache";
    const NUMBER: u64 = 4;
}

/// Opens a cache of registrations for a ring of io_uring, which must have no registered buffers,
/// nor the empty table that an earlier cache has left. The descriptor stays the caller's. If the
/// ring was made for a single issuer, that thread alone may use the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_cache_open(
    ring: c_int,
    options: *const onrush_cache_options_t,
    cache: *mut onrush_cache_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(cache, "cache") }?;
        // SAFETY: as above.
        let options = unsafe { read(options, "options") }?;
        let budget = budget_of(options)?;
        if ring < 0 {
            return Err(Failure::argument(format_args!(
                "{ring} is no descriptor; set up a ring first"
            )));
        }
        // SAFETY: it is not -1, and is only asked for a duplicate; what is not open, or no ring, is
        // refused by the kernel.
        let ring = unsafe { BorrowedFd::borrow_raw(ring) };
        to.set(open(LendingCache {
            cache: Cache::new(ring, budget)?,
            loans: Vec::new(),
            vacant: Vec::new(),
        })?);
        Ok(())
    })
}

/// Lends the registration of `bytes` bytes at `address`, registering them if need be. If one is
/// found, no kernel is entered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_cache_acquire(
    cache: onrush_cache_t,
    address: *const c_void,
    bytes: usize,
    loan: *mut onrush_loan_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(loan, "loan") }?;
        let range = range(address, bytes, "address")?;
        let lent = with::<LendingCache, _>(cache, |it| {
            let loan = it.cache.acquire(range)?;
            let (buffer, uncached) = (loan.buffer(), why(loan.uncached()));
            Ok(onrush_loan_t {
                number: it.lend(loan),
                buffer,
                uncached,
            })
        })?;
        to.set(lent);
        Ok(())
    })
}

/// Takes a loan back, by its number, when the last operation that used it has completed, and has
/// notified if it was a zero-copy send.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_cache_release(cache: onrush_cache_t, loan: u64) -> i32 {
    guarded(|| with::<LendingCache, _>(cache, |it| it.take_back(loan)))
}

/// Gives up now what is no longer valid, instead of at the next request.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_cache_sweep(cache: onrush_cache_t) -> i32 {
    guarded(|| {
        with::<LendingCache, _>(cache, |it| {
            it.cache.sweep();
            Ok(())
        })
    })
}

/// What the cache has done so far, and has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_cache_counters(
    cache: onrush_cache_t,
    counters: *mut onrush_cache_counters_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(counters, "counters") }?;
        let counted = with::<LendingCache, _>(cache, |it| {
            Ok(onrush_cache_counters_t {
                kept: it.cache.kept() as u64,
                kept_bytes: it.cache.kept_bytes() as u64,
                loans: it.out() as u64,
                ..told_of(it.cache.counters())
            })
        })?;
        to.set(counted);
        Ok(())
    })
}

/// Gives up all registrations. ONRUSH_ERROR_BUSY while loans are out. The ring keeps an empty
/// table: IORING_UNREGISTER_BUFFERS takes it away, before another cache or buffers of your own.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_cache_close(cache: onrush_cache_t) -> i32 {
    guarded(|| {
        let check = |it: &LendingCache| match it.out() {
            0 => Ok(()),
            out => Err(Failure::new(
                ONRUSH_ERROR_BUSY,
                format_args!("{out} loans are out; give them back first (onrush_cache_release)"),
            )),
        };
        close(cache, check).map(drop::<LendingCache>)
    })
}

/// What a cache has done, as C has it.
pub(crate) fn told_of(counters: CacheCounters) -> onrush_cache_counters_t {
    onrush_cache_counters_t {
        hits: counters.hits,
        misses: counters.misses,
        uncached: counters.uncached,
        invalidations: counters.invalidations,
        evictions: counters.evictions,
        kept: 0,
        kept_bytes: 0,
        loans: 0,
    }
}

/// What a cache of these options keeps.
pub(crate) fn budget_of(options: onrush_cache_options_t) -> Result<Budget, Failure> {
    let keep = match options.keep {
        ONRUSH_KEEP_SEALED => Keep::Sealed,
        ONRUSH_KEEP_WATCHED => Keep::Watched,
        other => {
            return Err(Failure::argument(format_args!(
                "{other} is nothing to keep; use ONRUSH_KEEP_SEALED or ONRUSH_KEEP_WATCHED"
            )));
        }
    };
    Ok(Budget {
        keep,
        entries_max: options.entries_max as usize,
        bytes_max: usize::try_from(options.bytes_max).unwrap_or(usize::MAX),
    })
}

fn why(uncached: Option<Uncached>) -> i32 {
    match uncached {
        None => ONRUSH_CACHED,
        Some(Uncached::NotSealed) => ONRUSH_UNCACHED_NOT_SEALED,
        Some(Uncached::NoWatcher) => ONRUSH_UNCACHED_NO_WATCHER,
        Some(Uncached::WatchedByOthers) => ONRUSH_UNCACHED_WATCHED_BY_OTHERS,
        Some(Uncached::Shared) => ONRUSH_UNCACHED_SHARED,
        Some(Uncached::File) => ONRUSH_UNCACHED_FILE,
        Some(Uncached::Discarded) => ONRUSH_UNCACHED_DISCARDED,
        Some(Uncached::Budget) => ONRUSH_UNCACHED_BUDGET,
        Some(_) => ONRUSH_UNCACHED_OTHER,
    }
}
