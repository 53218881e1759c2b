//! `cargo xtask bench-infer --five-pairs`: how often a map that was trained on one input tells the call paths of another, and how many paths an
//! identifier has (Mytkowicz, Coughlin and Diwan 2009, sections 9.2 and 9.3). Each program has five inputs; a pair is one and the next.

use anyhow::Context;
use serde_json::Value;

use super::infer::Bench;
use crate::suite::{self, variants};

/// Those that have five inputs. C++ are povray, xalan and cc1plus; gnugo, xalan and cc1plus are kin of what failed in the paper (8.2).
pub(super) const PROGRAMS: &str = "xz,bzip2,zstd,sqlite3,perl,openssl,python3,hmmer,povray,xalan,gnugo,cc1plus";

/// As `map check` calls them, and as the table does.
const VERDICTS: [(&str, &str); 8] = [
    ("precise", "precise"),
    ("likely", "likely"),
    ("ambiguous", "ambiguous"),
    ("missing", "missing"),
    ("undetermined", "no height"),
    ("wrong", "precise, wrong"),
    ("unlikely", "likely, wrong"),
    ("incorrect", "ambiguous, wrong"),
];

/// So many paths at most.
const DEGREES: [u64; 7] = [1, 2, 3, 4, 5, 10, 20];

/// Of what a map answers for a pair: percent of distinct paths, and of samples, by verdict.
type Answers = [[f64; 2]; VERDICTS.len()];

/// Of one map, the percentage of call paths, and of calls, whose identifier has so many paths at most.
type Curve = [[f64; 2]; DEGREES.len()];

/// Prints the tables.
pub(super) fn print(bench: &Bench, programs: &[&suite::Program]) -> anyhow::Result<()> {
    let (mut answers, mut curves) = (Vec::new(), Vec::new());
    for program in programs {
        eprintln!("{} ...", program.name);
        match bench.pairs(program) {
            Ok(pairs) => {
                answers.push(answers_row(program.name, &pairs));
                curves.push(curve_row(program.name, &pairs));
            }
            Err(error) => println!("{}: SKIPPED: {error:#}", program.name),
        }
    }
    println!(
        "\nWhat maps answer for another input than they were trained on: percent of distinct paths, in brackets of samples, means of {} pairs; of \
         precise and of precise, wrong also the least and the most of distinct paths\n",
        variants::COUNT
    );
    println!("| program | {} |", VERDICTS.map(|(_, name)| name).join(" | "));
    println!("|---{}|", "|---".repeat(VERDICTS.len()));
    answers.iter().for_each(|row| println!("{row}"));
    println!(
        "\nAmbiguity: percent of call paths, in brackets of calls, whose identifier has so many paths at most; means of these maps\n"
    );
    println!("| program | {} |", DEGREES.map(|degree| degree.to_string()).join(" | "));
    println!("|---{}|", "|---".repeat(DEGREES.len()));
    curves.iter().for_each(|row| println!("{row}"));
    Ok(())
}

impl Bench {
    /// Trains on each input, and checks the map against the next one.
    fn pairs(&self, program: &suite::Program) -> anyhow::Result<Vec<(Answers, Curve)>> {
        let inputs = (0..variants::COUNT).map(|which| {
            let place = self.place.join(format!("{}-input-{which}", program.name));
            suite::remove_output(&place)?;
            std::fs::create_dir_all(&place)?;
            Ok((variants::prepare(program.name, &place, which)?, place))
        });
        let inputs = inputs.collect::<anyhow::Result<Vec<_>>>()?;
        let (map, output) = (self.place.join("pair.map"), self.place.join("pair.callpath"));
        let pair = |which: usize| {
            let [(trained, trained_at), (tested, tested_at)] =
                [which, (which + 1) % variants::COUNT].map(|which| &inputs[which]);
            suite::remove_output(&map)?;
            suite::remove_output(&output)?;
            self.train(&map, trained, trained_at)?;
            suite::run_once(tested, self.recording(("--unwind=both", &[]), tested, (tested_at, &output)))?;
            let checked = self.json(&["map", "check", "--json"], &[&map, &output])?;
            let shown = self.json(&["map", "show", "--json"], &[&map])?;
            anyhow::Ok((answers(&checked), curve(&shown["inferred"])))
        };
        (0..variants::COUNT).map(|which| pair(which).with_context(|| format!("pair {}", which + 1))).collect()
    }
}

fn percent(part: f64, of: f64) -> f64 {
    if of > 0.0 { 100.0 * part / of } else { 0.0 }
}

fn answers(checked: &Value) -> Answers {
    VERDICTS.map(|(verdict, _)| {
        ["paths", "samples"].map(|of| {
            let all = checked[of].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_f64());
            percent(checked[of][verdict].as_f64().unwrap_or(0.0), all.sum())
        })
    })
}

fn curve(inferred: &Value) -> Curve {
    let up_to = |counts: &Value, most: u64| {
        let number = |name: &str| counts[name].as_f64().unwrap_or(0.0);
        let degrees = counts["degree"].as_object().into_iter().flatten();
        let few = degrees.filter(|(degree, _)| degree.parse::<u64>().is_ok_and(|degree| degree <= most));
        let few: f64 = few.filter_map(|(_, count)| count.as_f64()).sum();
        percent(number("precise") + few, number("precise") + number("ambiguous"))
    };
    DEGREES.map(|most| [up_to(inferred, most), up_to(&inferred["calls"], most)])
}

fn mean(all: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = all.len();
    all.sum::<f64>() / count as f64
}

fn answers_row(program: &str, pairs: &[(Answers, Curve)]) -> String {
    let cell = |(verdict, (name, _)): (usize, &(&str, &str))| {
        let of = |column: usize| pairs.iter().map(move |(answers, _)| answers[verdict][column]);
        let [paths, samples] = [0, 1].map(|column| mean(of(column)));
        let spread = match *name {
            "precise" | "wrong" => {
                format!("; {:.1} to {:.1}", of(0).fold(f64::INFINITY, f64::min), of(0).fold(0.0, f64::max))
            }
            _ => String::new(),
        };
        format!("{paths:.1} ({samples:.1}){spread}")
    };
    let cells: Vec<String> = VERDICTS.iter().enumerate().map(cell).collect();
    format!("| {program} | {} |", cells.join(" | "))
}

fn curve_row(program: &str, pairs: &[(Answers, Curve)]) -> String {
    let cell = |at: usize| {
        let [paths, calls] = [0, 1].map(|column| mean(pairs.iter().map(move |(_, curve)| curve[at][column])));
        format!("{paths:.1} ({calls:.1})")
    };
    let cells: Vec<String> = (0..DEGREES.len()).map(cell).collect();
    format!("| {program} | {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shares_and_curves() {
        let checked =
            json!({"paths": {"precise": 3, "wrong": 1, "missing": 0}, "samples": {"precise": 30, "missing": 10}});
        assert_eq!(answers(&checked)[0], [75.0, 75.0]);
        assert_eq!(answers(&checked)[5], [25.0, 0.0]);
        let counts = json!({"precise": 5, "ambiguous": 5, "degree": {"2": 2, "12": 3}, "calls": {"precise": 0, "ambiguous": 0, "degree": {}}});
        let [one, two, .., twenty] = curve(&counts);
        assert_eq!((one, two, twenty), ([50.0, 0.0], [70.0, 0.0], [100.0, 0.0]));
    }
}
