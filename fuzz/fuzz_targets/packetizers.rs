//! Fuzzes the target `packetizers`.

#![no_main]

onrush_fuzz::fuzz!("packetizers");
