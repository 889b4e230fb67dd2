//! In a cluster, where a film is to be asked for.

use onrush_wire::hls::{self, Resource};
use onrush_wire::http::{Request, in_url};
use onrush_wire::route::{Scheme, Trace, redirects_of, with_redirects};

use super::{Responder, Sought};
use crate::cluster;
use crate::downloads::http::assets;
use crate::users::Login;

impl Responder {
    /// The URL at the node whose film it is, if that is another than this one. What a playlist or a
    /// manifest names is served where that was. So is whoever may have it by what the header of the
    /// request says (`login`, where that was looked at): clients send a password to no other host
    /// than the one that they were given (RFC 9110, section 15.4), and would be refused there. So a
    /// node that drains has nowhere for them, unless they go on with a file.
    pub(super) fn home(
        &self,
        request: &Request<'_>,
        (name, is_folder): (&str, bool),
        login: Option<&Login>,
    ) -> Option<Sought> {
        let cluster = self.site.statistics.cluster_of_many()?;
        let film = match hls::parse(name) {
            Some((film, Resource::Main | Resource::Manifest)) => film,
            Some(_) => return None,
            None => name,
        };
        let is_film = !film.is_empty() && !is_folder && !film.starts_with("live/");
        let is_channel = || cluster.holder_of(film).is_some();
        if !is_film || assets::find(name).is_some() || is_channel() {
            return None;
        }
        if request.authorization.is_some() && login.is_some() {
            let goes_on = request.range.is_some_and(|it| !it.starts_with("bytes=0-"));
            let drains = self.site.statistics.drain.is_on();
            return (drains && !goes_on).then_some(Sought::Nowhere);
        }
        let scheme = match self.client.is_encrypted {
            true => Scheme::Https,
            false => Scheme::Http,
        };
        let query = request.query.map(|query| format!("?{query}"));
        let path = format!("/{}{}", in_url(name), query.unwrap_or_default());
        let redirects = redirects_of(&path);
        let there = cluster.elsewhere(cluster::Request {
            film,
            scheme,
            peer: self.client.address,
            user_agent: request.user_agent,
            redirects,
            trace: Trace::of(&path),
        })?;
        let path = with_redirects(&path, redirects.saturating_add(1), there.trace);
        let home = format!("{}://{}{path}", scheme.as_str(), there.address);
        Some(Sought::Elsewhere(home))
    }
}
