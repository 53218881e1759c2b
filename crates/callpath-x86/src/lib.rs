//! Machine code of x86-64: instructions, procedure bounds, unwind recipes, control flow graphs and liveness, from bytes
//! and hints. No files, ELF, DWARF, processes or profiles here.
//!
//! An instruction is one small value (`instruction`), built once from what iced-x86 decodes. The sweep stores them
//! (`decoded`); every analysis reads them by position (`decode`) and asks them. Where bytes are searched without
//! decoding, [`encoding`] has the patterns.
//!
//! [`input::CodeInput`] -> all code read once (`code`): a sweep over all bytes (`sweep`), and which calls never return
//! (`noreturn`).
//!
//! Recipes: -> abstract frames along control flow (`frames`, over `state` and `effect`), repaired by what must hold at
//! returns (`frames/inference.rs`) -> code that nothing leads to (`frames/gaps.rs`) -> rows of recipes and procedures
//! ([`analysis::CodeAnalysis`]).
//!
//! Graphs: -> [`graph::ModuleFlow`] -> [`graph::ProcedureGraph`] -> [`loops`], and facts carried along the edges
//! ([`dataflow`]): stack heights, [`liveness`], [`reaching`] definitions.
//!
//! Paths: [`graph::ProcedureGraph`] -> [`paths`]: numbers of the paths through a procedure, and what counts them.
//!
//! All input is untrusted: for any bytes and hints, the analysis ends in time proportional to their length, without a
//! panic. An unknown frame has the recipe [`callpath_format::recipe::Recipe::UNKNOWN`].
#![forbid(unsafe_code)]

pub mod analysis;
pub mod arguments;
mod bitmap;
pub mod bounds;
pub mod call_site;
mod code;
mod code_map;
pub mod cross_validation;
pub mod dataflow;
mod decode;
mod decoded;
mod effect;
mod encode;
pub mod encoding;
mod frames;
pub mod generated;
pub mod graph;
pub mod idioms;
pub mod inner_calls;
pub mod input;
mod instruction;
pub mod listing;
pub mod liveness;
pub mod loops;
#[cfg(test)]
mod mutations;
mod noreturn;
pub mod padding;
pub mod paths;
pub mod reaching;
mod recipe;
pub mod references;
pub mod return_reads;
pub mod rewrite;
pub mod stack_switches;
mod state;
mod sweep;
pub mod switched;
pub mod system_call;
mod tables;
mod value;
mod work;
mod worklist;

pub use analysis::{CodeAnalysis, analyse, fuzz_code};
