//! The product stands without the laboratory: no crate of `lab/` is built for it, and none is named
//! by it.

use std::path::Path;
use std::process::Command;

const PRODUCT: [&str; 6] = [
    "onrush",
    "onrush-group",
    "onrush-lock",
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
