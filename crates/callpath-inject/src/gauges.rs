//! What is measured of a call beside that it was made: at its entry from its arguments, at its end from clocks and from
//! what it returned. Values are added by one instruction each: a handler that comes in between takes nothing away.

use callpath_collect::syscall::call6;
use callpath_collect::{Process, clock, refused};
use callpath_format::shared::Settings;
use callpath_format::shared::expression;
use callpath_format::shared::gauge::{Gauge, Part, gauges};
use callpath_format::shared::probe::{Activation, Area, Interrupted, Reading, Waiting};
use callpath_format::shared::refused::Calls;
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;

/// A node's values of probes.
#[derive(Clone, Copy)]
pub struct Values(u64);

impl Values {
    /// # Safety
    /// The address must be that of a node's values, or 0.
    pub unsafe fn at(address: u64) -> Values {
        Values(address)
    }

    fn cell(self, column: usize) -> Option<*mut u64> {
        (self.0 != 0).then(|| (self.0 as *mut u64).wrapping_add(column))
    }

    /// Adds to a value.
    pub fn add(self, column: usize, amount: u64) {
        let Some(cell) = self.cell(column) else { return };
        // SAFETY: a node has a value for each column: `Values::at`.
        unsafe { add(cell, amount) };
    }

    /// Puts a value there if it `is_better` than the one that is.
    fn put(self, column: usize, value: u64, is_better: impl Fn(u64) -> bool) {
        let Some(cell) = self.cell(column) else { return };
        // SAFETY: as above.
        let mut there = unsafe { cell.read_volatile() };
        while is_better(there) {
            let before = there;
            // SAFETY: as above. One instruction: what a handler puts there in between is seen.
            unsafe {
                asm!("cmpxchg qword ptr [{}], {}", in(reg) cell, in(reg) value, inout("rax") there, options(nostack))
            };
            if there == before {
                break;
            }
        }
    }
}

/// Adds to a word by one instruction, so that no signal comes in between.
///
/// # Safety
/// The word must be there.
pub unsafe fn add(word: *mut u64, amount: u64) {
    // SAFETY: the caller vouches for the place.
    unsafe { asm!("add qword ptr [{}], {}", in(reg) word, in(reg) amount, options(nostack)) };
}

/// Fills in a thread's table of the gauges of its process's measurement.
pub fn fill_in(table: &mut [Gauge; Gauge::MOST], process: &Process<'_>) {
    let all = gauges(process.session.metrics.iter()).map(Some).chain(core::iter::repeat(None));
    for (place, gauge) in table.iter_mut().zip(all) {
        *place = gauge.unwrap_or(Gauge::NONE);
    }
}

/// The gauges that measure now, a bit for each.
pub fn active(process: &Process<'_>) -> u64 {
    u64::from(!process.session.idle_gauges.load(Relaxed))
}

/// Of a thread's table those whose bit is set.
fn chosen(table: &[Gauge; Gauge::MOST], bits: u64) -> impl Iterator<Item = &Gauge> {
    let there = table.iter().take_while(|gauge| gauge.meter != 0);
    there.enumerate().filter(move |(number, _)| bits >> number & 1 != 0).map(|(_, gauge)| gauge)
}

/// A call begins: it is counted, and its arguments are.
pub fn at_entry(area: &Area, process: &Process<'_>, values: Values, arguments: &[u64; 6]) {
    values.add(Gauge::CALLS_COLUMN, 1);
    for gauge in chosen(&area.gauges, active(process)) {
        let column = gauge.column as usize;
        match gauge.meter {
            Settings::PROBED_ARGUMENT => {
                let argument = usize::from(gauge.part.number).checked_sub(1).and_then(|number| arguments.get(number));
                if let Some(argument) = argument {
                    add_to_histogram(values, gauge, lowest(*argument, gauge.part.bits));
                }
            }
            Settings::PROBED_EXPRESSION => match computed(process, gauge.part, arguments) {
                Some(value) => values.add(column, value as u64),
                None => values.add(column + 1, 1),
            },
            _ => {}
        }
    }
}

fn add_to_histogram(values: Values, gauge: &Gauge, value: u64) {
    values.add(gauge.column as usize + gauge.bin(value) as usize, 1);
}

/// The lowest bits of a register.
fn lowest(value: u64, bits: u8) -> u64 {
    value & u64::MAX.checked_shr(64 - u32::from(bits.clamp(1, 64))).unwrap_or(u64::MAX)
}

/// An expression's value.
fn computed(process: &Process<'_>, part: Part, arguments: &[u64; 6]) -> Option<i64> {
    expression::run(process.published.program(part)?, arguments, |at, bytes| read(process, at, bytes))
}

/// So many bytes of the process's own memory, at most eight. `None`: they cannot be read, or a filter may refuse the call.
fn read(process: &Process<'_>, at: u64, bytes: usize) -> Option<u64> {
    const PROCESS_VM_READV: usize = 310;
    let mut word = 0u64;
    let [here, there] = [[core::ptr::from_mut(&mut word) as usize, bytes.min(8)], [at as usize, bytes.min(8)]];
    let places = [here.as_ptr() as usize, there.as_ptr() as usize];
    let pid = process.slot.pid.load(Relaxed) as usize;
    // A filter that refuses calls that are known may refuse this one by a signal.
    if refused::calls() != Calls(0) {
        return None;
    }
    // SAFETY: the kernel reads what is mapped, wherever that is, and writes so many bytes into the word.
    let read = unsafe { call6(PROCESS_VM_READV, [pid, places[0], 1, places[1], 1, 0]) };
    // Volatile: the compiler does not see that the kernel has written it.
    // SAFETY: our own.
    (read == bytes as isize).then(|| unsafe { (&raw const word).read_volatile() })
}

