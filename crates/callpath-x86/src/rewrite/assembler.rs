//! Writes code for an address: bytes, and distances to places that may not have been written yet.

use callpath_format::address::LinkAddr;

use super::patch::DirectBranch;
use super::plan::Rax;
use super::refusal::{Reason, Refusal};
use crate::{encode, encoding};

/// What a distance leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The copy of the instruction at this address, or the address itself if that has none.
    Copied(u64),
    /// The address.
    Fixed(u64),
    /// The address, of a procedure that is called; noted with the jumps to code without a copy.
    Called(u64),
    /// The same, with the callee's node in a register.
    CalledWithNode(u64),
    /// A label of the code that is being written.
    Label(usize),
}

/// The length of a distance that reaches 2 GB, bytes.
const FAR_BYTES: usize = 4;

/// A distance of four bytes, or one.
#[derive(Clone, Copy, Debug)]
struct Distance {
    /// Offset of its bytes.
    at: usize,
    len: usize,
    /// Offset that it counts from.
    from: usize,
    target: Target,
}

/// Code that is being written.
pub(super) struct Assembler {
    base: u64,
    code: Vec<u8>,
    distances: Vec<Distance>,
    /// Offsets; none until one is set.
    labels: Vec<Option<u32>>,
    /// From which offsets on rsp is lower than the program has it, and by how many bytes.
    lowered: Vec<(u32, u32)>,
    /// From which offsets on the frame is larger than the program has it, and by how many bytes.
    enlarged: Vec<(u32, u32)>,
    /// From which offsets on the program's value of rax is where.
    rax: Vec<(u32, Rax)>,
    /// Constants that are written behind the code, with the labels of their places.
    words: Vec<(usize, u64)>,
    /// Code that is written apart from what leads to it.
    apart: Vec<Apart>,
}

/// Writes code.
type Write = Box<dyn FnOnce(&mut Assembler) -> Result<(), Refusal>>;

/// Code that is seldom executed.
struct Apart {
    label: usize,
    /// The instruction that it leads to.
    origin: LinkAddr,
    write: Write,
}

impl Assembler {
    /// `base`: the address where the code will lie.
    pub(super) fn new(base: u64) -> Assembler {
        let (code, distances, labels, lowered, enlarged, rax, words, apart) = Default::default();
        Assembler { base, code, distances, labels, lowered, enlarged, rax, words, apart }
    }

    /// Where the next byte comes.
    pub(super) fn offset(&self) -> u32 {
        self.code.len() as u32
    }

    /// A place that comes later.
    pub(super) fn label(&mut self) -> usize {
        self.labels.push(None);
        self.labels.len() - 1
    }

    /// The next byte is the label's place.
    pub(super) fn set_label(&mut self, label: usize) {
        let offset = self.offset();
        if let Some(place) = self.labels.get_mut(label) {
            *place = Some(offset);
        }
    }

