/* What breaks where a return address is not what the call has put there: marked MODE. Each mode does what it does some
 * hundred frames deep, for a second or so, and prints what came out.
 *   registers  every register and the flags survive a return
 *   values     values returned in rax and rdx, xmm0 and xmm1, ymm0, zmm0, st0 and st1, memory
 *   jumps      longjmp and siglongjmp (with and without checks) out of depth, setjmp all the time
 *   contexts   coroutines, one of them on a stack that lies inside of another one
 *   handlers   signals on the same and on an alternate stack, some of them left by siglongjmp
 *   forks      children that return from where they were forked
 *   vforks     vfork and exec from deep down
 *   tails      chains of tail calls
 *   exits      threads that end by pthread_exit and by cancellation, deep down, with clean-up handlers
 *   traces     backtrace() counts the frames
 *   lookups    who calls dlsym is found by its return address
 *   debugger   gdb sees through to main
 *   replaces   procedures whose return addresses are replaced by somebody else, too, as uftrace does
 *   switches   code that puts rsp on another stack by itself, and calls from there
 *   inlines    procedures that take a number from behind their call, and return behind that
 *   delimited  frames that are taken away from below one caller and put back below another one, at the same place
 *   copies     two coroutines on the same stack: what is in use of it is copied away and back, as greenlets do */
#define _GNU_SOURCE
#include <complex.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
/* More than what `--sentinel auto` leaves alone. */
#define DEPTH 300

static volatile uint64_t sink;


APART static void burn(unsigned steps)
{
    for (unsigned i = 0; i < steps; i++)
        sink = sink * 6364136223846793005u + 1;
}

/* Runs `what` some frames down. */
typedef long (*Deed)(long);
APART static long down(int depth, Deed what, long argument)
{
    if (depth == 0)
        return what(argument);
    long result = down(depth - 1, what, argument);
    sink = sink + 1;
    return result;
}

/* registers */

__asm__(".text\n.type keeps,@function\nkeeps:\n"
        /* burns, keeps all registers but those that it sets, and returns with them and the carry flag set */
        ".cfi_startproc\n"
        "mov $200000, %ecx\n1: dec %ecx\njnz 1b\n"
        "mov $101, %eax\nmov $102, %ecx\nmov $103, %edx\nmov $104, %esi\nmov $105, %edi\n"
        "mov $108, %r8d\nmov $109, %r9d\nmov $110, %r10d\nmov $111, %r11d\nstc\n"
        "ret\n.cfi_endproc\n.size keeps,.-keeps\n"
        ".type calls_keeps,@function\ncalls_keeps:\n.cfi_startproc\n"
        "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbx, 0\n"
        "call keeps\n"
        "setc %bl\nmovzx %bl, %ebx\n"
        "lea (%rax,%rbx), %rax\nadd %rcx, %rax\nadd %rdx, %rax\nadd %rsi, %rax\nadd %rdi, %rax\n"
        "add %r8, %rax\nadd %r9, %rax\nadd %r10, %rax\nadd %r11, %rax\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbx\nret\n.cfi_endproc\n.size calls_keeps,.-calls_keeps\n");
extern long calls_keeps(void);

static long registers(long argument)
{
    (void)argument;
    return calls_keeps();
}

/* values */

typedef struct { long a, b; } Pair;
typedef struct { double a, b; } Doubles;
typedef struct { long a[5]; } Large;
typedef double Four __attribute__((vector_size(32)));
typedef double Eight __attribute__((vector_size(64)));

APART static Pair pair(long x) { burn(3000); return (Pair){x, x + 1}; }
APART static Doubles doubles(long x) { burn(3000); return (Doubles){x, x + 0.5}; }
APART static double complex complexes(long x) { burn(3000); return x + 0.25 * I; }
APART static long double longs(long x) { burn(3000); return x + 0.125L; }
APART static long double complex long_complexes(long x) { burn(3000); return x + 0.75L * I; }
APART static Large large(long x) { burn(3000); return (Large){{x, 1, 2, 3, x + 4}}; }
APART static __int128 wide(long x) { burn(3000); return ((__int128)x << 64) + x; }
APART __attribute__((target("avx"))) static Four fours(long x) { burn(3000); return (Four){x, x + 1, x + 2, x + 3}; }
APART __attribute__((target("avx"))) static long sum_of_fours(long x)
{
    Four four = fours(x);
    return (long)(four[0] + four[1] + four[2] + four[3]);
}
APART __attribute__((target("avx512f"))) static Eight eights(long x)
{
    burn(3000);
    return (Eight){x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7};
}
APART __attribute__((target("avx512f"))) static long sum_of_eights(long x)
{
    Eight eight = eights(x);
    double sum = 0;
    for (int i = 0; i < 8; i++)
        sum += eight[i];
    return (long)sum;
}

