//! Intervals and tests for the difference of two means, and the control of false discoveries.
//! What is compared is not known here.

/// Probability with which an interval holds the true difference.
pub const CONFIDENCE: f64 = 0.95;

/// How differences are tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// Several runs a side: Welch's t test on the difference of means, from the variance between runs.
    Welch,
    /// Runs in pairs that ran side by side: Student's t test on the differences of the pairs.
    Paired,
    /// One run on a side: the noise of sampling, each sample a Poisson event.
    Sampling,
    /// One run on a side, of which everything was counted: what it says of that run is true.
    Counted,
}

/// What one thing cost in each run of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'a> {
    /// By run.
    pub(super) costs: &'a [f64],
    /// Cost of one sample, by run; 0: everything was counted.
    pub(super) sample_costs: &'a [f64],
}

/// An estimate with its uncertainty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Estimate {
    /// B less A.
    pub(super) difference: f64,
    /// Standard error of the difference.
    pub(super) error: f64,
    /// Degrees of freedom; infinite for a normal distribution.
    pub(super) freedom: f64,
}

impl Runs<'_> {
    pub(super) fn mean(self) -> f64 {
        self.costs.iter().sum::<f64>() / self.costs.len().max(1) as f64
    }

    /// The mean cost of a sample.
    fn sample_cost(self) -> f64 {
        self.sample_costs.iter().sum::<f64>() / self.sample_costs.len().max(1) as f64
    }

    /// Variance between runs; none of a single one. A cost is known to a sample at best, so the variance
    /// is at least that of a cost that lies between two whole numbers of samples.
    fn variance(self) -> Option<f64> {
        let count = self.costs.len();
        if count < 2 {
            return None;
        }
        let mean = self.mean();
        let squares: f64 = self.costs.iter().map(|cost| (cost - mean).powi(2)).sum();
        Some((squares / (count - 1) as f64).max(self.sample_cost().powi(2) / 4.0))
    }

    /// Variance of one run by the noise of sampling: a cost of n samples varies by n samples squared. That of nothing is
    /// taken for one sample's.
    fn sampling_variance(self) -> f64 {
        self.mean().max(self.sample_cost()) * self.sample_cost()
    }
}

/// The difference of two sides' means by `test`. `Test::Paired` takes as many runs on either side.
pub(super) fn estimate(test: Test, a: Runs<'_>, b: Runs<'_>) -> Estimate {
    let difference = b.mean() - a.mean();
    if test == Test::Paired {
        let differences: Vec<f64> = b.costs.iter().zip(a.costs).map(|(b, a)| b - a).collect();
        // Two costs, each known to a sample at best.
        let sample = a.sample_cost().powi(2) + b.sample_cost().powi(2);
        let count = differences.len() as f64;
        let squares: f64 = differences.iter().map(|each| (each - difference).powi(2)).sum();
        let variance = (squares / (count - 1.0)).max(sample / 4.0);
        return Estimate { difference, error: (variance / count).sqrt(), freedom: count - 1.0 };
    }
    match (a.variance(), b.variance()) {
        (Some(of_a), Some(of_b)) => {
            // Welch 1947, with the degrees of freedom of Satterthwaite 1946.
            let (count_a, count_b) = (a.costs.len() as f64, b.costs.len() as f64);
            let (share_a, share_b) = (of_a / count_a, of_b / count_b);
            let sum = share_a + share_b;
            let freedom = sum.powi(2) / (share_a.powi(2) / (count_a - 1.0) + share_b.powi(2) / (count_b - 1.0));
            Estimate { difference, error: sum.sqrt(), freedom: if freedom.is_finite() { freedom } else { 1.0 } }
        }
        // The single run of one side varies as those of the other do, if these vary more than their samples say.
        (known, of_b) => {
            let (runs, variance) = match (known, of_b) {
                (Some(variance), None) => (a.costs.len(), variance),
                (None, Some(variance)) => (b.costs.len(), variance),
                _ => (0, 0.0),
            };
            let of = |side: Runs<'_>| side.sampling_variance().max(variance) / side.costs.len().max(1) as f64;
            let freedom = if runs > 1 { runs as f64 - 1.0 } else { f64::INFINITY };
            Estimate { difference, error: (of(a) + of(b)).sqrt(), freedom }
        }
    }
}

