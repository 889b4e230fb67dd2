//! What an experiment has measured, beside what the model says of it from probes of the same
//! session.

use std::collections::BTreeMap;

use onrush_paths::{Name, Touch};
use onrush_testkit::testbed::Mode;

use super::check::{self, Checked};
use super::cost::Costs;
use super::formula::{Formula, Load, NotPredicted, group, over_loopback};
use super::probe::ModelRecord;
use crate::cue::{self, Contestant, CueRecord};
use crate::group::{Change, GroupRecord, Run as AnyGroupRun, SENDGRP};
use crate::paths::{MTU_PACKET_BYTES, PathsRecord, Sample, Transport};
use crate::stats::{ratio, to_f64};

/// Formulas and samples of what is the same, in the order of names; whether software cuts trains.
#[derive(Default)]
struct Samples(BTreeMap<(String, bool), (Predicted, Vec<f64>)>);

type Predicted = Result<Formula, NotPredicted>;

impl Samples {
    fn add(
        &mut self,
        (what, is_software): (String, bool),
        formula: impl FnOnce() -> Predicted,
        cost_ns: f64,
    ) {
        let kept = self.0.entry((what, is_software));
        let (_, costs) = kept.or_insert_with(|| (formula(), Vec::new()));
        costs.push(cost_ns);
    }

    fn checked(self, model: &ModelRecord) -> Vec<Checked> {
        let modes = [Mode::Uso, Mode::SoftwareGso];
        let costs = modes.map(|mode| Costs::of(model, mode));
        let of = |((what, is_software), (formula, samples)): (_, (_, Vec<f64>))| {
            let which = usize::from(is_software);
            let (mode, costs) = (modes[which], costs[which].as_ref());
            let samples = (samples.as_slice(), "no run counts".to_owned());
            Checked::new(what, mode, formula, costs, samples)
        };
        self.0.into_iter().map(of).collect()
    }
}

/// Each path of `onrush-lab bench paths`, by packets that fit a frame, from a file in memory: ns a
/// packet.
#[must_use]
pub fn paths(record: &PathsRecord, model: &ModelRecord) -> Vec<Checked> {
    let mut samples = Samples::default();
    for sample in &record.runs {
        let Sample::Path(run) = sample else { continue };
        let is_whole = run.packet_bytes <= MTU_PACKET_BYTES;
        let Ok(name) = run.path.parse::<Name>() else {
            continue;
        };
        let is_tcp = run.transport == Transport::Tcp;
        let is_plain = !run.is_cold && run.touch == Touch::None.name();
        if !is_whole || !is_plain || !run.void.is_empty() {
            continue;
        }
        let key = (
            format!("{}, {} B", check::shown(name, is_tcp), run.packet_bytes),
            run.transport == Transport::SoftwareGso,
        );
        let formula = || check::of_path(name, is_tcp, run.packet_bytes);
        let cost_ns = ratio(run.sender_cost_ns(), run.packets);
        samples.add(key, formula, cost_ns);
    }
    samples.checked(model)
}

/// Each way of `onrush-lab bench group`, of groups that are not replaced: ns a packet and member.
#[must_use]
pub fn groups(record: &GroupRecord, model: &ModelRecord) -> Vec<Checked> {
    let mut samples = Samples::default();
    for run in &record.runs {
        let AnyGroupRun::Group(run) = run else {
            continue;
        };
        // To one member a group is a socket.
        // By `SO_SETSENDGRP` another program clones than the one that is probed.
        let is_other = run.members < 2 || run.way == SENDGRP;
        if run.change != Change::None || is_other || !run.void.is_empty() {
            continue;
        }
        let load = Load {
            payload_bytes: to_f64(run.load.bytes),
            header_bytes: 0.0,
            burst_packets: to_f64(run.load.packets),
        };
        let what = format!("{}, {} to {}", run.way, run.load.told(), run.members);
        let key = (what, run.mode == Mode::SoftwareGso);
        let cost_ns = run.cpu_ns / to_f64(run.load.packets) / f64::from(run.members);
        samples.add(key, || group(&run.way, &load), cost_ns);
    }
    samples.checked(model)
}

/// Cue and a bare `sendfile` of `onrush-lab bench cue`, over loopback, while nobody reads: ns for
/// 1472 bytes.
#[must_use]
pub fn cues(record: &CueRecord, model: &ModelRecord) -> Vec<Checked> {
    let mut samples = Samples::default();
    let bytes = f64::from(MTU_PACKET_BYTES);
    for run in &record.runs {
        let (shown, name) = match run.cell.contestant {
            Contestant::SendfileLoop => ("sendfile loop", "sendfile_tcp"),
            Contestant::Fair => ("cue, fair", "cue"),
            Contestant::Adaptive => ("cue, adaptive", "cue"),
            _ => continue,
        };
        let received: u64 = run.received_bytes.iter().sum();
        if run.cell.set != cue::Set::Held || run.void.is_some() || received == 0 {
            continue;
        }
        let load = Load {
            payload_bytes: bytes,
            header_bytes: 0.0,
            burst_packets: f64::INFINITY,
        };
        let cost_ns = ratio(run.cpu_ns, received) * bytes;
        samples.add(
            (shown.to_owned(), false),
            || over_loopback(name, &load),
            cost_ns,
        );
    }
    samples.checked(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::group::{GroupRun, Load as GroupLoad, Settings};
    use crate::model::{self, Of, Probe, Run};

    fn model() -> ModelRecord {
        let here = Environment::here("1", "c");
        let mut record = Record::new(model::NAME, here, model::Settings::default());
        record.runs.extend(Probe::ALL.map(|probe| Run {
            mode: Mode::Uso,
            of: Of::Probe(probe),
            round: 0,
            times: 1,
            cost_ns: if probe == Probe::GroupLong {
                580.0
            } else {
                100.0
            },
            packet_bytes: None,
            void: None,
        }));
        record
    }

    #[test]
    fn a_group_is_predicted_for_each_packet_and_member() {
        let settings = Settings::quick();
        let here = Environment::here("1", "c");
        let mut record = Record::new(crate::group::NAME, here, settings);
        let run = |members, change, void: &str| {
            AnyGroupRun::Group(GroupRun {
                counted: None,
                mode: Mode::Uso,
                way: "kernel".to_owned(),
                load: GroupLoad::new(1, 100),
                members,
                change,
                repeat: 0,
                sends: 10,
                send_ns: 1.0,
                cpu_ns: 440.0,
                crossings: 1.0,
                arrived: 400,
                arrived_skbs: 400,
                clones: 39,
                void: void.to_owned(),
            })
        };
        // What is replaced, void, or to one is left out.
        record.runs = vec![
            run(40, Change::None, ""),
            run(40, Change::All, ""),
            run(40, Change::None, "lost"),
            run(1, Change::None, ""),
        ];
        let found = groups(&record, &model());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "kernel, 100 B to 40");
        // A clone is the slope of 16 to 64 members.
        assert_eq!(found[0].predicted_ns, Ok(10.0));
        assert_eq!(found[0].measured_ns.as_ref().unwrap().median, 11.0);
        assert!(found[0].is_predicted());
    }
}
