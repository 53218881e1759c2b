//! What the metric is called that everything is ordered by.

use callpath_db::Profile;

use super::printable::{cut_end, printable};

/// Its name.
pub(super) fn metric_name(profile: &Profile) -> String {
    profile.metrics.first().map_or_else(|| "cost".into(), |metric| printable(&metric.name))
}

/// What stands above a column of costs.
pub(super) fn cost_heading(profile: &Profile) -> String {
    match profile.metrics.first().map_or("", |metric| &metric.unit) {
        "ns" => "time".into(),
        unit => cut_end(&printable(unit), 9),
    }
}
