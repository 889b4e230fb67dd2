//! What is in a bucket, as far as people are shown it: a page after the other, and not to the end.

use std::io;
use std::path::PathBuf;

use futures_util::StreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::{Error, ListResult, ObjectStore};
use onrush_server::remote::RemoteEntry;
use onrush_wire::media::has_media_ending;
use tokio::time::timeout;

use crate::bucket::Bucket;
use crate::failure::Failure;
use crate::{LISTED_MAX, REQUEST_TIME_MAX};

/// Of one page, as S3 has them at the most.
const PAGE_MAX: usize = 1000;

impl Bucket {
    /// The first names of what is played.
    pub(crate) async fn names(&self, names_max: usize) -> io::Result<(Vec<PathBuf>, usize)> {
        let folder = self.location.folder();
        let listed = self.objects.list(Some(folder)).take(LISTED_MAX);
        let listed = timeout(REQUEST_TIME_MAX, self.counted(listed.collect::<Vec<_>>())).await;
        let listed = listed.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        let listed: Result<Vec<_>, Error> = listed.into_iter().collect();
        let mut names: Vec<_> = listed
            .map_err(io::Error::other)?
            .iter()
            .filter_map(|object| {
                let parts = object.location.prefix_match(folder)?;
                let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
                let is_shown = !parts.iter().any(|part| part.starts_with('.'));
                let name = parts.join("/");
                (is_shown && has_media_ending(&name)).then(|| PathBuf::from(name))
            })
            .collect();
        names.sort();
        let all = names.len();
        names.truncate(names_max);
        Ok((names, all))
    }

    /// What is in the folder at `name`, so much of it at the most, and whether there is more.
    pub(crate) async fn list(
        &self,
        name: &str,
        entries_max: usize,
    ) -> io::Result<(Vec<RemoteEntry>, bool)> {
        let pages = self.pages(name, entries_max);
        let listed = timeout(REQUEST_TIME_MAX, pages).await.unwrap_or_else(|_| {
            let text = format!("the object store gives no list within {REQUEST_TIME_MAX:?}");
            Err(Failure::unknown(text))
        });
        Ok(listed?)
    }

    async fn pages(
        &self,
        name: &str,
        entries_max: usize,
    ) -> Result<(Vec<RemoteEntry>, bool), Failure> {
        let permit = self.lists.acquire().await;
        let _permit = permit.map_err(|_| Failure::unknown("the server is stopping"))?;
        let key = self.location.key(name);
        let prefix = match key.trim_end_matches('/') {
            "" => String::new(),
            key => format!("{key}/"),
        };
        let (mut entries, mut page_token) = (Vec::new(), None);
        let mut is_there = name.is_empty();
        loop {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                max_keys: Some((entries_max + 1 - entries.len()).min(PAGE_MAX)),
                page_token,
                ..PaginatedListOptions::default()
            };
            let ask = || {
                let prefix = (!prefix.is_empty()).then_some(&*prefix);
                self.objects.list_paginated(prefix, options.clone())
            };
            let page = self.until_answered(ask).await?;
            page_token = page.page_token;
            // Whoever makes folders in a store has an object that is called as the folder.
            is_there |= !page.result.objects.is_empty() || !page.result.common_prefixes.is_empty();
            entries.extend(entries_of(page.result, &prefix));
            if entries.len() > entries_max || page_token.is_none() {
                break;
            }
        }
        if !is_there {
            let none = Failure::new(io::ErrorKind::NotFound, "there is no such folder");
            return Err(none);
        }
        let is_cut = page_token.is_some() || entries.len() > entries_max;
        entries.truncate(entries_max);
        Ok((entries, is_cut))
    }
}

/// What a page has beneath `prefix`.
fn entries_of(page: ListResult, prefix: &str) -> impl Iterator<Item = RemoteEntry> {
    let name = |key: &str| {
        let rest = key.strip_prefix(prefix)?.trim_end_matches('/');
        (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
    };
    let folders = page.common_prefixes.iter().filter_map(|folder| {
        Some(RemoteEntry {
            name: name(folder.as_ref())?,
            is_folder: true,
            file_bytes: 0,
            modified_s: 0,
        })
    });
    let files = page.objects.iter().filter_map(|object| {
        Some(RemoteEntry {
            name: name(object.location.as_ref())?,
            is_folder: false,
            file_bytes: object.size,
            modified_s: object.last_modified.timestamp(),
        })
    });
    folders.chain(files).collect::<Vec<_>>().into_iter()
}
