/* Code that the program writes itself, as runtimes do: generated MODE.
 *   interpreted  a frame that its frame pointer tells; C is jumped to, and returns to a place that no call stands before
 *   bait         rbp is a general register: it points at what looks like a frame, of a procedure that called nobody here
 *   apart        a piece that is jumped into, in its procedure's frame, and whose way out leads through a register; with bait in the frame
 *   never        calls what does not come back; another procedure's code follows the call, and bait lies where that would return
 *   arguments    a procedure that takes its arguments, bait among them, off the stack: by ret $16, and by hand
 *   thunk        a piece that hands over to C by a jump, and has no frame
 *   baited-thunk the same instructions in the middle of another procedure, with bait where a thunk has its return address
 *   dispatched   pieces that an interpreter jumps to, in its frame: one names where it jumps back to, the other takes it from memory
 *   zero         procedures in a shared mapping of /dev/zero
 *   memory-file  procedures in a file without a name */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void routine(void (*callee)(uint64_t), uint64_t argument);

static uint8_t *page, *end;

static void emit(const void *code, size_t len)
{
    memcpy(end, code, len);
    end += len;
}
#define EMIT(...) emit((uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}))

/* xor %eax,%eax; mov $steps,%ecx; 1: lea 1(%rax,%rax,2),%rax; dec %ecx; jne 1b */
static void emit_work(uint32_t steps)
{
    EMIT(0x31, 0xc0, 0xb9);
    emit(&steps, 4);
    EMIT(0x48, 0x8d, 0x44, 0x40, 0x01, 0xff, 0xc9, 0x75, 0xf7);
}

__attribute__((noinline)) void in_c(uint64_t steps)
{
    volatile uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
}

static void begin(void)
{
    while ((uintptr_t)end % 64)
        *end++ = 0xcc;
}

/* push %rbp; mov %rsp,%rbp; sub $32,%rsp; mov %rdi,%rax; mov %rsi,%rdi; mov %rsp,-16(%rbp); lea 1f(%rip),%r10; push %r10;
 * jmp *%rax; 1: mov -16(%rbp),%rsp; (work); leave; ret */
static int run_interpreted(void)
{
    begin();
    routine *code = (routine *)(void *)end;
    EMIT(0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0x65, 0xf0);
    EMIT(0x4c, 0x8d, 0x15, 4, 0, 0, 0, 0x41, 0x52, 0xff, 0xe0, 0x48, 0x8b, 0x65, 0xf0);
    emit_work(400000);
    EMIT(0xc9, 0xc3);
    for (int i = 0; i < 600; i++)
        code(in_c, 200000);
    puts("interpreted");
    return 0;
}

/* Where a call of this one returns to. */
__attribute__((noinline)) uint64_t own_return_address(void)
{
    return (uint64_t)__builtin_return_address(0);
}

__attribute__((noinline)) uint64_t decoy(void)
{
    uint64_t address = own_return_address();
    __asm__ volatile("");
    return address;
}

/* rbp points at a pair: a higher address of the same stack, and the bait. */
__attribute__((noinline)) void baited(void *code, uint64_t bait)
{
    __asm__ volatile("push %%rbp\n\tsub $512, %%rsp\n\t"
                     "lea 128(%%rsp), %%rbp\n\tlea 384(%%rsp), %%rcx\n\t"
                     "mov %%rcx, (%%rbp)\n\tmov %1, 8(%%rbp)\n\t"
                     "lea 1f(%%rip), %%r11\n\t"
                     "jmp *%0\n"
                     "1:\n\t"
                     "add $512, %%rsp\n\tpop %%rbp"
                     :
                     : "r"(code), "r"(bait)
                     : "rax", "rcx", "r11", "memory");
}

static int run_bait(void)
{
    begin();
    uint8_t *code = end;
    emit_work(1000000);
    EMIT(0x41, 0xff, 0xe3); /* jmp *%r11 */
    uint64_t bait = decoy();
    for (int i = 0; i < 450; i++)
        baited(code, bait);
    puts("taken");
    return 0;
}

/* As compilers of traces do it. The procedure: sub $184,%rsp; mov %rdx,8(%rsp); mov %rbx,16(%rsp); mov %rdi,%rbx;
 * mov %rsi,%rdi; jmp *%rcx. The piece: work, each round of which may leave; call *%rbx; test %rsp,%rsp; jne 1f; ud2;
 * 1: movabs $end,%r11; jmp *%r11. The end: mov 16(%rsp),%rbx; add $184,%rsp; ret */