static long values(long x)
{
    Pair p = pair(x);
    Doubles d = doubles(x);
    double complex c = complexes(x);
    long double l = longs(x);
    long double complex lc = long_complexes(x);
    Large big = large(x);
    __int128 w = wide(x);
    long sum = p.a + p.b + (long)(4 * (d.a + d.b)) + (long)(8 * (creal(c) + cimag(c))) + (long)(8 * l);
    sum += (long)(8 * (creall(lc) + cimagl(lc))) + big.a[0] + big.a[4] + (long)(w >> 64) + (long)w;
    sum += __builtin_cpu_supports("avx") ? sum_of_fours(x) : 4 * x + 6;
    return sum + (__builtin_cpu_supports("avx512f") ? sum_of_eights(x) : 8 * x + 28);
}

/* jumps */

static sigjmp_buf places[8];
extern void __longjmp_chk(jmp_buf, int) __attribute__((noreturn, weak));

APART static long jump_out(long which)
{
    burn(2000);
    switch (which % 3) {
    case 0: siglongjmp(places[which % 8], 1);
    case 1: longjmp(places[which % 8], 1);
    default:
        if (__longjmp_chk)
            __longjmp_chk(places[which % 8], 1);
        longjmp(places[which % 8], 1);
    }
}

APART static long catch_jump(long which)
{
    volatile long came = 0;
    if (sigsetjmp(places[which % 8], 0) == 0)
        down((int)(which % 40), jump_out, which);
    else
        came = 1;
    for (volatile int i = 0; i < 20; i++) {
        jmp_buf kept;
        if (_setjmp(kept) == 0 && i % 2)
            longjmp(kept, 1);
    }
    burn(500);
    return came;
}

/* contexts */

static ucontext_t at_home, on_heap, inside;
static volatile long switched;

static void heap_routine(void)
{
    for (;;) {
        burn(3000);
        switched++;
        swapcontext(&on_heap, &inside);
    }
}

APART static long switch_inside(long argument)
{
    burn(2000);
    swapcontext(&inside, &at_home);
    return argument;
}

static void inside_routine(void)
{
    for (long i = 0;; i++) {
        down((int)(i % 50), switch_inside, i);
        switched++;
        swapcontext(&inside, &on_heap);
    }
}

APART static long contexts(long rounds)
{
    char room[1 << 16];
    char *heap = malloc(1 << 16);
    memset(room, 0, sizeof room);
    getcontext(&on_heap);
    on_heap.uc_stack = (stack_t){.ss_sp = heap, .ss_size = 1 << 16};
    makecontext(&on_heap, heap_routine, 0);
    getcontext(&inside);
    inside.uc_stack = (stack_t){.ss_sp = room, .ss_size = sizeof room};
    makecontext(&inside, inside_routine, 0);
    for (long i = 0; i < rounds; i++) {
        burn(3000);
        swapcontext(&at_home, &inside);
    }
    free(heap);
    return switched;
}

/* handlers */

static sigjmp_buf out_of_handler;
static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
    handled++;
    burn(2000);
    if (signal == SIGUSR2)
        siglongjmp(out_of_handler, 1);
}

static long raises(long signal)
{
    burn(1000);
    raise((int)signal);
    burn(1000);
    return 1;
}

static long handlers(long round)
{
    long sum = down((int)(round % 30), raises, round % 2 ? SIGUSR1 : SIGVTALRM);
    if (sigsetjmp(out_of_handler, 1) == 0)
        sum += 100 * down((int)(round % 30), raises, SIGUSR2);
    return sum;
}

/* forks */

static int parent;

static long fork_here(long argument)
{
    burn(20000);
    pid_t child = fork();
    if (child == 0) {
        burn(3000000);
        return argument + 1;
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static long vforks;

static long vfork_here(long argument)
{
    (void)argument;
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)0);
        _exit(9);
    }
    vforks++;
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* tails */

APART static long third(long a) { burn(1000); return a + 3; }
APART static long second(long a, long b) { burn(1000); return third(a + b); }
APART static long first(long a) { burn(1000); return second(a, 2); }

static long tails(long argument) { return first(argument) + second(argument, 1); }

/* exits */

