//! One block of one version of an object, asked for until it is there or cannot be had.

use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use onrush_server::remote::RemoteStats;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::failure::Failure;
use crate::folder::{is_full, whole};
use crate::index::block_range;
use crate::object::Object;
use crate::{REQUEST_TIME_MAX, RETRY_TIME_MAX};

/// How long the first pause between two tries is; each is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Why a try has failed.
enum Trouble {
    /// It may pass.
    Passing(String),
    /// It will not.
    Lasting(Failure),
}

impl Object {
    /// Has a block in the file; its checksum then. It may be there if that has `checksum`.
    pub(crate) async fn bring(
        self: &Arc<Self>,
        block: u64,
        checksum: Option<u64>,
    ) -> Result<u64, Failure> {
        if let Some(checksum) = checksum {
            if self.is_whole(block, checksum).await {
                self.stats().kept.fetch_add(1, Ordering::Relaxed);
                return Ok(checksum);
            }
            let path = &self.path;
            warn!("object {path:?}: block {block} is damaged on the disk; it is asked for again");
            self.stats().damaged.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(donor) = self.bucket.cache.donor(self.number) {
            // Not in the queue for the store, which may stand still.
            let permit = self.bucket.gifts.acquire().await;
            let _permit = permit.map_err(|_| stopping())?;
            if let Ok(Some(bytes)) = spawn_blocking(move || donor.read(block)).await {
                self.stats().kept.fetch_add(1, Ordering::Relaxed);
                return self.write(block, bytes.into()).await;
            }
        }
        let began = Instant::now();
        let permit = timeout(RETRY_TIME_MAX, self.bucket.requests.acquire()).await;
        let Ok(permit) = permit else {
            self.stats().failures.fetch_add(1, Ordering::Relaxed);
            let others = "the object store does not give it: others wait for it";
            return Err(Failure::unknown(others));
        };
        let _permit = permit.map_err(|_| stopping())?;
        let bytes = self.fetch(block, began).await?;
        self.write(block, bytes).await
    }

    /// Whether the file has what it had when the block was written.
    async fn is_whole(&self, block: u64, checksum: u64) -> bool {
        let (file, range) = (Arc::clone(&self.file), block_range(block, self.file_bytes));
        let read = spawn_blocking(move || whole(&file, range, checksum)).await;
        matches!(read, Ok(Ok(Some(_))))
    }

    /// Writes a block, if need be in the room of others.
    async fn write(&self, block: u64, bytes: Bytes) -> Result<u64, Failure> {
        let (cache, began) = (&self.bucket.cache, Instant::now());
        loop {
            let freed = cache.freed();
            let (file, key) = (Arc::clone(&self.file), self.key(block));
            let (with, bytes) = (Arc::clone(cache), bytes.clone());
            let written = spawn_blocking(move || with.write(key, &file, &bytes)).await;
            let error = match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(checksum) => return Ok(checksum),
                Err(error) => error,
            };
            let left = RETRY_TIME_MAX.saturating_sub(began.elapsed());
            if is_full(&error) && !left.is_zero() {
                let text = "blocks go before there are as many as there may be; make it smaller \
                            with --object-cache-size, or give it room";
                cache.tell(|| warn!("object cache: {error}: {text}"));
                if cache.make_room() || timeout(left, freed).await.is_ok() {
                    continue;
                }
            }
            let text = format!("the object cache cannot be written: {error}");
            warn!("{text}");
            return Err(Failure::unknown(text));
        }
    }

