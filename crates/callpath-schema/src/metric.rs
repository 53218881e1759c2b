//! A metric: its name and unit, the type of its values, and how two of them are
//! combined. Which metrics exist is in `registry` only.

use crate::{Expression, MetricId};

/// One column of a profile. Metric 0 is the one by which views are sorted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its row in the registry; `None`: the profile was not recorded by this version of callpath.
    pub id: Option<MetricId>,
    /// As typed: `cpu-time`, `samples`.
    pub name: String,
    /// `ns`, `count`, `bytes` or `ratio`.
    pub unit: String,
    /// How values combine.
    pub kind: MetricKind,
    /// What the 64 bits of a value are.
    pub value: MetricType,
    /// Where values come from.
    pub source: MetricSource,
    /// It is counted for a procedure as a whole, not for its lines or loops.
    pub is_of_procedure: bool,
    /// A note against a likely misunderstanding.
    pub note: Option<String>,
}

impl Metric {
    /// Whether it is a bin of a histogram.
    pub fn is_of_histogram(&self) -> bool {
        matches!(self.value, MetricType::Histogram { .. })
    }

    /// Whether samples measure it: a clock, or an event that the kernel counts.
    pub fn is_sampled(&self) -> bool {
        matches!(self.source, MetricSource::Clock | MetricSource::Kernel)
    }

    /// A metric that adds up.
    pub fn sum(name: &str, unit: &str) -> Self {
        Metric {
            id: None,
            name: name.into(),
            unit: unit.into(),
            kind: MetricKind::Sum,
            value: MetricType::Integer,
            source: MetricSource::Kernel,
            is_of_procedure: false,
            note: None,
        }
    }

    /// A high-water mark.
    pub fn max(name: &str, unit: &str) -> Self {
        Metric { kind: MetricKind::Max, ..Metric::sum(name, unit) }
    }

    /// The least of all, but that 0 is none.
    pub fn min(name: &str, unit: &str) -> Self {
        Metric { kind: MetricKind::Min, ..Metric::sum(name, unit) }
    }

    /// The columns of a histogram of `bins` bins: equal but for the bin.
    pub fn histogram(name: &str, unit: &str, bins: u32) -> Vec<Self> {
        let column = |bin| Metric { value: MetricType::Histogram { bin }, ..Metric::sum(name, unit) };
        (0..bins).map(column).collect()
    }

    /// The same, with a note.
    pub fn noted(self, note: &str) -> Self {
        Metric { note: Some(note.into()), ..self }
    }

    /// A value from its 64 bits, with its type.
    pub fn value(&self, bits: u64) -> Value {
        match self.value {
            MetricType::Integer | MetricType::Histogram { .. } => Value::Integer(bits),
            MetricType::Signed => Value::Signed(bits as i64),
            MetricType::Real => Value::Real(f64::from_bits(bits)),
        }
    }

    /// Combines two of its values.
    pub fn rule(&self) -> Rule {
        let how = match self.kind {
            MetricKind::Sum => How::Add,
            MetricKind::Max => How::Max,
            MetricKind::Min => How::Min,
            MetricKind::Derived(_) => How::Nothing,
        };
        Rule { how, value: self.value }
    }
}

/// How two values of a metric are combined, without the metric's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    how: How,
    value: MetricType,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Add,
    Max,
    Min,
    /// A derived column holds nothing until a view computes it.
    Nothing,
}

impl Rule {
    /// `a` and `b` as one value. Integers saturate. Not for derived metrics.
    pub fn combine(self, a: u64, b: u64) -> u64 {
        match (self.how, self.value) {
            (How::Nothing, _) => 0,
            (How::Add, MetricType::Integer | MetricType::Histogram { .. }) => a.saturating_add(b),
            (How::Add, MetricType::Signed) => (a as i64).saturating_add(b as i64) as u64,
            (How::Add, MetricType::Real) => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
            (How::Max, _) if self.rank(a) >= self.rank(b) => a,
            (How::Max, _) => b,
            // 0 is no value.
            (How::Min, _) if a == 0 => b,
            (How::Min, _) if b == 0 || self.rank(a) <= self.rank(b) => a,
            (How::Min, _) => b,
        }
    }

    /// Whether values add up.
    pub fn adds_up(self) -> bool {
        self.how == How::Add
    }

    /// Whether values are integers that add up, so that sums can be taken from each other.
    pub fn is_integer_sum(self) -> bool {
        self.how == How::Add && self.value != MetricType::Real
    }

    /// A number that is greater for a greater value, whatever its type.
    pub fn rank(self, bits: u64) -> u64 {
        const SIGN: u64 = 1 << 63;
        match self.value {
            MetricType::Integer | MetricType::Histogram { .. } => bits,
            MetricType::Signed => bits ^ SIGN,
            MetricType::Real if bits & SIGN != 0 => !bits,
            MetricType::Real => bits | SIGN,
        }
    }
}

/// What the 64 bits of a value are. All zeros are 0 in each type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricType {
    /// An integer without a sign.
    Integer,
    /// An integer with a sign, two's complement.
    Signed,
    /// An IEEE 754 double.
    Real,
    /// How many values of something lie in a bin of a histogram, an integer.
    /// Columns of one histogram follow each other.
    Histogram {
        /// Values from 2^bin up to, and not including, 2^(bin + 1); bin 0 has 0, too.
        bin: u32,
    },
}

