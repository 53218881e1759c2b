//! The oracle: what the call path truly is at each instruction of a program, and whether the walk finds it.
//! It must not know how recipes are built: it asks the same questions as `callpath debug unwind` answers.
//!
//! A program runs one instruction at a time. A shadow stack follows its calls and returns ([`shadow`]).
//! At the first execution of each instruction, registers and a copy of the stack go into a CPSNAP01
//! stream ([`stream`]), and the true path beside it ([`truth`]). The stream is answered by the ordinary
//! walk, and the answers are scored ([`score`]).
//!
//! The program runs freely through what was seen before, from breakpoint to breakpoint; calls, returns and
//! moves of rsp are done in its place. Breakpoints are hidden while a child is made, and given up for single
//! steps when another thread shares the memory.
//!
//! What is followed: the first thread, and others if asked ([`run::Options::threads`]); signals, also on alternate
//! stacks; longjmp and exceptions; contexts of makecontext(3). What is not: children. A path that is not known for
//! certain ([`shadow::Doubt`]) is counted, not scored.
#![forbid(unsafe_code)]

pub mod code_kind;
pub mod counts;
mod error;
pub mod exam;
mod find_object;
mod instruction;
pub mod listing;
pub mod modules;
pub mod relocation;
pub mod report;
pub mod run;
pub mod score;
pub mod shadow;
pub mod stream;
pub mod truth;

pub use error::OracleError;
