//! The bucket: who asks it, and what is counted of that.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, Error, ObjectMeta, ObjectStoreExt, RetryConfig};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::cache::Cache;
use crate::failure::Failure;
use crate::folder::{Folder, NotTaken};
use crate::hedge::Hedging;
use crate::{
    BLOCK_BYTES, CACHE_BYTES_MIN, LISTS_MAX, OPEN_TIME_MAX, ObjectsError, REQUEST_TIME_MAX,
    REQUESTS_MAX, Settings,
};

/// Between two tries to find a film.
const PAUSE: Duration = Duration::from_millis(200);

/// Where films lie in an object store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Location {
    bucket: String,
    folder: Path,
}

impl Location {
    /// Whether this is meant as one.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.starts_with("s3://")
    }

    /// Reads `s3://BUCKET/FOLDER`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ObjectsError> {
        let wrong = |reason| ObjectsError::Url {
            url: text.to_owned(),
            reason,
        };
        let url = Url::parse(text).map_err(|_| wrong("it is no URL"))?;
        if url.scheme() != "s3" {
            return Err(wrong("it is of no object store that is known"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("credentials stand in variables AWS_..., not here"));
        }
        if url.query().is_some() || url.fragment().is_some() || url.port().is_some() {
            return Err(wrong("it has more than a bucket and a folder"));
        }
        let bucket = url.host_str().filter(|host| !host.is_empty());
        let bucket = bucket
            .ok_or_else(|| wrong("it names no bucket"))?
            .to_owned();
        let folder = Path::from_url_path(url.path().trim_matches('/'));
        let folder = folder.map_err(|_| wrong("it names no folder that there can be"))?;
        Ok(Self { bucket, folder })
    }

    /// Where the folder ends in the keys of its objects.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The key of the object at `name`.
    pub(crate) fn key(&self, name: &str) -> String {
        match self.folder.as_ref() {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.folder)
    }
}

/// A bucket, and where its blocks are kept.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) location: Location,
    /// Where the bucket is, and which it is: for who comes back to its blocks.
    pub(crate) store: String,
    pub(crate) objects: AmazonS3,
    pub(crate) cache: Arc<Cache>,
    pub(crate) requests: Semaphore,
    /// Of blocks that a predecessor's folder has.
    pub(crate) gifts: Semaphore,
    pub(crate) lists: Semaphore,
    pub(crate) hedging: Hedging,
}

impl Bucket {
    pub(crate) fn new(settings: Settings) -> Result<Self, ObjectsError> {
        let Settings {
            location, folder, ..
        } = settings;
        let client = ClientOptions::new()
            .with_allow_http(true)
            .with_connect_timeout(Duration::from_secs(3))
            .with_timeout(REQUEST_TIME_MAX);
        // What is asked again, and when, is decided where it is known how long one may wait.
        let retry = RetryConfig {
            max_retries: 0,
            retry_timeout: REQUEST_TIME_MAX,
            backoff: BackoffConfig::default(),
        };
        let mut objects = AmazonS3Builder::from_env()
            .with_bucket_name(&location.bucket)
            .with_client_options(client)
            .with_retry(retry);
        if let Some(endpoint) = settings.endpoint {
            objects = objects.with_endpoint(endpoint);
        }
        let endpoint = objects.get_config_value(&AmazonS3ConfigKey::Endpoint);
        let store = format!("{}/{}", endpoint.unwrap_or_default(), location.bucket);
        let objects = objects.build().map_err(|source| ObjectsError::Settings {
            location: location.clone(),
            source,
        })?;
        let cannot = |source| ObjectsError::Folder {
            folder: folder.clone(),
            source,
        };
        let blocks = settings.cache_bytes.max(CACHE_BYTES_MIN) / BLOCK_BYTES;
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        let cache = Cache::new(blocks, folder.clone(), settings.is_successor).map_err(cannot)?;
        // Whether there can be files.
        drop(cache.new_file(0).map_err(cannot)?);
        let bucket = Self {
            objects,
            cache: Arc::new(cache),
            requests: Semaphore::new(REQUESTS_MAX),
            gifts: Semaphore::new(REQUESTS_MAX),
            lists: Semaphore::new(LISTS_MAX),
            hedging: Hedging::default(),
            location,
            store,
        };
        if settings.is_kept {
            match Folder::take(&folder) {
                Ok(taken) => bucket.cache.adopt(taken).map_err(cannot)?,
                Err(NotTaken::InUse(_)) if settings.is_successor => {}
                Err(NotTaken::InUse(process)) => {
                    return Err(ObjectsError::FolderInUse { folder, process });
                }
                Err(NotTaken::System(error)) => return Err(cannot(error)),
            }
        }
        Ok(bucket)
    }

    /// Asks the store for what is at `name`, until it answers.
    pub(crate) async fn ask(&self, name: &str) -> Result<(Path, ObjectMeta), Failure> {
        let none = |_| Failure::new(io::ErrorKind::NotFound, "there can be no such object");
        let path = Path::parse(self.location.key(name)).map_err(none)?;
        let meta = self.until_answered(|| self.objects.head(&path)).await?;
        Ok((path, meta))
    }

    /// Asks until there is an answer, for as long as somebody waits who opens something.
    pub(crate) async fn until_answered<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let began = Instant::now();
        loop {
            let left = OPEN_TIME_MAX.saturating_sub(began.elapsed());
            let reason = match timeout(left, self.counted(ask())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => match Failure::lasting(&error) {
                    Some(failure) => return Err(failure),
                    None => error.to_string(),
                },
                Err(_) => format!("no answer within {OPEN_TIME_MAX:?}"),
            };
            if began.elapsed() + PAUSE >= OPEN_TIME_MAX {
                let text = format!("the object store does not answer: {reason}");
                return Err(Failure::unknown(text));
            }
            self.cache.stats.retries.fetch_add(1, Ordering::Relaxed);
            sleep(PAUSE).await;
        }
    }

    /// A request, counted, also if it is given up.
    pub(crate) async fn counted<T>(&self, request: impl Future<Output = T>) -> T {
        let stats = &self.cache.stats;
        stats.requests.fetch_add(1, Ordering::Relaxed);
        stats.in_flight.fetch_add(1, Ordering::Relaxed);
        let _under_way = UnderWay(&stats.in_flight);
        request.await
    }
}

/// A request that is under way.
struct UnderWay<'a>(&'a AtomicU64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_bucket_and_a_folder() {
        for (text, shown) in [
            ("s3://films", "s3://films/"),
            ("s3://films/", "s3://films/"),
            ("s3://films/a/b%20c/", "s3://films/a/b c"),
        ] {
            assert_eq!(Location::parse(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "s3://",
            "s3:films",
            "http://films/a",
            "s3://key:secret@films",
            "s3://films/a?b",
            "s3://films:80/a",
        ] {
            let error = Location::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("write s3://BUCKET"), "{error}");
        }
    }
}
