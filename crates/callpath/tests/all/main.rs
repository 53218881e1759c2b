//! What other crates and users see of the command line: all tests in one program, which is linked once.

mod duckdb;
mod exact;
mod install;
mod json;
mod measurement;
mod merge;
mod probe_list;
mod probe_live;
mod report;
mod tables;
mod terminal;