impl Estimate {
    /// Half the width of the interval that holds the true difference with the probability [`CONFIDENCE`].
    pub(super) fn half_width(self) -> f64 {
        self.error * quantile(0.5 + CONFIDENCE / 2.0, self.freedom)
    }

    /// Probability of a difference as large as this, in either direction, where there is none.
    pub(super) fn two_sided(self) -> f64 {
        2.0 * upper_tail(self.score().abs(), self.freedom)
    }

    /// Probability of a difference as large as this, or larger, where B is not above A.
    pub(super) fn above(self) -> f64 {
        upper_tail(self.score(), self.freedom)
    }

    fn score(self) -> f64 {
        match (self.difference, self.error) {
            (difference, error) if error > 0.0 => difference / error,
            (0.0, _) => 0.0,
            (difference, _) => difference * f64::INFINITY,
        }
    }
}

/// Benjamini and Hochberg 1995: which of these tests are discoveries, if of all discoveries the share `rate` may be
/// false, on average. In the order of `probabilities`.
pub(super) fn discoveries(probabilities: &[f64], rate: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]));
    let is_below = |rank: usize| probabilities[order[rank]] <= rate * (rank + 1) as f64 / order.len() as f64;
    let found = (0..order.len()).rev().find(|&rank| is_below(rank)).map_or(0, |last| last + 1);
    let mut is_discovery = vec![false; probabilities.len()];
    order[..found].iter().for_each(|&test| is_discovery[test] = true);
    is_discovery
}

/// Probability that Student's t with this many degrees of freedom is above `score`.
fn upper_tail(score: f64, freedom: f64) -> f64 {
    if score < 0.0 {
        return 1.0 - upper_tail(-score, freedom);
    }
    if !score.is_finite() {
        return 0.0;
    }
    if freedom.is_infinite() {
        return 0.5 * complementary_error(score / std::f64::consts::SQRT_2);
    }
    0.5 * incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + score * score))
}

/// The complementary error function of 0 and more, by Chebyshev fitting: its relative error is below 1.2e-7 everywhere (Numerical
/// Recipes, section 6.2). A fraction as below takes thousands of steps for an infinite number of degrees of freedom.
fn complementary_error(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient);
    t * (sum - x * x).exp()
}

/// The score that Student's t is below with this probability, of 0.5 and more. `freedom`: degrees.
pub fn quantile(probability: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if upper_tail(middle, freedom) > 1.0 - probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The regularized incomplete beta function, by Lentz's continued fraction (Numerical Recipes, section 6.4).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = ln_beta_factor(a, b) + a * x.ln() + b * (-x).ln_1p();
    if x < (a + 1.0) / (a + b + 2.0) {
        front.exp() * fraction(a, b, x) / a
    } else {
        1.0 - front.exp() * fraction(b, a, 1.0 - x) / b
    }
}

fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let not_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / not_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..20_000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for term in [even, odd] {
            d = 1.0 / not_zero(1.0 + term * d);
            c = not_zero(1.0 + term / c);
            factor = c * d;
            result *= factor;
        }
        if (factor - 1.0_f64).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// Logarithm of gamma(a + b) / (gamma(a) gamma(b)).
fn ln_beta_factor(a: f64, b: f64) -> f64 {
    ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)
}

