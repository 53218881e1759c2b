//! Counters of paths in a hash table (`callpath_format::shared::hashed`): what copies call where a path ends of a procedure that has too many for
//! an array. It keeps all registers but the arithmetic flags.
//!
//! The stack at `callpath_count_path`, from its return address on: the lane's address; a part of the path's number; the other part, and in the upper
//! half the procedure's number; the address of the context's node, 0 where contexts are not counted; the number of the first word of the procedure's
//! cache, 0 if that is not to lead to the counter.

use callpath_format::shared::activation::ContextNode;
use callpath_format::shared::hashed::{HashedCache, HashedHead, HashedKey, HashedPath};
use callpath_format::shared::lanes::LaneHead;
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

/// The address of [`HashedHead`], which the recorder writes; 0: there is none.
pub static HASHED: AtomicU64 = AtomicU64::new(0);

global_asm!(
    ".pushsection .text.callpath_routines,\"ax\",@progbits",
    ".p2align 6",
    ".hidden callpath_count_path",
    ".globl callpath_count_path",
    ".type callpath_count_path,@function",
    "callpath_count_path:",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "mov rsi, qword ptr [rip + {hashed}]",
    "test rsi, rsi",
    "jz 7f",
    // rax: the key.
    "mov eax, dword ptr [rsp + 56]",
    "add eax, dword ptr [rsp + 64]",
    // r8: its place in a cache.
    "push r8",
    "mov rcx, qword ptr [rsp + 80]",
    "test rcx, rcx",
    "jz 2f",
    "mov rcx, qword ptr [rcx + {flow}]",
    "test rcx, rcx",
    "jz 1f",
    "shl rcx, {path_bits}",
    "or rax, rcx",
    "bts rax, {context_bit}",
    "imul r8, rax, {cache_spread}",
    "shr r8, 64 - {cache_shift}",
    "jmp 3f",
    "2:",
    "add eax, 1",
    "imul r8d, eax, {cache_spread}",
    "shr r8d, 32 - {cache_shift}",
    "mov rcx, qword ptr [rsp + 56]",
    "mov rcx, qword ptr [rcx - {lane_head} + {lane_number}]",
    "shl rcx, {lane_at}",
    "or rax, rcx",
    "mov ecx, dword ptr [rsp + 76]",
    "shl rcx, {procedure_at}",
    "or rax, rcx",
    "bts rax, {lane_bit}",
    "3:",
    "movabs rdx, {spread}",
    "imul rdx, rax",
    "shr rdx, {place_shift}",
    "mov edi, {probes}",
    // rcx: an entry.
    "4:",
    "mov rcx, rdx",
    "shl rcx, 4",
    "lea rcx, [rcx + rsi + {table}]",
    "cmp qword ptr [rcx], rax",
    "je 5f",
    "cmp qword ptr [rcx], 0",
    "jne 9f",
    // It becomes the key's, if no other thread or handler is faster.
    "push rdx",
    "mov rdx, rax",
    "xor eax, eax",
    "lock cmpxchg qword ptr [rcx], rdx",
    "je 8f",
    "cmp rax, rdx",
    "8:",
    "mov rax, rdx",
    "pop rdx",
    "je 5f",
    "9:",
    "add edx, 1",
    "and edx, {mask}",
    "sub edi, 1",
    "jnz 4b",
    "1:",
    "lock add qword ptr [rsi + {lost}], 1",
    "jmp 6f",
    "5:",
    "add qword ptr [rcx + {executions}], 1",
    "mov rax, qword ptr [rsp + 88]",
    "test rax, rax",
    "jz 6f",
    "add r8, rax",
    "mov rax, qword ptr [rsp + 56]",
    "sub rcx, rax",
    "sub rcx, {nowhere}",
    "mov qword ptr [rax + r8 * 8], rcx",
    "6:",
    "pop r8",
    "7:",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "ret",
    ".size callpath_count_path, . - callpath_count_path",
    ".popsection",
    hashed = sym HASHED,
    flow = const offset_of!(ContextNode, flow),
    path_bits = const HashedKey::PATH_BITS_IN_CONTEXT,
    context_bit = const HashedKey::CONTEXT_BIT,
    lane_head = const LaneHead::LEN_BYTES,
    lane_number = const offset_of!(LaneHead, number),
    lane_at = const HashedKey::LANE_AT,
    procedure_at = const HashedKey::PROCEDURE_AT,
    lane_bit = const HashedKey::LANE_BIT,
    spread = const HashedHead::SPREAD as i64,
    place_shift = const u64::BITS - HashedHead::COUNT_SHIFT,
    probes = const HashedHead::PROBES,
    table = const HashedHead::LEN_BYTES,
    mask = const HashedHead::COUNT - 1,
    lost = const offset_of!(HashedHead, lost),
    executions = const offset_of!(HashedPath, executions),
    cache_spread = const HashedCache::SPREAD,
    cache_shift = const HashedCache::COUNT_SHIFT,
    nowhere = const HashedCache::NOWHERE * size_of::<u64>(),
);

unsafe extern "C" {
    fn callpath_count_path();
}

/// Where the routine is.
pub fn routine() -> u64 {
    callpath_count_path as *const () as u64
}
