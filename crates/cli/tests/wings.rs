//! Arrows lead one way. The product stands without the laboratory: no crate of `lab/` is built for
//! it, and none is named by it; and within a crate no file stands on one that stands on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PRODUCT: [&str; 9] = [
    "onrush",
    "onrush-capi",
    "onrush-cluster",
    "onrush-group",
    "onrush-lock",
    "onrush-objects",
    "onrush-server",
    "onrush-sys",
    "onrush-wire",
];

/// What cargo says of the workspace, without asking anybody outside.
fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--offline",
            "--manifest-path",
        ])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn no_arrow_leads_from_the_product_to_the_laboratory() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let wing = |package: &serde_json::Value| {
        let manifest = text(&package["manifest_path"]);
        let root = text(&metadata["workspace_root"]);
        let inside = manifest
            .strip_prefix(&root)
            .unwrap()
            .trim_start_matches('/');
        inside.split('/').next().unwrap().to_owned()
    };
    let product: Vec<_> = packages.iter().filter(|p| wing(p) == "crates").collect();
    let mut names: Vec<_> = product.iter().map(|p| text(&p["name"])).collect();
    names.sort();
    assert_eq!(
        names, PRODUCT,
        "a new crate of the product belongs into this list"
    );
    for package in product {
        for dependency in package["dependencies"].as_array().unwrap() {
            let (name, path) = (text(&dependency["name"]), text(&dependency["path"]));
            let from = text(&package["name"]);
            assert!(
                !path.contains("/lab/"),
                "{from} depends on {name}, which is of the laboratory"
            );
            // The test kit is for tests.
            let is_for_tests = dependency["kind"] == "dev";
            assert!(
                !path.contains("/tests/") || is_for_tests,
                "{from} is built with {name}"
            );
        }
    }
}

/// Files of a crate stand on each other one way. A module and those beneath it count as one: what a
/// folder's `mod.rs` has, its files use.
#[test]
fn files_of_a_crate_import_one_way() {
    let mut found = Vec::new();
    for source in ["crates", "lab"]
        .iter()
        .flat_map(|wing| sources_below(wing))
    {
        let arrows = arrows(&source);
        found.extend(
            circle(&arrows).map(|way| format!("{}: {}", source.display(), way.join(" -> "))),
        );
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_circle_of_files_is_found() {
    let arrows = |pairs: &[(&str, &str)]| -> Arrows {
        let mut arrows = Arrows::new();
        for (from, to) in pairs {
            let to = (*to).to_owned();
            arrows.entry((*from).to_owned()).or_default().insert(to);
        }
        arrows
    };
    let straight = [("a", "b"), ("b", "c"), ("a", "c")];
    assert_eq!(circle(&arrows(&straight)), None);
    let round = [("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")];
    assert_eq!(circle(&arrows(&round)).unwrap().len(), 4);
    let text = "use super::{a::{B, c}, d};\nuse crate::e::F as G;\nuse std::io;\nfn f() {}";
    let mut named = used(text, &["x".to_owned(), "y".to_owned()]);
    named.sort();
    assert_eq!(named, ["e::F", "x::a::B", "x::a::c", "x::d"]);
}

/// By module, the modules that it uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The `src` folders of a wing.
fn sources_below(wing: &str) -> Vec<PathBuf> {
    let wing = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(wing);
    let crates = fs::read_dir(wing).unwrap();
    let sources = crates.map(|entry| entry.unwrap().path().join("src"));
    sources.filter(|source| source.is_dir()).collect()
}

/// The modules of a crate and what each uses, but for those above and beneath it, and for tests.
fn arrows(source: &Path) -> Arrows {
    let mut files = Vec::new();
    rust_files_below(source, &mut files);
    let module = |file: &PathBuf| {
        let inside = file.strip_prefix(source).unwrap().with_extension("");
        let parts = inside.iter().map(|part| part.to_str().unwrap().to_owned());
        let mut parts: Vec<_> = parts.collect();
        parts.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
        parts
    };
    let modules: BTreeSet<_> = files.iter().map(|file| module(file).join("::")).collect();
    let mut arrows = Arrows::new();
    for file in &files {
        let from = module(file);
        let text = fs::read_to_string(file).unwrap();
        let program = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for path in used(program, &from) {
            let parts: Vec<_> = path.split("::").collect();
            let prefixes = (1..=parts.len()).rev().map(|n| parts[..n].join("::"));
            let Some(to) = prefixes.into_iter().find(|to| modules.contains(to)) else {
                continue;
            };
            let from = from.join("::");
            let is_kin =
                |a: &str, b: &str| a.is_empty() || b == a || b.starts_with(&format!("{a}::"));
            if !is_kin(&from, &to) && !is_kin(&to, &from) {
                arrows.entry(from).or_default().insert(to);
            }
        }
    }
    arrows
}

fn rust_files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_test = name.contains("tests") || name.starts_with("test_") || name == "testing";
        if path.is_dir() {
            rust_files_below(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") && !is_test {
            files.push(path);
        }
    }
}

/// What `use` names in a file of this module, from the root of the crate on; of other crates
/// nothing.
fn used(text: &str, module: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let statements = text
        .split("\nuse ")
        .skip(1)
        .chain(text.strip_prefix("use "));
    let public = text.split("\npub use ").skip(1);
    for statement in statements.chain(public) {
        let statement = statement.split(';').next().unwrap();
        let mut paths = Vec::new();
        flatten("", &statement.replace(char::is_whitespace, " "), &mut paths);
        for path in paths {
            let mut parts: Vec<_> = path.split("::").collect();
            let mut base: Vec<_> = module.iter().map(String::as_str).collect();
            match parts[0] {
                "crate" => base.clear(),
                "self" => {}
                "super" => {
                    base.pop();
                }
                _ => continue,
            }
            parts.remove(0);
            while parts.first() == Some(&"super") {
                parts.remove(0);
                base.pop();
            }
            found.push([base, parts].concat().join("::"));
        }
    }
    found
}

/// `a::{b, c::{d}}` as `a::b` and `a::c::d`.
fn flatten(before: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap().trim();
        if !path.is_empty() {
            paths.push(format!("{before}{path}"));
        }
        return;
    };
    let list = list.strip_suffix('}').unwrap_or(list);
    let (mut depth, mut start) = (0, 0);
    for (at, sign) in list.char_indices().chain([(list.len(), ',')]) {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                flatten(&format!("{before}{}", head.trim()), &list[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// A way round, if there is one.
fn circle(arrows: &Arrows) -> Option<Vec<String>> {
    let mut open: Vec<_> = arrows.keys().cloned().collect();
    // Who uses nobody that is left stands on firm ground.
    while let Some(at) = open.iter().position(|from| {
        let mut uses = arrows[from].iter();
        !uses.any(|to| open.contains(to))
    }) {
        open.remove(at);
    }
    let mut way = vec![open.first()?.clone()];
    loop {
        let last = &way[way.len() - 1];
        let next = arrows[last].iter().find(|to| open.contains(to))?;
        let is_round = way.iter().position(|module| module == next);
        way.push(next.clone());
        if let Some(start) = is_round {
            return Some(way.split_off(start));
        }
    }
}
