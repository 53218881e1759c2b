//! What `callpath probe -m` measures of calls: each name is a gauge, and each of its columns an event.

use callpath_format::shared::Settings;
use callpath_format::shared::gauge::{Gauge, Part};
use callpath_schema::{Metric, MetricId, Rule};

use super::program::{self, ExpressionError};
use super::{Event, EventSource, MAX_EVENTS};

/// What a probe of a procedure measures: a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Probed {
    pub(crate) meter: u32,
    pub(crate) part: Part,
    pub(super) id: MetricId,
}

impl Probed {
    /// Its row in the registry of metrics.
    pub(super) fn metric(self, name: &str) -> Metric {
        match self.meter {
            Settings::PROBED_LATENCY | Settings::PROBED_ARGUMENT | Settings::PROBED_RESULT => {
                Metric::bin_of(self.id, name, u32::from(self.part.nth))
            }
            _ => Metric::named(self.id, name),
        }
    }
}

/// How two values of a meter become one.
pub(crate) fn rule_of(meter: u32) -> Rule {
    let id = match meter {
        Settings::PROBED_SHORTEST => MetricId::SHORTEST,
        Settings::PROBED_LONGEST => MetricId::LONGEST,
        Settings::PROBED_CONTEXT => MetricId::CONTEXT,
        _ => MetricId::CALLS,
    };
    Metric::of(id).rule()
}

/// What `-m` names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeMetric {
    name: String,
    meter: u32,
    part: Part,
    program: Vec<u64>,
    /// There are calls of which an expression has no value.
    can_fail: bool,
}

/// The names that are no argument, result or expression.
const NAMES: [(&str, u32, MetricId); 9] = [
    ("calls", Settings::CALLS, MetricId::CALLS),
    ("wall-time", Settings::PROBED_TICKS, MetricId::TIMED),
    ("wall-time:min", Settings::PROBED_SHORTEST, MetricId::SHORTEST),
    ("wall-time:max", Settings::PROBED_LONGEST, MetricId::LONGEST),
    ("wall-time:histogram", Settings::PROBED_LATENCY, MetricId::LATENCY),
    ("cpu-time", Settings::PROBED_CPU, MetricId::TIMED_CPU),
    ("wait-time", Settings::PROBED_WAIT, MetricId::WAITED),
    ("io-time", Settings::PROBED_IO, MetricId::WAITED_FOR_IO),
    ("context", Settings::PROBED_CONTEXT, MetricId::CONTEXT),
];

/// Why a text names nothing that probes measure.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProbeMetricError {
    /// It is unknown.
    #[error("unknown metric `{0}`")]
    Unknown(String),
    /// An argument or a type that is not there.
    #[error("`{0}`: write arg:N, N from 1 to 6, or ret; behind it :u8, :u16 or :u32 for a narrower type")]
    Malformed(String),
    /// An expression that is none.
    #[error("`{name}`: {error}")]
    Expression {
        /// As it was typed.
        name: String,
        /// Where it is wrong.
        error: ExpressionError,
    },
    /// A name for an expression that another metric has, or that is none.
    #[error(
        "`{0}` cannot be the name of an expression: it is a metric's, or has other signs than letters, digits, - and _"
    )]
    Name(String),
    /// Two expressions of one name.
    #[error("`{0}` is two expressions")]
    Twice(String),
    /// More than there are columns for.
    #[error("the metrics have {columns} columns; {MAX_EVENTS} can be recorded at once, of {} metrics", Gauge::MOST)]
    TooMany {
        /// Bins of histograms have one each.
        columns: usize,
    },
}

