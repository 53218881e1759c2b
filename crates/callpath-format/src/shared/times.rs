//! Times of paths (Ammons, Ball and Larus 1997, section 3): memory that a process and its forks share with the recorder, in which routines
//! of our object add up what executions of paths took. What was measured is there however the program ends. What they take may be time, or a
//! count of events; one or two metrics are measured at once.
//!
//! ```text
//! 0                      TimesHead
//! TimesHead::LEN_BYTES   TimesOfPath, TimesHead::COUNT times: a hash table that is searched from a key's place on
//! then                   the same of the second metric, if there is one
//! ```
//!
//! Which executions are measured is chosen by chance. Each procedure has words in every lane ([`super::lanes`], [`OfProcedure`]): how many of its
//! paths are begun until the next one is chosen, and [`Chosen`]. To choose takes many instructions, behind which a processor has forgotten how the
//! procedure's branches go. So it is the path behind the chosen one that is measured. The activation that a measured path belongs to keeps two words of its own, when the path began
//! and what it weighs; time in callees is taken out where they return.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// What the memory begins with.
#[repr(C)]
pub struct TimesHead {
    /// The greatest [`Chosen::shift`]: 0, if all executions are measured.
    pub most_shift: AtomicU64,
    /// What is measured: one metric, or two.
    pub metrics: [MeteredPaths; TimesHead::METRICS],
}

/// A metric of paths, and how measuring it goes.
#[repr(C)]
pub struct MeteredPaths {
    /// Which it is: [`PROBED_TICKS`](super::Settings::PROBED_TICKS), [`PROBED_CPU`](super::Settings::PROBED_CPU), or one from
    /// [`EXACT_FAULTS`](super::Settings::EXACT_FAULTS) on; 0: none.
    pub meter: AtomicU64,
    /// Of [`EXACT_COUNTER`](super::Settings::EXACT_COUNTER), what the kernel is told of it (`struct perf_event_attr`).
    pub attributes: [AtomicU64; MeteredPaths::ATTRIBUTES_WORDS],
    /// Executions that were measured and found no entry, or whose counter could not be read.
    pub lost: AtomicU64,
    /// What is taken off between two readings, in the metric's unit: what reading takes. 0: nothing was measured yet, or it takes none.
    pub cost: AtomicU64,
}

impl MeteredPaths {
    /// How long attributes are.
    pub const ATTRIBUTES_WORDS: usize = 16;
}

impl TimesHead {
    /// Where the table begins, bytes.
    pub const LEN_BYTES: usize = 4096;
    /// How many entries it has; a power of two.
    pub const COUNT: usize = 1 << 18;
    /// So many entries from a key's place on are looked at.
    pub const PROBES: usize = 256;
    /// 1 execution of 1,024 is chosen at least, unless all are.
    pub const MOST_SHIFT: u64 = 10;
    /// The word of a lane from which numbers by chance are made.
    pub const CHANCE_WORD: usize = 1;

    /// So many metrics can be measured at once.
    pub const METRICS: usize = 2;
    /// How long a table is, bytes.
    pub const TABLE_BYTES: usize = TimesHead::COUNT * size_of::<TimesOfPath>();

    /// How many bytes it takes for so many metrics.
    pub const fn len_bytes(metrics: usize) -> usize {
        TimesHead::LEN_BYTES + metrics * TimesHead::TABLE_BYTES
    }

    /// Where the table of a metric begins, bytes.
    pub const fn table_at(metric: usize) -> usize {
        TimesHead::len_bytes(metric)
    }
}

/// What identifies a path: the lane of the thread, the procedure by its number, and the path by its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathKey {
    /// Less than [`super::lanes::LanesHead::MOST`].
    pub lane: u32,
    /// Less than [`PathKey::MOST_PROCEDURES`].
    pub procedure: u32,
    /// Of procedures with more paths, it is another path's, too.
    pub path: u32,
}

impl PathKey {
    const PATH_BITS: u32 = 32;
    const PROCEDURE_BITS: u32 = 17;
    /// Times of later ones are not measured. With [`PathKey::NO_PROCEDURE`] times are added in contexts alone.
    pub const MOST_PROCEDURES: u32 = 1 << PathKey::PROCEDURE_BITS;

