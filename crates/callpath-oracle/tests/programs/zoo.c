/* What shadow stacks stumble over: longjmp, signals on this and another stack, contexts, children, frames of odd kinds. */
#define _GNU_SOURCE
#include "marks.h"
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PLAIN __attribute__((noinline, noclone))

MARK(mark_deep, "exact")
MARK(mark_alloca, "exact")
MARK(mark_varargs, "exact")
MARK(mark_before_jump, "exact")
MARK(mark_after_jump, "exact")
MARK(mark_handler, "within")
MARK(mark_alternate, "cut")
MARK(mark_nested, "cut")
MARK(mark_after_signals, "exact")
MARK(mark_left_alternate, "exact")
MARK(mark_compare, "within")
MARK(mark_context, "exact")
MARK(mark_other_context, "exact")
MARK(mark_back, "exact")
MARK(mark_after_children, "exact")
MARK(mark_tail, "exact")
MARK(mark_popped, "exact")
MARK(mark_written, "exact")
MARK(mark_breakpoint, "within")

static PLAIN int deep(int n) {
    IN;
    int result = 0;
    if (n == 0) mark_deep();
    else result = deep(n - 1) + 1;
    OUT;
    return result;
}

static PLAIN void with_alloca(int n) {
    IN;
    char *bytes = alloca(n);
    memset(bytes, n, n);
    char array[n + 100];
    memset(array, n, n + 100);
    mark_alloca();
    if (bytes[n - 1] != array[n - 1]) exit(2);
    OUT;
}

static PLAIN double with_varargs(int count, ...) {
    IN;
    va_list list;
    double sum = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++) sum += va_arg(list, double);
    va_end(list);
    mark_varargs();
    OUT;
    return sum;
}

static jmp_buf place;
static sigjmp_buf signal_place;

static PLAIN void jumps(int n) {
    IN;
    if (n == 0) {
        mark_before_jump();
        longjmp(place, 1);
    }
    jumps(n - 1);
    OUT;
}

static PLAIN void long_jump(void) {
    IN;
    volatile int len = kept_len;
    if (setjmp(place) == 0) {
        jumps(5);
        exit(3);
    }
    kept_len = len;
    mark_after_jump();
    OUT;
}

static void keep_interrupted(void *context) { kept[kept_len++] = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]; }

static PLAIN void on_nested(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    keep_interrupted(context);
    IN;
    mark_nested();
    OUT;
    OUT;
}

static PLAIN void on_signal(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    keep_interrupted(context);
    IN;
    mark_handler();
    raise(SIGUSR2);
    OUT;
    OUT;
}

static PLAIN void on_alternate(int number, siginfo_t *info, void *context) {
    (void)info;
    keep_interrupted(context);
    IN;
    if (number == SIGWINCH) {
        mark_alternate();
        raise(SIGUSR2);
    } else {
        siglongjmp(signal_place, 1);
    }
    OUT;
    OUT;
}

static PLAIN void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    keep_interrupted(context);
    IN;
    mark_breakpoint();
    OUT;
    OUT;
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    if (sigaction(number, &action, NULL)) exit(4);
}

