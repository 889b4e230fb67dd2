//! The other nodes, as their entries came: what is taken, what is not, and for how long.
//!
//! A registry says nothing when an entry's time is over, and clocks of two machines differ: so an
//! entry lives for its time from when it came, by this node's steady clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onrush_wire::route::Entry;
use onrush_wire::route::entry::NODES_MAX;
use tracing::{info, warn};

use crate::Ignored;

/// What stands in the registry under the keys of others.
#[derive(Debug, Default)]
pub(crate) struct Table {
    all: BTreeMap<String, Known>,
    /// Something is another than it was told last.
    is_new: bool,
    /// That there are too many was said.
    is_full: bool,
}

#[derive(Debug)]
struct Known {
    heard: Instant,
    entry: Result<Arc<Entry>, String>,
}

impl Table {
    /// An entry came.
    pub(crate) fn put(&mut self, key: &str, value: &[u8], now: Instant) {
        let entry = Entry::parse(key, value).map_err(|error| error.to_string());
        let before = self.all.get(key).map(|known| &known.entry);
        if before.is_none() && self.all.len() >= NODES_MAX {
            if !std::mem::replace(&mut self.is_full, true) {
                warn!("cluster: {key:?} and whoever follows: {NODES_MAX} nodes are the most");
            }
            return;
        }
        let was_taken = before.map(Result::is_ok);
        match (&entry, was_taken) {
            (Ok(_), Some(true)) => {}
            (Ok(entry), _) => info!("cluster: node {key} is there, version {}", entry.software),
            (Err(reason), _) => {
                let is_told = matches!(before, Some(Err(told)) if told == reason);
                if !is_told {
                    warn!("cluster: the registry's entry {key:?} is ignored: {reason}");
                }
            }
        }
        let entry = entry.map(Arc::new);
        let known = Known { heard: now, entry };
        self.all.insert(key.to_owned(), known);
        self.is_new = true;
    }

    /// An entry was removed.
    pub(crate) fn remove(&mut self, key: &str) {
        if self.all.remove(key).is_some() {
            info!("cluster: node {key} has left");
            self.is_new = true;
            self.is_full = false;
        }
    }

    /// Forgets those that were not heard of for so long.
    pub(crate) fn expire(&mut self, now: Instant, time_to_live: Duration) {
        let before = self.all.len();
        self.all.retain(|key, known| {
            let is_alive = now.saturating_duration_since(known.heard) < time_to_live;
            if !is_alive {
                warn!("cluster: nothing was heard of node {key} for {time_to_live:?}: it is gone");
            }
            is_alive
        });
        if self.all.len() < before {
            self.is_new = true;
            self.is_full = false;
        }
    }

    /// Has all be told again.
    pub(crate) fn renew(&mut self) {
        self.is_new = true;
    }

    /// What is to be told, if it is another than before.
    pub(crate) fn news(&mut self) -> Option<(Vec<Arc<Entry>>, Vec<Ignored>)> {
        std::mem::take(&mut self.is_new).then(|| {
            let mut others = Vec::with_capacity(self.all.len());
            let mut ignored = Vec::new();
            for (key, known) in &self.all {
                match &known.entry {
                    Ok(entry) => others.push(Arc::clone(entry)),
                    Err(reason) => ignored.push(Ignored {
                        key: key.clone(),
                        reason: reason.clone(),
                    }),
                }
            }
            (others, ignored)
        })
    }

    /// Whether anything stands under `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.all.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use onrush_wire::route::entry::ENTRY_FORMAT;

    use super::*;

    const LIFE: Duration = Duration::from_secs(15);

    fn entry(node: &str) -> Vec<u8> {
        let entry = Entry {
            format: ENTRY_FORMAT,
            node: node.to_owned(),
            capacity_bps: 1,
            ..Entry::default()
        };
        entry.to_bytes()
    }

    fn names(table: &mut Table) -> Option<Vec<String>> {
        let (others, _) = table.news()?;
        Some(others.iter().map(|it| it.node.clone()).collect())
    }

    #[test]
    fn nodes_come_go_and_are_told_once() {
        let (mut table, now) = (Table::default(), Instant::now());
        assert_eq!(names(&mut table), None);
        table.put("b", &entry("b"), now);
        table.put("a", &entry("a"), now);
        assert_eq!(names(&mut table), Some(vec!["a".into(), "b".into()]));
        assert_eq!(names(&mut table), None);
        table.remove("a");
        table.remove("never there");
        assert_eq!(names(&mut table), Some(vec!["b".into()]));
        assert!(table.has("b") && !table.has("a"));
    }

    #[test]
    fn who_says_nothing_is_gone_after_its_time() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.put("a", &entry("a"), now);
        table.put("b", &entry("b"), now + Duration::from_secs(1));
        names(&mut table);
        let nearly = now + LIFE - Duration::from_nanos(1);
        table.expire(nearly, LIFE);
        assert_eq!(names(&mut table), None);
        table.expire(now + LIFE, LIFE);
        assert_eq!(names(&mut table), Some(vec!["b".into()]));
    }

    #[test]
    fn what_is_no_entry_is_ignored_until_it_is_one() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.put("a", b"nonsense", now);
        table.put("b", &entry("a"), now);
        let (others, ignored) = table.news().unwrap();
        assert!(others.is_empty());
        assert_eq!(ignored.len(), 2);
        assert!(ignored[1].reason.contains("under another key"));
        table.put("a", &entry("a"), now);
        assert_eq!(names(&mut table), Some(vec!["a".into()]));
    }

    #[test]
    fn nodes_beyond_the_most_are_ignored() {
        let (mut table, now) = (Table::default(), Instant::now());
        for i in 0..=NODES_MAX {
            let name = format!("node-{i:05}");
            table.put(&name, &entry(&name), now);
        }
        assert_eq!(names(&mut table).unwrap().len(), NODES_MAX);
        // Those who are there are heard.
        table.put("node-00000", b"nonsense", now);
        assert_eq!(names(&mut table).unwrap().len(), NODES_MAX - 1);
        table.remove("node-00000");
        table.put("late", &entry("late"), now);
        assert_eq!(names(&mut table).unwrap().len(), NODES_MAX);
    }
}
