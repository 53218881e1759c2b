//! The calling context tree: what a run cost, by complete call path; merging and querying it, and its file, the [`database`].
//! No ELF, processes or rendering here: where the data came from does not matter.
//!
//! A [`Profile`] holds a [`Tree`] of [`Scope`]s with a cost per node and metric, the strings that the scopes
//! name, what ran, and how every sample was accounted for. [`Profile::view`] answers a [`Query`] with a [`View`]: a
//! flat array in preorder with inclusive, exclusive and self cost.
//!
//! Trees may be hundreds of thousands of nodes deep, so nothing in this crate recurses.

#![deny(unsafe_code)]

mod asked_name;
mod code;
mod columns;
mod containers;
mod contexts;
pub mod database;
pub mod diff;
pub mod exact;
mod metric;
mod name;
mod name_parts;
mod pattern;
mod profile;
mod quality;
mod query;
mod ranks;
mod rows;
mod run;
mod scope;
mod tree;

pub use asked_name::{AskedName, Way};
pub use callpath_schema::{
    Bounds, CALLS_ALONE, ContextId, Expression, Formula, MeasuredTime, Metric, MetricId, MetricKind, MetricSource,
    MetricType, PathCategory, ProbeAccount, RefusedProbe, TimesAccount, Value,
};
pub use code::{CodeCosts, CodeFile, CodeIdentity};
pub use columns::ColumnError;
pub use contexts::{Context, ContextSum, Contexts};
pub use database::{AnswerError, Answers};
pub use metric::columns_for;
pub use name::{Name, Strings};
pub use name_parts::{bare_path, without_parameters};
pub use pattern::{kind_of_name, matches_glob, nearest};
pub use profile::Profile;
pub use quality::{
    Handlers, InferredCounts, InferredQuality, LIKELY_SAMPLES, Links, Quality, STATIC_SAMPLES, UNDETERMINED,
    WALKED_SAMPLES,
};
pub use query::{
    HandedOut, Inlined, Meant, Order, ProcedureCost, ProcessCost, Query, QueryError, Recursion, Regions, ThreadCost,
    View, ViewKind, ViewNode,
};
pub use ranks::{JobInfo, OverRanks, RankCosts, RankInfo, RankRow, Spread, listed, ranges};
pub use rows::Row;
pub use run::{CpuTime, ProcessInfo, RunInfo};
pub use scope::{CallSite, Scope, ScopeKind};
pub use tree::{NodeId, Tree};
