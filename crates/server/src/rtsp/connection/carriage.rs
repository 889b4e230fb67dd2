//! What of a connection is TLS's, or a tunnel's.

use std::io;
use std::rc::Rc;

use onrush_wire::rtsp::{TUNNEL_OPEN, TUNNEL_REFUSED, TunnelSide};
use tokio::time::timeout;

use super::super::tunnel::{Leg, Post, Tunnel};
use super::{Connection, Next};
use crate::byte_stream::ByteStream;

impl Connection {
    /// Whether all that either side says is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        let is_said = self.tunnel.as_ref().is_none_or(|it| it.is_encrypted());
        is_said && self.socket.is_encrypted()
    }

    /// Gives the engine that sends on this connection a new key of TLS, where the client has asked
    /// for one or the old one is worn.
    pub(super) fn keep_key(&self) -> io::Result<()> {
        let Some(interleaving) = &self.interleaving else {
            return Ok(());
        };
        let connection = &interleaving.connection;
        match self.socket.is_key_asked_for() || connection.is_worn() {
            true => connection.change_key(|| self.socket.next_key()),
            false => Ok(()),
        }
    }

    pub(super) async fn close(&mut self) -> io::Result<()> {
        if let Some(interleaving) = self.interleaving.as_ref().filter(|_| self.is_encrypted()) {
            let time_max = self.control().config.limits.request_time_max;
            timeout(time_max, interleaving.connection.close_notify()).await??;
        }
        // Its cookie is free from here on, and its POST ends with it.
        self.tunnel = None;
        self.socket.close().await
    }

    /// Becomes one side of a tunnel.
    pub(super) async fn enter_tunnel(
        &mut self,
        (side, rest): (TunnelSide, Vec<u8>),
    ) -> io::Result<Next> {
        let is_fresh = self.tunnel.is_none() && self.sessions.is_empty();
        if is_fresh && side.is_post {
            return Ok(Next::HandOver(Box::new((side, rest))));
        }
        let control = Rc::clone(self.control());
        if is_fresh && let Some(tunnel) = Tunnel::open(&control, self.peer_ip(), side) {
            self.tunnel = Some(Box::new(tunnel));
            self.write_all(TUNNEL_OPEN.to_vec()).await?;
            return Ok(Next::Receive);
        }
        self.write_all(TUNNEL_REFUSED.to_vec()).await?;
        Ok(Next::End)
    }

    /// Gives itself to the GET of its tunnel, or ends.
    pub(super) async fn hand_over(self, posted: Box<(TunnelSide, Vec<u8>)>) {
        let (side, text) = *posted;
        let (control, ip) = (Rc::clone(self.control()), self.peer_ip());
        let leg = Box::new(self);
        if let Err(mut refused) = Tunnel::give(&control, (ip, side), Post { leg, text }) {
            let stream = refused.leg.stream();
            let said = timeout(control.config.limits.request_time_max, async {
                stream.write_all(TUNNEL_REFUSED).await?;
                stream.close().await
            });
            // Whether it is heard is the client's business.
            drop(said.await);
        }
    }
}

impl Leg for Connection {
    fn stream(&mut self) -> &mut ByteStream {
        &mut self.socket
    }

    fn is_encrypted(&self) -> bool {
        self.socket.is_encrypted()
    }
}
