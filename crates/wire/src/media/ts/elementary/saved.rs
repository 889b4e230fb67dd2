//! What is saved of the index of a transport stream's elementary streams: tables of samples, and
//! how packets carry them.

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::carried::{Carried, Form};
use crate::media::sampled::{Carriage, SampledIndex, saved};
use crate::media::ts::index::{SyncRun, probe_at};
use crate::media::ts::saved::packets_of;

/// The index, as it is saved.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::media) struct SavedIndex {
    /// Where in the file packets are.
    runs: Vec<SyncRun>,
    /// Of each track the pid of its stream, and what its samples are of that.
    streams: Vec<(u16, Form)>,
    /// Where remembered packets begin, and what their bytes amount to.
    packets: Vec<(u64, u32)>,
    tables: saved::SavedIndex,
}

impl SavedIndex {
    /// What is saved of `index`; `None` if it is of something else, or not all of the file is
    /// known.
    pub(in crate::media) fn of(index: &SampledIndex) -> Option<Self> {
        let carried = index.sampled.iter().map(|track| {
            let carriage: &dyn Any = track.carriage.as_deref()?;
            carriage.downcast_ref::<Carried>()
        });
        let carried: Vec<_> = carried.collect::<Option<_>>()?;
        let probes = index.probes.iter();
        Some(Self {
            packets: probes.map(|it| (it.part.start, it.sampled)).collect(),
            runs: carried.first()?.runs.to_vec(),
            streams: carried.iter().map(|it| (it.pid, it.form)).collect(),
            tables: saved::SavedIndex::of_tables(index)?,
        })
    }

    /// The index.
    ///
    /// # Errors
    ///
    /// What is wrong with it: it is not what [`Self::of`] has made.
    pub(in crate::media) fn index(self) -> Result<SampledIndex, String> {
        packets_of(&self.runs, u64::MAX).ok_or("runs of packets that no file has")?;
        let runs: Arc<[SyncRun]> = self.runs.into();
        let carriages = self.streams.into_iter().map(|(pid, form)| {
            let runs = Arc::clone(&runs);
            let carriage: Arc<dyn Carriage> = Arc::new(Carried { pid, runs, form });
            carriage
        });
        let mut index = self.tables.carried_by(carriages.collect())?;
        let packets = self.packets.into_iter();
        let probes = packets.map(|(offset, sampled)| probe_at(offset, sampled));
        index.probes = probes.collect();
        Ok(index)
    }
}
