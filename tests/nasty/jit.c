/* Code that the program writes itself: jit MODE.
 *   frames       procedures with and without a frame pointer, that work themselves and call back into C
 *   heir         as frames, in memory that a thread maps once the first one has ended
 *   succeeds N   works for some milliseconds and executes itself, so often
 *   rewritten    another procedure at the same address all the time, alike but for the size of its frame; its locals are
 *                return addresses of a procedure that never calls it
 *   appended     one procedure after the other behind the ones before, each called at once
 *   jumps        code that is jumped into, and out of, in the frame of its caller: nobody can know whose
 *   pointer      a frame that only its frame pointer tells: jumps that nobody can follow lead through it
 *   deep         a procedure that calls itself 300,000 times and works at the bottom
 *   trampolines  nested functions, called through code on the stack
 *   dumped DIR   as frames, and a procedure that is moved; a jitdump in DIR names them
 *   described DIR  a frame that nothing in the code tells: jumps that nobody can follow lead through it, and its locals are
 *                return addresses; a jitdump in DIR describes it, and another one at the same place, which is not the code there;
 *                DIR/took has what calls of both took, ns of CPU time: of that which is not described, and of the other */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef void routine(void (*callee)(uint64_t), uint64_t argument);

static uint8_t *page, *end;

static void emit(const void *code, size_t len)
{
    memcpy(end, code, len);
    end += len;
}
#define EMIT(...) emit((uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}))

static void align(void)
{
    while ((uintptr_t)end % 16)
        *end++ = 0xcc;
}

/* xor %eax,%eax; mov $steps,%ecx; 1: lea 1(%rax,%rax,2),%rax; dec %ecx; jne 1b */
static void emit_work(uint32_t steps)
{
    EMIT(0x31, 0xc0, 0xb9);
    emit(&steps, 4);
    EMIT(0x48, 0x8d, 0x44, 0x40, 0x01, 0xff, 0xc9, 0x75, 0xf7);
}

/* push %rbp; mov %rsp,%rbp; push %rbx; sub $8,%rsp; mov %rdi,%rbx; mov %rsi,%rdi; (work); call *%rbx; ...; ret */
static routine *emit_with_pointer(uint32_t steps)
{
    align();
    uint8_t *start = end;
    EMIT(0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xfb, 0x48, 0x89, 0xf7);
    emit_work(steps);
    EMIT(0xff, 0xd3, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0x5d, 0xc3);
    return (routine *)(void *)start;
}

/* sub $size,%rsp; fill the frame with %rdx; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; (work); add $size,%rsp; ret */
static routine *emit_without_pointer(uint8_t size, uint32_t steps)
{
    align();
    uint8_t *start = end;
    EMIT(0x48, 0x83, 0xec, size);
    for (uint8_t at = 0; at < 120; at += 8)
        EMIT(0x48, 0x89, 0x54, 0x24, at < size ? at : 0);
    EMIT(0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0);
    emit_work(steps);
    EMIT(0x48, 0x83, 0xc4, size, 0xc3);
    return (routine *)(void *)start;
}

__attribute__((noinline)) void in_c(uint64_t steps)
{
    volatile uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
}

static routine *outer, *inner;

__attribute__((noinline)) void between(uint64_t steps)
{
    inner(in_c, steps);
    __asm__ volatile("");
}

static int run_frames(void)
{
    outer = emit_with_pointer(600000);
    inner = emit_without_pointer(40, 600000);
    /* Rounds of one length may take a whole number of a clock's periods: samples would hit the same place in each. */
    for (int i = 0; i < 400; i++)
        outer(between, 200000 + i * 7919 % 401 * 500);
    puts("framed");
    return 0;
}

