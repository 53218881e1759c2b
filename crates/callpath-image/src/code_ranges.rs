//! The code that an entry of DWARF names: by its first address and its end, or by a list of ranges.

use gimli::{AttributeValue, Dwarf, RawRngListEntry};

use crate::dwarf::Reader;
use crate::elf::Image;

/// The attributes that name code.
#[derive(Clone, Copy, Default)]
pub(crate) struct CodeAttributes<'a> {
    pub(crate) low: Option<AttributeValue<Reader<'a>>>,
    pub(crate) high: Option<AttributeValue<Reader<'a>>>,
    pub(crate) ranges: Option<AttributeValue<Reader<'a>>>,
}

/// Where a module's code ends: no entry names code behind that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeEnd(u64);

impl CodeEnd {
    /// A debug file has the segments of its program, without their bytes. Where there are none, nothing is known.
    pub(crate) fn of(image: &Image) -> CodeEnd {
        let executable = image.segments().iter().filter(|segment| segment.executable);
        let ends = executable.map(|segment| segment.vaddr.0.saturating_add(segment.mem_len));
        CodeEnd(ends.max().unwrap_or(u64::MAX))
    }

    /// Code may end there.
    pub(crate) fn holds(self, end: u64) -> bool {
        end <= self.0
    }
}

/// What attributes are read by.
pub(crate) struct Within<'w, 'a> {
    pub(crate) dwarf: &'w Dwarf<Reader<'a>>,
    pub(crate) unit: &'w gimli::Unit<Reader<'a>>,
    pub(crate) code_end: CodeEnd,
}

impl<'a> CodeAttributes<'a> {
    /// Gives each range to `add`, but for those of code that the linker dropped: they begin at 0, where no code lies,
    /// or end where they begin. Gives whether there were any of these. An error says why not all of it is known.
    pub(crate) fn each(
        &self,
        within: &Within<'_, 'a>,
        mut add: impl FnMut(u64, u64) -> Result<(), String>,
    ) -> Result<bool, String> {
        let Within { dwarf, unit, code_end } = *within;
        let mut is_dropped = false;
        let mut add = |start: u64, end: u64| match start {
            0 => {
                is_dropped = true;
                Ok(())
            }
            _ if start >= end || unit.header.is_tombstone_address(start) => Ok(()),
            _ if !code_end.holds(end) => Err(format!("{start:#x} to {end:#x} is not in the module's code")),
            _ => add(start, end),
        };
        if let Some(value) = self.ranges {
            return each_of_list(dwarf, unit, value, add).map(|()| is_dropped);
        }
        let Some(low) = self.low else { return Ok(false) };
        let address = |value| {
            let address = dwarf.attr_address(unit, value).map_err(|error| error.to_string())?;
            address.ok_or_else(|| format!("its address is {value:?}"))
        };
        let low = address(low)?;
        let end = match self.high {
            None => return Ok(false),
            Some(AttributeValue::Udata(len)) => low.saturating_add(len),
            Some(value) => match address(value) {
                Ok(end) => end,
                // Constants of other forms are lengths too.
                Err(_) => low.saturating_add(value.udata_value().ok_or_else(|| format!("its end is {value:?}"))?),
            },
        };
        add(low, end).map(|()| is_dropped)
    }
}

/// Compilers write no list without a single range, dropped ones included.
fn each_of_list<'a>(
    dwarf: &Dwarf<Reader<'a>>,
    unit: &gimli::Unit<Reader<'a>>,
    value: AttributeValue<Reader<'a>>,
    mut add: impl FnMut(u64, u64) -> Result<(), String>,
) -> Result<(), String> {
    let broken = |error: gimli::Error| error.to_string();
    let offset = dwarf.attr_ranges_offset(unit, value).map_err(broken)?;
    let offset = offset.ok_or_else(|| format!("its ranges are {value:?}"))?;
    let section = if unit.header.version() < 5 { ".debug_ranges" } else { ".debug_rnglists" };
    let mut list = dwarf.ranges(unit, offset).map_err(broken)?;
    let (mut is_empty, mut odd) = (true, None);
    while let Some(raw) = list.next_raw().map_err(broken)? {
        let is_range = !matches!(raw, RawRngListEntry::BaseAddress { .. } | RawRngListEntry::BaseAddressx { .. });
        is_empty &= !is_range;
        if let RawRngListEntry::AddressOrOffsetPair { begin, end }
        | RawRngListEntry::OffsetPair { begin, end }
        | RawRngListEntry::StartEnd { begin, end } = raw
            && begin > end
        {
            odd = Some(format!("a range ends at {end:#x}, before it begins at {begin:#x}"));
        }
        if let Some(range) = list.convert_raw(raw).map_err(broken)?
            && let Err(why) = add(range.begin, range.end)
        {
            odd = Some(why);
        }
    }
    let odd = odd.or_else(|| is_empty.then(|| "the list is empty".to_owned()));
    odd.map_or(Ok(()), |why| Err(format!("its list at {:#x} of {section}: {why}", offset.0)))
}
