//! Fuzzes the target `tls`.

#![no_main]

onrush_fuzz::fuzz!("tls");
