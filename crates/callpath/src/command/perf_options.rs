//! Options of perf's commands that people type from habit: accepted with a word where callpath does what
//! they ask for anyway, else refused with what to do instead.

use std::marker::PhantomData;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

/// What an option of perf's takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// `--option=VALUE` or `--option VALUE`
    Value,
    /// Nothing, or `--option=VALUE`
    MaybeValue,
}

/// What is answered.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// It changes nothing here, for this reason. The program is recorded.
    NotNeeded(&'static str),
    /// The recording would not be what was asked for; this is to be done instead.
    Instead(&'static str),
}

use Answer::{Instead, NotNeeded};
use Takes::{MaybeValue, Nothing, Value};

/// Its names as messages show them, what it takes, the answer.
pub(super) type Row = (&'static str, Takes, Answer);

/// One of our commands, with the options of perf's that resembles it.
pub(super) trait LikePerf {
    const ROWS: &'static [Row];
}

/// Those of perf's options that were typed.
#[derive(Debug)]
pub(super) struct PerfOptions<C> {
    of: PhantomData<C>,
    /// Why each of them is not needed.
    pub(super) words: Vec<String>,
    /// What to do instead of the first one that cannot be had.
    pub(super) refusal: Option<String>,
}

impl<C: LikePerf> clap::Args for PerfOptions<C> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(C::ROWS.iter().map(argument))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Hidden: it is no option of callpath's. Its names are its id.
fn argument((names, takes, _): &Row) -> Arg {
    let argument = Arg::new(*names).hide(true).value_name("VALUE");
    let argument = names.split(", ").fold(argument, |argument, name| match name.strip_prefix("--") {
        Some(long) => argument.long(long),
        None => argument.short(name.chars().nth(1)),
    });
    match takes {
        Nothing => argument.action(ArgAction::Count),
        Value => argument.action(ArgAction::Append).allow_hyphen_values(true),
        MaybeValue => argument.action(ArgAction::Append).num_args(0..=1).require_equals(true),
    }
}

impl<C: LikePerf> clap::FromArgMatches for PerfOptions<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (mut words, mut refusal) = (Vec::new(), None);
        let is_typed = |names: &str| matches.value_source(names) == Some(ValueSource::CommandLine);
        for (names, _, answer) in C::ROWS.iter().filter(|(names, ..)| is_typed(names)) {
            match answer {
                NotNeeded(why) => words.push(format!("{names} is not needed: {why}")),
                Instead(what) => refusal = refusal.or_else(|| Some(format!("{names}: {what}"))),
            }
        }
        Ok(PerfOptions { of: PhantomData, words, refusal })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<C> PerfOptions<C> {
    /// Says why options are not needed; an error if one cannot be had.
    pub(super) fn answer(&self, say: impl Fn(&str)) -> anyhow::Result<()> {
        if let Some(refusal) = &self.refusal {
            anyhow::bail!("{refusal}");
        }
        self.words.iter().for_each(|words| say(words));
        Ok(())
    }
}
