//! Fuzzes the target `matroska`.

#![no_main]

onrush_fuzz::fuzz!("matroska");
