//! What other crates and users see of the analysis: all tests in one program, which is linked once.

mod attributed_fragments;
mod cached_structure;
mod contexts;
mod damaged_sections;
mod dense_structure;
mod exact;
mod names;
mod packed;
