//! A query: the expression of a jump's target at some point of the code, and what is known of it.

use super::linear_expression::{LinearExpression, Location, memory_location, moved, touches};
use crate::instruction::{Condition, Instruction, Memory, Register};

/// How often an index may be shifted between its comparison and its use.
const MAX_SHIFTS: u8 = 3;
/// How many constants may be added to an unknown address: beyond that a loop advances a pointer.
const MAX_ADDITIONS: u8 = 8;
/// The word from which the target, or the distance to it, is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Load {
    /// Its size, bytes.
    pub(super) width: u8,
    pub(super) is_signed: bool,
    pub(super) address: LinearExpression,
}

/// What is known of a table whose index is resolved: nothing before depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    width: u8,
    is_signed: bool,
    index: Closed,
    shift: i64,
    /// The constants added to an entry and to the address.
    constants: (u64, u64),
}

impl Known {
    /// Combines it with the result of the rest of the query.
    pub(super) fn of(self, source: Source) -> Source {
        match source {
            Source::Table(table) => Source::Table(Table {
                outer: table.outer.wrapping_add(self.constants.0),
                address: table.address.wrapping_add(self.constants.1),
                begin: table.begin.wrapping_add(self.constants.1).wrapping_sub(self.shift as u64),
                width: self.width,
                is_signed: self.is_signed,
                index: self.index,
            }),
            other => other,
        }
    }
}

/// What is known of a resolved index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::graph) struct Closed {
    /// The distance of entries, bytes.
    pub(in crate::graph) stride: i64,
    /// The highest index.
    pub(in crate::graph) highest: Option<u32>,
    /// Whether the code compares or masks it.
    pub(in crate::graph) is_checked: bool,
    /// Whether that comparison was a signed one: the index may be negative.
    pub(in crate::graph) is_signed: bool,
}

/// The highest value of an index, and whether a signed comparison says so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Bound {
    pub(super) highest: u32,
    pub(super) is_signed: bool,
}

/// The limit that a branch sets on the first of two compared operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Limit {
    /// It is at most the second.
    NotAbove,
    /// It is below the second.
    Below,
}

impl Limit {
    /// The limit of a branch under `condition`, taken or not, and whether it is a signed one; `None` for other conditions.
    pub(super) fn of(condition: Condition, is_taken: bool) -> Option<(Limit, bool)> {
        use Condition::{Above, AboveOrEqual, Below, BelowOrEqual, Equal};
        use Condition::{Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let is_signed = matches!(condition, Greater | GreaterOrEqual | Less | LessOrEqual);
        let limit = match (condition, is_taken) {
            (BelowOrEqual | LessOrEqual | Equal, true) | (Above | Greater | NotEqual, false) => Some(Limit::NotAbove),
            (Below | Less, true) | (AboveOrEqual | GreaterOrEqual, false) => Some(Limit::Below),
            _ => None,
        };
        limit.map(|limit| (limit, is_signed))
    }
}

/// The target's expression at some point of the code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Query {
    pub(super) outer: LinearExpression,
    pub(super) load: Option<Load>,
    pub(super) closed: Option<Closed>,
    /// The highest index, because it was extended from a narrow value.
    pub(super) cap: Option<u32>,
    /// How many bytes of the address came with the index, which was lower or higher by a constant before; and how
    /// often.
    pub(super) shift: (i64, u8),
    /// How many constants were added to the expression, the index aside.
    pub(super) additions: u8,
    /// The word to be found is sign-extended.
    pub(super) is_extended: bool,
    /// Control came along a branch that sets this limit, a signed one or not.
    pub(super) pending: Option<(Limit, bool)>,
    /// What was compared, and is not higher.
    pub(super) compared: Compared,
}

/// Locations that are not higher than what they were compared with: those compared last, the first of them first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Compared([Option<(Location, Bound)>; Compared::MOST]);

impl Compared {
    /// Of a copy of the index and of another location between the two: more would keep paths apart that are alike.
    const MOST: usize = 2;

    /// Notes that a location is bounded, too. Of more than are kept, the one that was compared last is forgotten.
    pub(super) fn note(&mut self, location: Location, bound: Bound) {
        let others = self.0.into_iter().flatten().filter(|it| it.0 != location);
        let mut all = std::iter::once((location, bound)).chain(others);
        self.0 = [(); Compared::MOST].map(|()| all.next());
    }

    /// The bound of a location.
    pub(super) fn bound(&self, location: Location) -> Option<Bound> {
        self.0.iter().flatten().find(|it| it.0 == location).map(|it| it.1)
    }

    fn touch(&self, location: Location) -> bool {
        self.0.iter().flatten().any(|it| touches(it.0, location))
    }

