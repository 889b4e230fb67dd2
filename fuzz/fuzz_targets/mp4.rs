//! Fuzzes the target `mp4`.

#![no_main]

onrush_fuzz::fuzz!("mp4");
