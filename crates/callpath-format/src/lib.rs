//! The contract between the measured program and the recorder: addresses, recipes, recipe tables, shared memory.
//! Knows no operating system, no object file format and no machine instruction; allocates nothing.
//!
//! Both sides are built from this crate, so a layout is changed in one place: change the struct, raise the
//! version beside it, and describe it in docs/formats.md.
#![no_std]

pub mod address;
pub mod frame;
pub mod recipe;
pub mod register;
pub mod shared;
pub mod table;
