//! What other crates and users see of the database: all tests in one program, which is linked once.

mod database;
mod finding;
mod mapped;
mod processes;
mod properties;
mod ranks;
mod recursion;
#[path = "../support/mod.rs"]
mod support;
mod views;
