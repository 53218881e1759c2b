//! Machine code of x86-64: instructions, procedure bounds, unwind recipes, control flow graphs and what is live, from bytes and hints.
//! Knows nothing of files, ELF, DWARF, processes and profiles.
//!
//! An instruction is one small value (`instruction`), made once from what iced-x86 decodes. The sweep keeps them (`decoded`), and every
//! analysis reads them by position (`decode`) and asks them.
//!
//! Recipes: [`input::CodeInput`] -> a sweep over all bytes (`sweep`) -> which calls come back (`returns`)
//! -> abstract frames along control flow (`flow`, `jumps`, `calls`, over `state` and `effect`), mended by what must hold at
//! returns (`repair`, by a `trial`) -> code that nothing leads to (`gaps`)
//! -> rows of recipes and procedures ([`analysis::CodeAnalysis`]).
//!
//! Graphs: the same sweep -> [`graph::ModuleFlow`] -> [`graph::ProcedureGraph`] -> [`loops`], and facts carried along the edges
//! ([`dataflow`]): heights of the stack, [`liveness`], [`reaching`] definitions.
//!
//! All input is untrusted: whatever the bytes and hints say, the analysis ends in time proportional to their length,
//! without a panic. Where it does not know a frame it says so: [`callpath_format::recipe::Recipe::UNKNOWN`].
#![forbid(unsafe_code)]

pub mod analysis;
mod bitmap;
pub mod bounds;
pub mod call_site;
mod calls;
pub mod claims;
mod clobbers;
pub mod dataflow;
mod decode;
mod decoded;
mod effect;
mod flow;
mod gaps;
pub mod graph;
mod idioms;
pub mod inner_calls;
pub mod input;
mod instruction;
mod jumps;
pub mod liveness;
pub mod loops;
mod module;
pub mod padding;
mod places;
mod pool;
pub mod reaching;
mod recipe;
mod repair;
pub mod return_reads;
mod returns;
pub mod stack_switches;
mod state;
mod sweep;
mod tables;
mod trial;
mod value;
pub mod written;

pub use analysis::{CodeAnalysis, analyse, fuzz_code};
