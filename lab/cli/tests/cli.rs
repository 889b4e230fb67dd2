//! The program as it is typed: its pages, its errors, its exit codes.

use std::fs;
use std::process::{Command, Output};

use onrush_measure::experiment::{Environment, Record};
use onrush_measure::load::{self, Arrived, Run, Settings};
use onrush_testkit::program::{Program, text};

const ONRUSH_LAB: &str = env!("CARGO_BIN_EXE_onrush-lab");
const PROGRAM: Program = Program {
    path: ONRUSH_LAB,
    version: concat!("onrush-lab ", env!("CARGO_PKG_VERSION")),
    commands: &[
        "bench",
        "measure",
        "predict",
        "report",
        "compare",
        "load",
        "choose",
        "completions",
    ],
};

#[test]
fn short_help_fits_a_screen_and_long_help_is_a_manual() {
    PROGRAM.check_help(&["bench serve"]);
}

#[test]
fn what_cannot_run_ends_with_2_and_says_why() {
    PROGRAM.check_refusals(&[
        (&["--no-such"][..], "--no-such"),
        (&["mesure"], "'measure'"),
        (&["bench", "lock", "--from", "none.json"], "none.json"),
        (
            &["bench", "lock", "--reliability", "--plots", "x"],
            "--plots",
        ),
        (&["bench", "serve", "--sessions", "0"], "1 to 8192"),
        (&["bench", "serve", "--rate", "1kbit/s"], "500 kbit/s"),
        (&["bench", "serve", "--mode", "gso"], "software-gso"),
        (&["bench", "serve", "--ways", "sendmmgs"], "sendmmgs"),
        (
            &["bench", "serve", "--ways", "sendmmsg", "--transport", "tcp"],
            "--transport",
        ),
        (&["bench", "serve", "--from", "none.json"], "none.json"),
        (&["bench", "serve", "--from", "none", "--quick"], "--from"),
        (
            &["load", "--from", "none", "--lateness", "99us"],
            "100us to",
        ),
        (
            &["load", "--from", "none", "--lateness", "449901us"],
            "449ms900us",
        ),
        (
            &["load", "--from", "none.json", "--lateness", "100us"],
            "none.json",
        ),
        (
            &["load", "--from", "none.json", "--lateness", "449900us"],
            "none.json",
        ),
        (
            &["predict", "--from", "none.json", "--packet", "1473B"],
            "16B to",
        ),
        (
            &["predict", "--from", "none.json", "--packet", "1472B"],
            "none.json",
        ),
        (
            &["predict", "--from", "none.json", "--only", "nosuch"],
            "no path and no way is named \"nosuch\"",
        ),
        (
            &["predict", "--from", "none.json", "--only", "kernel,sendto"],
            "none.json",
        ),
        (&["load", "--user", "a:b", "http://h/x"], "--user is for"),
        (&["load", "--user", "a:b", "hls://h/x"], "--user is for"),
        (&["load", "http://a:b@h/x"], "a user in an URL"),
        (&["load", "hls://a:b@h/x"], "a user in an URL"),
        (&["completions", "tcsh"], "bash"),
    ]);
}

#[test]
fn paths_are_chosen_for_people_and_for_programs() {
    let (page, json) = (onrush_lab(&["choose"]), onrush_lab(&["choose", "--json"]));
    let page_text = text(&page.stdout);
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["schema_version"], 1);
    let choices = document["data_paths_by_need"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    // Lines are broken on the page, and words between them are the same.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for choice in choices {
        let field = |name: &str| choice[name].as_str().unwrap();
        let description = format!("{}: {} ({})", field("need"), field("name"), field("reason"));
        assert!(
            words(&page_text).contains(&words(&description)),
            "{description}"
        );
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    PROGRAM.check_completions(&[]);
}

/// As for root of a user namespace who is in a network namespace of somebody else's, wherever there
/// may be none of these.
#[test]
fn who_may_not_come_back_to_his_namespace_is_told_what_helps() {
    onrush_testkit::require_root!();
    onrush_testkit::require_programs!("strace");
    for experiment in [&["predict"][..], &["bench", "serve", "--quick"]] {
        let mut command = Command::new("strace");
        command.args(["--follow-forks", "--output=/dev/null", "--trace=setns"]);
        command.args(["--inject=setns:error=EPERM", ONRUSH_LAB]);
        let output = command.args(experiment).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{experiment:?}: {error}");
        for said in ["another user namespace", "(unshare -Urn)", "try: sudo"] {
            assert!(error.contains(said), "{experiment:?}: {error}");
        }
    }
}

