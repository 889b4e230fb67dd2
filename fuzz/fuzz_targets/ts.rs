//! Fuzzes the target `ts`.

#![no_main]

onrush_fuzz::fuzz!("ts");
