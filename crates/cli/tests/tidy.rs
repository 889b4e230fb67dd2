//! What no linter sees: links, sizes, first lines, banned words, licences.
//!
//! Each check collects all it finds before it fails, so that one run shows everything.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Words that never reach main, and what to do instead. Written apart, so as not to find
/// themselves.
const BANNED: &[(&str, &str)] = &[
    (concat!("dbg", "!("), "use tracing::debug"),
    (concat!("todo", "!("), "write it, or leave it out"),
    (
        concat!("unimplemented", "!("),
        "write it, or return an error",
    ),
    (concat!("FIX", "ME"), "mend it, or open an issue"),
    (
        concat!("crates", ".io"),
        "name the crate, not where it is kept",
    ),
    (
        concat!("npmjs", ".com"),
        "name the package, not where it is kept",
    ),
    (
        concat!("pypi", ".org"),
        "name the package, not where it is kept",
    ),
];

/// Licences that a dependency may have.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 / MIT",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// What only tests run, and nothing of ours is linked to, under a licence of its own; and what the
/// lock file has of WebSockets over NATS, which are not built.
const TOOLS: &[(&str, &str)] = &[
    ("cbindgen", "MPL-2.0"),
    ("webpki-roots", "CDLA-Permissive-2.0"),
];

/// What others may use without the command.
const LIBRARIES: &[&str] = &[
    "crates/capi",
    "crates/group",
    "crates/lock",
    "crates/server",
    "crates/sys",
    "crates/wire",
];

const FILE_BYTES_MAX: u64 = 1 << 20;
const DEMO: &str = "media/demo.ts";
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;
const TEST_NAME_MAX: usize = 60;
/// Where files are that documents name by their paths.
const WINGS: [&str; 5] = ["crates/", "lab/", "tests/", "docs/", "scripts/"];
const SCREEN_LINES: usize = 24;

#[test]
fn no_banned_words() {
    let mut found = Vec::new();
    for path in files().iter().filter(|path| !path.ends_with("Cargo.lock")) {
        for (number, line) in lines_of(path) {
            for (word, instead) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
                found.push(format!("{}:{number}: {word}: {instead}", path.display()));
            }
        }
    }
    assert_none(&found);
}

/// Whatever a peer or a file can cause is an error value; for the rest `expect` says why it holds.
#[test]
fn no_unwrap_outside_tests() {
    let mut found = Vec::new();
    for path in rust_files().filter(|path| is_program(path)) {
        let program = program_lines(&path).into_iter();
        let unwraps = program.filter(|(_, line)| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains(".unwrap()") || code.contains(".expect(\"\")")
        });
        found.extend(unwraps.map(|(number, line)| format!("{}:{number}:{line}", path.display())));
    }
    assert_none(&found);
}

/// Who uses a library has other options than the command line's, which `cli` adds to errors.
#[test]
fn libraries_name_no_options_of_the_command() {
    let mut found = Vec::new();
    let is_library = |path: &PathBuf| LIBRARIES.iter().any(|library| path.starts_with(library));
    for path in rust_files().filter(|path| is_library(path) && is_program(path)) {
        let program = program_lines(&path).into_iter();
        let named = program.filter(|(_, line)| names_an_option(line));
        found.extend(named.map(|(number, line)| format!("{}:{number}:{line}", path.display())));
    }
    assert_none(&found);
}

/// Whether code, not a comment, has `--word` in it.
fn names_an_option(line: &str) -> bool {
    !line.trim_start().starts_with("//")
        && line.match_indices("--").any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + 2..]);
            before.ends_with([' ', '"', '(', '`'])
                && after.starts_with(|c: char| c.is_ascii_lowercase())
        })
}

#[test]
fn no_large_files() {
    let large =
        |path: &PathBuf| fs::metadata(root().join(path)).is_ok_and(|m| m.len() > FILE_BYTES_MAX);
    let found: Vec<_> = files()
        .into_iter()
        .filter(|path| path != Path::new(DEMO))
        .filter(large)
        .collect();
    assert_none(
        &found
            .iter()
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>(),
    );
    assert!(
        fs::metadata(root().join(DEMO)).unwrap().len() <= 4 << 20,
        "{DEMO} is over 4 MiB"
    );
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut found = Vec::new();
    for path in files()
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
    {
        for (number, line) in lines_of(path) {
            for target in line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
            {
                let file = target.split('#').next().unwrap_or_default();
                let is_local = !file.is_empty() && !file.contains("://");
                let folder = root().join(path);
                if is_local && !folder.parent().unwrap().join(file).exists() {
                    found.push(format!("{}:{number}: {target}", path.display()));
                }
            }
        }
    }
    assert_none(&found);
}