static volatile long cleaned;
static void clean(void *argument) { cleaned += (long)argument; }

APART static long leave(long how)
{
    burn(30000);
    if (how == 0)
        pthread_exit((void *)7);
    for (;;) {
        burn(1000);
        pthread_testcancel();
    }
}

APART static long with_clean_up(long how)
{
    long result;
    pthread_cleanup_push(clean, (void *)1);
    result = down(100, leave, how);
    pthread_cleanup_pop(1);
    return result;
}

static void *thread(void *how) { return (void *)down(DEPTH, with_clean_up, (long)how); }

static long exits(long round)
{
    pthread_t id;
    void *result;
    pthread_create(&id, 0, thread, (void *)(round % 2));
    if (round % 2) {
        usleep(500);
        pthread_cancel(id);
    }
    pthread_join(id, &result);
    return result == PTHREAD_CANCELED ? 1 : (long)result;
}

/* traces */

static int least;

static long traces(long argument)
{
    static void *frames[2000];
    int count = backtrace(frames, 2000);
    burn(1000);
    /* A marked frame shows as one more. */
    return count >= least && count < least + 60 ? argument : -1000000000;
}

/* lookups */

static long lookups(long argument)
{
    void *(*allocate)(size_t) = dlsym(RTLD_NEXT, "malloc");
    Dl_info info;
    if (!allocate || !dladdr((void *)allocate, &info))
        return -1000000;
    return argument + (strstr(info.dli_fname, "libc") != 0);
}

/* debugger */

static long debugger(long argument)
{
    char command[300], line[1000];
    int levels = 0, mains = 0;
    burn(40000000);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    snprintf(command, sizeof command,
             "env -u LD_PRELOAD -u CALLPATH_SESSION gdb -q -nx -batch -ex 'set debuginfod enabled off' -ex bt -p %d 2>&1", getpid());
    FILE *said = popen(command, "r");
    while (said && fgets(line, sizeof line, said)) {
        levels += strstr(line, " down (") != 0;
        mains += strstr(line, " main (") != 0;
    }
    if (!said || pclose(said) != 0)
        return -1000000;
    printf("gdb: %d levels, main %d\n", levels, mains);
    return argument;
}

/* Somebody else's trampoline, and the return addresses that it has replaced, the last one on top. */
static void *replaced[64];
static long replaced_count;
long give_back(void);
long give_back(void) { return (long)replaced[--replaced_count]; }
__asm__(".text\n"
        ".type another_trampoline, @function\n"
        "another_trampoline:\n"
        "  sub $8, %rsp\n" /* where the return address goes */
        "  push %rax\n  push %rdx\n  sub $8, %rsp\n"
        "  call give_back\n"
        "  mov %rax, 24(%rsp)\n"
        "  add $8, %rsp\n  pop %rdx\n  pop %rax\n"
        "  ret\n");
void another_trampoline(void);

APART static void replace(void **slot)
{
    replaced[replaced_count++] = *slot;
    *slot = (void *)another_trampoline;
}

/* Its return address is replaced at its entry, or in the middle, when it may have been marked. */
APART static long with_replaced(long depth)
{
    void **slot = (void **)__builtin_frame_address(0) + 1;
    if (depth % 2)
        replace(slot);
    burn(400);
    long result = depth > 0 ? with_replaced(depth - 1) * 3 + 1 : 7;
    burn(400);
    if (!(depth % 2))
        replace(slot);
    burn(400);
    return result;
}

APART static long replaces(long round) { return with_replaced(20 + round % 10); }

/* Calls `what(argument)` on the stack that ends at `top`. */
long on_other_stack(Deed what, long argument, void *top);
__asm__(".text\n"
        ".type on_other_stack, @function\n"
        "on_other_stack:\n"
        "  push %rbx\n"
        "  mov %rsp, %rbx\n"
        "  mov %rdi, %rax\n  mov %rsi, %rdi\n"
        "  mov %rdx, %rsp\n"
        "  call *%rax\n"
        "  mov %rbx, %rsp\n"
        "  pop %rbx\n"
        "  ret\n");

APART static long burn_there(long argument)
{
    burn(2000);
    return argument + 1;
}

APART static long go_deep_there(long argument) { return down(DEPTH, burn_there, argument); }

APART static long switches(long round)
{
    /* One within this stack, one elsewhere. */
    static char elsewhere[1 << 17] __attribute__((aligned(16)));
    char within[1 << 16] __attribute__((aligned(16)));
    /* Of another length each time: a sampling clock does not run in step with it. */
    burn(200 + round * 7919 % 1500);
    long sum = on_other_stack(go_deep_there, round, elsewhere + sizeof elsewhere);
    sum += on_other_stack(go_deep_there, sum, within + sizeof within);
    burn(500);
    return sum;
}

