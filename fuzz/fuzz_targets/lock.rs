//! Fuzzes the target `lock`.

#![no_main]

onrush_fuzz::fuzz!("lock");
