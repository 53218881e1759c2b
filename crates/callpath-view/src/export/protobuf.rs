//! The few fields of Protocol Buffers that profile.proto needs: varints, and what has a length.

/// A message under construction.
#[derive(Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// An integer; 0 is what a field that is not there means, so it is left out.
    pub(super) fn integer(&mut self, field: u32, value: u64) -> &mut Self {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
        self
    }

    /// A string, or a message.
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A message.
    pub(super) fn message(&mut self, field: u32, message: &Message) -> &mut Self {
        self.bytes(field, &message.bytes)
    }

    /// Integers, packed.
    pub(super) fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Message::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, &packed)
    }

    /// What was written so far, which is taken out.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// How much that is.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
