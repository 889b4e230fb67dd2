//! Fuzzes the target `subtitles`.

#![no_main]

onrush_fuzz::fuzz!("subtitles");
