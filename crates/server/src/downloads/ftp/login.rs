//! Who a session is logged in as, and what that one may read.

use onrush_wire::auth::{Action, Grant};
use onrush_wire::ftp::{Act, Reply, Session, quoted};

use super::connection::{Connection, not_for_reading, unanswered};
use crate::downloads::files::Found;
use crate::users::{Asked, Login, Protocol, Refusal};

impl Connection<'_> {
    /// Has the client be whom a password makes it, if it does.
    pub(super) async fn log_in(&mut self, user: Option<String>, password: &str) -> Reply {
        let authorizer = &self.site.authorizer;
        let (login, secret) = match user {
            None if authorizer.knows_nobody(Action::Download) || authorizer.has_url_keys() => {
                (Ok(Login::Nobody), None)
            }
            None => {
                let note = "anonymous is not welcome here; log in as a user";
                (Err(note.to_owned()), None)
            }
            Some(user) => {
                // Of before: if another one comes meanwhile, this login is none of that.
                let secret = authorizer.secret(&user);
                let login = authorizer.log_in(&self.asked(""), &user, password).await;
                (login.map_err(|refusal| refusal.note()), secret)
            }
        };
        match login {
            Ok(login) => {
                (self.login, self.secret) = (login, secret);
                self.session.logged_in()
            }
            Err(note) => Session::refused(note),
        }
    }

    /// Fails if the client has to log in again for what it asks: its token may have expired since
    /// it did, its password may be another now.
    pub(super) async fn is_logged_in_for(&self, act: &Act) -> Result<(), Reply> {
        let is_for_all = matches!(
            act,
            Act::Reply(_)
                | Act::Quit(_)
                | Act::LogIn { .. }
                | Act::Encrypt { .. }
                | Act::Listen { .. }
                | Act::Connect(_)
                | Act::Abort
                | Act::Status
        );
        let authorizer = &self.site.authorizer;
        match is_for_all || authorizer.stands(&self.login, self.secret.as_ref()).await {
            true => Ok(()),
            false => Err(Reply::new(
                530,
                "the password or the token counts no more; log in",
            )),
        }
    }

    pub(super) fn asked<'a>(&self, path: &'a str) -> Asked<'a> {
        Asked {
            protocol: Protocol::Ftp,
            peer: self.peer,
            is_encrypted: self.socket.is_encrypted(),
            is_behind_proxy: false,
            is_of_page: false,
            action: Action::Download,
            path,
            method: "",
            uri: "",
            authorization: None,
        }
    }

    pub(super) async fn find(&self, name: &str) -> Result<Found, Reply> {
        let authorizer = &self.site.authorizer;
        let signed = signed(name).filter(|_| authorizer.has_url_keys());
        let (name, uri) = signed.unwrap_or((name, ""));
        let asked = Asked {
            uri,
            ..self.asked(name)
        };
        if let Err(refusal) = authorizer.permit(&self.login, &asked).await {
            let text = format!("{}: {}", quoted(name), refusal.note());
            return Err(match refusal {
                Refusal::Unanswered => Reply::new(450, text),
                Refusal::LogIn { .. } => Reply::new(530, text),
                _ => Reply::new(550, text),
            });
        }
        match self.site.files.find(name).await {
            Ok(Found::Denied) => Err(not_for_reading(name)),
            Ok(found) => Ok(found),
            Err(error) => Err(unanswered(name, &error)),
        }
    }
}

/// A file's name, and with its question mark the query behind it that is signed, as in a URL.
fn signed(name: &str) -> Option<(&str, &str)> {
    let (file, query) = name.split_at(name.find('?')?);
    Grant::of_query(&query[1..]).map(|_| (file, query))
}
