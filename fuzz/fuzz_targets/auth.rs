//! Fuzzes the target `auth`.

#![no_main]

onrush_fuzz::fuzz!("auth");
