//! What a client is told of a presentation before it sets it up.

use onrush_wire::route::channel::lease_of;
use onrush_wire::route::{Puller, Trace};
use onrush_wire::rtsp::{self, Reply, Request, SrtpParameter, StatusCode};

use super::super::groups;
use super::super::planning::plan_for_group;
use super::super::presentation::Presentation;
use super::super::srtp::Wish;
use super::{Connection, OfNode};
use crate::cluster::{Feed, NotFed};

impl Connection {
    pub(super) async fn describe(
        &self,
        request: &Request,
        path: &str,
        srtp: Option<SrtpParameter>,
    ) -> Result<Reply, Reply> {
        let control = self.control();
        let presentation = Presentation::open(control, path).await?;
        let (local, uri) = (self.socket.local(), &request.uri);
        let secret = (&control.secret, control.config.tls.srtp);
        let base = self.base(request);
        if let Some((parameter, keys)) = self.wish(srtp).describe(&presentation, secret)? {
            let description = presentation.describe(local.ip(), None, &keys)?;
            let (base, _) = rtsp::take_srtp(&base);
            let base = format!("{}/{parameter}/", base.trim_end_matches('/'));
            return Ok(Reply::description(&base, description));
        }
        if control.groups.are_asked_for(&presentation, uri, local) {
            plan_for_group(control, &presentation, local).await;
        }
        let group = groups::described(control, &presentation, uri, local)?;
        let description = presentation.describe(local.ip(), group, &[])?;
        Ok(Reply::description(&base, description))
    }

    /// What another node has to do with who asks for that.
    pub(super) fn of_node(&self, request: &Request, path: &str) -> Result<Option<OfNode>, Reply> {
        let feed = self.feed(request, path)?;
        let trace = Trace::of(&request.uri);
        let is_one = feed.is_some() || trace.is_some();
        Ok(is_one.then_some(OfNode { trace, feed }))
    }

    /// What another node takes of a channel from here, if it is one that asks; it may be sent on.
    fn feed(&self, request: &Request, path: &str) -> Result<Option<Feed>, Reply> {
        let cluster = self.control().statistics.cluster.get();
        let (Some(cluster), Some(lease)) = (cluster, lease_of(&request.uri)) else {
            return Ok(None);
        };
        // A viewer may have the channel, and is to take no node's place.
        let puller = Puller::of(&request.uri);
        let puller = puller.filter(|it| cluster.is_asked_by(it, path, &request.uri));
        match cluster.feed(path, lease, puller.as_ref()) {
            Ok(feed) => Ok(feed),
            Err(NotFed::SentOn(location)) => Err(Reply::moved(&location)),
            Err(NotFed::NotHere) => {
                let note = format!("{path} is not here by lease {lease}");
                Err(Reply::refusal(StatusCode::NotFound, &note))
            }
            Err(NotFed::Full) => {
                let note = "as many nodes take it from here as may (cluster.pulls_max)";
                Err(Reply::refusal(StatusCode::NotEnoughBandwidth, note))
            }
        }
    }

    /// Whether packets are to be encrypted, and whether the client may be told a key.
    pub(super) fn wish(&self, parameter: Option<SrtpParameter>) -> Wish {
        let config = &self.control().config.tls;
        Wish::new(parameter, self.is_encrypted(), config)
    }
}