    /// Where that is, if it is a label that has its place.
    pub(super) fn offset_of(&self, target: Target) -> Option<u32> {
        let Target::Label(label) = target else { return None };
        self.labels.get(label).copied().flatten()
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// An instruction whose displacement, at an offset in its bytes, leads to `target`.
    pub(super) fn with_displacement(&mut self, bytes: &[u8], displacement_at: usize, target: Target) {
        let at = self.code.len() + displacement_at;
        self.bytes(bytes);
        self.distances.push(Distance { at, len: FAR_BYTES, from: self.code.len(), target });
    }

    /// `opcode`, and behind it the distance to `target` in one byte. It has to fit.
    pub(super) fn near_to(&mut self, opcode: u8, target: Target) {
        self.bytes(&[opcode, 0]);
        let from = self.code.len();
        self.distances.push(Distance { at: from - 1, len: 1, from, target });
    }

    /// `opcode`, and behind it the distance to `target`.
    pub(super) fn opcode_to(&mut self, opcode: &[u8], target: Target) {
        self.bytes(opcode);
        let at = self.code.len();
        self.bytes(&[0; 4]);
        self.distances.push(Distance { at, len: FAR_BYTES, from: self.code.len(), target });
    }

    pub(super) fn jump(&mut self, target: Target) {
        self.opcode_to(&[encoding::JUMP], target);
    }

    /// Pushes a constant.
    pub(super) fn push_word(&mut self, value: u64) {
        let label = self.label();
        self.opcode_to(&encode::PUSH_BESIDE_CODE, Target::Label(label));
        self.words.push((label, value));
    }

    /// Writes the constants that are pushed. Nothing runs into them.
    pub(super) fn write_words(&mut self) {
        let words = std::mem::take(&mut self.words);
        if !words.is_empty() {
            self.code.resize(self.code.len().next_multiple_of(size_of::<u64>()), encoding::INT3);
        }
        for (label, value) in words {
            self.set_label(label);
            self.bytes(&value.to_le_bytes());
        }
    }

    /// The label of code that is written apart. `origin`: the instruction that it leads to.
    pub(super) fn apart(&mut self, origin: LinkAddr, write: Write) -> usize {
        let label = self.label();
        self.apart.push(Apart { label, origin, write });
        label
    }

    /// Writes what is to be apart, by ascending offset: where each begins, and the instruction that it leads to. Nothing runs into it.
    pub(super) fn write_apart(&mut self) -> Result<Vec<(u32, LinkAddr)>, Refusal> {
        let mut origins = Vec::new();
        // It may have something apart, too.
        while !self.apart.is_empty() {
            for Apart { label, origin, write } in std::mem::take(&mut self.apart) {
                origins.push((self.offset(), origin));
                self.set_label(label);
                write(self)?;
            }
        }
        Ok(origins)
    }

    /// From here on rsp is so many bytes lower than the program has it.
    pub(super) fn set_lowered(&mut self, bytes: u32) {
        self.lowered.push((self.offset(), bytes));
    }

    /// From here on the frame is larger by so many bytes than the program has it.
    pub(super) fn set_enlarged(&mut self, bytes: u32) {
        self.enlarged.push((self.offset(), bytes));
    }

    /// By ascending offset: from there on the frame is larger by so many bytes than the program has it.
    pub(super) fn take_enlarged(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.enlarged)
    }

    /// From here on the program's value of rax is there.
    pub(super) fn set_rax(&mut self, is: Rax) {
        self.rax.push((self.offset(), is));
    }

    /// By ascending offset: from there on the program's value of rax is where.
    pub(super) fn take_rax(&mut self) -> Vec<(u32, Rax)> {
        std::mem::take(&mut self.rax)
    }

    /// By ascending offset: from there on rsp is so many bytes lower than the program has it.
    pub(super) fn take_lowered(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.lowered)
    }

    /// The code, and its jumps to what has no copy or is called. `place`: the offset of an instruction's copy, by its
    /// address.
    pub(super) fn finish(
        mut self,
        place: impl Fn(u64) -> Option<u32>,
    ) -> Result<(Vec<u8>, Vec<DirectBranch>), Refusal> {
        let mut out = Vec::new();
        for &Distance { at, len, from, target } in &self.distances {
            let to = match target {
                Target::Fixed(address) => address,
                Target::Called(address) | Target::CalledWithNode(address) => {
                    let end = LinkAddr(self.base.wrapping_add(from as u64));
                    let hands_node = matches!(target, Target::CalledWithNode(_));
                    out.push(DirectBranch { end, target: LinkAddr(address), is_call: true, hands_node });
                    address
                }
                Target::Label(label) => {
                    let offset = self.labels.get(label).copied().flatten();
                    self.base
                        .wrapping_add(offset.ok_or(Refusal { at: LinkAddr(self.base), reason: Reason::NoCode })?.into())
                }
                Target::Copied(address) => match place(address) {
                    Some(offset) => self.base.wrapping_add(offset.into()),
                    None => {
                        let end = LinkAddr(self.base.wrapping_add(from as u64));
                        out.push(DirectBranch { end, target: LinkAddr(address), is_call: false, hands_node: false });
                        address
                    }
                },
            };
            let distance = encoding::distance(self.base.wrapping_add(from as u64), to);
            let distance = distance.ok_or(Refusal { at: LinkAddr(to), reason: Reason::TooFar })?;
            if len == 1 && i8::try_from(distance).is_err() {
                return Err(Refusal { at: LinkAddr(to), reason: Reason::TooFar });
            }
            if let (Some(bytes), Some(distance)) = (self.code.get_mut(at..at + len), distance.to_le_bytes().get(..len))
            {
                bytes.copy_from_slice(distance);
            }
        }
        Ok((self.code, out))
    }
}
