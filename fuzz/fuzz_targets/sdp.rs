//! Fuzzes the target `sdp`.

#![no_main]

onrush_fuzz::fuzz!("sdp");
