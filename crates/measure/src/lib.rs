//! Onrush's experiments, their statistics and their reports.
