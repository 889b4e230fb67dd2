//! RTSP over HTTP (`x-rtsp-tunnelled`): the two connections of one client as one.
//!
//! The GET is the connection: it has its place, its sessions and, once it is interleaved, its
//! engine. A POST gives its own connection to the GET of its cookie, and is read there in place of
//! it. Clients may end a POST and begin another one.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use onrush_wire::rtsp::{TunnelDecoder, TunnelSide};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::Control;
use crate::byte_stream::ByteStream;

/// POSTs that wait until the one before has ended; one more is refused.
pub const TUNNEL_POSTS_WAITING_MAX: usize = 1;

/// The GETs that are open, by their clients' addresses and cookies.
pub(super) type Tunnels = HashMap<(IpAddr, Box<str>), Sender<Post>>;

/// The connection of a POST, and what came on it behind its head.
pub(super) struct Post {
    pub(super) leg: Box<dyn Leg>,
    pub(super) text: Vec<u8>,
}

/// A connection that another one is read by.
pub(super) trait Leg {
    fn stream(&mut self) -> &mut ByteStream;

    fn is_encrypted(&self) -> bool;
}

/// What a GET is read by. Dropping it frees its cookie.
pub(super) struct Tunnel {
    control: Rc<Control>,
    key: (IpAddr, Box<str>),
    posts: Receiver<Post>,
    post: Option<Post>,
    decoder: TunnelDecoder,
    /// What is decoded, and how much of it was read.
    decoded: Vec<u8>,
}

impl Tunnel {
    /// Opens one for a GET; `None` if there is one of that cookie.
    pub(super) fn open(control: &Rc<Control>, ip: IpAddr, side: TunnelSide) -> Option<Self> {
        let key = (ip, side.cookie);
        let mut tunnels = control.tunnels.borrow_mut();
        if tunnels.contains_key(&key) {
            return None;
        }
        let (sender, posts) = channel(TUNNEL_POSTS_WAITING_MAX);
        tunnels.insert(key.clone(), sender);
        Some(Self {
            control: Rc::clone(control),
            key,
            posts,
            post: None,
            decoder: TunnelDecoder::default(),
            decoded: Vec::new(),
        })
    }

    /// Gives a POST to the GET of its cookie.
    ///
    /// # Errors
    ///
    /// The POST, if there is none, or it has another waiting.
    pub(super) fn give(
        control: &Control,
        (ip, side): (IpAddr, TunnelSide),
        post: Post,
    ) -> Result<(), Post> {
        let tunnels = control.tunnels.borrow();
        match tunnels.get(&(ip, side.cookie)) {
            Some(get) => get.try_send(post).map_err(TrySendError::into_inner),
            None => Err(post),
        }
    }

    /// Whether what the client says comes over TLS.
    pub(super) fn is_encrypted(&self) -> bool {
        let post = self.post.as_ref();
        post.is_some_and(|post| post.leg.is_encrypted())
    }

    /// Whether a read may bring something, also that the client of `get` has gone.
    pub(super) fn poll_read_ready(
        &mut self,
        get: &ByteStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.decoded.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if self.post.is_none()
            && let Poll::Ready(post) = self.posts.poll_recv(context)
        {
            self.post = post;
        }
        if let Some(post) = &mut self.post
            && (!post.text.is_empty() || post.leg.stream().poll_read_ready(context).is_ready())
        {
            return Poll::Ready(Ok(()));
        }
        get.poll_read_ready(context)
    }

    /// Reads what the client says; 0 once it has closed the connection of its GET.
    pub(super) fn try_read(&mut self, get: &mut ByteStream, into: &mut [u8]) -> io::Result<usize> {
        if self.decoded.is_empty() {
            self.decode()?;
        }
        if self.decoded.is_empty() {
            // Whatever comes on a GET is not for us, but its end is.
            return match get.try_read(into)? {
                0 => Ok(0),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let bytes = self.decoded.len().min(into.len());
        into[..bytes].copy_from_slice(&self.decoded[..bytes]);
        self.decoded.drain(..bytes);
        if self.decoded.is_empty() {
            self.decoded = Vec::new();
        }
        Ok(bytes)
    }

    /// Decodes what has come by the POST.
    fn decode(&mut self) -> io::Result<()> {
        let Some(post) = &mut self.post else {
            return Ok(());
        };
        let mut text = std::mem::take(&mut post.text);
        if text.is_empty() {
            text = vec![0; 4096];
            match post.leg.stream().try_read(&mut text) {
                Ok(bytes) => text.truncate(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => text.clear(),
            }
            if text.is_empty() {
                // Another one may follow.
                self.post = None;
                self.decoder = TunnelDecoder::default();
            }
        }
        let decoded = self.decoder.push(&text, &mut self.decoded);
        decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.control.tunnels.borrow_mut().remove(&self.key);
    }
}
