//! Which report a record has: the one table of all experiments.

use serde::de::DeserializeOwned;

use super::{ReportError, model as model_report, primitives as primitives_report};
use crate::capacity::soak;
use crate::experiment::{AnyRecord, Record};
use crate::load::hls_report::hls_report;
use crate::load::http_report::http_report;
use crate::lock::{caches, reliability, reuse};
use crate::table::Report;
use crate::{
    capacity, cluster, cue, game, group, http, load, lock, mechanisms, model, paths, primitives,
    relay, serve, simulate, trains,
};

/// What a record says.
///
/// # Errors
///
/// If it is of no experiment that is known, or not as this program writes it.
pub fn of(record: &AnyRecord) -> Result<Report, ReportError> {
    let told = match record.experiment.as_str() {
        caches::NAME => told(record, caches::report),
        capacity::NAME => told(record, capacity::report),
        cluster::NAME => told(record, cluster::report),
        cue::NAME => told(record, cue::report),
        cue::scan::NAME => told(record, cue::scan::report),
        game::NAME => told(record, game::report),
        group::NAME => told(record, group::report),
        http::NAME => told(record, http::report),
        load::NAME => told(record, load::report::report),
        load::hls::NAME => told(record, hls_report),
        load::http::NAME => told(record, http_report),
        lock::NAME => told(record, lock::report),
        mechanisms::NAME => told(record, mechanisms::report),
        model::NAME => told(record, model_report::report),
        paths::NAME => told(record, paths::report),
        primitives::NAME => told(record, primitives_report::report),
        relay::NAME => told(record, relay::report),
        reliability::NAME => told(record, reliability::report),
        reuse::NAME => told(record, reuse::report),
        serve::NAME => told(record, serve::report),
        simulate::NAME => told(record, simulate::report),
        trains::NAME => told(record, trains::report),
        soak::NAME => told(record, capacity::soak_report),
        _ => {
            return Err(ReportError::Unknown {
                experiment: record.experiment.clone(),
                version: record.environment.version.clone(),
            });
        }
    };
    told.map_err(|source| ReportError::Fields {
        experiment: record.experiment.clone(),
        version: record.environment.version.clone(),
        source,
    })
}

fn told<S: DeserializeOwned, R: DeserializeOwned>(
    record: &AnyRecord,
    report: fn(&Record<S, R>) -> Report,
) -> serde_json::Result<Report> {
    record.typed().map(|record| report(&record))
}
