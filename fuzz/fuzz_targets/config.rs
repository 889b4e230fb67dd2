//! Fuzzes the target `config`.

#![no_main]

onrush_fuzz::fuzz!("config");
