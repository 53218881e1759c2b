//! What instructions cost, as a section of a database.
//!
//! ```text
//! whether some of what was merged lacks its instructions (0 or 1)
//! files, in order: path; kind of identity (0 none, 1 build-id, 2 content) and the identity's bytes;
//!                  how many instructions, and for each the step from the address before (the first: from 0)
//! metrics with any value: the metric, how many values; for each the step from the instruction before (the first: from 0; they are counted
//!                  over all files) and the value, as profiles have it
//! ```

use callpath_schema::encoding::{Malformed, Reader, Writer};
use callpath_schema::{Metric, MetricType};

use super::write::{packed, unpacked};
use crate::{CodeCosts, CodeFile, CodeIdentity};

/// The section's bytes.
pub(super) fn bytes(code: &CodeCosts, metrics: &[Metric]) -> Vec<u8> {
    let mut w = Writer::default();
    w.number(u64::from(code.lacks_some()));
    let order = code.order();
    let files: Vec<&[u32]> = order.chunk_by(|one, other| code.place(*one).0 == code.place(*other).0).collect();
    w.number(files.len() as u64);
    for rows in files {
        let CodeFile { path, identity } = code.place(rows[0]).0;
        w.path(path);
        match identity {
            None => w.number(0),
            Some(CodeIdentity::BuildId(id)) => {
                w.number(1);
                w.bytes(id);
            }
            Some(CodeIdentity::Content(hash)) => {
                w.number(2);
                w.bytes(&hash.to_be_bytes());
            }
        }
        w.number(rows.len() as u64);
        let mut last = 0;
        for row in rows {
            let address = code.place(*row).1;
            w.number(address - last);
            last = address;
        }
    }
    let mut places = vec![0u64; order.len()];
    order.iter().zip(0..).for_each(|(row, place)| places[*row as usize] = place);
    let columns = metrics.iter().enumerate().map(|(metric, of)| (metric, of.value, code.own().column(metric)));
    let columns: Vec<_> = columns.filter(|(.., cells)| !cells.is_empty()).collect();
    w.number(columns.len() as u64);
    for (metric, of, cells) in columns {
        let mut cells: Vec<(u64, u64)> = cells.iter().map(|(row, value)| (places[*row as usize], *value)).collect();
        cells.sort_unstable();
        w.number(metric as u64);
        w.number(cells.len() as u64);
        let mut last = 0;
        for (place, value) in cells {
            w.number(place - last);
            w.number(packed(value, of));
            last = place;
        }
    }
    w.bytes
}

/// What [`bytes`] gave, of a database of these metrics.
pub(super) fn read(bytes: &[u8], metrics: &[Metric]) -> Result<CodeCosts, Malformed> {
    let r = &mut Reader::new(bytes, 0);
    let mut code = CodeCosts::new(metrics.iter().map(Metric::rule));
    match r.number()? {
        0 => {}
        1 => code.lack(),
        _ => return Err(r.malformed("whether instructions are lacking")),
    }
    let mut rows = Vec::new();
    for _ in 0..r.count(3)? {
        let path = r.path()?;
        let identity = match r.number()? {
            0 => None,
            1 => Some(CodeIdentity::BuildId(r.bytes()?.to_vec())),
            2 => {
                let hash = r.bytes()?.try_into().map_err(|_| r.malformed("content hash"))?;
                Some(CodeIdentity::Content(u128::from_be_bytes(hash)))
            }
            _ => return Err(r.malformed("kind of module identity")),
        };
        let file = code.file(&CodeFile { path, identity });
        let (mut address, mut is_first) = (0u64, true);
        for _ in 0..r.count(1)? {
            let step = r.number()?;
            address =
                address.checked_add(step).filter(|_| is_first || step > 0).ok_or_else(|| r.malformed("address"))?;
            is_first = false;
            rows.push(code.instruction(file, address));
        }
    }
    let mut last_metric = None;
    for _ in 0..r.count(2)? {
        let metric = r.small("number of a metric")? as usize;
        let value_type: MetricType = match metrics.get(metric).filter(|_| last_metric.is_none_or(|last| last < metric))
        {
            Some(metric) => metric.value,
            None => return Err(r.malformed("number of a metric")),
        };
        last_metric = Some(metric);
        let (mut place, mut is_first) = (0u64, true);
        for _ in 0..r.count(2)? {
            let step = r.number()?;
            place = place.saturating_add(step);
            let row = usize::try_from(place).ok().and_then(|place| rows.get(place)).filter(|_| is_first || step > 0);
            let row = *row.ok_or_else(|| r.malformed("instruction"))?;
            is_first = false;
            code.add(row, metric, unpacked(r.number()?, value_type));
        }
    }
    if r.is_at_end() { Ok(code) } else { Err(r.malformed("bytes behind the instructions")) }
}
