//! That the list is whole, and names options that there are.

use super::*;
use crate::args::Arguments;
use clap::CommandFactory;
use std::fs;
use std::path::Path;

#[test]
fn every_setting_is_an_option_of_serve() {
    let command = Arguments::command();
    let serve = command.find_subcommand("serve").unwrap();
    let options: Vec<_> = serve.get_arguments().filter_map(|a| a.get_long()).collect();
    let all = of_clients().into_iter().chain(settings());
    let all = all.chain(of_downloads()).chain(of_tls());
    let all = all.chain(over_tcp()).chain(of_live_hls());
    let all = all.chain(of_multicast());
    for limit in all.chain(uploads::of_uploads()) {
        let option = limit.option.unwrap();
        assert!(
            options.contains(&option.trim_start_matches('-')),
            "{option}"
        );
    }
}

/// Whoever adds a bound adds it to the list.
#[test]
fn every_public_constant_that_bounds_something_is_listed() {
    let listed: Vec<_> = fixed().iter().map(|limit| limit.name).collect();
    let mut known = 0;
    for part in ["wire", "lock", "sys", "group", "server", "objects"] {
        let mut folders = vec![
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("..")
                .join(part)
                .join("src"),
        ];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                for line in fs::read_to_string(&path).unwrap().lines() {
                    let name = line.trim_start().strip_prefix("pub const ");
                    let name = name
                        .and_then(|rest| rest.split(':').next())
                        .unwrap_or_default();
                    if name.ends_with("_MAX") {
                        assert!(listed.contains(&name), "{}: {name}", path.display());
                        known += 1;
                    }
                }
            }
        }
    }
    assert_eq!(known, listed.len(), "each listed bound exists once");
}
