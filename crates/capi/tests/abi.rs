//! The header is what the crate says, the library exports what the header says, and neither
//! changes unnoticed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Made anew by this test where `ONRUSH_BLESS` is set.
const HEADER: &str = "include/onrush.h";
/// Every declaration of this version, a line each.
const DECLARATIONS: &str = "include/onrush.abi";

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn kept(name: &str, made: &str) {
    let path = root().join(name);
    if std::env::var_os("ONRUSH_BLESS").is_some() {
        fs::write(&path, made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "{name} is not what it is to be: look at the difference after \
         `ONRUSH_BLESS=1 cargo test -p onrush-capi --test abi`; what is added needs a larger \
         ONRUSH_ABI_VERSION, and what is changed or gone another name of the library (build.rs)"
    );
}

fn header() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    // With the modules that it names.
    let source = root().join("src/lib.rs");
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = builder.with_src(source).generate().unwrap();
    let mut header = Vec::new();
    bindings.write(&mut header);
    String::from_utf8(header).unwrap()
}

/// Without comments, and each declaration in a line.
fn declarations(header: &str) -> Vec<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").unwrap().1;
    }
    code.push_str(rest);
    let (_, inside) = code
        .split_once("extern \"C\" {\n#endif")
        .unwrap_or(("", &code));
    let define = code.lines().filter(|it| it.starts_with("#define ONRUSH_"));
    let mut found: Vec<_> = define
        .filter(|it| *it != "#define ONRUSH_H")
        .map(str::to_owned)
        .collect();
    let types = code
        .split("typedef ")
        .skip(1)
        .map(|it| format!("typedef {it}"));
    let types = types.map(|it| {
        let end = match it.find('{').is_some_and(|at| at < it.find(';').unwrap()) {
            true => it.find('}').unwrap() + it[it.find('}').unwrap()..].find(';').unwrap(),
            false => it.find(';').unwrap(),
        };
        it[..=end].to_owned()
    });
    found.extend(types);
    let functions = inside
        .split(';')
        .filter(|it| it.contains("onrush_") && it.contains('('));
    let functions = functions.filter(|it| !it.contains("typedef"));
    found.extend(functions.map(|it| format!("{};", it.trim())));
    let one_line = |it: &String| it.split_whitespace().collect::<Vec<_>>().join(" ");
    found.iter().map(one_line).collect()
}

fn exported(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(library)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_header_is_what_the_crate_says() {
    kept(HEADER, &header());
}

#[test]
fn declarations_stay_as_they_are() {
    let mut lines = declarations(&header());
    lines.sort();
    assert!(lines.len() > 80, "{lines:#?}");
    assert!(lines.contains(&format!(
        "#define ONRUSH_ABI_VERSION {}",
        onrush::ONRUSH_ABI_VERSION
    )));
    kept(DECLARATIONS, &(lines.join("\n") + "\n"));
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let mut library = std::env::current_exe().unwrap();
    library.pop();
    let exported = exported(&library.join("libonrush.so"));
    let declared: BTreeSet<_> = declarations(&header())
        .iter()
        .filter(|it| !it.starts_with("typedef") && !it.starts_with('#'))
        .map(|it| {
            let name = it.split('(').next().unwrap();
            name.rsplit([' ', '*']).next().unwrap().to_owned()
        })
        .collect();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(exported, declared);
}

/// As an older compiler and a strict one takes it.
#[test]
fn the_header_is_c99() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("header.c");
    fs::write(
        &source,
        "#include <onrush.h>\n#include <onrush.h>\nint one;\n",
    )
    .unwrap();
    let output = Command::new("cc")
        .args([
            "-std=c99",
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-c",
            "-o",
        ])
        .arg(folder.path().join("header.o"))
        .arg(source)
        .arg("-I")
        .arg(root().join("include"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}
