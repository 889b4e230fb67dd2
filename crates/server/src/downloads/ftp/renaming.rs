//! RNTO: nothing gets a name, alone or with its folder, by which its user may read it who may not
//! by the old one. A right to store is none to look at what others have stored.

use std::rc::Rc;

use onrush_wire::auth::Action;
use onrush_wire::ftp::Reply;
use onrush_wire::hls::is_of_several;
use onrush_wire::http::Coding;
use tokio::task::yield_now;

use super::connection::Connection;
use super::store::{not_permitted, refused};
use crate::downloads::http::films_of;
use crate::downloads::uploads::{Moving, Uploads};
use crate::users::Refusal;

impl Connection<'_> {
    /// Whether this user may give what is at a name another one: then it is held until it has that.
    /// All that is in a folder gets another name with it.
    pub(super) async fn may_rename(
        &self,
        uploads: &Rc<Uploads>,
        (name, to): (&str, &str),
    ) -> Result<Moving, Reply> {
        self.may_change(to).await?;
        let moving = uploads.moving(name, to);
        let moving = moving.map_err(|error| refused(name, &error))?;
        let all = moving.all().await;
        for end in all.map_err(|error| refused(name, &error))? {
            let (from, to) = (format!("{name}{end}"), format!("{to}{end}"));
            let stays = self.stays_unread(&from, &to).await;
            // Told of the folder: who may not list it hears no name in it.
            stays.map_err(|refusal| not_permitted(name, &refusal))?;
            // There may be thousands, and this thread serves others, too.
            yield_now().await;
        }
        Ok(moving)
    }

    /// Fails if this user may read something by its new name, and not by the one that it has.
    async fn stays_unread(&self, name: &str, to: &str) -> Result<(), Refusal> {
        for action in [Action::Download, Action::Play] {
            if self.could_read(action, to).await? && !self.could_read(action, name).await? {
                // That is refused, and whoever watches is told.
                self.permit(action, name).await?;
            }
        }
        Ok(())
    }

    /// Whether this user may play or download what it has not asked for, by its own name or by one
    /// of those that it is given out by.
    async fn could_read(&self, action: Action, name: &str) -> Result<bool, Refusal> {
        if self.could(action, name).await? {
            return Ok(true);
        }
        for (action, name) in given_out_by(action, name) {
            if self.could(action, &name).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// By which rights else what is at a name is given out: what is in the folder of a film with that,
/// a file that is compressed as the plain one, subtitles with each film that they may be of.
/// Whoever may download subtitles has read them.
fn given_out_by(action: Action, name: &str) -> Vec<(Action, String)> {
    let mut names = Vec::new();
    match action {
        Action::Download => {
            let codings = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
            let plain = codings.iter().find_map(|it| name.strip_suffix(it.ending()));
            names.extend(plain.map(|plain| (action, plain.to_owned())));
        }
        Action::Play => {
            names.extend(film_of(name).map(|film| (action, film.to_owned())));
            let films = films_of(name);
            if !films.is_empty() {
                names.push((Action::Download, name.to_owned()));
            }
            names.extend(films.into_iter().map(|film| (action, film)));
        }
        _ => {}
    }
    names
}

/// The film of several files that a file is one of, if it lies in the folder of one.
fn film_of(name: &str) -> Option<&str> {
    let (folder, _) = name.rsplit_once('/')?;
    (is_of_several(folder) && !folder.ends_with(".json")).then_some(folder)
}
