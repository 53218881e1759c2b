//! Writes exception tables ([`crate::exception_table`]), wherever they are to lie.

use callpath_format::address::LinkAddr;

use super::bytes::{distance, sleb, uleb};
use crate::exception_table::{Clause, ExceptionTable, TypeEntry};
use crate::lsda::OMITTED;

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`
pub(super) const RELATIVE: u8 = 0x1b;
/// `DW_EH_PE_uleb128`
pub(super) const ULEB: u8 = 0x01;
/// The length of a type's entry and of an action's distance to the next one, bytes.
const WORD_BYTES: usize = 4;

impl ExceptionTable {
    /// The bytes of this table, to lie where it says, with call sites in LEB128 and addresses relative to where they are
    /// written. `None` if something in it cannot be written so: an address too far away, or a pad before what pads count
    /// from.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let (actions, action_starts, list_bytes) = self.actions_and_lists()?;
        let call_sites = self.call_sites_to_bytes(&action_starts)?;
        let mut body = vec![ULEB];
        uleb(&mut body, call_sites.len() as u64);
        body.extend(call_sites);
        body.extend(actions);
        let mut out = Vec::new();
        match self.pads_from {
            None => out.push(OMITTED),
            Some(address) => {
                out.push(RELATIVE);
                let written = distance(self.at.0.wrapping_add(1), address.0).filter(|bytes| *bytes != [0; WORD_BYTES]);
                out.extend(written?);
            }
        }
        let has_types = !self.types.is_empty() || !self.lists.is_empty();
        if has_types {
            out.push(RELATIVE | if self.types_are_indirect() { crate::exception_table::INDIRECT } else { 0 });
            uleb(&mut out, (body.len() + self.types.len() * WORD_BYTES) as u64);
        } else {
            out.push(OMITTED);
        }
        out.extend(body);
        for entry in self.types.iter().rev() {
            let at = self.at.0.wrapping_add(out.len() as u64);
            out.extend(match entry {
                TypeEntry::Any => [0; WORD_BYTES],
                TypeEntry::At(LinkAddr(address)) => distance(at, *address).filter(|bytes| *bytes != [0; WORD_BYTES])?,
            });
        }
        out.extend(list_bytes);
        Some(out)
    }

    fn call_sites_to_bytes(&self, action_starts: &[u64]) -> Option<Vec<u8>> {
        let pads_from = self.pads_from.unwrap_or(self.code.start);
        let mut out = Vec::new();
        for site in &self.call_sites {
            uleb(&mut out, site.calls.start.0.checked_sub(self.code.start.0)?);
            uleb(&mut out, site.calls.end.0.checked_sub(site.calls.start.0)?);
            // A distance of 0 means that nothing lands.
            let pad = site.pad.map_or(Some(0), |pad| pad.0.checked_sub(pads_from.0).filter(|distance| *distance != 0));
            uleb(&mut out, pad?);
            let action = site.action.map_or(Some(0), |action| Some(action_starts.get(action as usize)? + 1));
            uleb(&mut out, action?);
        }
        Some(out)
    }

    /// The actions' bytes, where each begins, and the bytes of the lists.
    fn actions_and_lists(&self) -> Option<(Vec<u8>, Vec<u64>, Vec<u8>)> {
        let (mut lists, mut list_starts) = (Vec::new(), Vec::new());
        for list in &self.lists {
            list_starts.push(lists.len() as i64);
            for index in list {
                uleb(&mut lists, u64::from(*index) + 1);
            }
            lists.push(0);
        }
        // The distance to the next action is written behind what this one is, all of them at the same length.
        let (mut out, mut starts, mut distances) = (Vec::new(), Vec::new(), Vec::new());
        for action in &self.actions {
            starts.push(out.len() as u64);
            sleb(
                &mut out,
                match action.clause {
                    Clause::CleanUp => 0,
                    Clause::Catch(index) => i64::from(index) + 1,
                    Clause::OnlyListed(list) => -(list_starts.get(list as usize)? + 1),
                },
            );
            distances.push(out.len());
            out.extend([0; WORD_BYTES]);
        }
        for (action, at) in self.actions.iter().zip(distances) {
            let Some(next) = action.next else {
                // In LEB128 nothing is behind the first byte that says so.
                out.get_mut(at..at + WORD_BYTES)?.copy_from_slice(&[0x80, 0x80, 0x80, 0]);
                continue;
            };
            let distance = (*starts.get(next as usize)? as i64).checked_sub(at as i64)?;
            // Four bytes hold 28 bits.
            if !(-(1 << 27)..1 << 27).contains(&distance) {
                return None;
            }
            for (index, byte) in out.get_mut(at..at + WORD_BYTES)?.iter_mut().enumerate() {
                let goes_on = if index + 1 < WORD_BYTES { 0x80 } else { 0 };
                *byte = (distance >> (7 * index)) as u8 & 0x7f | goes_on;
            }
        }
        Some((out, starts, lists))
    }
}

/// For fuzzing: what is read of any bytes as a table, and can be written, is read back equal.
#[doc(hidden)]
pub fn fuzz_exception_table_written(bytes: &[u8]) {
    let code = LinkAddr(0x2000)..LinkAddr(0x3000);
    let Ok(read) = ExceptionTable::parse(bytes, LinkAddr(0x10_0000), code) else { return };
    let written = ExceptionTable {
        at: LinkAddr(0x20_0000),
        call_site_encoding: ULEB,
        type_encoding: (!read.types.is_empty() || !read.lists.is_empty())
            .then_some(RELATIVE | if read.types_are_indirect() { crate::exception_table::INDIRECT } else { 0 }),
        ..read
    };
    let Some(bytes) = written.to_bytes() else { return };
    assert_eq!(ExceptionTable::parse(&bytes, written.at, written.code.clone()), Ok(written));
}
