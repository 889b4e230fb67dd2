//! Requests that a proxy has passed on, each as its own client's.

use std::rc::Rc;

use onrush_wire::http::{Client, Request};

use super::Responder;
use crate::downloads::admission::Guest;

impl Responder {
    /// Whose a request is that has come on this connection.
    pub(in crate::downloads::http) fn client_of(&self, request: &Request<'_>) -> Client {
        let proxies = &self.site.settings.trusted_proxies;
        self.client.of(request, proxies)
    }

    /// What a request is decided by, if it is another's than the connection's.
    pub(in crate::downloads::http) fn passed_on(&self, request: &Request<'_>) -> Option<Self> {
        let client = self.client_of(request);
        if client == self.client {
            return None;
        }
        let site = Rc::clone(&self.site);
        let guest = Guest::enter(&site, client.address);
        let limits = (guest.limit().cloned(), guest.share().clone());
        Some(Self::of(site, client, limits, Some(guest)))
    }
}
