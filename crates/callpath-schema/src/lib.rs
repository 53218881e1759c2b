//! Shared by measurements, profiles and views: the metrics, and the identity of a
//! calling context. No files, programs or trees here.

#![forbid(unsafe_code)]

mod context;
mod metric;
mod registry;

pub use context::ContextId;
pub use metric::{Formula, Metric, MetricKind, MetricSource, MetricType, Rule, Value};
pub use registry::{MetricId, derived_metrics};
