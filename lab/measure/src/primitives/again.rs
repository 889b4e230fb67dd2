//! This program once more, as a process of its own, for a figure that is another one in each
//! process.

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use super::cpu::{NullCalls, THREADS_OF_PROCESS};
use super::method::Method;
use super::{MeasureError, Settings, WAIT_MAX};

/// What starts this program so that it calls [`null_calls`] and prints what that returns. Behind it
/// come the nanoseconds of a tick, `--quick` and `--system-clock`.
pub type Again = Vec<OsString>;

/// What system calls that do nothing took on some threads of this process, as JSON for who has
/// started it and knows, perhaps, the nanoseconds of a tick.
///
/// # Errors
///
/// If nothing can be measured.
pub fn null_calls(settings: &Settings, ns_per_tick: Option<f64>) -> Result<String, MeasureError> {
    let known = ns_per_tick.filter(|ns| ns.is_finite() && *ns > 0.0);
    let method = Method::without_basics(settings, known)?;
    let calls = NullCalls::on_threads(&method, THREADS_OF_PROCESS);
    serde_json::to_string(&calls).map_err(|_| MeasureError::Failed)
}

/// What the program prints. One that does not end in time is killed.
pub(super) fn output(again: &Again, settings: &Settings, ns_per_tick: f64) -> io::Result<Vec<u8>> {
    let (program, arguments) = again.split_first().ok_or(io::ErrorKind::NotFound)?;
    let flags = [
        (settings.quick, "--quick"),
        (settings.system_clock, "--system-clock"),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
    let mut child = Command::new(program)
        .args(arguments)
        .arg(ns_per_tick.to_string())
        .args(flags.map(|(_, flag)| flag))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut printed = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (tell, told) = channel();
    let reads = thread::Builder::new().spawn(move || {
        let mut all = Vec::new();
        // Nobody listens any more if it took too long.
        tell.send(printed.read_to_end(&mut all).map(|_| all)).ok();
    });
    let all = reads.map(|_reader| told.recv_timeout(WAIT_MAX));
    if !matches!(all, Ok(Ok(_))) {
        child.kill().ok();
    }
    let is_good = child.wait()?.success();
    match all? {
        Ok(all) if is_good => all,
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Again {
        ["sh", "-c", script].map(OsString::from).to_vec()
    }

    #[test]
    fn what_a_program_prints_is_had_if_it_ends_well() {
        let settings = Settings {
            system_clock: true,
            ..Settings::quick()
        };
        let of = |again: &Again| output(again, &settings, 0.5);
        let printed = of(&shell("echo $0 $1 $2")).unwrap();
        assert_eq!(printed, b"0.5 --quick --system-clock\n");
        assert!(of(&shell("echo x; exit 1")).is_err());
        assert!(of(&vec!["/no/such/program".into()]).is_err());
        assert!(of(&Again::new()).is_err());
    }

    #[test]
    fn a_process_tells_of_each_of_its_threads() {
        let settings = Settings::quick();
        // On a thread of its own, which it binds to a processor.
        let json = thread::spawn(move || null_calls(&settings, None).unwrap());
        let calls: serde_json::Value = serde_json::from_str(&json.join().unwrap()).unwrap();
        for figures in ["getpid_ns", "getppid_ns", "getppid_cycles"] {
            let figures = calls[figures].as_array().unwrap();
            assert_eq!(figures.len(), usize::from(THREADS_OF_PROCESS));
            assert!(figures.iter().all(|figure| figure.as_f64().unwrap() > 0.0));
        }
    }
}
