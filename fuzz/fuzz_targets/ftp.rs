//! Fuzzes the target `ftp`.

#![no_main]

onrush_fuzz::fuzz!("ftp");
