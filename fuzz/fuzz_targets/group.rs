//! Fuzzes the target `group`.

#![no_main]

onrush_fuzz::fuzz!("group");
