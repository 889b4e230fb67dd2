//! Fuzzes the target `rtcp`.

#![no_main]

onrush_fuzz::fuzz!("rtcp");
