//! Fuzzes the target `rtsp`.

#![no_main]

onrush_fuzz::fuzz!("rtsp");