    /// The number of no procedure.
    pub const NO_PROCEDURE: u32 = u32::MAX;

    /// As a word, which is not 0.
    pub const fn to_word(self) -> u64 {
        const SOME: u64 = 1 << 63;
        SOME | (self.lane as u64) << (PathKey::PATH_BITS + PathKey::PROCEDURE_BITS)
            | ((self.procedure % PathKey::MOST_PROCEDURES) as u64) << PathKey::PATH_BITS
            | self.path as u64
    }

    /// From a word. `None`: it is 0.
    pub const fn from_word(word: u64) -> Option<PathKey> {
        if word == 0 {
            return None;
        }
        let lane = (word << 1 >> 1 >> (PathKey::PATH_BITS + PathKey::PROCEDURE_BITS)) as u32;
        let procedure = (word >> PathKey::PATH_BITS) as u32 % PathKey::MOST_PROCEDURES;
        Some(PathKey { lane, procedure, path: word as u32 })
    }

    /// Its place in the table.
    const fn place(word: u64) -> usize {
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}

/// What measured executions of a path took. An execution of `t` ticks with the weight `w` stands for `w` executions.
#[repr(C)]
pub struct PathTimes {
    /// How many were measured.
    pub measured: AtomicU64,
    /// The sum of w.
    pub weight: AtomicU64,
    /// The sum of w * t.
    pub ticks: AtomicU64,
    /// The sum of w * (w - 1).
    pub pairs: AtomicU64,
    /// The sum of w * (w - 1) * t.
    pub pair_ticks: AtomicU64,
    /// The sum of w * (w - 1) * t * t, in two parts: that of the lowest bits of each, and of the others.
    pub squares: [AtomicU64; 2],
}

/// What is kept of a path: of executions of up to [`TimesOfPath::LONG_TICKS`], and of longer ones. A path is a few instructions: if it seldom takes so
/// long, the thread was interrupted.
#[repr(C)]
pub struct TimesOfPath {
    /// [`PathKey`]; 0: nothing is here.
    pub key: AtomicU64,
    /// Those of usual length.
    pub short: PathTimes,
    /// The others.
    pub long: PathTimes,
}

impl TimesOfPath {
    /// Some ten microseconds.
    pub const LONG_TICKS: u64 = 1 << 15;
    /// How many words an entry is, in the order of its fields.
    pub const WORDS: usize = 1 + 2 * PathTimes::WORDS;

    /// Adds an execution, by what it took of time that passed: it may have been interrupted.
    pub fn add(&self, weight: u64, ticks: u64) {
        let times = if ticks > TimesOfPath::LONG_TICKS { &self.long } else { &self.short };
        times.add(weight, ticks);
    }

    /// The entry of a key, which is the key's from now on if it was nobody's. `None`: there is no room.
    pub fn of(table: &[TimesOfPath], key: PathKey) -> Option<&TimesOfPath> {
        let (word, mask) = (key.to_word(), table.len().checked_sub(1)?);
        let from = PathKey::place(word);
        let mut places = (0..TimesHead::PROBES).map(|next| from.wrapping_add(next) & mask);
        places.find_map(|place| {
            let entry = table.get(place)?;
            let found = match entry.key.load(Acquire) {
                0 => entry.key.compare_exchange(0, word, AcqRel, Acquire).unwrap_or_else(|other| other),
                found => found,
            };
            (found == 0 || found == word).then_some(entry)
        })
    }
}

impl PathTimes {
    /// How many words it is, in the order of its fields.
    pub const WORDS: usize = size_of::<PathTimes>() / size_of::<u64>();
    /// How many bits of a square are added to the first part: few enough for the sum of millions.
    pub const LOW_BITS: u32 = 40;

