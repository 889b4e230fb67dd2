//! The session in which the probes have their turns, and the paths too if they are to be checked.

use onrush_primitives::map::{Memory, Pages};
use onrush_sys::thread::{allowed_cores, pin_to};
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{Options, RCV_DEVICE, Testbed};

use super::check;
use super::probe::{CHAIN_BYTES, MEMBERS_LONG, ModelRecord, NAME, Of, PORT, Probe, Run, Settings};
use super::turn::Probes;
use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::machine::Awake;
use crate::setup::system;
use crate::stats::to_f64;

/// Probes all terms; about half a second a round and mode. The thread stays pinned.
///
/// # Errors
///
/// If there is no testbed (root makes one), or a probe is not possible here.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64),
) -> Result<ModelRecord, ExperimentError> {
    let mut record = Record::new(NAME, Environment::here(version, command), settings.clone());
    let cores = allowed_cores();
    let core = cores.last().copied().unwrap_or(0);
    let rest = cores.first().copied().unwrap_or(0);
    let mut testbed = Testbed::new(Options::default())?;
    let mut sink = Sink::attach_seldom_looking(
        &testbed.rcv,
        RCV_DEVICE,
        PORT..=PORT + (MEMBERS_LONG - 1),
        64,
    )?;
    let _awake = Awake::keep(core).map_err(system("keep a processor awake"))?;
    pin_to(core).map_err(system("bind to a processor"))?;
    let memory = Memory::map(CHAIN_BYTES, Pages::Huge);
    let mut memory = memory.map_err(system("map memory"))?;
    let mut probes = Probes::new(&testbed, &mut memory, (core, rest))?;
    let rounds = f64::from(settings.rounds) * to_f64(settings.modes.len());
    let mut done = 0.0;
    for round in 0..settings.rounds {
        for &mode in &settings.modes {
            testbed.set_mode(mode)?;
            for probe in Probe::ALL {
                let (times, cost_ns, void) =
                    probes.turn(&testbed, probe, settings.turn_ns, &mut sink)?;
                record.runs.push(Run {
                    mode,
                    of: Of::Probe(probe),
                    round,
                    times,
                    cost_ns,
                    packet_bytes: None,
                    void,
                });
            }
            if settings.check {
                let from = (probes.file(), (core, rest));
                for packet_bytes in settings.each_packet_bytes() {
                    let is_usual = packet_bytes == settings.packet_bytes;
                    let which = (round, packet_bytes, is_usual);
                    check::round(&testbed, &mut sink, from, which, &mut record.runs)?;
                }
            }
            done += 1.0;
            progress(done / rounds);
        }
    }
    Ok(record)
}
