//! Every target with its seeds, and with changed copies of them, on the stable compiler. What
//! follows is decided by a seed, so a failure repeats.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use onrush_fuzz_targets::random::Random;
use onrush_fuzz_targets::{TARGETS, Target, depacketizers, target};

/// Changed inputs of each target, unless `ONRUSH_FUZZ_RUNS` says how many.
const RUNS: u64 = 1500;

/// Of groups only one in so many is changed and run: the kernel takes a group's programs and rings
/// apart in milliseconds, in which nothing is computed.
const GROUP_RUNS_EACH: u64 = 10;

/// Changes of one input, at the most.
const CHANGES_MAX: u64 = 6;

/// Bytes of all seeds, which are in the tree.
const SEEDS_BYTES_MAX: usize = 340 << 10;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz")
        .join(name)
}

fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder).expect("each target has inputs");
    let mut inputs: Vec<_> = files
        .map(|entry| {
            let path = entry.expect("inputs can be listed").path();
            let input = fs::read(&path).expect("inputs can be read");
            (path, input)
        })
        .collect();
    inputs.sort();
    inputs
}

fn seeds(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    inputs(&folder("seeds").join(target.name))
}

/// What fuzzing has found of inputs that reach something new (`fuzz/keep`).
fn learned(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let name = target.name;
    let process = std::process::id();
    let place = std::env::temp_dir().join(format!("onrush-learned-{name}-{process}"));
    fs::create_dir(&place).expect("there is room for inputs");
    let mut tar = Command::new("tar");
    tar.arg("-xJf")
        .arg(folder("learned").join(format!("{name}.tar.xz")));
    let status = tar
        .arg("-C")
        .arg(&place)
        .status()
        .expect("tar is installed");
    assert!(status.success(), "{tar:?}: are xz-utils installed?");
    let learned = inputs(&place);
    fs::remove_dir_all(&place).expect("inputs can be removed");
    learned
}

/// Gives an input to a target. One that breaks a promise is kept, and how to repeat it is said.
fn run(target: &Target, input: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok() {
        return;
    }
    let folder = std::env::temp_dir();
    let path = folder.join(format!(
        "onrush-fuzz-{}-{}",
        target.name,
        std::process::id()
    ));
    fs::write(&path, input).expect("a finding can be kept");
    let (name, path) = (target.name, path.display());
    panic!("{what}; repeat it: cargo run -p onrush-fuzz-targets -- {name} {path}");
}

fn replay(name: &str) {
    let target = target(name).expect("the target exists");
    let seeds = seeds(target);
    assert!(!seeds.is_empty());
    let learned = learned(target);
    assert!(!learned.is_empty(), "fuzz/keep has kept some");
    for (path, input) in seeds.iter().chain(&learned) {
        run(target, input, &path.display().to_string());
    }
    let runs = std::env::var("ONRUSH_FUZZ_RUNS").ok();
    let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let each = if name == "group" { GROUP_RUNS_EACH } else { 1 };
    for number in 0..runs / each {
        let mut random = Random::new(number);
        let mut input = random.pick(&seeds).1.clone();
        for _ in 0..=random.below(CHANGES_MAX) {
            (target.mutate)(&mut input, &mut random);
        }
        run(target, &input, &format!("changed input {number}"));
    }
}

// SPECIFICATION.md: 28
#[test]
fn mp4_keeps_its_promises() {
    replay("mp4");
}

fn boxed(name: &[u8; 4], inside: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(inside.len() + 8).expect("it is small");
    [&bytes.to_be_bytes(), &name[..], inside].concat()
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_be_bytes()).collect()
}