    /// Adds an execution.
    pub fn add(&self, weight: u64, ticks: u64) {
        /// Longer ones count as so long: their squares would have no room.
        const MOST_TICKS: u64 = 1 << 40;
        let ticks = ticks.min(MOST_TICKS);
        let pairs = weight.wrapping_mul(weight.wrapping_sub(1));
        let square = u128::from(pairs).wrapping_mul(u128::from(ticks)).wrapping_mul(u128::from(ticks));
        let low = square as u64 % (1 << PathTimes::LOW_BITS);
        let [lows, highs] = &self.squares;
        let more = [1, weight, weight.wrapping_mul(ticks), pairs, pairs.wrapping_mul(ticks), low];
        let sums = [&self.measured, &self.weight, &self.ticks, &self.pairs, &self.pair_ticks, lows];
        for (sum, more) in sums.into_iter().zip(more) {
            sum.fetch_add(more, Relaxed);
        }
        highs.fetch_add((square >> PathTimes::LOW_BITS) as u64, Relaxed);
    }
}

/// A procedure's words in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum OfProcedure {
    /// So many of its paths are begun before one is chosen, or measured.
    Skip,
    /// [`Chosen`]
    Chosen,
    /// What [`OfProcedure::Skip`] becomes when the next one is measured.
    NextSkip,
    /// The same of [`OfProcedure::Chosen`].
    NextChosen,
}

impl OfProcedure {
    /// How many there are.
    pub const COUNT: u32 = 4;
}

/// What a lane keeps of a procedure, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// How many executions were measured, or will have been when the next one is.
    pub measured: u64,
    /// How seldom one is chosen: by a chance of 1 to 2 to the power of this.
    pub shift: u64,
    /// The path that begins next is measured.
    pub is_next: bool,
}

impl Chosen {
    /// Where [`Chosen::shift`] begins, bits.
    pub const SHIFT_AT: u32 = 56;
    /// The bit that is [`Chosen::is_next`].
    pub const NEXT_BIT: u32 = 55;
    /// So many are measured with each weight.
    pub const EACH: u64 = 64;

    /// As a word.
    pub const fn to_word(self) -> u64 {
        self.measured | self.shift << Chosen::SHIFT_AT | (self.is_next as u64) << Chosen::NEXT_BIT
    }

    /// From a word; of a wild one, what may be.
    pub const fn from_word(word: u64) -> Chosen {
        let shift = word >> Chosen::SHIFT_AT;
        let shift = if shift > TimesHead::MOST_SHIFT { TimesHead::MOST_SHIFT } else { shift };
        Chosen { measured: word << 9 >> 9, shift, is_next: word >> Chosen::NEXT_BIT & 1 != 0 }
    }

    /// What the next one weighs that is measured: how many are begun, on average, from the one before to it.
    pub const fn weight(self) -> u64 {
        if self.shift == 0 { 1 } else { (1 << self.shift) + 1 }
    }

    /// When one was measured: the first ones of a procedure all are, later ones the more seldom, the more there were.
    #[must_use]
    pub const fn next(self, most_shift: u64) -> Chosen {
        let measured = self.measured.wrapping_add(1);
        let shift = measured / Chosen::EACH;
        Chosen { measured, shift: if shift > most_shift { most_shift } else { shift }, is_next: false }
    }

    /// How many executions come before the next one that is chosen, if each is with a probability of 2 to the power of `-shift`: a number
    /// of the geometric distribution. `chance`: numbers of 32 bits, all equally likely.
    ///
    /// Its binary digits do not depend on each other.
    pub fn skip(shift: u64, mut chance: impl FnMut() -> u32) -> u64 {
        let thresholds = SKIPS.get(shift as usize).unwrap_or(&[0; DIGITS]);
        let digits = (0u32..).zip(thresholds).filter(|(_, threshold)| **threshold > 0);
        digits.fold(0, |skip, (digit, threshold)| skip | u64::from(chance() < *threshold) << digit)
    }
}

/// Longer skips than 2 to the power of this do not come.
const DIGITS: usize = 16;
const SHIFTS: usize = TimesHead::MOST_SHIFT as usize + 1;