    /// Each location becomes what `to` says; `None`: it is forgotten.
    fn change(&mut self, to: impl Fn(Location) -> Option<Location>) {
        let mut all = self.0.into_iter().flatten().filter_map(|(location, bound)| Some((to(location)?, bound)));
        self.0 = [(); Compared::MOST].map(|()| all.next());
    }
}

/// A table as the code reads it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::graph) struct Table {
    /// The constant added to an entry.
    pub(in crate::graph) outer: u64,
    /// The address of the entry for index 0, which may be outside the table.
    pub(in crate::graph) address: u64,
    /// The address of the first entry.
    pub(in crate::graph) begin: u64,
    /// The size of an entry, bytes.
    pub(in crate::graph) width: u8,
    pub(in crate::graph) is_signed: bool,
    pub(in crate::graph) index: Closed,
}

/// The origin of a jump's target along one path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::graph) enum Source {
    /// A table's entry.
    Table(Table),
    /// One address.
    Fixed(u64),
    /// The word at one address.
    Slot(u64),
    Unknown,
}

/// A read of memory by an instruction that ends at address `next`.
#[derive(Clone, Copy)]
pub(super) struct Read<'i> {
    pub(super) memory: &'i Memory,
    pub(super) next: u64,
    /// It is sign-extended.
    pub(super) is_signed: bool,
}

impl Query {
    /// The query for the target of a jump that ends at address `next`.
    pub(super) fn of_jump(jump: &Instruction, next: u64) -> Option<Query> {
        let mut query = Query {
            outer: LinearExpression::default(),
            load: None,
            closed: None,
            cap: None,
            shift: (0, 0),
            additions: 0,
            is_extended: false,
            pending: None,
            compared: Compared::default(),
        };
        match jump.memory() {
            Some(memory) => {
                let address = LinearExpression::address(&memory, next)?;
                query.load = Some(Load { width: memory.bytes as u8, is_signed: false, address });
            }
            None => query.outer = LinearExpression::of(Location::Register(jump.register(0).general()? as u8)),
        }
        Some(query)
    }

    /// Whether the index is resolved.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Takes out what only the answer needs, once the index is resolved.
    pub(super) fn forget(&mut self) -> Option<Known> {
        let (index, load) = (self.closed.as_mut()?, self.load.as_mut()?);
        let constants = (std::mem::take(&mut self.outer.constant), std::mem::take(&mut load.address.constant));
        let known =
            Known { width: load.width, is_signed: load.is_signed, index: *index, shift: self.shift.0, constants };
        *index = Closed { stride: 0, highest: None, is_checked: false, is_signed: false };
        (load.width, load.is_signed) = (0, false);
        (self.cap, self.is_extended, self.shift.0) = (None, false, 0);
        Some(known)
    }

    /// The query, after control came along a branch with this limit.
    pub(super) fn through(mut self, limit: Option<(Limit, bool)>) -> Query {
        self.pending = limit;
        self
    }

    /// The index that is not bounded yet, with its factor.
    pub(super) fn index(&self) -> Option<(Location, i64)> {
        let load = self.load.as_ref()?;
        load.address.terms.iter().flatten().copied().find(|term| term.1 > 1)
    }

    /// The target, if nothing is left to be found.
    pub(super) fn answer(&self) -> Option<Source> {
        if !self.outer.is_constant() {
            return None;
        }
        let Some(load) = &self.load else { return Some(Source::Fixed(self.outer.constant)) };
        if !load.address.is_constant() {
            return None;
        }
        let address = load.address.constant;
        Some(match self.closed {
            Some(index) => Source::Table(Table {
                outer: self.outer.constant,
                address,
                begin: address.wrapping_sub(self.shift.0 as u64),
                width: load.width,
                is_signed: load.is_signed,
                index,
            }),
            None if self.outer.constant == 0 && load.width == 8 => Source::Slot(address),
            None => Source::Table(Table {
                outer: self.outer.constant,
                address,
                begin: address.wrapping_sub(self.shift.0 as u64),
                width: load.width,
                is_signed: load.is_signed,
                index: Closed { stride: load.width.into(), highest: Some(0), is_checked: true, is_signed: false },
            }),
        })
    }

    /// Ends the query where control cannot be followed further back.
    pub(super) fn give_up(mut self) -> Source {
        if self.index().is_some() && !self.close(None, false) {
            return Source::Unknown;
        }
        self.answer().unwrap_or(Source::Unknown)
    }

    /// Ends the search for the index's bound.
    pub(super) fn close(&mut self, highest: Option<u32>, is_checked: bool) -> bool {
        let Some((location, stride)) = self.index() else { return false };
        let Some(load) = self.load.as_mut().filter(|_| self.closed.is_none()) else { return false };
        load.address
            .terms
            .iter_mut()
            .filter(|term| term.is_some_and(|term| term.0 == location))
            .for_each(|t| *t = None);
        load.address.terms.sort_unstable();
        let highest = match (highest, self.cap) {
            (Some(highest), Some(cap)) => Some(highest.min(cap)),
            (highest, cap) => highest.or(cap),
        };
        self.closed = Some(Closed { stride, highest, is_checked, is_signed: false });
        self.compared = Compared::default();
        true
    }

