//! `onrush-lab bench paths`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use onrush_measure::experiment::Keep;
use onrush_measure::model::beside;
use onrush_measure::paths::{self, PathsRecord, Settings, Transport};

use crate::beside::Predicted;
use crate::frame::{Counters, Output, VERSION, bar_of_parts, settings};
use onrush_cli::units::Size;

/// CPU to move a file by each data path
///
/// Sends a file once by every path of the catalogue, turn about on one processor, in packets of 256
/// bytes to 8 KB: over UDP to a sink that counts, where the device cuts trains (uso) or the kernel
/// does (software-gso), and over TCP to a receiver that drains. Prints the table of Halvorsen,
/// Dalseng and Griwodz with our columns, and their claims beside what was measured; warm, and with
/// nothing of the file in the page cache. Takes an hour or two; --warm a third of it, --quick less
/// than a minute. Needs root and two processors.
#[derive(Args, Debug)]
pub(crate) struct Paths {
    /// A smaller file, three sizes of packets, three runs
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    counters: Counters,

    /// Only this path; may be given several times
    #[arg(long = "path", value_name = "NAME")]
    paths: Vec<onrush_paths::Name>,

    /// Bytes of the file, 1MiB to 4GiB [default: 256MiB; quick: 32MiB]
    ///
    /// The paper's was 1 GB: --file-size 1GiB. Images of it must fit in memory beside it.
    #[arg(long, alias = "size", value_name = "SIZE")]
    file_size: Option<Size>,

    /// What is done to each packet on its way: none, checksum, filter, encrypt
    ///
    /// Several are compared: --touch none,checksum,encrypt. A checksum (CRC-32) reads all of a
    /// packet; a filter reads a byte of each 64 and marks it; encryption (AES-128, counter mode)
    /// changes all. Paths that the data does not come by in user space have the file mapped, to
    /// read it; those that send the file's own pages cannot change them, and say so. Packets of
    /// each path are then compared with the file, byte for byte, before each run.
    #[arg(long = "touch", value_name = "TOUCH", value_delimiter = ',')]
    touches: Vec<onrush_paths::Touch>,

    /// Also with nothing of the file in memory, where --quick leaves that out
    #[arg(long, conflicts_with = "warm")]
    cold: bool,

    /// Only with the file in memory
    #[arg(long)]
    warm: bool,

    /// Runs of each [default: 10; quick: 3]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,

    /// Bytes of a packet, RTP header included; may be given several times
    #[arg(long = "packet", value_name = "BYTES")]
    packets: Vec<u32>,

    /// Only over this transport: uso, software-gso or tcp
    #[arg(long, alias = "road", value_name = "TRANSPORT")]
    transport: Option<Transport>,

    /// Make the device copy behind the paths' backs, to see the runs turn void
    #[arg(long, hide = true)]
    plant_copies: bool,

    /// Change a byte of packets that are compared with the file, to see the runs turn void
    #[arg(long, hide = true)]
    plant_byte: bool,

    #[command(flatten)]
    predicted: Predicted,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Paths, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let predicted = arguments.predicted.model()?;
    let report = |record: &PathsRecord| {
        let mut report = paths::report(record);
        report.add(predicted.told(|model| beside::paths(record, model)));
        report
    };
    let mut settings = arguments.settings();
    settings.counters = arguments.counters.are_asked()?;
    let measure = |command: &str, keep: Keep<'_, _, _>| {
        paths::run(&settings, VERSION, command, bar_of_parts(), keep)
    };
    let output = &arguments.output;
    output.of_long(paths::NAME, measure, report, out)
}

impl Paths {
    fn settings(&self) -> Settings {
        let mut settings = settings(self.quick, Settings::quick, Settings::full);
        settings.file_bytes = self.file_size.map_or(settings.file_bytes, |size| size.0);
        settings.repeats = self.repeats.unwrap_or(settings.repeats);
        settings.cold = (settings.cold || self.cold) && !self.warm;
        settings.planted_copies = self.plant_copies;
        settings.planted_byte = self.plant_byte;
        let touches = self.touches.iter().map(|touch| touch.name().to_owned());
        settings.touches = touches.collect();
        if !self.paths.is_empty() {
            let names = self.paths.iter().map(|name| name.as_str().to_owned());
            settings.paths = names.collect();
        }
        if !self.packets.is_empty() {
            settings.packet_bytes.clone_from(&self.packets);
        }
        settings.transports = self.transport.map_or(settings.transports, |one| vec![one]);
        settings
    }
}
