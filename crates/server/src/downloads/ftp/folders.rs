//! Folders: which one a session is in, and what is listed of one.

use std::io;

use onrush_wire::ftp::{Reply, Rights, Style, names_before, wildcard};
use onrush_wire::http::Entry;
use onrush_wire::name::to_bytes;

use super::connection::{Connection, no_such, not_for_reading, unanswered};
use super::sending::Body;
use crate::downloads::clock::Clock;
use crate::downloads::files::Found;
use crate::downloads::folder;
use crate::downloads::memory::CROWDED;
use crate::library::names_nothing;

impl Connection<'_> {
    /// Makes it the session's folder, if it is one.
    pub(super) async fn change_folder(&mut self, name: String) -> Reply {
        let found = self.find(&name).await;
        let is_folder = match &found {
            Ok(found) => matches!(found, Found::Folder { .. }),
            // Who may store files and not read any has to get to where they go.
            Err(_) => self.takes_files(&name).await,
        };
        match found {
            _ if is_folder => self.session.enter(name),
            Ok(_) => no_such(&name, "folder"),
            Err(reply) => reply,
        }
    }

    /// What is in a folder; of another name what it means, which may be several files.
    pub(super) async fn list(
        &self,
        name: String,
        argument: &str,
        style: Style,
    ) -> Result<Body, Reply> {
        let found = self.find(&name).await?;
        let is_folder = matches!(found, Found::Folder { .. });
        let sought = wildcard(&name).filter(|_| matches!(found, Found::Nothing));
        let (mut entries, is_cut) = match (style, &sought) {
            _ if is_folder => self.entries(&name).await?,
            (Style::Machine(_), _) => {
                return Err(Reply::new(501, "that is no folder; use MLST"));
            }
            (_, None) => (vec![self.entry(&name).await?], false),
            (_, Some((folder, pattern))) => {
                let (mut entries, is_cut) = match self.find(folder).await? {
                    Found::Folder { .. } => self.entries(folder).await?,
                    _ => return Err(no_such(folder, "folder")),
                };
                entries.retain(|entry| pattern.matches(&entry.name));
                if entries.is_empty() && !is_cut {
                    return Err(no_such(&name, "file or folder"));
                }
                (entries, is_cut)
            }
        };
        let count = entries.len();
        // Asked of one of them: who answers may be another server.
        let rights = match (&entries[..], style) {
            ([], _) | (_, Style::Names) => Rights::Read,
            ([first, ..], _) => {
                let folder = match &sought {
                    Some((folder, _)) => Some(*folder),
                    None => is_folder.then_some(&*name),
                };
                match folder {
                    None => self.rights(&name).await,
                    Some("") => self.rights(&first.name).await,
                    Some(folder) => self.rights(&format!("{folder}/{}", first.name)).await,
                }
            }
        };
        let before = match style {
            Style::Names => names_before(&name, argument, is_folder),
            _ => String::new(),
        };
        let now_s = i64::try_from(Clock::now_ms() / 1000).unwrap_or(i64::MAX);
        let write = move || {
            for entry in &mut entries {
                entry.name.insert_str(0, &before);
            }
            to_bytes(&style.write(&entries, now_s, rights)).into_owned()
        };
        let text = folder::written(count, write).await;
        let text = text.map_err(|error| unanswered(&name, &error))?;
        let client = &self.place.share().made_bytes;
        let memory = self.site.made_bytes.of_connection(client);
        let memory = memory.reserve(text.len());
        Ok(Body::Text {
            _memory: memory.ok_or_else(|| Reply::new(450, CROWDED))?,
            text,
            name,
            is_cut,
        })
    }

    /// What is in a folder that may be read, and whether there is more than is looked at.
    async fn entries(&self, name: &str) -> Result<(Vec<Entry>, bool), Reply> {
        let listed = folder::list(&self.site.places, name).await;
        listed.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => not_for_reading(name),
            // It has gone meanwhile.
            _ if names_nothing(&error) => no_such(name, "folder"),
            _ => unanswered(name, &error),
        })
    }
}
