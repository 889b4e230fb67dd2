//! Which report a record has: the one table of all experiments.

use super::{ReportError, legacy};
use crate::experiment::AnyRecord;
use crate::group;
use crate::table::Report;

/// What a record says.
///
/// # Errors
///
/// If it is of no experiment that is known, or not as this program writes it.
pub fn of(record: &AnyRecord) -> Result<Report, ReportError> {
    let told = match record.experiment.as_str() {
        group::NAME => record.typed().map(|record| group::report(&record)),
        _ => match legacy::of(record) {
            Some(told) => told,
            None => {
                return Err(ReportError::Unknown {
                    experiment: record.experiment.clone(),
                    version: record.environment.version.clone(),
                });
            }
        },
    };
    told.map_err(|source| ReportError::Fields {
        experiment: record.experiment.clone(),
        version: record.environment.version.clone(),
        source,
    })
}