impl MetricType {
    /// `integer`, `signed`, `real` or `histogram`: the word of the JSON schema.
    pub fn word(self) -> &'static str {
        match self {
            MetricType::Integer => "integer",
            MetricType::Signed => "signed",
            MetricType::Real => "real",
            MetricType::Histogram { .. } => "histogram",
        }
    }
}

/// A value with its type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// See [`MetricType::Integer`].
    Integer(u64),
    /// See [`MetricType::Signed`].
    Signed(i64),
    /// See [`MetricType::Real`].
    Real(f64),
}

/// Where a metric's values come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricSource {
    /// A clock of the thread, read at each sample.
    Clock,
    /// The kernel's count of an event.
    Kernel,
    /// The sentinel, which counts returns.
    Sentinel,
    /// The number of samples.
    Samples,
    /// Other metrics.
    Computed,
    /// Probes: nothing is sampled.
    Probes,
}

impl MetricSource {
    /// Its number in files, the same for ever.
    pub fn number(self) -> u64 {
        match self {
            MetricSource::Clock => 0,
            MetricSource::Kernel => 1,
            MetricSource::Sentinel => 2,
            MetricSource::Samples => 3,
            MetricSource::Computed => 4,
            MetricSource::Probes => 5,
        }
    }

    /// The source with this number; `None`: there is none.
    pub fn from_number(number: u64) -> Option<MetricSource> {
        let sources = [
            MetricSource::Clock,
            MetricSource::Kernel,
            MetricSource::Sentinel,
            MetricSource::Samples,
            MetricSource::Computed,
            MetricSource::Probes,
        ];
        sources.into_iter().find(|source| source.number() == number)
    }

    /// The word of the JSON schema.
    pub fn word(self) -> &'static str {
        match self {
            MetricSource::Clock => "clock",
            MetricSource::Kernel => "kernel",
            MetricSource::Sentinel => "sentinel",
            MetricSource::Samples => "samples",
            MetricSource::Computed => "computed",
            MetricSource::Probes => "probes",
        }
    }
}

/// How two values of a metric become one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// They add up.
    Sum,
    /// The greater one stays: a high-water mark.
    Max,
    /// The smaller one stays, but that 0 is no value.
    Min,
    /// Stored nowhere; computed from the node's other metrics when a view is made.
    Derived(Formula),
}

impl MetricKind {
    /// `sum`, `max`, `min` or `derived`: the word of the JSON schema.
    pub fn word(&self) -> &'static str {
        match self {
            MetricKind::Sum => "sum",
            MetricKind::Max => "max",
            MetricKind::Min => "min",
            MetricKind::Derived(_) => "derived",
        }
    }
}

/// How a derived metric is computed. Metrics are referred to by name, so that merging may reorder columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Formula {
    /// `numerator * scale / denominator`; rounded down where it is an integer; 0 where the
    /// denominator is 0 or a metric is missing.
    Ratio {
        /// Name of the metric above the bar.
        numerator: String,
        /// Name of the metric below the bar.
        denominator: String,
        /// 100 for a percentage, and so on.
        scale: u64,
    },
    /// What a procedure costs for each time that something was counted of it itself, not of what it
    /// calls: `cost / count`, rounded down; the count is the procedure's own whichever cost it is. 0
    /// where there is no count, and of all but procedures.
    PerOwn {
        /// Name of the metric that is shared out.
        cost: String,
        /// Name of the metric that counts.
        count: String,
    },
    /// What somebody typed; a real number, 0 where it cannot be computed or a metric is missing.
    Expression(Expression),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_their_numbers() {
        let words = (0..7).map(|number| MetricSource::from_number(number).map(MetricSource::word));
        let expected = ["clock", "kernel", "sentinel", "samples", "computed", "probes"].map(Some);
        assert!(words.eq(expected.into_iter().chain([None])));
    }

    #[test]
    fn values_combine_by_type() {
        let of = |value| Metric { value, ..Metric::sum("m", "count") };
        assert_eq!(of(MetricType::Integer).rule().combine(u64::MAX, 5), u64::MAX);
        let signed = of(MetricType::Signed);
        assert_eq!(signed.value(signed.rule().combine(-7i64 as u64, 3)), Value::Signed(-4));
        let least = Metric { kind: MetricKind::Min, ..of(MetricType::Integer) }.rule();
        let pairs = [(0, 0), (0, 7), (7, 0), (7, 9), (9, 7)];
        assert_eq!(pairs.map(|(a, b)| least.combine(a, b)), [0, 7, 7, 7, 7]);
        let real = of(MetricType::Real);
        assert_eq!(real.value(real.rule().combine(0, 0.25f64.to_bits())), Value::Real(0.25));
        let highest = Metric { kind: MetricKind::Max, ..signed };
        assert_eq!(highest.value(highest.rule().combine(-7i64 as u64, -9i64 as u64)), Value::Signed(-7));
        let highest = Metric { kind: MetricKind::Max, ..real };
        assert_eq!(highest.value(highest.rule().combine((-0.5f64).to_bits(), (-2.0f64).to_bits())), Value::Real(-0.5));
        assert!(highest.rule().rank(1.0f64.to_bits()) > highest.rule().rank((-1.0f64).to_bits()));
    }
}