/// Each promise names tests that name it, or says that it has none; they are counted in the first
/// lines, and without a gap.
#[test]
fn promises_and_tests_name_each_other() {
    let mut found = Vec::new();
    let (mut promises, mut tested) = (0, Vec::new());
    for (line_number, line) in lines_of(Path::new("SPECIFICATION.md")) {
        let Some((number, tests)) = promise(&line) else {
            continue;
        };
        promises += 1;
        if number != promises {
            found.push(format!("SPECIFICATION.md:{line_number}: not {promises}"));
        }
        if !tests.is_empty() {
            tested.push(number);
        }
        for (file, name) in tests {
            if !names_promise(Path::new(file), name, number) {
                let problem = format!("{file} has no test {name} that names promise {number}");
                found.push(format!("SPECIFICATION.md:{line_number}: {problem}"));
            }
        }
    }
    for path in rust_files() {
        for (line_number, line) in lines_of(&path) {
            for number in named_promises(&line).filter(|number| !tested.contains(number)) {
                let problem = format!("promise {number} names no test");
                found.push(format!("{}:{line_number}: {problem}", path.display()));
            }
        }
    }
    let main_figure = format!("{promises} promises, {} of them with a test", tested.len());
    let text = fs::read_to_string(root().join("SPECIFICATION.md")).unwrap();
    if !text.contains(&main_figure) {
        found.push(format!("SPECIFICATION.md: there are {main_figure}"));
    }
    assert_none(&found);
}

/// A row of the specification: its number, and the file and the name of each of its tests.
fn promise(line: &str) -> Option<(usize, Vec<(&str, &str)>)> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let number = cells.get(1)?.parse().ok()?;
    let quoted: Vec<_> = cells.get(3)?.split('`').skip(1).step_by(2).collect();
    let tests = quoted.chunks_exact(2).map(|it| (it[0], it[1]));
    Some((number, tests.collect()))
}

/// Whether a test says in front of its attributes that it stands for that promise.
fn names_promise(file: &Path, test: &str, number: usize) -> bool {
    let (lines, head) = (lines_of(file), format!("fn {test}("));
    let Some(at) = lines.iter().position(|(_, line)| line.contains(&head)) else {
        return false;
    };
    let before = lines[..at].iter().rev();
    let mut before = before.take_while(|(_, line)| !line.trim().is_empty());
    before.any(|(_, line)| named_promises(line).any(|it| it == number))
}

/// The promises that a line of a test names.
fn named_promises(line: &str) -> impl Iterator<Item = usize> {
    let rest = line.trim().strip_prefix("// SPECIFICATION.md: ");
    let numbers = rest.into_iter().flat_map(|rest| rest.split(", "));
    numbers.filter_map(|number| number.parse().ok())
}

/// What a document calls a file by its path is there.
#[test]
fn paths_in_documents_exist() {
    let mut found = Vec::new();
    for path in documents() {
        for (number, line) in lines_of(&path) {
            for name in line.split('`').skip(1).step_by(2) {
                let is_path = WINGS.iter().any(|wing| name.starts_with(wing));
                let is_one = !name.contains(['{', '*', ' ', '<']);
                if is_path && is_one && !root().join(name).exists() {
                    found.push(format!("{}:{number}: {name}", path.display()));
                }
            }
        }
    }
    assert_none(&found);
}

/// A page begins with what it answers, its main figure and the command that shows it.
#[test]
fn pages_begin_with_their_summary() {
    let mut found = Vec::new();
    for path in documents().filter(|path| path.parent() == Some(Path::new("docs"))) {
        if path.ends_with("README.md") {
            continue;
        }
        let lines: Vec<_> = lines_of(&path).into_iter().map(|(_, line)| line).collect();
        let begins = ["- **Answers:** ", "- **Main figure:** ", "- **Command:** "];
        let has_all = (2..)
            .zip(begins)
            .all(|(line, begin)| lines.get(line).is_some_and(|line| line.starts_with(begin)));
        if !has_all {
            found.push(format!(
                "{}: lines 3 to 5 are to be {begins:?}",
                path.display()
            ));
        }
    }
    assert_none(&found);
}

#[test]
fn lines_fit_beside_another_window() {
    let mut found = Vec::new();
    for path in rust_files() {
        for (number, line) in lines_of(&path) {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                found.push(format!("{}:{number}: {columns} columns", path.display()));
            }
        }
    }
    assert_none(&found);
}

#[test]
fn files_of_the_product_can_be_read_at_once() {
    let product = rust_files().filter(|path| path.starts_with("crates") && is_program(path));
    let long = product.filter_map(|path| {
        let lines = lines_of(&path).len();
        (lines > FILE_LINES_MAX).then(|| format!("{}: {lines} lines", path.display()))
    });
    assert_none(&long.collect::<Vec<_>>());
}

