//! The page of a folder.

use std::io;

use onrush_wire::http::{Answer, Context, Listing, Request, Status, in_url};
use tracing::debug;

use super::{Body, Decided, Responder, SHORT};
use crate::downloads::folder;
use crate::downloads::http::live;
use crate::downloads::memory::Reserved;

impl Responder {
    pub(super) async fn folder(
        &self,
        request: &Request<'_>,
        name: &str,
        has_slash: bool,
        keeps_alive: bool,
    ) -> Decided {
        if !has_slash {
            let path = format!("/{}/", in_url(name));
            let answer = |c: &Context<'_>| Answer::moved(&path, request.query, c);
            return (self.with_context(request, keeps_alive, answer), None);
        }
        match self.page(request, name).await {
            Ok(Some((html, memory))) => {
                let answer = self.with_context(request, keeps_alive, |c| Answer::page(html, c));
                (answer, Some(Body::Text { _memory: memory }))
            }
            Ok(None) => self.crowded(request, keeps_alive),
            Err(error) => {
                debug!("folder {name:?}: {error}");
                let (status, note) = match error.kind() {
                    io::ErrorKind::HostUnreachable => (Status::ServiceUnavailable, SHORT),
                    _ => (Status::Forbidden, "this folder cannot be read"),
                };
                let answer = |c: &Context<'_>| Answer::refusal(status, note, c);
                (self.with_context(request, keeps_alive, answer), None)
            }
        }
    }

    /// The text of it, and its memory; `None` if there is no room for that.
    async fn page(
        &self,
        request: &Request<'_>,
        name: &str,
    ) -> io::Result<Option<(String, Reserved)>> {
        let (entries, is_cut) = folder::list(&self.site.places, name).await?;
        let count = entries.len();
        // Before it is made: no more are made at once than there is room for.
        let Some(room) = self.memory.reserve(Listing::room_bytes(count)) else {
            return Ok(None);
        };
        let rtsp_host = self.rtsp_host(request.host);
        let channels = live::listed(&self.site, name);
        let is_encrypted = self.client.is_encrypted;
        let (folder, http_host) = (name.to_owned(), request.host.to_owned());
        let write = move || {
            let listing = Listing {
                folder: &folder,
                entries: &entries,
                is_cut,
                http_host: &http_host,
                is_encrypted,
                rtsp_host: &rtsp_host,
                channels: &channels,
            };
            listing.to_html()
        };
        let html = folder::written(count, write).await?;
        drop(room);
        let memory = self.memory.reserve(html.len());
        Ok(memory.map(|memory| (html, memory)))
    }

    /// Where RTSP plays what the client finds at `host` by HTTP.
    fn rtsp_host(&self, host: &str) -> String {
        let Some(port) = self.site.rtsp_port.filter(|_| !host.is_empty()) else {
            return String::new();
        };
        // A colon within brackets belongs to an IPv6 address.
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => name,
            _ => host,
        };
        format!("{name}:{port}")
    }
}
