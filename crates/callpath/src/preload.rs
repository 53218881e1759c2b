//! The preload object, inside the executable.

/// The object's bytes, as `build.rs` made them.
pub(crate) static OBJECT: &[u8] = include_bytes!(env!("CALLPATH_PRELOAD_OBJECT"));

/// The bytes of the object that is injected into running processes, as `build.rs` made them.
pub(crate) static INJECTED: &[u8] = include_bytes!(env!("CALLPATH_INJECT_OBJECT"));