/// A test's name says what it asserts; the story goes into a comment.
#[test]
fn names_of_tests_are_short() {
    let mut found = Vec::new();
    for path in rust_files() {
        let lines = lines_of(&path);
        for pair in lines.windows(2) {
            let name = pair[1].1.trim().strip_prefix("fn ").unwrap_or_default();
            let name = name.split('(').next().unwrap_or_default();
            if pair[0].1.trim() == "#[test]" && name.len() > TEST_NAME_MAX {
                let number = pair[1].0;
                found.push(format!("{}:{number}: {name}", path.display()));
            }
        }
    }
    assert_none(&found);
}

#[test]
fn every_source_file_says_what_it_is() {
    let silent = rust_files().filter(|path| {
        let text = fs::read_to_string(root().join(path)).unwrap();
        !text.starts_with("//! ")
    });
    assert_none(
        &silent
            .map(|path| format!("{}: begin with //!", path.display()))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn functions_fit_on_a_screen() {
    let mut found = Vec::new();
    for path in rust_files().filter(|path| is_program(path)) {
        for (number, name, lines) in functions(&program_lines(&path)) {
            if lines > FUNCTION_LINES_MAX {
                found.push(format!(
                    "{}:{number}: {name} has {lines} lines",
                    path.display()
                ));
            }
        }
    }
    assert_none(&found);
}

#[test]
fn the_first_screen_of_the_readme_says_how_to_run_and_test() {
    let screen: Vec<_> = lines_of(Path::new("README.md"))
        .into_iter()
        .take(SCREEN_LINES)
        .collect();
    for command in ["./run", "./test"] {
        assert!(
            screen.iter().any(|(_, line)| line.starts_with(command)),
            "{command}"
        );
    }
}

#[test]
fn the_changelog_keeps_its_shape() {
    const KINDS: [&str; 6] = [
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    ];
    let lines = lines_of(Path::new("CHANGELOG.md"));
    assert_eq!(lines[0].1, "# Changelog");
    let headings: Vec<_> = lines
        .iter()
        .filter_map(|(_, line)| line.strip_prefix("## "))
        .collect();
    assert_eq!(headings.first(), Some(&"[Unreleased]"));
    let wrong = headings
        .iter()
        .skip(1)
        .filter(|heading| !is_release(heading));
    assert_none(&wrong.map(ToString::to_string).collect::<Vec<_>>());
    let kinds = lines
        .iter()
        .filter_map(|(_, line)| line.strip_prefix("### "));
    assert_none(
        &kinds
            .filter(|kind| !KINDS.contains(kind))
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    );
}

/// Dependencies come from where the lock file says, under licences that ours allows.
#[test]
fn dependencies_are_ours_to_use() {
    let cargo = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(root())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    let version = String::from_utf8(cargo(&["-vV"])).unwrap();
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    let metadata = [
        "metadata",
        "--format-version=1",
        "--locked",
        "--offline",
        "--filter-platform",
        host,
    ];
    let metadata: serde_json::Value = serde_json::from_slice(&cargo(&metadata)).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 10, "all dependencies are listed");
    let mut found = Vec::new();
    for package in packages {
        let (name, licence) = (
            &package["name"],
            package["license"].as_str().unwrap_or("none"),
        );
        let source = package["source"].as_str();
        if source.is_some_and(|source| !source.starts_with("registry+")) {
            found.push(format!("{name}: from {}", package["source"]));
        }
        let is_tool = TOOLS.iter().any(|tool| name == tool.0 && licence == tool.1);
        if !is_allowed(licence) && !is_tool {
            found.push(format!("{name}: licence {licence}"));
        }
    }
    assert_none(&found);
}

/// Also where `sort` knows no `-C`, as BusyBox's.
#[test]
fn scripts_know_which_rust_is_too_old() {
    let script = r#"
        cargo() { :; }
        rustc() { echo "rustc $VERSION (0123456 2026-01-31)"; }
        sort() { case $* in *C*) return 2 ;; esac; command sort "$@"; }
        . scripts/packages.sh
        need_rust 1.88
    "#;
    for (version, is_enough) in [
        ("1.9.0", false),
        ("1.87.1", false),
        ("1.88.0", true),
        ("1.100.0", true),
        ("", false),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-euc", script]).env("VERSION", version);
        let output = shell.current_dir(root()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_enough, "{version}: {said}");
    }
}

