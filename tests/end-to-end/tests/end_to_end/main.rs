//! Real programs, bare and under `callpath record`: the same to their caller, and the profile is right.
//! A test is decided by counts and by CPU time of the same run, never by the time that passed.
//!
//! Everything is in one executable, so that each program is compiled once.

mod annotate;
mod bases;
mod build;
mod callgrind;
mod children;
mod columns;
mod company;
mod compare;
mod confined;
mod crowds;
mod damage;
mod depth;
mod doctor;
mod emulators;
mod endings;
mod events;
mod exact;
mod exact_calls;
mod exact_cost;
mod exact_flows;
mod exact_guide;
mod filters;
mod first_screen;
mod gaps;
mod generated;
mod groups;
mod instances;
mod jit;
mod loading;
mod memory;
mod messages;
mod ordinary_user;
mod packed;
mod probe_control;
mod probes;
mod processes;
mod ranks;
mod recorder;
mod refusals;
mod resources;
mod runtimes;
mod security;
mod sentinel;
mod signals;
mod stacks;
mod structure;
mod system_calls;
mod tasks;
mod threads;
mod time;
mod transparency;
mod tree_shape;
mod waits;
