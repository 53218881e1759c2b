//! The numbers of the ELF specification that are used here, under their names there.

pub(crate) const MAGIC: &[u8] = b"\x7fELF";
pub(crate) const ELFCLASS32: u8 = 1;
pub(crate) const ELFDATA2MSB: u8 = 2;
pub(crate) const ET_REL: u16 = 1;
pub(crate) const ET_EXEC: u16 = 2;
pub(crate) const ET_DYN: u16 = 3;
pub(crate) const EM_X86_64: u16 = 62;

pub(crate) const PN_XNUM: u16 = 0xffff;
pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_INTERP: u32 = 3;
pub(crate) const PT_NOTE: u32 = 4;
pub(crate) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub(crate) const PT_GNU_RELRO: u32 = 0x6474_e552;
pub(crate) const PF_X: u32 = 1;
pub(crate) const PF_W: u32 = 2;
pub(crate) const PF_R: u32 = 4;

pub(crate) const SHN_UNDEF: u16 = 0;
pub(crate) const SHN_XINDEX: u16 = 0xffff;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_PROGBITS: u32 = 1;
pub(crate) const SHT_STRTAB: u32 = 3;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_EXECINSTR: u64 = 4;
pub(crate) const SHF_COMPRESSED: u64 = 0x800;
pub(crate) const ELFCOMPRESS_ZLIB: u32 = 1;
pub(crate) const ELFCOMPRESS_ZSTD: u32 = 2;

pub(crate) const STT_NOTYPE: u8 = 0;
pub(crate) const STT_FUNC: u8 = 2;
pub(crate) const STT_FILE: u8 = 4;
pub(crate) const STT_GNU_IFUNC: u8 = 10;
pub(crate) const STB_LOCAL: u8 = 0;

pub(crate) const NT_GNU_BUILD_ID: u32 = 3;

pub(crate) const DT_NULL: u64 = 0;
pub(crate) const DT_STRTAB: u64 = 5;
pub(crate) const DT_SYMTAB: u64 = 6;
pub(crate) const DT_STRSZ: u64 = 10;
pub(crate) const DT_VERSYM: u64 = 0x6fff_fff0;
pub(crate) const DT_VERDEF: u64 = 0x6fff_fffc;
pub(crate) const DT_FLAGS_1: u64 = 0x6fff_fffb;
pub(crate) const DF_1_PIE: u64 = 0x0800_0000;

pub(crate) const R_X86_64_GLOB_DAT: u32 = 6;
pub(crate) const R_X86_64_JUMP_SLOT: u32 = 7;
pub(crate) const R_X86_64_IRELATIVE: u32 = 37;
