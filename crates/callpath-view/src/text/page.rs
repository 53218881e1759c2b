//! A profile with its options, as everything that writes text takes them.

use callpath_db::Profile;

use super::options::TextOptions;
use super::paint::{Ink, Paint};
use super::printable::{cut_end, printable};

/// What is shown on a page, and how.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    pub(super) profile: &'a Profile,
    pub(super) options: &'a TextOptions,
}

impl Page<'_> {
    /// Coloured text, where there may be colour.
    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        Paint { color: self.options.color }.with(ink, text)
    }

    /// What the metric is called that everything is ordered by.
    pub(super) fn metric_name(self) -> String {
        self.profile.metrics.first().map_or_else(|| "cost".into(), |metric| printable(&metric.name))
    }

    /// What stands above a column of its costs.
    pub(super) fn cost_heading(self) -> String {
        match self.profile.metrics.first().map_or("", |metric| &metric.unit) {
            "ns" => "time".into(),
            unit => cut_end(&printable(unit), 9),
        }
    }
}
