//! `--recursion=full|collapse|suffix:N`, which `record` and `report` have in common.

use std::num::NonZeroU32;
use std::str::FromStr;

/// As typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecursionArgument {
    Full,
    Collapse,
    Suffix(NonZeroU32),
}

impl FromStr for RecursionArgument {
    type Err = &'static str;

    fn from_str(typed: &str) -> Result<RecursionArgument, &'static str> {
        const FRAMES: &str = "N of suffix:N must be 1 or more";
        match typed {
            "full" => Ok(RecursionArgument::Full),
            "collapse" => Ok(RecursionArgument::Collapse),
            "suffix" => Err(FRAMES),
            _ => match typed.strip_prefix("suffix:") {
                Some(frames) => frames.parse().map(RecursionArgument::Suffix).map_err(|_| FRAMES),
                None => Err("must be full, collapse or suffix:N"),
            },
        }
    }
}

impl From<RecursionArgument> for callpath_record::Recursion {
    fn from(typed: RecursionArgument) -> callpath_record::Recursion {
        match typed {
            RecursionArgument::Full => callpath_record::Recursion::Full,
            RecursionArgument::Collapse => callpath_record::Recursion::Collapse,
            RecursionArgument::Suffix(frames) => callpath_record::Recursion::Suffix(frames),
        }
    }
}

impl From<RecursionArgument> for callpath_db::Recursion {
    fn from(typed: RecursionArgument) -> callpath_db::Recursion {
        match typed {
            RecursionArgument::Full => callpath_db::Recursion::Full,
            RecursionArgument::Collapse => callpath_db::Recursion::Collapse,
            RecursionArgument::Suffix(frames) => callpath_db::Recursion::Suffix(frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RecursionArgument;

    #[test]
    fn what_is_typed() {
        let typed = |word: &str| word.parse::<RecursionArgument>();
        assert_eq!(typed("full"), Ok(RecursionArgument::Full));
        assert_eq!(typed("collapse"), Ok(RecursionArgument::Collapse));
        assert!(matches!(typed("suffix:12"), Ok(RecursionArgument::Suffix(frames)) if frames.get() == 12));
        for wrong in ["", "suffix", "suffix:", "suffix:0", "suffix:-1", "suffix:4294967296", "Full", "fold"] {
            assert!(typed(wrong).is_err(), "{wrong}");
        }
    }
}