static PLAIN void signals(void) {
    IN;
    stack_t stack = {.ss_sp = malloc(SIGSTKSZ * 4), .ss_size = SIGSTKSZ * 4};
    if (sigaltstack(&stack, NULL)) exit(5);
    handle(SIGUSR1, on_signal, 0);
    handle(SIGUSR2, on_nested, SA_ONSTACK);
    handle(SIGWINCH, on_alternate, SA_ONSTACK);
    handle(SIGURG, on_alternate, SA_ONSTACK);
    handle(SIGTRAP, on_trap, 0);
    signal(SIGCHLD, SIG_IGN);
    raise(SIGUSR1);
    raise(SIGWINCH);
    raise(SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    __asm__ volatile("int3");
    mark_after_signals();
    OUT;
}

static PLAIN void leaves_alternate_stack(void) {
    IN;
    volatile int len = kept_len;
    for (int i = 0; i < 2; i++) {
        if (sigsetjmp(signal_place, 1) == 0) raise(SIGURG);
        kept_len = len;
    }
    raise(SIGWINCH);
    mark_left_alternate();
    OUT;
}

static PLAIN int compare(const void *a, const void *b) {
    static int is_marked;
    IN;
    if (!is_marked) {
        is_marked = 1;
        mark_compare();
    }
    OUT;
    return *(const int *)a - *(const int *)b;
}

static PLAIN void sorts(void) {
    IN;
    int numbers[] = {5, 3, 9, 1, 7, 2};
    qsort(numbers, 6, sizeof *numbers, compare);
    if (numbers[5] != 9) exit(6);
    OUT;
}

static ucontext_t outside, one, other;

static PLAIN void in_other(void) {
    int len = kept_len;
    void *first = kept[0];
    kept_len = 0;
    IN;
    mark_other_context();
    kept_len = len;
    kept[0] = first;
    swapcontext(&other, &one);
}

static PLAIN void in_one(void) {
    int len = kept_len;
    void *first = kept[0];
    kept_len = 0;
    IN;
    mark_context();
    kept_len = len;
    kept[0] = first;
    swapcontext(&one, &other);
}

static PLAIN void contexts(void) {
    IN;
    static char stacks[2][1 << 16];
    getcontext(&one);
    one.uc_stack.ss_sp = stacks[1], one.uc_stack.ss_size = sizeof stacks[1], one.uc_link = &outside;
    makecontext(&one, in_one, 0);
    getcontext(&other);
    other.uc_stack.ss_sp = stacks[0], other.uc_stack.ss_size = sizeof stacks[0], other.uc_link = NULL;
    makecontext(&other, in_other, 0);
    swapcontext(&outside, &one);
    mark_back();
    OUT;
}

static PLAIN void children(void) {
    IN;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(deep(3) + 4);
    }
    if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7) exit(7);
    pid = vfork();
    if (pid == 0) _exit(9);
    if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 9) exit(8);
    char *arguments[] = {"sh", "-c", "exit 5", NULL};
    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, NULL)) exit(9);
    if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 5) exit(10);
    if (WEXITSTATUS(system("exit 3")) != 3) exit(11);
    mark_after_children();
    OUT;
}

/* The callee's caller is the caller's caller: with optimization this is a jump. */
static __attribute__((noinline, noclone, optimize("O2", "omit-frame-pointer"))) void tail(void) {
    mark_tail();
}

static PLAIN void tail_calls(void) {
    IN;
    tail();
    __asm__ volatile("");
    OUT;
}

/* call next; pop: no call. */
void *own_pc(void);
__asm__(".type own_pc, @function\nown_pc: .cfi_startproc\n"
        "call 1f\n1: .cfi_adjust_cfa_offset 8\npop %rax\n.cfi_adjust_cfa_offset -8\nret\n"
        ".cfi_endproc\n.size own_pc, .-own_pc");

static PLAIN void pops_its_pc(void) {
    IN;
    if (!own_pc()) exit(12);
    mark_popped();
    OUT;
}

/* Code that is written at run time, twice at one place: a jump to its argument, then the same with a frame. */
static PLAIN void written_code(void) {
    IN;
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) exit(13);
    memcpy(code, "\x31\xc0\xc3", 3); /* xor eax, eax; ret */
    for (int i = 0; i < 3; i++)
        if (((int (*)(void))code)() != 0) exit(14);
    memcpy(code, "\xb8\x07\0\0\0\xc3", 6); /* mov eax, 7; ret */
    for (int i = 0; i < 3; i++)
        if (((int (*)(void))code)() != 7) exit(15);
    mark_written();
    munmap(code, 4096);
    OUT;
}

int main(void) {
    IN;
    deep(50);
    with_alloca(1000);
    if (with_varargs(3, 1.0, 2.0, 3.0) != 6.0) return 1;
    long_jump();
    signals();
    leaves_alternate_stack();
    sorts();
    contexts();
    children();
    tail_calls();
    pops_its_pc();
    written_code();
    OUT;
    return 0;
}