static int map_page(void)
{
    page = mmap(0, 1 << 17, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end = page;
    return page == MAP_FAILED;
}

static void *heir(void *unused)
{
    (void)unused;
    struct timespec till_it_has_ended = {0, 200000000};
    nanosleep(&till_it_has_ended, 0);
    exit(map_page() || run_frames());
}

static int run_heir(void)
{
    pthread_t thread;
    if (pthread_create(&thread, 0, heir, 0))
        return 1;
    pthread_exit(0);
}

__attribute__((noinline)) void nothing(uint64_t unused)
{
    (void)unused;
}

static int run_succeeds(char **argv)
{
    long left = atol(argv[2]);
    if (left <= 0) {
        puts("succeeded");
        return 0;
    }
    inner = emit_without_pointer(40, 3000000);
    for (int i = 0; i < 3; i++)
        inner(nothing, 0);
    char next[16];
    snprintf(next, sizeof next, "%ld", left - 1);
    execl("/proc/self/exe", argv[0], argv[1], next, NULL);
    return 1;
}

/* The file in which profilers find names: records of the kernel's jitdump specification. */
static FILE *dump;

static void dump_numbers(const uint64_t *numbers, size_t count)
{
    fwrite(numbers, 8, count, dump);
}

static void dump_record(uint32_t kind, uint32_t body)
{
    uint32_t head[] = {kind, 16 + body, 0, 0};
    fwrite(head, 4, 4, dump);
}

static void dump_load(routine *code, const char *name)
{
    uint64_t address = (uint64_t)code, len = (uint64_t)end - address;
    dump_record(0, 40 + strlen(name) + 1 + len);
    dump_numbers((uint64_t[]){0, address, address, len, 1}, 5);
    fwrite(name, 1, strlen(name) + 1, dump);
    fwrite((void *)address, 1, len, dump);
}

static int begin_dump(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/jit-%d.dump", directory, getpid());
    dump = fopen(path, "w+");
    if (!dump || mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED)
        return 1;
    uint32_t head[] = {0x4a695444, 1, 40, 62, 0, getpid(), 0, 0, 0, 0};
    fwrite(head, 4, 10, dump);
    return 0;
}

static int run_dumped(const char *directory)
{
    if (begin_dump(directory))
        return 1;
    outer = emit_with_pointer(600000);
    dump_load(outer, "jit_outer");
    inner = emit_without_pointer(40, 600000);
    dump_load(inner, "jit_inner");
    routine *before = emit_without_pointer(24, 600000), *after = (routine *)(void *)(page + 4096);
    uint64_t len = (uint64_t)end - (uint64_t)before;
    dump_load(before, "jit_moved");
    memcpy((void *)after, (void *)before, len);
    memset((void *)before, 0xcc, len);
    dump_record(1, 48);
    dump_numbers((uint64_t[]){0, (uint64_t)after, (uint64_t)before, (uint64_t)after, len, 1}, 6);
    fflush(dump);
    for (int i = 0; i < 400; i++) {
        outer(between, 200000 + i * 7919 % 401 * 500);
        after(in_c, 200000);
    }
    puts("dumped");
    return 0;
}

/* lea 4(%rip),%r11; jmp *%r11; int3: on, but nobody knows where to */
static void emit_leap(void)
{
    EMIT(0x4c, 0x8d, 0x1d, 0x04, 0x00, 0x00, 0x00, 0x41, 0xff, 0xe3, 0xcc);
}

__attribute__((noinline)) uint64_t decoy(void);

/* sub $40,%rsp; fill the frame with %rdx; leap; (work); leap; add $40,%rsp; ret */
static routine *emit_opaque(uint32_t steps)
{
    align();
    uint8_t *start = end;
    EMIT(0x48, 0x83, 0xec, 40);
    for (uint8_t at = 0; at < 40; at += 8)
        EMIT(0x48, 0x89, 0x54, 0x24, at);
    emit_leap();
    emit_work(steps);
    emit_leap();
    EMIT(0x48, 0x83, 0xc4, 40, 0xc3);
    return (routine *)(void *)start;
}

/* Describes the code from `code` to `end`: its CFA is rsp + 8, and rsp + `cfa` behind its first instruction and before its last.
 * The description lies behind the code, at the next multiple of eight bytes; .eh_frame, then .eh_frame_hdr. */
static void dump_unwinding(routine *code, uint8_t cfa)
{
    uint32_t len = end - (uint8_t *)code, back = (len + 7) / 8 * 8;
    uint8_t frame[] = {
        /* CIE: "zR", factors 1 and -8, return address 16; addresses are relative, four bytes; CFA = rsp + 8, return address at CFA - 8 */
        20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
        /* FDE: code, length; +4: CFA = rsp + cfa; +(len - 5): CFA = rsp + 8 */
        24, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x44, 0x0e, cfa, 0x02, len - 5, 0x0e, 8, 0, 0, 0, 0};
    uint32_t begin = -(back + 32);
    memcpy(frame + 32, &begin, 4);
    memcpy(frame + 36, &len, 4);
    uint8_t header[20] = {1, 0x1b, 3, 0x3b};
    dump_record(4, 24 + sizeof frame + sizeof header);
    dump_numbers((uint64_t[]){sizeof frame + sizeof header, sizeof header, 0}, 3);
    fwrite(frame, 1, sizeof frame, dump);
    fwrite(header, 1, sizeof header, dump);
}

static uint64_t used_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

__attribute__((noinline)) static int run_described(const char *directory)
{
    if (begin_dump(directory))
        return 1;
    /* Other code, which another piece replaces: its frame would lead to a return address that is none of a caller. */
    routine *first = emit_opaque(7);
    dump_unwinding(first, 24);
    dump_load(first, "jit_before");
    end = (uint8_t *)first;
    routine *undescribed = emit_opaque(1000000);
    routine *described = emit_opaque(1000000);
    dump_unwinding(described, 48);
    dump_load(described, "jit_described");
    fflush(dump);
    void (*with_bait)(uint64_t, uint64_t, uint64_t);
    uint64_t bait = decoy();
    /* Three of four, in no order that a clock's period might fall in with. */
    uint64_t state = 37, took[2] = {0, 0};
    for (int i = 0; i < 800; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int is_described = state >> 62 != 0;
        with_bait = (void (*)(uint64_t, uint64_t, uint64_t))(void *)(is_described ? described : undescribed);
        uint64_t begun = used_ns();
        with_bait(0, 0, bait);
        took[is_described] += used_ns() - begun;
    }
    puts("described");
    /* Both are as many instructions, but where a loop lies decides how long it takes. */
    char path[4096];
    snprintf(path, sizeof path, "%s/took", directory);
    FILE *file = fopen(path, "w");
    fprintf(file, "%llu %llu\n", (unsigned long long)took[0], (unsigned long long)took[1]);
    fclose(file);
    return 0;
}

/* sub $8,%rsp; dec %rdi; je 1f; call itself; jmp 2f; 1: (work); 2: add $8,%rsp; ret */
static int run_deep(void)
{
    align();
    void (*descend)(uint64_t) = (void (*)(uint64_t))(void *)end;
    EMIT(0x48, 0x83, 0xec, 0x08, 0x48, 0xff, 0xcf, 0x74, 0x07, 0xe8, 0xf2, 0xff, 0xff, 0xff, 0xeb, 0x10);
    emit_work(100000000);
    EMIT(0x48, 0x83, 0xc4, 0x08, 0xc3);
    descend(300000);
    puts("deep");
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

static int run_rewritten(void)
{
    uint64_t bait = decoy();
    for (int i = 0; i < 1800; i++) {
        end = page;
        routine *now = emit_without_pointer((uint8_t)(8 + 16 * (i % 7)), 200000);
        void (*with_bait)(void (*)(uint64_t), uint64_t, uint64_t) =
            (void (*)(void (*)(uint64_t), uint64_t, uint64_t))(void *)now;
        with_bait(in_c, 80000, bait);
    }
    puts("rewritten");
    return 0;
}

static int run_appended(void)
{
    for (int i = 0; i < 1200; i++) {
        routine *now = i % 2 ? emit_with_pointer(200000) : emit_without_pointer((uint8_t)(24 + 16 * (i % 6)), 200000);
        now(in_c, 80000);
    }
    puts("appended");
    return 0;
}

/* The caller's frame is larger than code that is jumped into can know; what it finds on the stack is bait. */
__attribute__((noinline)) void jumped(void *code, uint64_t bait)
{
    __asm__ volatile("sub $256, %%rsp\n\t"
                     "mov %1, (%%rsp)\n\tmov %1, 8(%%rsp)\n\tmov %1, 16(%%rsp)\n\tmov %1, 24(%%rsp)\n\t"
                     "lea 1f(%%rip), %%r11\n\t"
                     "jmp *%0\n"
                     "1:\n\t"
                     "add $256, %%rsp"
                     :
                     : "r"(code), "r"(bait)
                     : "rax", "rcx", "r11", "memory");
}

static int run_jumps(void)
{
    align();
    uint8_t *code = end;
    emit_work(1000000);
    EMIT(0x41, 0xff, 0xe3); /* jmp *%r11 */
    uint64_t bait = decoy();
    for (int i = 0; i < 400; i++)
        jumped(code, bait);
    puts("jumped");
    return 0;
}

/* push %rbp; mov %rsp,%rbp; and $-64,%rsp; sub $64,%rsp; leap; (work); leap; leave; ret */
static int run_pointer(void)
{
    align();
    routine *code = (routine *)(void *)end;
    EMIT(0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xc0, 0x48, 0x83, 0xec, 0x40);
    emit_leap();
    emit_work(1000000);
    emit_leap();
    EMIT(0xc9, 0xc3);
    for (int i = 0; i < 400; i++)
        code(in_c, 0);
    puts("pointed");
    return 0;
}

static uint64_t sink;

__attribute__((noinline)) void apply(void (*callee)(uint64_t), uint64_t argument)
{
    callee(argument);
    __asm__ volatile("");
}

static int run_trampolines(void)
{
    volatile uint64_t added = 3;
    void nested(uint64_t steps)
    {
        sink += added;
        in_c(steps);
        __asm__ volatile("");
    }
    for (int i = 0; i < 400; i++)
        apply(nested, 800000);
    printf("%lu\n", sink);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "trampolines"))
        return run_trampolines();
    if (!strcmp(mode, "heir"))
        return run_heir();
    if (map_page())
        return 1;
    if (!strcmp(mode, "succeeds"))
        return run_succeeds(argv);
    if (!strcmp(mode, "deep"))
        return run_deep();
    if (!strcmp(mode, "frames"))
        return run_frames();
    if (!strcmp(mode, "dumped"))
        return run_dumped(argv[2]);
    if (!strcmp(mode, "described"))
        return run_described(argv[2]);
    if (!strcmp(mode, "rewritten"))
        return run_rewritten();
    if (!strcmp(mode, "appended"))
        return run_appended();
    if (!strcmp(mode, "jumps"))
        return run_jumps();
    if (!strcmp(mode, "pointer"))
        return run_pointer();
    return 2;
}
