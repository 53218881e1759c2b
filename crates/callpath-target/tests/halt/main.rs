//! Running processes that the tests, and not callpath, started: stopped, looked at, changed, and let go. The programs
//! are in C, check themselves, and say "right" at their end.

mod changes;
mod circumstances;
mod program;
mod undisturbed;
