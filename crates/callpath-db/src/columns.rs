//! Which metrics of a profile are looked at: some of them, in another order, with others that are computed of them.

use callpath_schema::{Expression, ExpressionError, Formula, Metric, MetricKind, MetricSource, MetricType};

use crate::{Profile, nearest};

/// Why metrics cannot be looked at so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ColumnError {
    /// No metric has that name.
    #[error("failed to find a metric {wanted:?}; there are: {}", .there.join(", "))]
    NoSuchMetric {
        /// As asked.
        wanted: String,
        /// Those there are, the nearest first.
        there: Vec<String>,
    },
    /// A definition is not `NAME=FORMULA`.
    #[error("failed to define a metric by {definition:?}: it must be NAME=FORMULA, as ipc=instructions/cycles")]
    NoDefinition {
        /// As typed.
        definition: String,
    },
    /// What stands behind the `=` is no formula.
    #[error("failed to define the metric {name:?}: {error}")]
    NoFormula {
        /// Of the metric.
        name: String,
        /// Why.
        error: ExpressionError,
    },
    /// A metric of that name is there.
    #[error("failed to define the metric {name:?}: there is one; choose another name")]
    NameTaken {
        /// Of the metric.
        name: String,
    },
    /// A formula names a metric that has no single number.
    #[error("failed to compute with {name:?}: it is a histogram, which has a number for each bin")]
    NoNumber {
        /// Of the metric.
        name: String,
    },
    /// The first metric cannot be shared out.
    #[error("failed to show shares of {name:?}: it does not add up; name one before it that does")]
    NoShares {
        /// Of the metric.
        name: String,
    },
}

impl Profile {
    /// The column of a metric.
    pub fn column(&self, name: &str) -> Result<usize, ColumnError> {
        self.metrics.iter().position(|metric| metric.name == name).ok_or_else(|| self.no_such_metric(name))
    }

    fn no_such_metric(&self, wanted: &str) -> ColumnError {
        let names = || self.metrics.iter().map(|metric| metric.name.as_str());
        let mut there = nearest(wanted, names());
        for name in names() {
            if !there.iter().any(|near| near == name) {
                there.push(name.to_owned());
            }
        }
        ColumnError::NoSuchMetric { wanted: wanted.to_owned(), there }
    }

    /// Adds a metric that is computed of others, behind all others: `NAME=FORMULA`, as [`Expression`] has it.
    pub fn define(&mut self, definition: &str) -> Result<(), ColumnError> {
        let parts = definition.split_once('=').map(|(name, formula)| (name.trim(), formula));
        let Some((name, formula)) = parts.filter(|(name, _)| !name.is_empty()) else {
            return Err(ColumnError::NoDefinition { definition: definition.to_owned() });
        };
        let name = name.to_owned();
        let expression = match Expression::parse(formula) {
            Ok(expression) => expression,
            Err(error) => return Err(ColumnError::NoFormula { name, error }),
        };
        if self.metrics.iter().any(|metric| metric.name == name) {
            return Err(ColumnError::NameTaken { name });
        }
        for operand in expression.operands() {
            let column = self.column(operand.metric())?;
            if self.metrics[column].is_of_histogram() {
                return Err(ColumnError::NoNumber { name: operand.metric().to_owned() });
            }
        }
        let metric = Metric {
            kind: MetricKind::Derived(Formula::Expression(expression)),
            value: MetricType::Real,
            source: MetricSource::Computed,
            ..Metric::sum(&name, "ratio")
        };
        let rule = [metric.rule()];
        self.tree.widen(&rule);
        self.contexts.widen(&rule);
        self.metrics.push(metric);
        Ok(())
    }

    /// Puts the metrics with these names first, in this order; a name that is there twice counts once. Gives the number of
    /// columns that this makes, more than names where one is that of a histogram. The first one has to add up, or to be a
    /// high-water mark: shares and thresholds are of it.
    pub fn put_first(&mut self, names: &[impl AsRef<str>]) -> Result<usize, ColumnError> {
        let mut order: Vec<usize> = Vec::with_capacity(self.metrics.len());
        for name in names {
            self.column(name.as_ref())?;
            let columns = self.metrics.iter().enumerate().filter(|(_, metric)| metric.name == name.as_ref());
            for (column, _) in columns {
                if !order.contains(&column) {
                    order.push(column);
                }
            }
        }
        let chosen = order.len();
        if let Some(first) = order.first().map(|first| &self.metrics[*first])
            && (matches!(first.kind, MetricKind::Derived(_)) || first.is_of_histogram())
        {
            return Err(ColumnError::NoShares { name: first.name.clone() });
        }
        let rest: Vec<usize> = (0..self.metrics.len()).filter(|column| !order.contains(column)).collect();
        order.extend(rest);
        self.tree.reorder(&order);
        self.contexts.reorder(&order);
        self.metrics = order.iter().map(|column| self.metrics[*column].clone()).collect();
        Ok(chosen)
    }
}
