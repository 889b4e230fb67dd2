//! What is published is what the program of today prints from the files beside it.
//!
//! Each page of `docs/results` says in its text which command made a table, and in its heading of
//! which files, where the command says FILE: so a reader can do it again, and so does this. A table
//! that has no command is an error.

use std::env;
use std::fs;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::process::Command;

use onrush_testkit::require_programs;

const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");

/// Stands in a command for the files that the heading names.
const FILE: &str = "FILE";

/// What a page shows, and the command that makes it, if it says so.
#[derive(Debug, Eq, PartialEq)]
struct Table {
    line: usize,
    command: Option<String>,
    text: String,
}

#[test]
fn published_tables_are_those_of_their_files() {
    require_programs!("python3");
    let (mut tables, mut wrong) = (0, Vec::new());
    for page in pages() {
        let folder = page.parent().unwrap();
        for table in Reading::of(&fs::read_to_string(&page).unwrap()) {
            let Table { line, text, .. } = &table;
            tables += 1;
            let Some(command) = &table.command else {
                let what = "say in the text above which command prints this, as `onrush-lab ... \
                 --from X.json`";
                wrong.push(format!("{}:{line}: {what}:\n{text}", page.display()));
                continue;
            };
            let (command, shown) = match command.split_once(" > ") {
                None => (command.as_str(), text.clone()),
                Some((command, file)) => (command, fs::read_to_string(folder.join(file)).unwrap()),
            };
            let printed = printed(command, folder);
            if printed.trim_end() != shown.trim_end() {
                let place = format!("{}:{line}: {command}", page.display());
                wrong.push(format!("{place}\nprints:\n{printed}\nand not:\n{shown}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tables > 20, "{tables} tables in {RESULTS}");
}

#[test]
fn a_table_has_the_command_before_it_or_that_of_its_page() {
    let page = "By `onrush-lab bench x --from FILE`, see [`y`](y).\n\n## a.json, \
                b.json\n\nHere:\n\n```\n1\n```\n\
                By `onrush-lab bench\nx --from c.json | tail -1` \
                (`--quick`):\n```\n2\n```\n```\n3\n```\n# no file\n```\n4\n```\n\
                ```\nonrush-lab bench x\n```\n```sh\n5\n```\n| in | words |\n|---|---|\n|`6`| and \
                7 |\n\
                `awk x y`:\n| 8 | 9 % |\n`onrush-lab y --from z > z.txt`\n";
    let tables = Reading::of(page);
    let commands: Vec<_> = tables
        .iter()
        .map(|table| table.command.as_deref())
        .collect();
    let of_both = "onrush-lab bench x --from a.json; echo; onrush-lab bench x --from b.json";
    let expected = [
        Some(of_both),
        Some("onrush-lab bench x --from c.json | tail -1"),
        Some(of_both),
        None,
        Some("awk x y"),
        Some("onrush-lab y --from z > z.txt"),
    ];
    assert_eq!(commands, expected, "{tables:#?}");
    let shown: Vec<_> = tables
        .iter()
        .map(|table| (table.line, &*table.text))
        .collect();
    assert_eq!(shown[0], (8, "1\n"));
    assert_eq!(shown[4], (32, "| 8 | 9 % |\n"));
}

/// A page as far as it was read.
#[derive(Default)]
struct Reading {
    tables: Vec<Table>,
    /// What was said since the last table.
    prose: String,
    /// Those of the heading.
    files: Vec<String>,
    /// The page's command for each of them.
    of_each: Option<String>,
}

impl Reading {
    fn of(page: &str) -> Vec<Table> {
        let mut reading = Self::default();
        let mut lines = (1..).zip(page.lines()).peekable();
        while let Some((number, line)) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let block = lines.by_ref().map(|(_, line)| line);
                let block: Vec<_> = block.take_while(|line| *line != "```").collect();
                let is_typed = |line: &&str| line.starts_with("onrush-lab ");
                if language.is_empty() && !block.iter().all(is_typed) {
                    reading.table(number + 1, &block);
                }
            } else if line.starts_with('|') {
                let mut rows = vec![line];
                while let Some((_, row)) = lines.next_if(|(_, line)| line.starts_with('|')) {
                    rows.push(row);
                }
                if rows.iter().any(|row| has_figures(row)) {
                    reading.table(number, &rows);
                }
            } else if line.starts_with('#') {
                reading.said(number);
                let names = line.split([' ', ',', '`']);
                let files = names.filter(|name| name.ends_with(".json"));
                reading.files = files.map(str::to_owned).collect();
            } else {
                reading.prose += line;
                reading.prose.push(' ');
            }
        }
        reading.said(page.lines().count());
        reading.tables
    }

    /// Lines that follow what was said.
    fn table(&mut self, line: usize, lines: &[&str]) {
        let own = self.said(line);
        let of_each = self.of_each.as_ref().filter(|_| !self.files.is_empty());
        let of_each = of_each.map(|command| {
            let files = self.files.iter().map(|file| command.replace(FILE, file));
            files.collect::<Vec<_>>().join("; echo; ")
        });
        self.tables.push(Table {
            line,
            command: own.or(of_each),
            text: lines.iter().flat_map(|line| [line, "\n"]).collect(),
        });
    }

    /// The last command of what was said that is about this place alone.
    fn said(&mut self, line: usize) -> Option<String> {
        let prose = take(&mut self.prose);
        let mut own = None;
        for code in prose.split('`').skip(1).step_by(2) {
            let is_command = match code.split_once(' ') {
                Some(("onrush-lab", options)) => options.contains("--from "),
                Some((program, _)) => ["awk", "for", "python3", "sed"].contains(&program),
                None => false,
            };
            if is_command && code.contains(" > ") {
                self.tables.push(Table {
                    line,
                    command: Some(code.to_owned()),
                    text: String::new(),
                });
            } else if is_command && code.contains(FILE) {
                self.of_each = Some(code.to_owned());
            } else if is_command {
                own = Some(code.to_owned());
            }
        }
        own
    }
}

/// Whether a cell is a number.
fn has_figures(row: &str) -> bool {
    let mut cells = row.split('|');
    cells.any(|cell| cell.trim().parse::<f64>().is_ok())
}

fn pages() -> Vec<PathBuf> {
    let folders = fs::read_dir(RESULTS).unwrap();
    let pages = folders.map(|folder| folder.unwrap().path().join("README.md"));
    let mut pages: Vec<_> = pages.filter(|page| page.exists()).collect();
    pages.sort();
    pages
}

/// What `command` prints in `folder`. How it ends is a verdict, and no matter here.
fn printed(command: &str, folder: &Path) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_onrush-lab"))
        .parent()
        .unwrap();
    let path = env::var_os("PATH").unwrap();
    let all = [programs.to_owned()]
        .into_iter()
        .chain(env::split_paths(&path));
    let shell = Command::new("timeout")
        .args(["60", "sh", "-c", command])
        .env("PATH", env::join_paths(all).unwrap())
        .current_dir(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&shell.stderr).into_owned();
    let printed = String::from_utf8(shell.stdout).unwrap();
    match printed.is_empty() {
        true => errors,
        false => printed,
    }
}
