//! A profile with its options, as everything that writes text takes them.

use callpath_db::{Metric, MetricSource, MetricType, Profile};

use super::options::TextOptions;
use super::paint::{Ink, Paint};
use super::printable::{cut_end, printable};

/// What is shown on a page, and how.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    pub(super) profile: &'a Profile,
    pub(super) options: &'a TextOptions,
}

impl<'a> Page<'a> {
    /// Coloured text, where there may be colour.
    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        Paint { color: self.options.color }.with(ink, text)
    }

    /// What the metric is called that everything is ordered by.
    pub(super) fn metric_name(self) -> String {
        self.profile.metrics.first().map_or_else(|| "cost".into(), |metric| printable(&metric.name))
    }

    /// The metrics that may have a column besides the first one. Where none were chosen, not the number of samples, which
    /// says nothing of cost. A histogram is not a number.
    pub(super) fn further_metrics(self) -> impl Iterator<Item = (usize, &'a Metric)> {
        let Page { profile, options } = self;
        let is_number = |metric: &Metric| !matches!(metric.value, MetricType::Histogram { .. });
        let is_shown = move |metric: &Metric| options.columns.is_some() || metric.source != MetricSource::Samples;
        let chosen = profile.metrics.iter().take(options.columns.unwrap_or(usize::MAX)).enumerate().skip(1);
        chosen.filter(move |(_, metric)| is_shown(metric) && is_number(metric))
    }

    /// What stands above a column of its costs.
    pub(super) fn cost_heading(self) -> String {
        match self.profile.metrics.first().map_or("", |metric| &metric.unit) {
            "ns" => "time".into(),
            unit => cut_end(&printable(unit), 9),
        }
    }
}