/// An MP4 file of so many pictures of H.264 that are one and the same, of 1024 NAL units.
fn again_and_again(count: u32) -> Vec<u8> {
    let nal_units = [
        &[0_u8, 0, 0, 4, 0x65, 1, 2, 3][..],
        &[0, 0, 0, 20],
        &[0x65; 20],
    ]
    .concat();
    let picture = nal_units.repeat(512);
    let bytes = u32::try_from(picture.len()).expect("it is small");
    let configuration = boxed(b"avcC", &[1, 0x42, 0xc0, 0x0d, 0xff, 0xe0, 0]);
    let entry = [&[0_u8, 0, 0, 0, 0, 0, 0, 1][..], &[0; 70], &configuration].concat();
    let stsd = [numbers(&[0, 1]), boxed(b"avc3", &entry)].concat();
    let matrix = [1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30];
    let tkhd = [
        &[7_u32, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
        &matrix,
        &[320 << 16, 180 << 16],
    ]
    .concat();
    let vide = u32::from_be_bytes(*b"vide");
    let movie = |at: u32| {
        let places = vec![at; count as usize];
        let stbl = [
            boxed(b"stsd", &stsd),
            boxed(b"stts", &numbers(&[0, 1, count, 40])),
            boxed(b"stsc", &numbers(&[0, 1, 1, 1, 1])),
            boxed(b"stsz", &numbers(&[0, bytes, count])),
            boxed(b"stco", &[numbers(&[0, count]), numbers(&places)].concat()),
        ];
        let minf = boxed(b"minf", &boxed(b"stbl", &stbl.concat()));
        let mdhd = boxed(b"mdhd", &numbers(&[0, 0, 0, 1000, 0, 0]));
        let hdlr = boxed(b"hdlr", &numbers(&[0, 0, vide, 0, 0, 0]));
        let mdia = boxed(b"mdia", &[mdhd, hdlr, minf].concat());
        let trak = [boxed(b"tkhd", &numbers(&tkhd)), mdia].concat();
        boxed(b"moov", &boxed(b"trak", &trak))
    };
    let at = u32::try_from(movie(0).len() + 8).expect("it is small");
    [movie(at), boxed(b"mdat", &picture)].concat()
}

/// Samples that lie over each other take four bytes each of a table, whatever is in them.
#[test]
fn mp4_keeps_its_promises_of_samples_over_each_other() {
    let film = again_and_again(20_000);
    assert!(film.len() < 100 << 10, "{}", film.len());
    run(target("mp4").unwrap(), &film, "samples over each other");
}

#[test]
fn matroska_keeps_its_promises() {
    replay("matroska");
}

#[test]
fn transport_streams_keep_their_promises() {
    replay("ts");
}

#[test]
fn subtitles_keep_their_promises() {
    replay("subtitles");
}

#[test]
fn packetizers_keep_their_promises() {
    replay("packetizers");
}

#[test]
fn depacketizers_keep_their_promises() {
    replay("depacketizers");
}

/// Unchanged, what comes is understood, where it is of a format that is cut.
#[test]
fn seeds_of_depacketizers_make_parts() {
    let mut understood = Vec::new();
    for (path, seed) in seeds(target("depacketizers").unwrap()) {
        if depacketizers::parts(&seed) > 0 {
            understood.push(path.file_name().unwrap().to_owned());
        }
    }
    assert_eq!(
        understood,
        ["av1", "h264_aac", "h264_long", "h265_opus", "mp2t", "vp9"]
    );
}

#[test]
fn rtsp_keeps_its_promises() {
    replay("rtsp");
}

#[test]
fn what_servers_send_keeps_its_promises() {
    replay("incoming");
}

#[test]
fn http_keeps_its_promises() {
    replay("http");
}

#[test]
fn ftp_keeps_its_promises() {
    replay("ftp");
}

#[test]
fn mikey_keeps_its_promises() {
    replay("mikey");
}

#[test]
fn rtcp_keeps_its_promises() {
    replay("rtcp");
}

#[test]
fn auth_keeps_its_promises() {
    replay("auth");
}

#[test]
fn sdp_keeps_its_promises() {
    replay("sdp");
}

#[test]
fn tls_keeps_its_promises() {
    replay("tls");
}

#[test]
fn saved_indexes_keep_their_promises() {
    replay("saved");
}

#[test]
fn nodes_of_a_cluster_keep_their_promises() {
    replay("cluster");
}

#[test]
fn configurations_keep_their_promises() {
    replay("config");
}

#[test]
fn a_store_keeps_its_promises() {
    replay("store");
}

#[test]
fn locks_keep_their_promises() {
    replay("lock");
}

#[test]
fn groups_keep_their_promises() {
    replay("group");
}

#[test]
fn seeds_are_small() {
    let bytes = TARGETS.iter().flat_map(seeds).map(|(_, seed)| seed.len());
    let bytes: usize = bytes.sum();
    assert!(bytes <= SEEDS_BYTES_MAX, "{bytes} bytes of seeds");
}

/// What a target would do with a film, if it broke a promise: the finding is kept and told.
#[test]
fn a_finding_is_kept_and_told() {
    let broken = Target {
        name: "broken",
        run: |input| assert!(!input.contains(&b'x'), "a promise"),
        mutate: |_, _| {},
    };
    run(&broken, b"abc", "fine");
    let found = catch_unwind(|| run(&broken, b"axc", "it has an x"));
    let told = found.expect_err("it is found");
    let told = told.downcast_ref::<String>().expect("it is told in words");
    let (what, path) = told.split_once("-- broken ").expect("how to repeat it");
    assert!(what.starts_with("it has an x; repeat it: "));
    assert_eq!(fs::read(path).expect("it is kept"), b"axc");
    fs::remove_file(path).expect("it is ours");
}
