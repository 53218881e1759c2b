//! Code and memory of a running program, changed.
