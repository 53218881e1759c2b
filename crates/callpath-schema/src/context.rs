//! The id of a calling context, the same on every thread, host and run.

use xxhash_rust::xxh3::xxh3_64;

/// A calling context: a 64-bit hash of the chain of (module identity, offset) from the outermost frame inwards.
///
/// ```text
/// id(root of full paths)         = 0
/// id(root of partial paths)      = 1
/// id(parent, identity, offset)   = XXH3-64, seed 0, of these bytes:
///
///     0        8        16                16 + n
///     | parent | offset | identity, n bytes |         both integers little-endian
/// ```
///
/// The identity is a module's build-id, or a hash of its content where it has none. The offset is the frame's address
/// within the module, where the code was before anything moved it. The layout is part of the file format: changing it
/// changes every stored id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct ContextId(pub u64);

impl ContextId {
    /// The context above every outermost frame.
    pub const ROOT: ContextId = ContextId(0);

    /// The root of paths whose outer end is not known.
    pub const PARTIAL_ROOT: ContextId = ContextId(1);

    /// The context of a frame at `offset` in the module, called from `self`. For a frame outside all modules, the
    /// identity is empty and the offset is the frame's key.
    pub fn child(self, module_identity: &[u8], offset: u64) -> ContextId {
        const HEAD: usize = 16;
        // Build-ids have 8 to 32 bytes in practice: no allocation for those.
        let mut short = [0u8; HEAD + 48];
        let len = HEAD + module_identity.len();
        let mut long;
        let bytes = if len <= short.len() {
            &mut short[..len]
        } else {
            long = vec![0u8; len];
            &mut long[..]
        };
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..HEAD].copy_from_slice(&offset.to_le_bytes());
        bytes[HEAD..].copy_from_slice(module_identity);
        ContextId(xxh3_64(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values by Python: `xxhash.xxh3_64_intdigest(struct.pack("<QQ", parent, offset) + identity)`.
    #[test]
    fn ids_never_change() {
        let build_id: Vec<u8> = (0..20).collect();
        let outer = ContextId::ROOT.child(&build_id, 0x1234);
        assert_eq!(outer, ContextId(0xfcb0_533a_80db_2888));
        assert_eq!(outer.child(&build_id, 0x1234), ContextId(0x0bc4_56af_d0d7_67c6));
        assert_eq!(outer.child(b"", 0), ContextId(0xa58a_4152_54bb_4936));
        let long: Vec<u8> = (0..100).collect();
        assert_eq!(ContextId::ROOT.child(&long, 7), ContextId(0xc68c_a966_b0a1_9a70));
    }
}
