//! What other crates and users see of recipe tables, graphs and copies: all tests in one program, which is linked once.

mod call_graph;
mod copies;
mod linkage_stubs;
mod paths;
mod pinned_returns;
mod recipe_tables;
mod recipes_against_cfi;
mod return_users;
mod snapshots;
mod stack_switches;
mod table_cache;
mod tiny_elf;
