//! What other crates and users see of machine code: all tests in one program, which is linked once.

mod arguments;
mod calls_from_copy;
mod copied_tables;
mod exits;
mod frames;
mod gaps;
mod graphs;
mod liveness;
mod loops;
mod paths;
mod read_code;
mod recipes;
mod small;
mod stack_heights;
mod stubs;