/* Each with call frame information as it should be; they burn in the middle. */
void burn_some(void);
void burn_some(void) { burn(300); }
#define TAKES(name, rest) \
    ".type takes_" name ", @function\ntakes_" name ":\n.cfi_startproc\n" \
    "push %rbx\n.cfi_adjust_cfa_offset 8\ncall burn_some\n" rest ".cfi_endproc\n" \
    ".type calls_" name ", @function\ncalls_" name ":\n.cfi_startproc\n" \
    "push %rbx\n.cfi_adjust_cfa_offset 8\ncall takes_" name "\n.quad 12345\n" \
    "pop %rbx\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n"
#define POPS "pop %rbx\n.cfi_adjust_cfa_offset -8\n"
__asm__(".text\n"
        TAKES("pop", POPS "pop %rdx\n.cfi_adjust_cfa_offset -8\n.cfi_register rip, rdx\n"
                          "mov (%rdx), %rax\nadd $8, %rdx\njmp *%rdx\n")
        TAKES("copy", POPS "mov %rsp, %rcx\nmov (%rcx), %rdx\nmov (%rdx), %rax\naddq $8, (%rcx)\nret\n")
        TAKES("skip", POPS "addq $8, (%rsp)\nmov $5, %eax\nret\n")
        TAKES("first", "addq $8, 8(%rsp)\n" POPS "mov $7, %eax\nret\n")
        TAKES("exchange", POPS "xchg %rdx, (%rsp)\nmov (%rdx), %rax\nadd $8, %rdx\nxchg %rdx, (%rsp)\nret\n"));
long calls_pop(void), calls_copy(void), calls_skip(void), calls_first(void), calls_exchange(void);

APART static long inlines(long round)
{
    (void)round;
    return calls_pop() + calls_copy() * 3 + calls_skip() * 5 + calls_first() * 7 + calls_exchange() * 11;
}

/* Puts rsp where `sp` points, goes on to `exchange` on the stack that ends at `top`, and then where that says. */
void change(void **sp, void *top);
__asm__(".text\n"
        ".type change, @function\n"
        "change:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  call exchange\n"
        "  mov %rax, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n");

static struct { char *sp; char kept[1 << 16]; } lives[2];
static char *base;
static int life, ended[2];
static long results[2];

/* What is between `base` and where it was left is taken away, or put back. */
static int is_delimited, is_leaving;
static jmp_buf outside;
static void *take_or_put(void)
{
    size_t len = (size_t)(base - lives[0].sp);
    if (is_leaving) {
        memcpy(lives[0].kept, lives[0].sp, len);
        longjmp(outside, 1);
    }
    return memcpy(lives[0].sp, lives[0].kept, len);
}

/* Copies the stack of the one that runs away, and the other's back. */
void *exchange(void)
{
    if (is_delimited)
        return take_or_put();
    memcpy(lives[life].kept, lives[life].sp, (size_t)(base - lives[life].sp));
    life = !life;
    memcpy(lives[life].sp, lives[life].kept, (size_t)(base - lives[life].sp));
    return lives[life].sp;
}

/* `change` to the other one. */
APART static void go_over(void)
{
    static char stack[1 << 14] __attribute__((aligned(16)));
    change((void **)&lives[life].sp, stack + sizeof stack);
}

static void other(void)
{
    if (!ended[!life])
        go_over();
}

APART static long wander(int depth, long x)
{
    volatile long kept = x;
    burn(300 + depth % 7 * 100);
    if (depth == 0)
        return x;
    if (depth % 11 == 0)
        other();
    x = wander(depth - 1, x * 3 + depth);
    if (depth % 13 == 0)
        other();
    return x * 5 + kept;
}

APART static long stray(int depth, long x)
{
    volatile long kept[5] = {x, x + 1, x + 2, x + 3, x + 4};
    burn(200 + depth % 5 * 100);
    if (depth == 0)
        return x;
    if (depth % 9 == 0)
        other();
    x = stray(depth - 1, x * 7 + depth);
    if (depth % 17 == 0)
        other();
    return x * 3 + kept[x & 3];
}

void begin_second(void)
{
    results[1] = stray(DEPTH, 1);
    ended[1] = 1;
    go_over();
}

