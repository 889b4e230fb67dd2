//! What a connection does for somebody who publishes on it.

use std::io;
use std::rc::Rc;

use onrush_sys::socket::unacknowledged_bytes;
use onrush_wire::rtsp::{Method, Reply, Request, StatusCode};

use super::super::publisher;
use super::Connection;

impl Connection {
    /// Carries a publisher's request out; `None` if it is none.
    pub(super) async fn publish(&mut self, request: &Request) -> Option<Result<Reply, Reply>> {
        let (control, peer) = (Rc::clone(self.control()), self.peer());
        // HTTP's port may be behind a proxy on this machine, whose clients all come from here.
        let is_known = self.tunnel.is_none() || !control.content.authorizer.is_open();
        if request.method == Method::Announce && !is_known {
            let note = "without users nobody publishes through HTTP; ask at the port of RTSP";
            return Some(Err(Reply::refusal(StatusCode::Forbidden, note)));
        }
        // Of a tunnel both sides are.
        let from = (&self.socket, peer, self.is_encrypted());
        publisher::answer(&control, &mut self.publisher, request, from).await
    }

    /// Tells a publisher how the packets arrive that it sends as frames, unless it has left unread
    /// what it was told before: it need not read any of it.
    pub(super) async fn report_to_publisher(&mut self) -> io::Result<()> {
        let reports = self.publisher.as_ref().map(|it| it.reports());
        let reports = reports.filter(|reports| !reports.is_empty());
        match (reports, unacknowledged_bytes(self.socket.socket())) {
            (Some(reports), Ok(0)) => self.write_all(reports).await,
            _ => Ok(()),
        }
    }
}
