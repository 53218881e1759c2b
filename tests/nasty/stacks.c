/* Stacks that are not one plain stack: stacks MODE.
 *   alternate  a handler at work on an alternate stack, interrupted code below it
 *   overflow   a stack overflow, caught on the alternate stack and left by siglongjmp
 *   coroutine  two coroutines by makecontext that switch all the time
 *   jumps      setjmp and longjmp out of depth, all the time
 *   vdso       time in the vdso
 *   closes     closes every descriptor, changes directory, clears its environment, then works on */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

__attribute__((noinline)) uint64_t work(uint64_t steps)
{
    volatile uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
    return x;
}

__attribute__((noinline)) void on_alternate_stack(int signal)
{
    (void)signal;
    work(200000000);
    __asm__ volatile("");
}

__attribute__((noinline)) void interrupted(void)
{
    raise(SIGUSR1);
    __asm__ volatile("");
}

static void take_alternate_stack(void)
{
    static char stack[1 << 16];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, 0);
}

static int run_alternate(void)
{
    take_alternate_stack();
    struct sigaction action = {.sa_handler = on_alternate_stack, .sa_flags = SA_ONSTACK}, seen;
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGUSR1, 0, &seen);
    interrupted();
    printf("flags %x\n", seen.sa_flags & ~0x04000000);
    return 0;
}

static sigjmp_buf back;
static volatile int overflows;

static void on_overflow(int signal)
{
    (void)signal;
    overflows++;
    siglongjmp(back, 1);
}

__attribute__((noinline)) uint64_t overflow(uint64_t x)
{
    volatile char room[400];
    room[x % 400] = (char)x;
    return overflow(x + 1) + room[x % 399];
}

static int run_overflow(void)
{
    take_alternate_stack();
    struct sigaction action = {.sa_handler = on_overflow, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, 0);
    struct rlimit limit = {1 << 20, 8 << 20};
    setrlimit(RLIMIT_STACK, &limit);
    for (volatile int i = 0; i < 50; i++) {
        if (!sigsetjmp(back, 1))
            overflow(i);
        work(3000000);
    }
    printf("%d overflows\n", overflows);
    return 0;
}

static ucontext_t home, one, other;

/* Steps from 300,000 to 700,000: turns of one length would keep time with the samples, which then see one routine more often. */
static uint64_t turn(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return 300000 + (*state >> 33) % 400000;
}

static void first_routine(void)
{
    uint64_t state = 1;
    for (int i = 0; i < 1500; i++) {
        work(turn(&state));
        swapcontext(&one, &other);
    }
}

static void second_routine(void)
{
    uint64_t state = 1;
    for (;;) {
        work(turn(&state));
        swapcontext(&other, &one);
    }
}

static int run_coroutine(void)
{
    static char stacks[2][1 << 16];
    getcontext(&one);
    one.uc_stack = (stack_t){.ss_sp = stacks[0], .ss_size = sizeof stacks[0]};
    one.uc_link = &home;
    makecontext(&one, first_routine, 0);
    getcontext(&other);
    other.uc_stack = (stack_t){.ss_sp = stacks[1], .ss_size = sizeof stacks[1]};
    makecontext(&other, second_routine, 0);
    swapcontext(&home, &one);
    puts("back home");
    return 0;
}

static jmp_buf out;

__attribute__((noinline)) void jump_from(int depth)
{
    if (depth == 0) {
        work(20000);
        longjmp(out, 1);
    }
    jump_from(depth - 1);
    __asm__ volatile("");
}

static int run_jumps(void)
{
    for (volatile int i = 0; i < 10000; i++)
        if (!setjmp(out))
            jump_from(i % 50);
    puts("jumped");
    return 0;
}

__attribute__((noinline)) void ask_time(void)
{
    struct timespec now;
    for (int i = 0; i < 12000000; i++)
        clock_gettime(CLOCK_MONOTONIC, &now);
}

static int run_closes(void)
{
    puts("closing");
    fflush(stdout);
    int kept = dup(1);
    for (int i = 0; i < 1024; i++)
        if (i != kept)
            close(i);
    clearenv();
    if (chdir("/"))
        return 1;
    work(300000000);
    return write(kept, "worked\n", 7) == 7 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "alternate"))
        return run_alternate();
    if (!strcmp(mode, "overflow"))
        return run_overflow();
    if (!strcmp(mode, "coroutine"))
        return run_coroutine();
    if (!strcmp(mode, "jumps"))
        return run_jumps();
    if (!strcmp(mode, "closes"))
        return run_closes();
    if (!strcmp(mode, "vdso")) {
        ask_time();
        puts("asked");
        return 0;
    }
    return 2;
}