    /// Substitutes `by` for `location` everywhere. Returns false if the result cannot be represented.
    pub(super) fn replace(&mut self, location: Location, by: &LinearExpression) -> bool {
        let sums = [Some(&mut self.outer), self.load.as_mut().map(|load| &mut load.address)];
        let mut fits = true;
        let mut is_index_lost = false;
        for (is_address, sum) in [false, true].into_iter().zip(sums) {
            let Some(sum) = sum else { continue };
            let before = *sum;
            if before.terms.iter().flatten().all(|term| !touches(term.0, location)) {
                continue;
            }
            *sum = LinearExpression::constant(before.constant);
            for &(old, factor) in before.terms.iter().flatten() {
                if old == location {
                    let is_addition = by.constant != 0 && !by.is_constant();
                    if is_addition && !(is_address && factor > 1) {
                        self.additions = self.additions.saturating_add(1);
                        fits &= self.additions <= MAX_ADDITIONS;
                    } else if is_addition {
                        let by = (by.constant as i64).wrapping_mul(factor);
                        self.shift = (self.shift.0.wrapping_add(by), self.shift.1.saturating_add(1));
                    }
                    sum.constant = sum.constant.wrapping_add(by.constant.wrapping_mul(factor as u64));
                    for &(new, by_factor) in by.terms.iter().flatten() {
                        fits &= sum.add(new, factor.wrapping_mul(by_factor));
                    }
                    continue;
                }
                match moved(old, location, by) {
                    Some(new) => fits &= sum.add(new, factor),
                    None if is_address && factor > 1 => {
                        is_index_lost = true;
                        fits &= sum.add(old, factor);
                    }
                    None => fits = false,
                }
            }
        }
        // A loop counts it.
        if is_index_lost || (self.shift.1 > MAX_SHIFTS && self.index().is_some()) {
            fits &= self.close(None, false);
        }
        self.compared.change(|old| match old == location {
            true => by.single().filter(|single| single.1 == 0).map(|single| single.0),
            false => moved(old, location, by),
        });
        fits
    }

    /// The earlier value of `location` is unknown. Returns false if the target depends on it.
    pub(super) fn kill(&mut self, location: Location) -> bool {
        let index = self.index();
        if index.is_some_and(|(index, _)| touches(index, location)) && !self.close(None, false) {
            return false;
        }
        self.compared.change(|old| (!touches(old, location)).then_some(old));
        !self.mentions(location)
    }

    pub(super) fn mentions(&self, location: Location) -> bool {
        let sums = [Some(&self.outer), self.load.as_ref().map(|load| &load.address)];
        sums.into_iter().flatten().flat_map(|sum| sum.terms.iter().flatten()).any(|term| touches(term.0, location))
    }

    /// A register is loaded from memory.
    pub(super) fn load(&mut self, register: u8, read: Read<'_>) -> bool {
        let Read { memory, next, is_signed } = read;
        let width = memory.bytes as u8;
        let location = Location::Register(register);
        if !self.mentions(location) && !self.compared.touch(location) {
            return true;
        }
        let Some(address) = LinearExpression::address(memory, next) else { return self.kill(location) };
        let is_slot = matches!(memory.base, Register::RSP | Register::RBP) && memory.index == Register::NONE;
        let in_outer = self.outer.terms.iter().flatten().find(|term| term.0 == location).copied();
        if let Some((_, factor)) = in_outer
            && self.load.is_none()
            && !(is_slot && width == 8)
        {
            if factor != 1
                || self.outer.terms.iter().flatten().any(|term| term.0 != location && touches(term.0, location))
            {
                return false;
            }
            self.outer.terms.iter_mut().filter(|t| t.is_some_and(|t| t.0 == location)).for_each(|t| *t = None);
            self.outer.terms.sort_unstable();
            self.load = Some(Load { width, is_signed: is_signed || self.is_extended, address });
            self.compared = Compared::default();
            return true;
        }
        let Some(memory) = memory_location(memory, next) else { return self.kill(location) };
        if width < 4 && !is_signed {
            self.narrow(location, width);
        }
        self.replace(location, &LinearExpression::of(memory))
    }

    /// The value in `location` was extended from `width` bytes.
    pub(super) fn narrow(&mut self, location: Location, width: u8) {
        if self.index().is_some_and(|index| index.0 == location) {
            let cap = (1u32 << (8 * u32::from(width))) - 1;
            self.cap = Some(self.cap.map_or(cap, |old| old.min(cap)));
        }
    }
}
