use super::*;

mod ffprobe;
