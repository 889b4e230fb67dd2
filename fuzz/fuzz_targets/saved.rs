//! Fuzzes the target `saved`.

#![no_main]

onrush_fuzz::fuzz!("saved");