/// By shift and binary digit of a skip: the probability that it is 1, times 2 to the power of 32.
static SKIPS: [[u32; DIGITS]; SHIFTS] = {
    let mut all = [[0; DIGITS]; SHIFTS];
    let mut shift = 0;
    while shift < SHIFTS {
        // The probability not to be chosen, times 2 to the power of 63; then its powers.
        let mut power: u128 = (1 << 63) - (1 << (63 - shift));
        let mut digit = 0;
        while digit < DIGITS {
            all[shift][digit] = ((power << 32) / ((1 << 63) + power)) as u32;
            power = (power * power) >> 63;
            digit += 1;
        }
        shift += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn table(count: usize) -> Vec<TimesOfPath> {
        // SAFETY: atomics, for which zeroes are a value.
        (0..count).map(|_| unsafe { core::mem::zeroed() }).collect()
    }

    #[test]
    fn keys_are_words() {
        for key in [
            PathKey { lane: 0, procedure: 0, path: 0 },
            PathKey { lane: 16 * 1024 - 1, procedure: PathKey::MOST_PROCEDURES - 1, path: u32::MAX },
        ] {
            assert_eq!(PathKey::from_word(key.to_word()), Some(key));
        }
        assert_eq!(PathKey::from_word(0), None);
        for is_next in [false, true] {
            let chosen = Chosen { measured: 77, shift: 3, is_next };
            assert_eq!((Chosen::from_word(chosen.to_word()), chosen.weight()), (chosen, 9));
        }
        assert_eq!(Chosen::from_word(u64::MAX).shift, TimesHead::MOST_SHIFT);
    }

    #[test]
    fn each_key_has_its_entry_while_there_is_room() {
        let table = table(512);
        let key = |path| PathKey { lane: 3, procedure: 9, path };
        for path in 0..200 {
            TimesOfPath::of(&table, key(path)).unwrap().add(2, 10 * u64::from(path));
        }
        let entry = TimesOfPath::of(&table, key(5)).unwrap();
        entry.add(1, 7);
        let again = &entry.short;
        let sums = [&again.measured, &again.weight, &again.ticks, &again.pairs, &again.pair_ticks];
        assert_eq!(sums.map(|sum| sum.load(Relaxed)), [2, 3, 107, 2, 100]);
        assert_eq!(again.squares[0].load(Relaxed), 5_000);
        entry.add(1024, u64::MAX);
        assert_eq!([&again.measured, &entry.long.measured].map(|sum| sum.load(Relaxed)), [2, 1]);
        // 2^20 - 2^10, times 2^80.
        assert_eq!(entry.long.squares[1].load(Relaxed), (1 << 60) - (1 << 50));
        let full: usize = (0..2000).filter(|path| TimesOfPath::of(&table, key(*path)).is_none()).count();
        assert!(full > 1400, "{full}");
        assert!(TimesOfPath::of(&[], key(1)).is_none());
    }

    #[test]
    fn skips_are_geometric() {
        let mut state = 7u64;
        let mut chance = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 32) as u32
        };
        assert_eq!(Chosen::skip(0, &mut chance), 0);
        for shift in [1, 4, 10] {
            let skips: Vec<u64> = (0..20_000).map(|_| Chosen::skip(shift, &mut chance)).collect();
            let m = (1u64 << shift) as f64;
            let mean = skips.iter().sum::<u64>() as f64 / skips.len() as f64;
            assert!((mean / (m - 1.0) - 1.0).abs() < 0.03, "{shift}: {mean}");
            let none = skips.iter().filter(|skip| **skip == 0).count() as f64 / skips.len() as f64;
            assert!((none - 1.0 / m).abs() < 4.0 * (1.0 / m / skips.len() as f64).sqrt(), "{shift}: {none}");
            let far = skips.iter().filter(|skip| **skip as f64 > 2.0 * m).count() as f64 / skips.len() as f64;
            let expected = (1.0 - 1.0 / m).powf(2.0 * m + 1.0);
            assert!((far - expected).abs() < 0.01, "{shift}: {far}, not {expected}");
        }
    }

    #[test]
    fn the_first_ones_are_all_measured() {
        let mut chosen = Chosen { measured: 0, shift: 0, is_next: false };
        assert_eq!(chosen.weight(), 1);
        let shifts: Vec<u64> = (0..1000)
            .map(|_| {
                let shift = chosen.shift;
                chosen = chosen.next(TimesHead::MOST_SHIFT);
                shift
            })
            .collect();
        assert!(shifts[..64].iter().all(|shift| *shift == 0));
        assert_eq!([shifts[64], shifts[127], shifts[128], shifts[640], shifts[999]], [1, 1, 2, 10, 10]);
        assert_eq!(Chosen { measured: 9999, shift: 0, is_next: false }.next(0).shift, 0);
    }
}
