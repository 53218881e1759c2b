//! Finds the definition of a symbol: the next one behind ours, or the one that the program uses.
//!
//! `dlsym` does. Before glibc 2.34 it is in libdl, which few programs load, and libc.so.6 has no replacement that
//! survives an undefined name. Without `dlsym`, the loader's list of objects (`_r_debug`, its interface to debuggers)
//! is searched. Both are weak symbols: a program would not start if one were missing.

use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char, c_void};

use crate::hook::Procedure;

global_asm!(".weak dlsym", ".weak _r_debug", ".weak __tsan_init", ".hidden _DYNAMIC");

/// Address of the weak symbol of this name; 0: undefined.
macro_rules! weak {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads a word of the global offset table, which the loader has filled in.
        unsafe {
            asm!(
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address, options(nostack, pure, readonly, preserves_flags),
            );
        }
        address
    }};
}

/// Whether ThreadSanitizer is in the program. Not by `dlsym`: one that finds nothing allocates, and clang's has its
/// allocator in the program, which does not work yet when our object is loaded.
pub fn has_thread_sanitizer() -> bool {
    weak!("__tsan_init") != 0
}

/// The next definition of a symbol behind ours; null where there is none.
pub fn next(name: &CStr) -> *mut c_void {
    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    look_up(RTLD_NEXT, name, false)
}

/// The definition of a symbol that the program itself uses; null where there is none.
pub fn first(name: &CStr) -> *mut c_void {
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    look_up(RTLD_DEFAULT, name, true)
}

fn look_up(handle: *mut c_void, name: &CStr, from_first: bool) -> *mut c_void {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    match weak!("dlsym") {
        0 => in_list(name.to_bytes(), from_first).unwrap_or(0) as *mut c_void,
        // SAFETY: the loader has bound the name to `dlsym(3)`, which takes a handle of its own and a string.
        dlsym => unsafe { Dlsym::at(dlsym)(handle, name.as_ptr()) },
    }
}

/// The beginning of `struct r_debug`.
#[repr(C)]
struct LoaderState {
    version: i32,
    first: *const Object,
}

/// The public part of `struct link_map`.
#[repr(C)]
struct Object {
    bias: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
    next: *const Object,
}

/// `Elf64_Sym`
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    len_bytes: usize,
}

/// From the first object on, or from the one behind ours.
fn in_list(name: &[u8], from_first: bool) -> Option<usize> {
    let own: usize;
    // SAFETY: computes an address; every object with a dynamic segment has the symbol.
    unsafe { asm!("lea {}, [rip + _DYNAMIC]", out(reg) own, options(nostack, nomem, preserves_flags)) };
    let state = weak!("_r_debug") as *const LoaderState;
    // SAFETY: the loader's state is valid as long as the process lives; called where nothing is loaded or taken away.
    let mut object = unsafe { state.as_ref()?.first.as_ref() };
    let mut is_wanted = from_first;
    while let Some(here) = object {
        if is_wanted && let Some(found) = definition(here, name) {
            return Some(found);
        }
        is_wanted |= here.dynamic as usize == own;
        // SAFETY: null, or the next object of the list, which does not change meanwhile.
        object = unsafe { here.next.as_ref() };
    }
    None
}

/// A procedure or variable that an object defines, in its default version (the hash table: sysv-abi's, as GNU made it).
fn definition(object: &Object, name: &[u8]) -> Option<usize> {
    const DT_STRTAB: usize = 5;
    const DT_SYMTAB: usize = 6;
    const DT_GNU_HASH: usize = 0x6fff_fef5;
    const DT_VERSYM: usize = 0x6fff_fff0;
    const STT_OBJECT: u8 = 1;
    const STT_FUNC: u8 = 2;
    const HIDDEN_VERSION: u16 = 0x8000;
    let (mut strings, mut symbols, mut hash_table, mut versions) = (0, 0, 0, 0);
    let mut entry = object.dynamic;
    // SAFETY: a loaded object's dynamic segment ends with a zero entry.
    while let [tag, value] = unsafe { *entry }
        && tag != 0
    {
        // The loader writes addresses in place of most objects' link-time ones.
        let address = if value < object.bias { value + object.bias } else { value };
        match tag {
            DT_STRTAB => strings = address,
            DT_SYMTAB => symbols = address,
            DT_GNU_HASH => hash_table = address,
            DT_VERSYM => versions = address,
            _ => {}
        }
        // SAFETY: this one was not the last.
        entry = unsafe { entry.add(1) };
    }
    if strings == 0 || symbols == 0 || hash_table == 0 {
        return None;
    }
    let hash = name.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    // SAFETY: the loader has looked up symbols in these tables, or will: buckets, chains and names end within
    // the object, which is not unloaded while we look.
    unsafe {
        let [buckets, first, bloom_words, _] = *(hash_table as *const [u32; 4]);
        let bucket_at = (hash_table as *const u32).add(4 + 2 * bloom_words as usize);
        let mut index = *bucket_at.add(hash.checked_rem(buckets)? as usize);
        if index < first {
            return None;
        }
        loop {
            let link = *bucket_at.add(buckets as usize + (index - first) as usize);
            let symbol = &*(symbols as *const Symbol).add(index as usize);
            let is_default = versions == 0 || *(versions as *const u16).add(index as usize) & HIDDEN_VERSION == 0;
            if link | 1 == hash | 1
                && symbol.section != 0
                && matches!(symbol.info & 0xf, STT_OBJECT | STT_FUNC)
                && is_default
                && CStr::from_ptr((strings + symbol.name as usize) as *const c_char).to_bytes() == name
            {
                return Some(object.bias + symbol.value);
            }
            if link & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }
}
