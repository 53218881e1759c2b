//! How a copy counts a path of a procedure that has too many for a word each (`callpath_format::shared::hashed`): if the number is low, it has a word all the
//! same; else a cache leads to the counter, or the routine finds it, and has the cache lead there.

use callpath_format::shared::flows::FlowCache;
use callpath_format::shared::hashed::HashedCache;

use super::assembler::{Assembler, Target};
use super::of_context::OfContext;
use super::plan::{Cell, Hashed, Numbers, PathNumber, Plan, Rax};
use super::pushing::{Flags, IS_OTHER, Pushing, WORD_BYTES, branch_apart};
use super::refusal::{Reason, Refusal};
use super::spot::{RAX, SCRATCH, Scratch, Spot};
use crate::encode::{self, Register};
use crate::encoding;

/// A path that is counted.
#[derive(Clone, Copy)]
struct Counted {
    hashed: Hashed,
    path: PathNumber,
    /// Where the context's words are.
    context: Option<OfContext>,
    /// The first part of the number, if it is a register.
    register: Option<Register>,
}

/// Two registers that are free, or wait in their cells.
#[derive(Clone, Copy)]
struct Two {
    key: Register,
    place: Register,
    has_rax_wait: bool,
}

/// A condition as processors number them.
const IS_NOT_BELOW: u8 = 3;

/// Writes what counts.
pub(super) fn write(
    out: &mut Assembler,
    plan: &Plan,
    (path, numbers): (PathNumber, Numbers),
    spot: Spot,
) -> Result<(), Refusal> {
    let refused = Refusal { at: spot.at, reason: Reason::FrameUnknown };
    let hashed = plan.hashed().ok_or(refused)?;
    let context = OfContext::of(plan);
    if plan.contexts().is_some() && context.is_none() {
        return Err(refused);
    }
    let register = plan.register().filter(|_| path.index == Some(Cell::OfActivation(0)));
    let counted = Counted { hashed, path, context, register };
    let is_free = |register: &Register| spot.live.general() >> register & 1 == 0 && Some(*register) != plan.register();
    let has_two = SCRATCH.into_iter().filter(is_free).count() >= 2 || plan.spills().iter().all(Option::is_some);
    if has_two && !spot.live.has_flags() {
        let key = Scratch::take(out, plan, spot, &SCRATCH)?;
        let others: Vec<Register> = SCRATCH.into_iter().filter(|&register| register != key.register).collect();
        let place = Scratch::take(out, plan, spot, &others)?;
        let has_rax_wait = [&key, &place].iter().any(|it| it.register == RAX && it.waits.is_some());
        let scratch = Two { key: key.register, place: place.register, has_rax_wait };
        match numbers {
            Numbers::High => counted.by_cache(out, scratch, spot)?,
            Numbers::Low => counted.by_word(out, scratch, spot)?,
            Numbers::Any => counted.by_word_or_cache(out, scratch, spot)?,
        }
        place.give_back(out, spot)?;
        return key.give_back(out, spot);
    }
    let flags = Flags::take(out, plan, spot)?;
    flags.keep(out);
    Pushing::beyond_red_zone(out, spot, |code| counted.by_routine(code, 0))?;
    flags.put_back(out);
    flags.give_back(out, spot)
}

impl Counted {
    /// Calls the routine. `cache`: the first word of the cache that is to lead to the counter; 0: none is.
    fn by_routine(self, code: &mut Pushing<'_>, cache: u32) -> Result<(), Refusal> {
        let Counted { hashed, path, context, register } = self;
        code.push_constant(cache.into());
        code.push_or_0(context.map(OfContext::node))?;
        code.push_constant(u64::from(hashed.procedure) << 32 | u64::from(path.constant as u32));
        match register {
            Some(register) => code.push_register(register),
            None => code.push_or_0(path.index)?,
        }
        code.push(Cell::OfThread(hashed.lane_word))?;
        code.call(hashed.routine);
        code.move_rsp(5 * WORD_BYTES as i32);
        Ok(())
    }

    /// Counts in the word of a number that is low, as it surely is if the activation's word holds what was put there: control that jumped into the
    /// procedure from elsewhere (`longjmp`) has to set it before.
    fn by_word(self, out: &mut Assembler, scratch: Two, spot: Spot) -> Result<(), Refusal> {
        self.number(out, (scratch.key, 0), spot)?;
        self.in_word(out, scratch, spot)
    }