impl ProbeMetric {
    /// Names that may be typed.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().map(|(name, ..)| name).chain(["arg:1", "arg:2", "arg:3", "arg:4", "arg:5", "arg:6", "ret"])
    }

    /// What a text names.
    ///
    /// # Errors
    /// If that is nothing.
    pub fn parse(text: &str) -> Result<ProbeMetric, ProbeMetricError> {
        let plain =
            |meter, part| ProbeMetric { name: text.to_owned(), meter, part, program: Vec::new(), can_fail: false };
        if let Some((name, expression)) = text.split_once('=') {
            return ProbeMetric::computed(name.trim(), expression);
        }
        if let Some((_, meter, _)) = NAMES.into_iter().find(|(name, ..)| *name == text) {
            return Ok(plain(meter, Part::default()));
        }
        let malformed = || ProbeMetricError::Malformed(text.to_owned());
        let bits = |narrowed: Option<&str>| match narrowed {
            None | Some("u64") => Ok(64),
            Some("u32") => Ok(32),
            Some("u16") => Ok(16),
            Some("u8") => Ok(8),
            Some(_) => Err(malformed()),
        };
        let mut words = text.split(':');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("arg"), Some(number), narrowed, None) => {
                let number = number.parse().ok().filter(|number| (1..=6).contains(number)).ok_or_else(malformed)?;
                Ok(plain(Settings::PROBED_ARGUMENT, Part { number, bits: bits(narrowed)?, ..Part::default() }))
            }
            (Some("ret"), narrowed, None, None) => {
                Ok(plain(Settings::PROBED_RESULT, Part { bits: bits(narrowed)?, ..Part::default() }))
            }
            (Some("arg" | "ret"), ..) => Err(malformed()),
            _ => Err(ProbeMetricError::Unknown(text.to_owned())),
        }
    }

    fn computed(name: &str, expression: &str) -> Result<ProbeMetric, ProbeMetricError> {
        let is_sign = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_taken = ProbeMetric::names().chain(["arg", "samples"]).any(|known| known == name);
        if is_taken || name.is_empty() || !name.chars().all(is_sign) {
            return Err(ProbeMetricError::Name(name.to_owned()));
        }
        let compiled = program::compile(expression);
        let program::Program { words, can_fail } =
            compiled.map_err(|error| ProbeMetricError::Expression { name: name.to_owned(), error })?;
        let part = Part { program_words: words.len() as u8, ..Part::default() };
        let meter = Settings::PROBED_EXPRESSION;
        Ok(ProbeMetric { name: name.to_owned(), meter, part, program: words, can_fail })
    }

    fn gauge(&self) -> Gauge {
        Gauge { meter: self.meter, ..Gauge::NONE }
    }

    /// Whether exits are probed for it.
    pub fn needs_exit(&self) -> bool {
        self.gauge().needs_exit()
    }

    /// Whether quick routines measure it, which preserve no flags.
    pub fn is_quick(&self) -> bool {
        self.gauge().is_quick()
    }

    /// Its columns.
    fn events(&self) -> Vec<Event> {
        let column = |id, name: String, nth| {
            let part = Part { nth: nth as u8, ..self.part };
            Event {
                name,
                source: EventSource::Probed(Probed { meter: self.meter, part, id }),
                program: Vec::new(),
                is_for_off_cpu: false,
            }
        };
        let bins = |id, count: u32| (0..count).map(|bin| column(id, self.name.clone(), bin)).collect();
        match self.meter {
            Settings::PROBED_LATENCY => bins(MetricId::LATENCY, Gauge::LATENCY_BINS),
            Settings::PROBED_ARGUMENT => bins(MetricId::ARGUMENT, u32::from(self.part.bits)),
            Settings::PROBED_RESULT => bins(MetricId::RESULT, u32::from(self.part.bits)),
            Settings::PROBED_EXPRESSION => {
                let value = Event { program: self.program.clone(), ..column(MetricId::COMPUTED, self.name.clone(), 0) };
                let failed = || column(MetricId::UNREADABLE, format!("{}:unreadable", self.name), 1);
                std::iter::once(value).chain(self.can_fail.then(failed)).collect()
            }
            meter => {
                let id = NAMES.into_iter().find(|(_, of, _)| *of == meter).map_or(MetricId::CALLS, |(.., id)| id);
                vec![column(id, self.name.clone(), 0)]
            }
        }
    }
}