/* Where the second life begins: its call frame information says that nobody has called it. */
void second_life(void);
__asm__(".text\n"
        ".type second_life, @function\n"
        "second_life:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n"
        "    sub $8, %rsp\n"
        "    call begin_second\n"
        "    hlt\n"
        "    .cfi_endproc\n"
        ".size second_life, . - second_life\n");

APART static long copies(long round)
{
    volatile char room[2048];
    room[0] = 0;
    /* What lies below is either's; of this frame that is room. */
    base = (char *)room + sizeof room / 2;
    base -= (unsigned long)base % 16;
    ended[0] = ended[1] = life = 0;
    memset(lives[1].kept, 0, 128);
    lives[1].sp = base - 128;
    /* Behind the six registers. */
    *(void **)(lives[1].kept + 48) = (void *)second_life;
    results[0] = wander(DEPTH, round);
    ended[0] = 1;
    while (!ended[1])
        other();
    return results[0] * 31 + results[1];
}

static char apart[1 << 14] __attribute__((aligned(16)));
static int is_second;

APART static void go_out(void)
{
    is_leaving = 1;
    change((void **)&lives[0].sp, apart + sizeof apart);
}

APART static void in_first(void) { burn(4000); }
APART static void in_second(void) { burn(4001); }

APART static long goes_between(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        if (is_second)
            in_second();
        else
            in_first();
        go_out();
    }
    return rounds;
}

APART static void below(void)
{
    base = __builtin_dwarf_cfa();
    results[0] = down(DEPTH, goes_between, 30000);
    ended[0] = 1;
    go_out();
}

APART static void prompt(void)
{
    static int is_begun;
    void *unused;
    if (_setjmp(outside))
        return;
    is_leaving = 0;
    if (is_begun++)
        change(&unused, apart + sizeof apart);
    else
        below();
}

APART static void via_first(void) { is_second = 0; prompt(); sink = sink + 1; }
APART static void via_second(void) { is_second = 1; prompt(); sink = sink + 1; }

APART static long delimited(long x)
{
    (void)x;
    is_delimited = 1;
    while (!ended[0]) {
        via_first();
        if (!ended[0])
            via_second();
    }
    return results[0];
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    Deed deed = 0;
    long rounds = 0;
    parent = getpid();
    if (!strcmp(mode, "registers")) deed = registers, rounds = 1500;
    else if (!strcmp(mode, "values")) deed = values, rounds = 3000;
    else if (!strcmp(mode, "jumps")) deed = catch_jump, rounds = 25000;
    else if (!strcmp(mode, "contexts")) deed = 0;
    else if (!strcmp(mode, "handlers")) deed = handlers, rounds = 6000;
    else if (!strcmp(mode, "forks")) deed = fork_here, rounds = 15;
    else if (!strcmp(mode, "vforks")) deed = vfork_here, rounds = 150;
    else if (!strcmp(mode, "tails")) deed = tails, rounds = 12000;
    else if (!strcmp(mode, "exits")) deed = exits, rounds = 300;
    else if (!strcmp(mode, "traces")) deed = traces, rounds = 4000, least = DEPTH;
    else if (!strcmp(mode, "lookups")) deed = lookups, rounds = 20000;
    else if (!strcmp(mode, "replaces")) deed = replaces, rounds = 3000;
    else if (!strcmp(mode, "switches")) deed = switches, rounds = 12000;
    else if (!strcmp(mode, "inlines")) deed = inlines, rounds = 40000;
    else if (!strcmp(mode, "delimited")) deed = delimited, rounds = 1;
    else if (!strcmp(mode, "copies")) deed = copies, rounds = 600;
    else if (!strcmp(mode, "debugger")) deed = debugger, rounds = 1;
    else {
        fprintf(stderr, "marked: no mode %s\n", mode);
        return 2;
    }
    if (!strcmp(mode, "handlers")) {
        static char stack[1 << 16];
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        sigaltstack(&alternate, 0);
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGUSR1, &action, 0);
        sigaction(SIGUSR2, &action, 0);
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGVTALRM, &action, 0);
    }
    long sum = 0;
    if (deed)
        for (long round = 0; round < rounds; round++) {
            sum = sum * 31 + down((int)(DEPTH + round % 7), deed, round % 1000);
            if (getpid() != parent)
                _exit((int)(sum & 0x7f));
        }
    else
        sum = down(DEPTH, contexts, 8000);
    printf("%s: %ld, cleaned %ld, handled %ld, vforks %ld\n", mode, sum, cleaned, (long)handled, vforks);
    return 0;
}