static int run_apart(void)
{
    begin();
    void (*code)(void (*)(uint64_t), uint64_t, uint64_t, void *) =
        (void (*)(void (*)(uint64_t), uint64_t, uint64_t, void *))(void *)end;
    EMIT(0x48, 0x81, 0xec, 0xb8, 0, 0, 0, 0x48, 0x89, 0x54, 0x24, 0x08, 0x48, 0x89, 0x5c, 0x24, 0x10);
    EMIT(0x48, 0x89, 0xfb, 0x48, 0x89, 0xf7, 0xff, 0xe1);
    end += 8192;
    begin();
    const uint8_t *leaves = end;
    EMIT(0x48, 0x8b, 0x5c, 0x24, 0x10, 0x48, 0x81, 0xc4, 0xb8, 0, 0, 0, 0xc3);
    end += 8192;
    begin();
    void *piece = end;
    /* xor %eax,%eax; mov $600000,%ecx; 1: lea 1(%rax,%rax,2),%rax; test %rsp,%rsp; je 2f; dec %ecx; jne 1b */
    EMIT(0x31, 0xc0, 0xb9, 0xc0, 0x27, 0x09, 0);
    EMIT(0x48, 0x8d, 0x44, 0x40, 0x01, 0x48, 0x85, 0xe4, 0x74, 0x0d, 0xff, 0xc9, 0x75, 0xf2);
    EMIT(0xff, 0xd3, 0x48, 0x85, 0xe4, 0x75, 0x02, 0x0f, 0x0b);
    EMIT(0x49, 0xbb);
    emit(&leaves, 8);
    EMIT(0x41, 0xff, 0xe3);
    uint64_t bait = decoy();
    for (int i = 0; i < 600; i++)
        code(in_c, 200000, bait, piece);
    puts("apart");
    return 0;
}

static jmp_buf back;

__attribute__((noinline)) void does_not_come_back(uint64_t steps)
{
    in_c(steps);
    longjmp(back, 1);
}

/* What a call through a pointer returns to. */
__attribute__((noinline)) uint64_t decoy_by_pointer(void)
{
    static uint64_t (*volatile callee)(void) = own_return_address;
    uint64_t address = callee();
    __asm__ volatile("");
    return address;
}

/* Bait is in %rdx. sub $56,%rsp; mov %rdx,(%rsp); mov %rdx,16(%rsp); mov %rdi,%rax; mov %rsi,%rdi; call *%rax;
 * the other procedure: nop; ret; the other one: add $16,%rsp; ret */
static int run_never(void)
{
    uint64_t bait = decoy_by_pointer();
    for (volatile int i = 0; i < 600; i++) {
        int is_other = i % 2;
        if (i < 2)
            begin();
        static void (*code[2])(void (*)(uint64_t), uint64_t, uint64_t);
        if (i < 2) {
            code[i] = (void (*)(void (*)(uint64_t), uint64_t, uint64_t))(void *)end;
            EMIT(0x48, 0x83, 0xec, 0x38, 0x48, 0x89, 0x14, 0x24, 0x48, 0x89, 0x54, 0x24, 0x10);
            EMIT(0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x90);
            if (is_other)
                EMIT(0x48, 0x83, 0xc4, 0x10);
            EMIT(0xc3);
            end += 8192;
        }
        if (!setjmp(back))
            code[is_other](does_not_come_back, 400000, bait);
    }
    puts("never");
    return 0;
}

/* The caller: sub $8,%rsp; push %rdi; push %rdi (the bait); call 1f; add $8,%rsp; ret.
 * 1: (work); ret $16. Or: pop %r8; (work); add $16,%rsp; push %r8; ret */
static int run_arguments(void)
{
    void (*code[2])(uint64_t);
    for (int i = 0; i < 2; i++) {
        begin();
        uint8_t *callee = end;
        if (i)
            EMIT(0x41, 0x58);
        emit_work(500000);
        if (i)
            EMIT(0x48, 0x83, 0xc4, 0x10, 0x41, 0x50, 0xc3);
        else
            EMIT(0xc2, 16, 0);
        end += 8192;
        begin();
        code[i] = (void (*)(uint64_t))(void *)end;
        EMIT(0x48, 0x83, 0xec, 0x08, 0x57, 0x57, 0xe8);
        int32_t distance = (int32_t)(callee - (end + 4));
        emit(&distance, 4);
        EMIT(0x48, 0x83, 0xc4, 0x08, 0xc3);
        end += 8192;
    }
    uint64_t bait = decoy_by_pointer();
    for (int i = 0; i < 600; i++) {
        code[0](bait);
        code[1](bait);
    }
    puts("arguments");
    return 0;
}

/* (work); mov %rdi,%rax; mov %rsi,%rdi; jmp *%rax */
static int run_thunk(void)
{
    begin();
    routine *code = (routine *)(void *)end;
    emit_work(400000);
    EMIT(0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xe0);
    for (int i = 0; i < 600; i++)
        code(in_c, 200000);
    puts("thunk");
    return 0;
}