/// The events of what a probe measures: the calls, then the time if it is asked for, then all else as it was typed. Each
/// once.
///
/// # Errors
/// If they are too many, or two are of one name.
pub fn probe_events(asked: &[ProbeMetric]) -> Result<Vec<Event>, ProbeMetricError> {
    let mut metrics: Vec<ProbeMetric> = Vec::new();
    let calls = ProbeMetric::parse("calls")?;
    for metric in std::iter::once(&calls).chain(asked) {
        match metrics.iter().find(|earlier| earlier.name == metric.name) {
            None => metrics.push(metric.clone()),
            Some(same) if same == metric => {}
            Some(_) => return Err(ProbeMetricError::Twice(metric.name.clone())),
        }
    }
    metrics.sort_by_key(|metric| match metric.meter {
        Settings::CALLS => 0,
        Settings::PROBED_TICKS => 1,
        _ => 2,
    });
    let mut numbers = 0..=u8::MAX;
    let events: Vec<Event> = metrics
        .iter()
        .flat_map(|metric| {
            // Two expressions that read the same are two gauges.
            let number = numbers.next().unwrap_or(u8::MAX);
            let part = match metric.meter {
                Settings::PROBED_EXPRESSION => Part { number, ..metric.part },
                _ => metric.part,
            };
            ProbeMetric { part, ..metric.clone() }.events()
        })
        .collect();
    if events.len() > MAX_EVENTS || metrics.len() > Gauge::MOST {
        return Err(ProbeMetricError::TooMany { columns: events.len() });
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(typed: &[&str]) -> Result<Vec<(String, String)>, ProbeMetricError> {
        let metrics: Result<Vec<ProbeMetric>, _> = typed.iter().map(|typed| ProbeMetric::parse(typed)).collect();
        let events = probe_events(&metrics?)?;
        Ok(events.iter().map(|event| (event.name.clone(), event.metric().kind.word().to_owned())).collect())
    }

    #[test]
    fn calls_and_time_come_first_and_each_once() {
        let found = columns(&["wall-time:max", "cpu-time", "wall-time", "calls", "wall-time:min", "cpu-time"]).unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
        assert_eq!(
            found,
            [
                ("calls", "sum"),
                ("wall-time", "sum"),
                ("wall-time:max", "max"),
                ("cpu-time", "sum"),
                ("wall-time:min", "min")
            ]
        );
    }

    #[test]
    fn histograms_have_a_column_for_each_bin() {
        let count = |typed: &str| columns(&[typed]).unwrap().len() - 1;
        let counts = ["arg:1", "arg:6:u32", "ret", "ret:u8", "wall-time:histogram", "x=arg1", "x=u8[arg1]"].map(count);
        assert_eq!(counts, [64, 32, 64, 8, 48, 1, 2]);
    }

    #[test]
    fn exits_are_probed_for_what_is_known_only_there() {
        let needs_exit = |typed: &&str| ProbeMetric::parse(typed).unwrap().needs_exit();
        assert!(!["calls", "arg:1", "arg:6:u8", "x=u32[arg1]"].iter().any(needs_exit));
        let timed = NAMES.iter().map(|(name, ..)| *name).filter(|name| *name != "calls");
        assert!(timed.chain(["ret", "ret:u8"]).all(|name| needs_exit(&name)));
    }

    #[test]
    fn what_cannot_be_measured_is_said() {
        let why = |typed: &[&str]| columns(typed).expect_err("it cannot").to_string();
        assert_eq!(why(&["call"]), "unknown metric `call`");
        assert!(why(&["arg:7"]).starts_with("`arg:7`: write arg:N, N from 1 to 6"));
        assert!(why(&["arg:1:f32"]).starts_with("`arg:1:f32`: write"));
        assert_eq!(why(&["size=arg9"]), "`size`: expected arg1 to arg6 at character 1");
        assert!(why(&["calls=arg1"]).starts_with("`calls` cannot be the name"));
        assert_eq!(why(&["a=arg1", "a=arg2"]), "`a` is two expressions");
        let many: Vec<String> = (0..40).map(|number| format!("n{number}=arg1")).collect();
        assert!(why(&many.iter().map(String::as_str).collect::<Vec<_>>()).contains("can be recorded at once"));
    }
}
