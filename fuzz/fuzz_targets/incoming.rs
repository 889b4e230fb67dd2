//! Fuzzes the target `incoming`.

#![no_main]

onrush_fuzz::fuzz!("incoming");