/* rsp is 8 more than a multiple of 16, as at a procedure's entry. */
__attribute__((noinline)) void baited_on_top(void *code, uint64_t bait)
{
    __asm__ volatile("mov %%rsp, %%r8\n\tand $-16, %%rsp\n\tpush %%r8\n\tsub $528, %%rsp\n\t"
                     "push %1\n\tpush %1\n\tpush %1\n\t"
                     "lea 1f(%%rip), %%r11\n\t"
                     "jmp *%0\n"
                     "1:\n\t"
                     "add $552, %%rsp\n\tpop %%rsp"
                     :
                     : "r"(code), "r"(bait)
                     : "rax", "rcx", "r8", "r11", "memory");
}

static int run_baited_thunk(void)
{
    begin();
    uint8_t *code = end;
    emit_work(1000000);
    EMIT(0x41, 0xff, 0xe3); /* jmp *%r11 */
    uint64_t bait = decoy_by_pointer();
    for (int i = 0; i < 450; i++)
        baited_on_top(code, bait);
    puts("taken");
    return 0;
}

/* Runs what the program names, one after the other. */
__attribute__((noinline)) void interpret(const void *const *program)
{
    volatile uint64_t words[8];
    in_c(10);
    for (int i = 0; i < 8; i++)
        words[i] = (uint64_t)i;
    __asm__ volatile("mov %0, %%r15\n\t"
                     "jmp *(%%r15)\n"
                     ".globl interpreter_goes_on\ninterpreter_goes_on:\n\t"
                     "add $8, %%r15\n\tjmp *(%%r15)\n"
                     ".globl interpreter_ends\ninterpreter_ends:"
                     :
                     : "r"(program), "m"(words)
                     : "rax", "rcx", "r11", "r15", "memory");
    in_c(10);
}

extern const uint8_t interpreter_goes_on[], interpreter_ends[];

/* (work); movabs $interpreter_goes_on,%r11; jmp *%r11. And: (work); add $8,%r15; jmp *(%r15) */
static int run_dispatched(void)
{
    begin();
    uint8_t *names = end;
    emit_work(200000);
    EMIT(0x49, 0xbb);
    const uint8_t *place = interpreter_goes_on;
    emit(&place, 8);
    EMIT(0x41, 0xff, 0xe3);
    end += 8192;
    begin();
    uint8_t *dispatches = end;
    emit_work(200000);
    EMIT(0x49, 0x83, 0xc7, 0x08, 0x41, 0xff, 0x27);
    const void *program[] = {names, dispatches, dispatches, dispatches, dispatches, interpreter_ends};
    for (int i = 0; i < 600; i++)
        interpret(program);
    puts("dispatched");
    return 0;
}

/* push %rbp; mov %rsp,%rbp; (work); mov %rdi,%rax; mov %rsi,%rdi; call *%rax; leave; ret */
static routine *emit_procedure(uint32_t steps)
{
    begin();
    routine *start = (routine *)(void *)end;
    EMIT(0x55, 0x48, 0x89, 0xe5);
    emit_work(steps);
    EMIT(0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0xc9, 0xc3);
    return start;
}

static int run_shared(void)
{
    routine *first = emit_procedure(400000), *second = emit_procedure(600000);
    /* Rounds of one length could take as long as a sampling period each, and samples would meet all of them at the same place. */
    for (int i = 0; i < 900; i++) {
        first(in_c, 150000 + i * 3571 % 100000);
        second(in_c, 150000 + i * 7919 % 100000);
    }
    puts("shared");
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const size_t len = 1 << 16;
    int file = -1;
    if (!strcmp(mode, "zero"))
        file = open("/dev/zero", O_RDWR);
    if (!strcmp(mode, "memory-file")) {
        file = memfd_create("code", 0);
        if (file < 0 || ftruncate(file, len))
            return 1;
    }
    int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    page = mmap(0, len, PROT_READ | PROT_WRITE | PROT_EXEC, kind, file, 0);
    if (page == MAP_FAILED)
        return 1;
    end = page;
    if (file >= 0)
        return run_shared();
    if (!strcmp(mode, "interpreted"))
        return run_interpreted();
    if (!strcmp(mode, "apart"))
        return run_apart();
    if (!strcmp(mode, "never"))
        return run_never();
    if (!strcmp(mode, "arguments"))
        return run_arguments();
    if (!strcmp(mode, "thunk"))
        return run_thunk();
    if (!strcmp(mode, "baited-thunk"))
        return run_baited_thunk();
    if (!strcmp(mode, "dispatched"))
        return run_dispatched();
    if (!strcmp(mode, "bait"))
        return run_bait();
    return 2;
}
