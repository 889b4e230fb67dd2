//! Packet images in locked, registered memory, built once and shared by all sessions of a file.
