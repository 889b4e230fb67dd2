//! Every path counts its entries into the kernel truly: as many as a tracer sees.

use std::fs;
use std::process::Command;

use onrush_sys::path::catalogue::Name;
use onrush_testkit::require_programs;

#[test]
fn every_path_enters_the_kernel_as_often_as_it_says() {
    require_programs!("strace");
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    // Cargo builds examples before it runs tests, beside them.
    let mut example = std::env::current_exe().unwrap();
    example.pop();
    example.pop();
    let example = example.join("examples/count_crossings");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(&trace).arg(&example);
    let output = strace.output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");

    let trace = fs::read_to_string(trace).unwrap();
    let sends = sends(&trace);
    let over = |takes: fn(Name) -> bool| Name::ALL.into_iter().filter(|name| takes(*name)).count();
    let expected = over(Name::takes_udp) + over(Name::takes_tcp);
    assert_eq!(sends.len(), expected, "{trace}");
    for Send {
        name,
        counted,
        seen,
    } in sends
    {
        assert_eq!(counted, seen.len(), "{name}: {seen:#?}");
        assert!(counted > 0, "{name}");
    }
}

/// What the tracer saw of one send.
struct Send<'a> {
    name: &'a str,
    /// What the path said.
    counted: usize,
    /// The calls of its thread.
    seen: Vec<&'a str>,
}

fn sends(trace: &str) -> Vec<Send<'_>> {
    let mut sends = Vec::new();
    let mut lines = trace.lines();
    while let Some(line) = lines.next() {
        let Some(name) = mark(line, "\"/begin ") else {
            continue;
        };
        let thread = line.split(' ').next().unwrap();
        let mut seen = Vec::new();
        let counted = loop {
            let line = lines.next().expect("what begins ends");
            if let Some(end) = mark(line, "\"/end ") {
                let (ended, counted) = end.rsplit_once(' ').unwrap();
                assert_eq!(ended, name);
                break counted.parse().unwrap();
            }
            let (who, call) = line.split_once(' ').unwrap();
            let call = call.trim_start();
            // A call that others interrupt has two lines; signals are none.
            if who == thread && !call.starts_with(['<', '-', '+']) {
                seen.push(call);
            }
        };
        sends.push(Send {
            name,
            counted,
            seen,
        });
    }
    sends
}

/// What stands in the line between `begin` and the end of the string.
fn mark<'a>(line: &'a str, begin: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(begin)?;
    rest.split('"').next()
}
