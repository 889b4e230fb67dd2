//! Fuzzes the target `mikey`.

#![no_main]

onrush_fuzz::fuzz!("mikey");
