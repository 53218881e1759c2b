//! A metric in files: all that a reader needs of it, so that it need not know the metric.

use crate::encoding::{Malformed, Reader, Writer};
use crate::{Expression, Formula, Metric, MetricId, MetricKind, MetricSource, MetricType};

impl Metric {
    /// A row of the registry, as it was when the measurement was made: a reader need not know the metric.
    pub fn write(&self, w: &mut Writer) {
        let metric = self;
        w.number(metric.id.map_or(0, |id| u64::from(id.0)));
        w.string(&metric.name);
        w.string(&metric.unit);
        let (value, bin) = match metric.value {
            MetricType::Integer => (0, None),
            MetricType::Signed => (1, None),
            MetricType::Real => (2, None),
            MetricType::Histogram { bin } => (3, Some(bin)),
        };
        w.number(value);
        if let Some(bin) = bin {
            w.number(u64::from(bin));
        }
        w.number(metric.source.number());
        w.number(u64::from(metric.is_of_procedure));
        w.string(metric.note.as_deref().unwrap_or_default());
        match &metric.kind {
            MetricKind::Sum => w.number(0),
            MetricKind::Max => w.number(1),
            MetricKind::Min => w.number(5),
            MetricKind::Derived(Formula::PerOwn { cost, count }) => {
                w.number(2);
                w.string(cost);
                w.string(count);
            }
            MetricKind::Derived(Formula::Ratio { numerator, denominator, scale }) => {
                w.number(3);
                w.string(numerator);
                w.string(denominator);
                w.number(*scale);
            }
            MetricKind::Derived(Formula::Expression(expression)) => {
                w.number(4);
                w.string(expression.text());
            }
        }
    }

    /// What [`Metric::write`] wrote.
    pub fn read(r: &mut Reader<'_>) -> Result<Metric, Malformed> {
        let id = r.small("metric")?;
        let (name, unit) = (r.string()?, r.string()?);
        let value = match r.number()? {
            0 => MetricType::Integer,
            1 => MetricType::Signed,
            2 => MetricType::Real,
            3 => MetricType::Histogram { bin: r.small("bin of a histogram")? },
            _ => return Err(r.malformed("type of a metric")),
        };
        let source = MetricSource::from_number(r.number()?).ok_or_else(|| r.malformed("source of a metric"))?;
        let is_of_procedure = r.number()? != 0;
        let note = Some(r.string()?).filter(|note| !note.is_empty());
        let kind = match r.number()? {
            0 => MetricKind::Sum,
            1 => MetricKind::Max,
            5 => MetricKind::Min,
            2 => MetricKind::Derived(Formula::PerOwn { cost: r.string()?, count: r.string()? }),
            3 => {
                let (numerator, denominator) = (r.string()?, r.string()?);
                MetricKind::Derived(Formula::Ratio { numerator, denominator, scale: r.number()? })
            }
            4 => {
                let expression = Expression::parse(&r.string()?).map_err(|_| r.malformed("formula of a metric"))?;
                MetricKind::Derived(Formula::Expression(expression))
            }
            _ => return Err(r.malformed("kind of a metric")),
        };
        let id = Some(MetricId(id)).filter(|id| id.0 != 0);
        Ok(Metric { id, name, unit, kind, value, source, is_of_procedure, note })
    }
}
