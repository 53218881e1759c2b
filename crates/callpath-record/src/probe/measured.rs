//! What is measured of each call now, of what the measurement was begun with, and by which routines.

use callpath_format::shared::Settings;
use callpath_format::shared::gauge::Gauge;
use callpath_format::shared::probe::Routines;
use callpath_tables::probes::{AtExit, Called, KeepingFlags, Purpose};

use crate::settings::RecordOptions;

/// What is measured of each call. Calls are always counted.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// What the measurement was begun with, by name; whether it is measured now.
    gauges: Vec<(String, Gauge, bool)>,
}

impl Measured {
    /// All that was asked for.
    pub(super) fn all_of(options: &RecordOptions) -> Measured {
        Measured { gauges: options.gauges().into_iter().map(|(name, gauge)| (name, gauge, true)).collect() }
    }

    /// Only what has these names from now on; none: all as it is.
    ///
    /// # Errors
    /// If the measurement was begun without one, for the user.
    pub(super) fn only(&self, names: &[&str]) -> Result<Measured, String> {
        let known: Vec<&str> = self.gauges.iter().map(|(name, ..)| name.as_str()).collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            let known = known.join(", ");
            return Err(format!("`{unknown}` has no place in this measurement, which was begun with {known}"));
        }
        let mut measured = self.clone();
        if !names.is_empty() {
            for (name, gauge, is_on) in &mut measured.gauges {
                *is_on = gauge.meter == Settings::CALLS || names.contains(&name.as_str());
            }
        }
        Ok(measured)
    }

    /// The names of what is measured now.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.gauges.iter().filter(|(.., is_on)| *is_on).map(|(name, ..)| name.as_str())
    }

    /// A bit for each that is not.
    pub(super) fn idle(&self) -> u32 {
        self.gauges.iter().zip(0..).filter(|((.., is_on), _)| !is_on).fold(0, |bits, (_, number)| bits | 1 << number)
    }

    /// Whether hidden probes of this purpose are needed.
    pub(super) fn needs(&self, purpose: Purpose) -> bool {
        let meter = match purpose {
            Purpose::WaitsForOthers => Settings::PROBED_WAIT,
            Purpose::WaitsForIo => Settings::PROBED_IO,
            Purpose::Asks | Purpose::Jumps | Purpose::Catches => Settings::PROBED_CONTEXT,
        };
        self.gauges.iter().any(|(_, gauge, is_on)| *is_on && gauge.meter == meter)
    }

    /// Whether it is measured by other probes than `other` is.
    pub(super) fn differs_from(&self, other: &Measured, routines: &Routines) -> bool {
        let hidden = |of: &Measured| Purpose::ALL.map(|purpose| of.needs(purpose));
        self.called(routines) != other.called(routines) || hidden(self) != hidden(other)
    }

    /// What copies call for it.
    pub(super) fn called(&self, routines: &Routines) -> Called {
        let is_any = |is_so: fn(Gauge) -> bool| self.gauges.iter().any(|(_, gauge, is_on)| *is_on && is_so(*gauge));
        let (with_exits, is_general) = (is_any(Gauge::needs_exit), is_any(|gauge| !gauge.is_quick()));
        let keeping_flags = KeepingFlags {
            at_entry: routines.begin,
            at_exit: AtExit { at_return: routines.end, at_jump: routines.end_by_jump },
        };
        let is_timed = is_any(|gauge| gauge.meter == Settings::PROBED_TICKS);
        match (is_general, with_exits) {
            (false, false) => Called::at_entries(routines.count, false),
            (false, true) => {
                let (at_entry, leave) =
                    if is_timed { (routines.enter, routines.leave) } else { (routines.note, routines.forget) };
                let at_exit = Some(AtExit { at_return: leave, at_jump: leave });
                Called { at_entry, at_exit, keep_flags: false, keeping_flags: Some(keeping_flags) }
            }
            (true, false) => Called::at_entries(routines.measure, true),
            (true, true) => {
                let KeepingFlags { at_entry, at_exit } = keeping_flags;
                Called { at_entry, at_exit: Some(at_exit), keep_flags: true, keeping_flags: None }
            }
        }
    }
}
