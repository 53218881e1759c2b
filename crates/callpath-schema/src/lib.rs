//! Shared by measurements, profiles and views: the metrics, the identity of a calling context, and how files hold
//! numbers and strings. No files, programs or trees here.

#![forbid(unsafe_code)]

mod bounds;
mod context;
pub mod encoding;
mod expression;
pub mod leb128;
mod measured_time;
mod metric;
mod metric_bytes;
mod path_category;
mod probes;
mod registry;

pub use bounds::Bounds;
pub use context::ContextId;
pub use expression::{Expression, ExpressionError, Operand};
pub use measured_time::{MeasuredTime, PATH_METRICS, PathMetric, PathTime, TimesAccount};
pub use metric::{Formula, Metric, MetricKind, MetricSource, MetricType, Rule, Value};
pub use path_category::{CALLS_ALONE, NOT_MEASURED, PathCategory, calls_were_counted};
pub use probes::{ProbeAccount, RefusedProbe};
pub use registry::{MetricId, derived_metrics};