#[test]
fn results_become_a_page_and_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, experiment: &str, ns: [f64; 5]| {
        let run = |ns| format!(r#"{{"measured":"hit","kept":10,"repeat":0,"hit_ns":{ns:?}}}"#);
        let environment = r#"{"version":"1","command":"c","date":"d","kernel":"k","cpu":"p",
            "cores":[0],"governor":null,"virtual_machine":null,"memory_bytes":1,
            "network":"","load_before":0.0}"#;
        let settings = r#"{"sizes_bytes":[],"repeats":5,"areas":[],"kept":[10]}"#;
        let record = format!(
            r#"{{"schema_version":1,"experiment":"{experiment}","environment":{environment},
            "settings":{settings},"runs":[{}]}}"#,
            ns.map(run).join(",")
        );
        let path = folder.path().join(name);
        fs::write(&path, record).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let slow = write("slow.json", "lock", [200.0, 201.0, 202.0, 203.0, 204.0]);
    let fast = write("fast.json", "lock", [100.0, 101.0, 102.0, 103.0, 104.0]);
    let worse = onrush_lab(&["compare", &fast, &slow]);
    assert_eq!(worse.status.code(), Some(1));
    assert!(text(&worse.stdout).contains("WORSE") && text(&worse.stdout).contains("+98.0 %"));
    let better = onrush_lab(&["compare", &slow, &fast]);
    assert_eq!(better.status.code(), Some(0), "{}", text(&better.stdout));
    assert!(text(&better.stdout).contains("1 better"));
    let same = onrush_lab(&["compare", &slow, &slow, "--all"]);
    assert_eq!(same.status.code(), Some(0));
    assert_eq!(
        onrush_lab(&["compare", &slow, "/none.json"]).status.code(),
        Some(2)
    );

    let unknown = write("unknown.json", "unheard-of", [1.0; 5]);
    let refused = onrush_lab(&["compare", &unknown, &unknown]);
    assert_eq!(refused.status.code(), Some(2));
    let not_known = "experiment \"unheard-of\" is not known; read its record with the onrush-lab";
    assert!(
        text(&refused.stderr).contains(not_known),
        "{}",
        text(&refused.stderr)
    );

    let page = folder
        .path()
        .join("page.html")
        .into_os_string()
        .into_string()
        .unwrap();
    let directory = folder.path().to_str().unwrap();
    let made = onrush_lab(&["report", directory, "--html", &page]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let shown = fs::read_to_string(&page).unwrap();
    for title in [
        "What locking costs (fast.json)",
        "Experiment unheard-of (unknown.json)",
    ] {
        assert!(shown.contains(title), "{title}");
    }
    let refused = onrush_lab(&["report", directory, "--html", "/none/page.html"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("cannot write /none/page.html"));
    let nothing = onrush_lab(&["report", "/none"]);
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn a_load_that_loses_packets_is_worse_than_one_that_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lost| {
        let settings = Settings::new(vec!["rtsp://h/x".to_owned()], 1);
        let mut record = Record::new(load::NAME, Environment::here("1", "c"), settings);
        let totals = Arrived {
            packets: 100,
            lost,
            ..Arrived::default()
        };
        record.runs.push(Run {
            wall_ns: 1_000_000_000,
            start_up_ns: vec![1_000_000],
            totals,
            ..Run::default()
        });
        let path = folder.path().join(name);
        record.write(&path).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let (whole, lossy) = (write("whole.json", 0), write("lossy.json", 9));
    for (before, after, code, outcome) in [
        (&whole, &lossy, 1, "WORSE"),
        (&lossy, &whole, 0, "better"),
        (&whole, &whole, 0, "0 worse, 0 better"),
    ] {
        let compared = onrush_lab(&["compare", before, after]);
        let said = text(&compared.stdout);
        assert_eq!(compared.status.code(), Some(code), "{said}");
        assert!(said.contains(outcome), "{said}");
        // A load has no such option.
        assert!(!said.contains("--repeats"), "{said}");
        assert!(said.contains("make several before and after"), "{said}");
    }
}

/// As the results that are published have it.
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/results/model/model.json"
);

#[test]
fn a_record_that_was_checked_predicts_what_is_asked_for() {
    let predict = |asked: &[&str]| {
        let output = onrush_lab(&[&["predict", "--from", MODEL][..], asked].concat());
        text(&output.stdout)
    };
    let checked = "A packet by each path: predicted from its parts, and measured";
    assert!(predict(&[]).contains(checked));
    let only = predict(&["--only", "krtpsendfile"]);
    assert!(!only.contains(checked), "{only}");
    let rows = |said: &str| said.lines().filter(|it| it.starts_with("krtp")).count();
    assert_eq!(
        (rows(&only), only.contains("ksendfile")),
        (1, false),
        "{only}"
    );
    let whole = only.lines().find(|line| line.starts_with("krtp")).unwrap();
    for asked in [
        &["--burst", "20ms"][..],
        &["--rate", "4Gbit/s"],
        &["--packet", "512B"],
        &["--clients", "2000"],
    ] {
        let said = predict(&[&["--only", "krtpsendfile"][..], asked].concat());
        assert_eq!(rows(&said), 1, "{said}");
        assert!(!said.contains(whole), "{asked:?}: {said}");
        assert!(!predict(asked).contains(checked), "{asked:?}");
    }
}

#[test]
fn an_experiment_whose_samples_cannot_be_kept_does_not_begin() {
    for experiment in [
        &["bench", "http", "--quick"][..],
        &["measure", "--quick"],
        &["predict"],
    ] {
        let asked = [experiment, &["--json", "/none/samples.json"]].concat();
        let refused = onrush_lab(&asked);
        assert_eq!(refused.status.code(), Some(2));
        let said = text(&refused.stderr);
        assert!(
            said.contains("cannot write /none/samples.json; name another file"),
            "{said}"
        );
    }
}

fn onrush_lab(arguments: &[&str]) -> Output {
    PROGRAM.run(arguments)
}
