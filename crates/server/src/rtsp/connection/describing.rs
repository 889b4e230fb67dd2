//! What a client is told of a presentation before it sets it up.

use onrush_wire::route::channel::lease_of;
use onrush_wire::rtsp::{self, Reply, Request, SrtpParameter, StatusCode};

use super::super::groups;
use super::super::presentation::Presentation;
use super::super::srtp::Wish;
use super::Connection;

impl Connection {
    pub(super) async fn describe(
        &self,
        request: &Request,
        path: &str,
        srtp: Option<SrtpParameter>,
    ) -> Result<Reply, Reply> {
        let control = self.control();
        // A node that takes a channel from this one is not to be given what this one takes from
        // another, or the two would wait for each other.
        let cluster = control.statistics.cluster.get();
        if let (Some(cluster), Some(lease)) = (cluster, lease_of(&request.uri))
            && !cluster.has_lease(path, lease)
        {
            let note = format!("{path} is not received here by lease {lease}");
            return Err(Reply::refusal(StatusCode::NotFound, &note));
        }
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
        let group = groups::described(control, &presentation, uri, local)?;
        let description = presentation.describe(local.ip(), group, &[])?;
        Ok(Reply::description(&base, description))
    }

    /// Whether packets are to be encrypted, and whether the client may be told a key.
    pub(super) fn wish(&self, parameter: Option<SrtpParameter>) -> Wish {
        let config = &self.control().config.tls;
        Wish::new(parameter, self.is_encrypted(), config)
    }
}
