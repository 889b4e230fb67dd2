//! Fuzzes the target `store`.

#![no_main]

onrush_fuzz::fuzz!("store");
