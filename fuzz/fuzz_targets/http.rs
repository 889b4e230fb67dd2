//! Fuzzes the target `http`.

#![no_main]

onrush_fuzz::fuzz!("http");
