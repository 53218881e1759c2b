//! Numbers as a person reads them: three digits and a unit, percentages, thousands.

use callpath_db::{Metric, Value};

/// The bits of a metric's value, as [`value`] has it.
pub(super) fn cell(bits: u64, metric: &Metric) -> String {
    match metric.value(bits) {
        Value::Integer(number) => value(number, &metric.unit),
        Value::Signed(number) if number < 0 => format!("-{}", value(number.unsigned_abs(), &metric.unit)),
        Value::Signed(number) => value(number.unsigned_abs(), &metric.unit),
        Value::Real(number) if metric.unit == "ratio" => ratio(number),
        Value::Real(number) if number < 0.0 => format!("-{}", value(-number as u64, &metric.unit)),
        Value::Real(number) => value(number as u64, &metric.unit),
    }
}

/// `0.0123`, `1.25`, `123,456`, `12.3M`.
pub(super) fn ratio(number: f64) -> String {
    let sign = if number < 0.0 { "-" } else { "" };
    match number.abs() {
        size if size >= 999.5 => format!("{sign}{}", value(size.round() as u64, "ratio")),
        // Two digits that are not 0.
        size if size > 0.0 && size < 0.095 => match (-size.log10()).ceil() as usize + 1 {
            decimals @ ..=6 => format!("{sign}{size:.decimals$}"),
            _ => format!("{sign}{size:.1e}"),
        },
        size => format!("{sign}{size:.2}"),
    }
}

/// A number of a unit, at most 9 columns wide: `4.18 s`, `45.6 ms`, `12,345`, `1.50 MiB`.
pub(super) fn value(value: u64, unit: &str) -> String {
    match unit {
        "ns" => duration(value),
        "bytes" => bytes(value),
        _ if value < 10_000_000 => thousands(value),
        _ => scaled(value as f64, &[("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15), ("E", 1e18)]),
    }
}

/// Nanoseconds.
pub(super) fn duration(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns} ns");
    }
    let units = [(" us", 1e3), (" ms", 1e6), (" s", 1e9)];
    match ns {
        ..999_500_000_000 => scaled(ns as f64, &units),
        // Beyond three digits of seconds.
        999_500_000_000..6_000_000_000_000 => format!("{} min", three_digits(ns as f64 / 60e9)),
        _ => format!("{} h", three_digits(ns as f64 / 3600e9)),
    }
}

fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    const K: f64 = 1024.0;
    let units = [(" KiB", K), (" MiB", K * K), (" GiB", K * K * K), (" TiB", K * K * K * K)];
    scaled(count as f64, &units)
}

/// In the smallest unit that leaves at most three digits before the point.
fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let fits = units.iter().find(|(_, size)| value / size < 999.5).or(units.last());
    fits.map_or_else(String::new, |(unit, size)| format!("{}{unit}", three_digits(value / size)))
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// `1234567` as `1,234,567`.
pub(super) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 thread`, `3,000 threads`: how many, and the word for one or for more.
pub fn count(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", thousands(count), if count == 1 { one } else { more })
}

/// A share of a whole, to a tenth of a percent: `12.3%`; a non-zero one that rounds to nothing is `<0.1%`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if part > 0 && percent < 0.05 { "<0.1%".into() } else { format!("{percent:.1}%") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_db::MetricType;

    #[test]
    fn cells_of_each_type() {
        let of = |value, unit| Metric { value, ..Metric::sum("m", unit) };
        assert_eq!(cell(1536, &of(MetricType::Integer, "bytes")), "1.50 KiB");
        assert_eq!(cell(-1536i64 as u64, &of(MetricType::Signed, "bytes")), "-1.50 KiB");
        assert_eq!(cell(1.256f64.to_bits(), &of(MetricType::Real, "ratio")), "1.26");
        assert_eq!(cell((-2e9f64).to_bits(), &of(MetricType::Real, "ns")), "-2.00 s");
    }

    #[test]
    fn three_digits_and_a_unit() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_996, "10.0 us"),
            (45_600_000, "45.6 ms"),
            (999_499_999, "999 ms"),
            (999_600_000, "1.00 s"),
            (4_180_000_000, "4.18 s"),
            (100_000_000_000, "100 s"),
            (1_000_000_000_000, "16.7 min"),
            (7_200_000_000_000, "2.00 h"),
            (u64::MAX, "5124096 h"),
        ];
        for (ns, expected) in cases {
            assert_eq!(duration(ns), expected, "{ns}");
        }
        assert_eq!(value(1536, "bytes"), "1.50 KiB");
        assert_eq!(value(1023, "bytes"), "1023 B");
        assert_eq!(value(1_234_567, "count"), "1,234,567");
        assert_eq!(value(123_456_789, "count"), "123M");
    }

    #[test]
    fn shares() {
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(percent(1, 100_000), "<0.1%");
        assert_eq!(percent(0, 100), "0.0%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(thousands(100), "100");
        assert_eq!(thousands(1000), "1,000");
    }
}