#[test]
fn the_checks_themselves_can_fail() {
    assert!(is_allowed("MIT OR Apache-2.0") && is_allowed("MIT/Apache-2.0"));
    assert!(is_allowed("(MIT OR GPL-3.0-only) AND Unicode-3.0"));
    assert!(
        !is_allowed("GPL-3.0-only") && !is_allowed("MIT AND GPL-3.0-only") && !is_allowed("none")
    );
    assert!(names_an_option(r#"    "raise --cache""#) && names_an_option(r#"x("--cache")"#));
    assert!(!names_an_option("/// See --cache.") && !names_an_option(r#""-r--r--r--""#));
    assert!(is_release("[1.2.3] - 2026-01-31"));
    for wrong in [
        "1.2.3",
        "[1.2] - 2026-01-31",
        "[1.2.3]",
        "[1.2.3] - 31.1.2026",
        "[v1.2.3] - 2026-01-31",
    ] {
        assert!(!is_release(wrong), "{wrong}");
    }
    let source = "fn one() {\n}\n\nimpl X {\n    pub fn two(&self) {\n        x();\n    }\n}";
    let lines: Vec<_> = source.lines().map(str::to_owned).enumerate().collect();
    let named = |(at, name, lines): (usize, String, usize)| (at, name, lines);
    let found: Vec<_> = functions(&lines).into_iter().map(named).collect();
    assert_eq!(found, [(0, "one".to_owned(), 2), (4, "two".to_owned(), 3)]);
}

/// `[1.2.3] - 2026-01-31`
fn is_release(heading: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some((version, date)) = heading.split_once(" - ") else {
        return false;
    };
    let version = version
        .strip_prefix('[')
        .and_then(|v| v.strip_suffix(']'))
        .unwrap_or_default();
    let date: Vec<_> = date.split('-').collect();
    version.split('.').count() == 3
        && version.split('.').all(number)
        && date.iter().map(|part| part.len()).eq([4, 2, 2])
        && date.iter().all(|part| number(part))
}

/// Whether an SPDX expression leaves a choice that we allow: of every AND at least one OR.
fn is_allowed(expression: &str) -> bool {
    expression.split(" AND ").all(|part| {
        let part = part.trim_matches(['(', ')']).replace('/', " OR ");
        part.split(" OR ")
            .any(|licence| LICENCES.contains(&licence.trim_matches(['(', ')', ' '])))
    })
}

/// The functions in formatted code: line, name, number of lines. The end is the brace below the
/// start.
fn functions(lines: &[(usize, String)]) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (at, (number, line)) in lines.iter().enumerate() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let words = line.trim_start();
        let starts = ["fn ", "pub", "const fn ", "async fn ", "unsafe "];
        let Some((before, after)) = words.split_once("fn ") else {
            continue;
        };
        if !starts.iter().any(|start| words.starts_with(start))
            || before.contains(['/', '"', '(']) && !before.starts_with("pub(")
        {
            continue;
        }
        let name = after
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap_or_default();
        let end = lines[at..].iter().position(|(_, line)| {
            line.strip_prefix(indent)
                .is_some_and(|rest| rest == "}" || rest.ends_with(';') && !rest.starts_with(' '))
        });
        found.push((*number, name.to_owned(), end.unwrap_or(0) + 1));
    }
    found
}

/// Those that are about the tree of today; what was measured keeps the words of its day.
fn documents() -> impl Iterator<Item = PathBuf> {
    let is_document = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "md")
            && !path.starts_with("docs/results")
            && !path.ends_with("CHANGELOG.md")
    };
    files().into_iter().filter(is_document)
}

fn rust_files() -> impl Iterator<Item = PathBuf> {
    files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
}

/// Code that runs at a user's, not only in a test.
fn is_program(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.contains("/src/")
        && !text.starts_with("tests/kit")
        && !text.contains("/tests/")
        && !text.ends_with("tests.rs")
        && !text.ends_with("testing.rs")
}

/// The lines before the tests.
fn program_lines(path: &Path) -> Vec<(usize, String)> {
    lines_of(path)
        .into_iter()
        .take_while(|(_, line)| line != "#[cfg(test)]")
        .collect()
}

/// Numbered from one. A file that is no text has no lines.
fn lines_of(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(root().join(path)).unwrap_or_default();
    (1..).zip(text.lines().map(str::to_owned)).collect()
}

/// Every file that is, or is about to be, under version control.
fn files() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output()
        .expect("git is installed");
    assert!(
        listed.status.success(),
        "this is a git repository: {listed:?}"
    );
    let names = String::from_utf8(listed.stdout).expect("names in the tree are UTF-8");
    let files = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from);
    let files: Vec<_> = files.filter(|path| root().join(path).is_file()).collect();
    assert!(files.len() > 20, "the tree has files");
    files
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
