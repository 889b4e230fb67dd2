//! Fuzzes the target `cluster`.

#![no_main]

onrush_fuzz::fuzz!("cluster");