    /// The same if the number is low, else where the cache leads.
    fn by_word_or_cache(self, out: &mut Assembler, scratch: Two, spot: Spot) -> Result<(), Refusal> {
        self.number(out, (scratch.key, 0), spot)?;
        out.bytes(&encode::compare(scratch.key, self.hashed.low));
        let counted = out.label();
        let by_cache = out.apart(
            spot.at,
            Box::new(move |out| {
                if scratch.has_rax_wait {
                    out.set_rax(Rax::InCell);
                }
                self.by_cache(out, scratch, spot)?;
                out.jump(Target::Label(counted));
                if scratch.has_rax_wait {
                    out.set_rax(Rax::InPlace);
                }
                Ok(())
            }),
        );
        out.opcode_to(&encoding::branch(IS_NOT_BELOW), Target::Label(by_cache));
        self.in_word(out, scratch, spot)?;
        out.set_label(counted);
        Ok(())
    }

    /// Counts in the word of the number in the first register.
    fn in_word(self, out: &mut Assembler, scratch: Two, spot: Spot) -> Result<(), Refusal> {
        let too_far = Refusal { at: spot.at, reason: Reason::TooFar };
        let first = i32::try_from(u64::from(self.hashed.first_word) * u64::from(WORD_BYTES)).map_err(|_| too_far)?;
        let Two { key, place, .. } = scratch;
        let Some(context) = self.context else {
            spot.put(out, Cell::OfThread(self.hashed.lane_word), |word| encode::load(place, word))?;
            out.bytes(&encode::count_in_table(place, Some(key), first));
            return Ok(());
        };
        context.load_first(out, place, spot)?;
        out.bytes(&encode::add_register_without_flags(place, key));
        context.load_words(out, key, spot)?;
        out.bytes(&encode::count_in_table(key, Some(place), first));
        Ok(())
    }

    /// Counts where the cache leads, if that is the path's counter.
    fn by_cache(self, out: &mut Assembler, scratch: Two, spot: Spot) -> Result<(), Refusal> {
        const NOWHERE: i32 = HashedCache::NOWHERE as i32 * WORD_BYTES as i32;
        let Counted { hashed, context, .. } = self;
        let Two { key, place, has_rax_wait } = scratch;
        self.number(out, (key, 1), spot)?;
        out.bytes(&encode::multiply(place, key, HashedCache::SPREAD));
        let bits = if context.is_some() { FlowCache::COUNT_SHIFT } else { HashedCache::COUNT_SHIFT };
        out.bytes(&encode::shift_right(place, (u32::BITS - bits) as u8));
        let lane = Cell::OfThread(hashed.lane_word);
        let too_far = Refusal { at: spot.at, reason: Reason::TooFar };
        let cache = i32::try_from(u64::from(hashed.cache) * u64::from(WORD_BYTES)).map_err(|_| too_far)?;
        let nowhere = match context {
            Some(context) => {
                context.load_first(out, key, spot)?;
                out.bytes(&encode::add_register_without_flags(place, key));
                context.load_words(out, key, spot)?;
                out.bytes(&encode::load_from_table(place, key, place, -(FlowCache::COUNT as i32) * WORD_BYTES as i32));
                out.bytes(&encode::add_register_without_flags(place, key));
                self.number(out, (key, 1), spot)?;
                FlowCache::NOWHERE_AT
            }
            None => {
                out.bytes(&encode::times_8(place));
                spot.put(out, lane, |word| encode::add_word(place, word))?;
                out.bytes(&encode::load_beside(place, place, cache));
                spot.put(out, lane, |word| encode::add_word(place, word))?;
                NOWHERE
            }
        };
        // Whatever the cache of a context leads to is of that context.
        out.bytes(&encode::compare_in(place, nowhere, key));
        let counted = out.label();
        branch_apart(out, IS_OTHER, (spot, has_rax_wait, counted), move |code| self.by_routine(code, hashed.cache));
        out.bytes(&encode::count_in_table(place, None, nowhere + WORD_BYTES as i32));
        out.set_label(counted);
        Ok(())
    }

    /// The path's number, plus a constant, modulo 2 to the power of 32.
    fn number(self, out: &mut Assembler, (to, more): (Register, i32), spot: Spot) -> Result<(), Refusal> {
        let constant = self.path.constant.wrapping_add(more);
        match (self.path.index, self.register) {
            (None, _) => out.bytes(&encode::set_32(to, constant)),
            (Some(_), Some(register)) => out.bytes(&encode::add_32(to, register, constant)),
            (Some(index), None) => {
                spot.put(out, index, |word| encode::load_32(to, word))?;
                out.bytes(&encode::add_32(to, to, constant));
            }
        }
        Ok(())
    }
}