/// Logarithm of the gamma function for positive arguments, by Lanczos's approximation.
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let terms = COEFFICIENTS.iter().enumerate().skip(1).map(|(i, coefficient)| coefficient / (x + i as f64));
    let sum = COEFFICIENTS[0] + terms.sum::<f64>();
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of printed tables of Student's distribution.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        let cases = [
            (0.975, 1.0, 12.706),
            (0.975, 9.0, 2.262),
            (0.95, 18.0, 1.734),
            (0.9995, 5.0, 6.869),
            (0.975, f64::INFINITY, 1.960),
        ];
        for (probability, freedom, expected) in cases {
            let found = quantile(probability, freedom);
            assert!((found - expected).abs() < 6e-4, "{probability} {freedom}: {found}");
        }
        assert!((upper_tail(-2.262, 9.0) - 0.975).abs() < 1e-4);
        assert_eq!(upper_tail(f64::INFINITY, 3.0), 0.0);
        // Of the normal distribution: one sided 1.645, 3.090, 6.
        for (score, expected) in [(1.644_854, 0.05), (3.090_232, 1e-3), (6.0, 9.865_876e-10)] {
            let found = upper_tail(score, f64::INFINITY);
            assert!((found / expected - 1.0).abs() < 1e-5, "{score}: {found}");
        }
    }

    /// A worked example: means 20 and 23, variances 10 and 2.5 of 5 each; t = 3 / sqrt(2.5), 5.88 degrees.
    #[test]
    fn welch_by_hand() {
        let (a, b) = ([16.0, 18.0, 20.0, 22.0, 24.0], [21.0, 22.0, 23.0, 24.0, 25.0]);
        let one = [1e-3; 5];
        let runs = |costs| Runs { costs, sample_costs: &one };
        let found = estimate(Test::Welch, runs(&a), runs(&b));
        assert!((found.difference - 3.0).abs() < 1e-12 && (found.error - 2.5f64.sqrt()).abs() < 1e-12);
        assert!((found.freedom - 5.882).abs() < 1e-3, "{}", found.freedom);
        // The pairs differ by 5, 4, 3, 2, 1.
        let paired = estimate(Test::Paired, runs(&a), runs(&b));
        assert!((paired.error - 0.5f64.sqrt()).abs() < 1e-12 && paired.freedom == 4.0);
    }

    #[test]
    fn one_run_a_side_varies_as_its_samples_do() {
        let runs = |costs| Runs { costs, sample_costs: &[1e6] };
        let found = estimate(Test::Sampling, runs(&[100e6]), runs(&[144e6]));
        assert!((found.error - 244f64.sqrt() * 1e6).abs() < 1.0);
        assert!((found.half_width() / found.error - 1.96).abs() < 1e-3);
        // Nothing at all against one sample says nothing.
        assert!(estimate(Test::Sampling, runs(&[0.0]), runs(&[1e6])).two_sided() > 0.4);
    }

    #[test]
    fn equal_runs_of_whole_samples_are_not_certain() {
        let (zero, one) = ([0.0; 2], [1e6; 2]);
        let runs = |costs| Runs { costs, sample_costs: &one };
        let found = estimate(Test::Welch, runs(&zero), runs(&one));
        assert!(found.two_sided() > 0.05, "{}", found.two_sided());
        assert_eq!(estimate(Test::Welch, runs(&zero), runs(&zero)).difference, 0.0);
    }

    /// The example of the paper: 15 tests, of which the procedure finds 4.
    #[test]
    fn discoveries_as_benjamini_and_hochberg_found_them() {
        let probabilities = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        let found = discoveries(&probabilities, 0.05);
        assert_eq!(found.iter().filter(|found| **found).count(), 4);
        assert!(found[..4].iter().all(|found| *found));
        assert!(discoveries(&[], 0.05).is_empty());
    }

    /// Sets of ten runs a side that are all the same: the share of wrong discoveries is what it is said to be.
    #[test]
    fn equal_sides_are_seldom_told_apart() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut normal = move || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let one = [1.0; 10];
        let (mut wrong, mut sets) = (0, 0);
        for _ in 0..1000 {
            let probabilities: Vec<f64> = (0..20)
                .map(|_| {
                    let mut side = || -> Vec<f64> { (0..10).map(|_| 1000.0 + 30.0 * normal()).collect() };
                    let (a, b) = (side(), side());
                    let runs = |costs| Runs { costs, sample_costs: &one };
                    estimate(Test::Welch, runs(&a), runs(&b)).two_sided()
                })
                .collect();
            wrong += usize::from(discoveries(&probabilities, 0.05).contains(&true));
            sets += 1;
        }
        let share = f64::from(wrong as u32) / f64::from(sets);
        assert!((0.025..0.075).contains(&share), "{share}");
    }
}
