//! The live channels, as the API lists them: where each comes from, and who publishes it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::Site;
use crate::channels::published::{IngestSource, PublishedChannel};

#[derive(Default, Serialize)]
pub(super) struct Channels {
    channels: Vec<ChannelRow>,
}

#[derive(Default, Serialize)]
pub(super) struct ChannelRow {
    path: String,
    kind: &'static str,
    source: Option<String>,
    error: Option<String>,
    active: Option<String>,
    standby: Option<String>,
    switches: u64,
}

pub(super) async fn channels(State(site): State<Arc<Site>>) -> Json<Channels> {
    let watched = &site.watched;
    let inputs = watched.channels.iter().map(|channel| ChannelRow {
        path: format!("live/{}", channel.name()),
        kind: "input",
        source: Some(channel.input().to_string()),
        ..ChannelRow::default()
    });
    let published = watched.published.all();
    let pulled = watched.published.pulled();
    let of_pulls = pulled.iter().map(|state| ChannelRow {
        path: state.path().to_owned(),
        kind: "pulled",
        source: Some(state.source()),
        error: state.error(),
        ..publishers(published.iter().find(|it| it.path() == state.path()))
    });
    let is_pulled = |path: &str| pulled.iter().any(|state| state.path() == path);
    let of_publishers = published.iter().filter(|it| !is_pulled(it.path()));
    let of_publishers = of_publishers.map(|channel| ChannelRow {
        path: channel.path().to_owned(),
        kind: "published",
        ..publishers(Some(channel))
    });
    Json(Channels {
        channels: inputs.chain(of_pulls).chain(of_publishers).collect(),
    })
}

/// Who publishes a channel, if there is one.
fn publishers(channel: Option<&Arc<PublishedChannel>>) -> ChannelRow {
    let ingests = channel.map(|it| it.ingests()).unwrap_or_default();
    let from = |source: Option<&IngestSource>| source.map(|it| it.from.clone());
    ChannelRow {
        active: from(ingests.active()),
        standby: from(ingests.standby()),
        switches: ingests.switches,
        ..ChannelRow::default()
    }
}
