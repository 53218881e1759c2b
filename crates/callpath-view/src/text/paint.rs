//! Colour and weight on a terminal, or nothing at all.
//! Whether the output is a terminal, the caller says.

/// How a piece of text is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ink {
    Plain,
    /// Headings.
    Bold,
    /// What matters less than what is beside it.
    Dim,
    /// Where the time goes.
    Hot,
    /// Where some of it goes.
    Warm,
}

/// Paints, where colour is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) color: bool,
}

impl Paint {
    /// `text` with `ink`; its width in columns does not change. `text` must be printable.
    pub(super) fn with(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Plain => "",
            Ink::Bold => "\x1b[1m",
            Ink::Dim => "\x1b[2m",
            Ink::Hot => "\x1b[1;31m",
            Ink::Warm => "\x1b[33m",
        };
        if !self.color || code.is_empty() || text.trim().is_empty() {
            return text.into();
        }
        format!("{code}{text}\x1b[0m")
    }

    /// How a share of the total is shown.
    pub(super) fn heat(part: u64, whole: u64) -> Ink {
        match part as f64 / (whole as f64).max(1.0) {
            share if share >= 0.10 => Ink::Hot,
            share if share >= 0.03 => Ink::Warm,
            _ => Ink::Plain,
        }
    }
}
