//! `--predict` of `onrush-lab bench`: what the cost model says, beside what was measured.

use std::path::PathBuf;
use std::thread;

use anyhow::anyhow;
use clap::{Args, ValueHint};
use onrush_measure::experiment::Record;
use onrush_measure::model::check::Checked;
use onrush_measure::model::{self, ModelRecord, Settings};
use onrush_measure::report;
use onrush_measure::table::Table;

use crate::predict;

/// Whether to predict, and from what.
#[derive(Args, Clone, Debug)]
pub(crate) struct Predicted {
    /// Put the cost model's prediction beside each figure
    ///
    /// Takes the parts' costs first, as onrush-lab predict does, in half a minute; or from the FILE
    /// that it wrote (--predict=FILE).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, num_args = 0..=1,
          require_equals = true)]
    predict: Option<Option<PathBuf>>,
}

impl Predicted {
    /// The costs of the parts, if they were asked for.
    pub(crate) fn model(&self) -> anyhow::Result<Parts> {
        Ok(Parts(match &self.predict {
            None => None,
            Some(Some(file)) => Some(Record::read(file, model::NAME)?),
            // On a thread of its own, which it binds to a processor.
            Some(None) => thread::scope(|scope| {
                let probes = scope.spawn(|| predict::measure(&Settings::default()));
                probes
                    .join()
                    .map_err(|_| anyhow!("a probe has failed"))?
                    .map(Some)
            })?,
        }))
    }
}

/// What the parts of a path cost, if that was asked for.
pub(crate) struct Parts(Option<ModelRecord>);

impl Parts {
    /// What `beside` makes of them.
    pub(crate) fn told(&self, beside: impl FnOnce(&ModelRecord) -> Vec<Checked>) -> Option<Table> {
        let model = self.0.as_ref()?;
        Some(report::model::checked(&beside(model)))
    }
}