    /// Asks for a block until it is there or cannot be had, for somebody who waits since then.
    async fn fetch(&self, block: u64, began: Instant) -> Result<Bytes, Failure> {
        let mut pause = PAUSE_MIN;
        let bytes = loop {
            let reason = match timeout(REQUEST_TIME_MAX, self.hedged(block)).await {
                Ok(Ok(bytes)) => break bytes,
                Ok(Err(Trouble::Lasting(failure))) => return Err(failure),
                Ok(Err(Trouble::Passing(reason))) => reason,
                Err(_) => format!("no answer within {REQUEST_TIME_MAX:?}"),
            };
            // Of another that is shorter, some stores say no more than that it has no such range.
            if self.is_another().await {
                return Err(self.replaced());
            }
            let path = &self.path;
            if began.elapsed() + pause >= RETRY_TIME_MAX {
                warn!("object {path:?}: block {block} cannot be had: {reason}");
                self.stats().failures.fetch_add(1, Ordering::Relaxed);
                let text = format!("the object store does not give it: {reason}");
                return Err(Failure::unknown(text));
            }
            debug!("object {path:?}: block {block} is asked for again in {pause:?}: {reason}");
            self.stats().retries.fetch_add(1, Ordering::Relaxed);
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        let came = bytes.len() as u64;
        self.stats().bytes.fetch_add(came, Ordering::Relaxed);
        Ok(bytes)
    }

    fn stats(&self) -> &RemoteStats {
        &self.bucket.cache.stats
    }

    /// Asks, and a second time if that takes long. A failure of the one is not the other's.
    async fn hedged(&self, block: u64) -> Result<Bytes, Trouble> {
        let hedging = &self.bucket.hedging;
        let wait = hedging.begin();
        let mut first = pin!(self.timed(block));
        if let Ok(answer) = timeout(wait, &mut first).await {
            return answer;
        }
        let Some(_hedge) = hedging.again() else {
            return first.await;
        };
        self.stats().hedges.fetch_add(1, Ordering::Relaxed);
        let mut second = pin!(self.timed(block));
        tokio::select! {
            answer = &mut first => match answer {
                Err(Trouble::Passing(_)) => second.await,
                answer => answer,
            },
            answer = &mut second => match answer {
                Err(Trouble::Passing(_)) => first.await,
                answer => {
                    self.stats().hedges_won.fetch_add(1, Ordering::Relaxed);
                    answer
                }
            },
        }
    }

    async fn timed(&self, block: u64) -> Result<Bytes, Trouble> {
        let began = Instant::now();
        let answer = self.bucket.counted(self.request(block)).await;
        if answer.is_ok() {
            self.bucket.hedging.answered(began.elapsed());
        }
        answer
    }

    /// Asks once.
    async fn request(&self, block: u64) -> Result<Bytes, Trouble> {
        let Range { start, end } = block_range(block, self.file_bytes);
        let options = GetOptions {
            range: Some(GetRange::Bounded(start..end)),
            if_match: Some(self.etag.clone()),
            ..GetOptions::default()
        };
        let answer = self.bucket.objects.get_opts(&self.path, options).await;
        let answer = answer.map_err(|error| self.trouble(&error))?;
        // Not every server knows If-Match.
        let is_same = answer.meta.e_tag.as_deref() == Some(&self.etag);
        if !is_same || answer.meta.size != self.file_bytes {
            return Err(Trouble::Lasting(self.replaced()));
        }
        if answer.range != (start..end) {
            let reason = format!("it gave bytes {:?} for {:?}", answer.range, start..end);
            return Err(Trouble::Passing(reason));
        }
        let bytes = answer.bytes().await.map_err(|error| self.trouble(&error))?;
        match bytes.len() as u64 == end - start {
            true => Ok(bytes),
            false => Err(Trouble::Passing(format!("only {} bytes came", bytes.len()))),
        }
    }

    fn trouble(&self, error: &Error) -> Trouble {
        match Failure::lasting(error) {
            Some(failure) if failure.is_not_found() => Trouble::Lasting(self.replaced()),
            Some(failure) => Trouble::Lasting(failure),
            None if matches!(error, Error::Precondition { .. }) => {
                Trouble::Lasting(self.replaced())
            }
            None => Trouble::Passing(error.to_string()),
        }
    }

    /// Whether there is another object by this name now, or none. Not, if the store does not tell.
    async fn is_another(&self) -> bool {
        let asked = self.bucket.counted(self.bucket.objects.head(&self.path));
        match timeout(PAUSE_MAX, asked).await {
            Ok(Ok(now)) => now.e_tag.as_deref() != Some(&self.etag) || now.size != self.file_bytes,
            Ok(Err(error)) => Failure::lasting(&error).is_some_and(|it| it.is_not_found()),
            Err(_) => false,
        }
    }

    fn replaced(&self) -> Failure {
        let text = "the object was replaced or removed in the store; open the film again";
        if !self.is_replaced.swap(true, Ordering::Relaxed) {
            warn!(
                "object {}: what is here of it is played, and no more: {text}",
                self.path
            );
        }
        Failure::new(io::ErrorKind::StaleNetworkFileHandle, text)
    }
}

fn stopping() -> Failure {
    Failure::unknown("the server is stopping")
}
