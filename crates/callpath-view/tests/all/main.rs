//! What other crates and users see of views: all tests in one program, which is linked once.

mod diff;
mod exports;
mod json;
mod live;
mod synthetic;
mod text;
