//! Fuzzes the target `depacketizers`.

#![no_main]

onrush_fuzz::fuzz!("depacketizers");
