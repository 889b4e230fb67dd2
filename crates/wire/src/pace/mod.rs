//! When a session owes its next burst: pure functions of time and events.