/// Clocks, each read when it is first asked for.
pub struct Clocks {
    /// The time stamp counter.
    pub ticks: u64,
    cpu_ns: Option<u64>,
}

impl Clocks {
    /// Now.
    pub fn now() -> Clocks {
        Clocks { ticks: clock::ticks(), cpu_ns: None }
    }

    fn cpu_ns(&mut self) -> u64 {
        *self.cpu_ns.get_or_insert_with(|| clock::thread_cpu_ns().unwrap_or(0))
    }
}

/// What is read when an activation begins; [`Reading::began`] is set last, by who notes it.
/// `interrupted`: the wait that the activation interrupts.
pub fn at_begin(area: &Area, bits: u64, interrupted: Interrupted) -> Reading {
    let reads_cpu = chosen(&area.gauges, bits).any(|gauge| gauge.meter == Settings::PROBED_CPU);
    let cpu_ns = if reads_cpu { Clocks::now().cpu_ns() } else { 0 };
    Reading { gauges: bits, cpu_ns, waited: area.waiting.ticks, interrupted, ..Reading::NONE }
}

/// An activation that has ended.
pub struct Ended {
    /// It.
    pub activation: Activation,
    /// What stands at its place; of another one, if a quick routine noted it.
    pub reading: Reading,
    /// What it returned, if that is known.
    pub result: Option<u64>,
}

impl Ended {
    /// The wait that the activation has interrupted.
    pub fn interrupted(&self) -> Interrupted {
        if self.reading.began == self.activation.began { self.reading.interrupted } else { Interrupted::NONE }
    }
}

/// Adds what an activation took to its node, and to what its caller's callees took, which is at index `below`.
///
/// # Safety
/// The activation's values must be a node's; the area must be the calling thread's.
pub unsafe fn at_end(area: *mut Area, below: usize, ended: &Ended, clocks: &mut Clocks) {
    let Ended { activation, reading, result } = ended;
    // SAFETY: the area stays mapped; these places are only borrowed one by one.
    let (table, callees, of_below, waited) = unsafe {
        let (activation, reading) = ((*area).activations.get_mut(below), (*area).readings.get_mut(below));
        let callees = activation.map(|activation| &raw mut activation.callees);
        (&(*area).gauges, callees, reading.map(core::ptr::from_mut), (*area).waiting.ticks)
    };
    if activation.began == 0 {
        return;
    }
    let took = clocks.ticks.saturating_sub(activation.began);
    if let Some(callees) = callees {
        // SAFETY: in the area.
        unsafe { add(callees, took) };
    }
    // SAFETY: the caller vouches for it.
    let values = unsafe { Values::at(activation.values) };
    let own = took.saturating_sub(activation.callees);
    if reading.began != activation.began {
        return values.add(Gauge::TICKS_COLUMN, own);
    }
    for gauge in chosen(table, reading.gauges) {
        let column = gauge.column as usize;
        match gauge.meter {
            Settings::PROBED_TICKS => values.add(column, own),
            Settings::PROBED_SHORTEST => {
                let took = took.max(1);
                values.put(column, took, |there| there == 0 || there > took);
            }
            Settings::PROBED_LONGEST => values.put(column, took, |there| there < took),
            Settings::PROBED_LATENCY => add_to_histogram(values, gauge, refused::ns_of(took)),
            Settings::PROBED_RESULT => {
                if let Some(result) = result {
                    add_to_histogram(values, gauge, lowest(*result, gauge.part.bits));
                }
            }
            Settings::PROBED_CPU => {
                let took = clocks.cpu_ns().saturating_sub(reading.cpu_ns);
                if let Some(below) = of_below {
                    // SAFETY: in the area.
                    unsafe { add(&raw mut (*below).callees_cpu_ns, took) };
                }
                values.add(column, took.saturating_sub(reading.callees_cpu_ns));
            }
            Settings::PROBED_WAIT => {
                let what_for = Waiting::FOR_OTHERS as usize;
                add_wait((values, column), (waited, reading, of_below), what_for);
            }
            Settings::PROBED_IO => {
                let what_for = Waiting::FOR_IO as usize;
                add_wait((values, column), (waited, reading, of_below), what_for);
            }
            _ => {}
        }
    }
}

/// Adds what an activation has waited, less that of its callees.
fn add_wait(
    (values, column): (Values, usize),
    (waited, reading, below): ([u64; 2], &Reading, Option<*mut Reading>),
    what_for: usize,
) {
    let of = |all: &[u64; 2]| all.get(what_for).copied().unwrap_or(0);
    let took = of(&waited).saturating_sub(of(&reading.waited));
    if let Some(below) = below {
        // SAFETY: in the area.
        unsafe { add((&raw mut (*below).callees_waited).cast::<u64>().wrapping_add(what_for), took) };
    }
    values.add(column, took.saturating_sub(of(&reading.callees_waited)));
}
