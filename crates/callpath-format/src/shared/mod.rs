//! The memory that the measured processes and the recorder share: layouts, and how each field is handed over.
//! Layouts only: each side maps the memory itself.
//!
//! Two mappings. The **arena** is writable on both sides:
//!
//! ```text
//! chunk 0            Session: the measurement's settings, doorbell, stack of free chunks
//! chunks 1 to 4      ProcessSlot x 1024
//! chunks 5 ...       their bases: one for each metric (`crate::shared::columns`)
//! chunks behind      handed to threads: trees, raw samples
//! ```
//!
//! The **published** memory is writable by the recorder only: settings of each metric, recipe tables and load maps,
//! named by their offset (`crate::shared::load_map`, `crate::shared::generated`, `crate::shared::moved`, `crate::shared::told`).
//!
//! The recorder checks whatever it reads from the arena, since a wild store of the program may
//! have hit it. All reads there are atomic, or volatile and made once. The generation in the
//! process's slot shows changes of the published memory.

pub mod activation;
pub mod arena;
pub mod columns;
pub mod expression;
pub mod flows;
pub mod gauge;
pub mod generated;
pub mod hashed;
pub mod known_return;
pub mod lanes;
pub mod load_map;
pub mod moved;
pub mod probe;
pub mod process;
pub mod refused;
pub mod session;
pub mod thread;
pub mod times;
pub mod told;
pub mod tree;
pub mod unmeasured;
pub mod wanted;

pub use arena::{Arena, ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex};
pub use columns::{Column, Columns, MetricSettings, Metrics};
pub use process::{PROCESS_SLOTS, Pause, ProcessSlot, SlotState, Unmarked};
pub use session::{Session, SessionHead, Settings, Source};
pub use thread::{Dropped, ThreadRecord};
pub use tree::Node;
