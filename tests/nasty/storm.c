/* SIGTRAPs that a program sends itself, so often that samples are on their way meanwhile: storm TIMES [WAY]...
 * Each way sends one TIMES times and looks whether exactly what was sent has come, how, and when; it prints what was wrong.
 *   raise, kill, int3          to the thread itself
 *   thread                     by pthread_kill to another thread, which works meanwhile
 *   both                       by both at once: each comes, but for two that wait at the same time
 *   nested                     by its own handler, which ends first
 *   blocked, killed            while blocked: it comes when that ends
 *   waited                     while blocked: by sigtimedwait
 *   suspended, polled          while blocked: it ends sigsuspend, ppoll
 *   reset                      SA_RESETHAND: the second one would kill */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t caught, last_code, last_pid, nest;
static volatile int end;
static sigset_t traps, none;
static long times;
volatile uint64_t sink;

__attribute__((noinline)) static void work(unsigned steps)
{
    for (unsigned i = 0; i < steps; i++)
        sink = sink * 6364136223846793005u + 1;
}

/* Up to some microseconds, so that every instruction is met by a sample. */
static void a_while(void)
{
    work(sink >> 40 & 0xfff);
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if (nest) {
        nest = 0;
        raise(SIGTRAP);
        a_while();
        if (caught)
            _exit(99);
    }
    last_code = info->si_code;
    last_pid = info->si_pid;
    __atomic_add_fetch(&caught, 1, __ATOMIC_SEQ_CST);
}

static void handle(int flags)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | flags};
    sigaction(SIGTRAP, &action, 0);
}

static int is_pending(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTRAP);
}

/* What is wrong with what has come: not one, of another kind, from somebody else. */
static int is_wrong(int count, int code)
{
    int from_us = last_pid == getpid() || code == SI_KERNEL;
    return caught != count || last_code != code || !from_us;
}

static long way_raise(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        caught = 0;
        a_while();
        raise(SIGTRAP);
        wrong += is_wrong(1, SI_TKILL);
    }
    return wrong;
}

static long way_kill(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        caught = 0;
        a_while();
        kill(getpid(), SIGTRAP);
        wrong += is_wrong(1, SI_USER);
    }
    return wrong;
}

static long way_int3(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        caught = 0;
        a_while();
        __asm__ volatile("int3");
        wrong += is_wrong(1, SI_KERNEL);
    }
    return wrong;
}

static void *worker(void *unused)
{
    while (!end)
        a_while();
    return unused;
}

/* Whether it comes at all. */
static int comes(int count)
{
    for (int i = 0; i < 12000; i++) {
        if (caught >= count)
            return 1;
        if (i > 2000)
            usleep(100);
    }
    return 0;
}

static long way_thread(void)
{
    long wrong = 0;
    pthread_t other;
    end = 0;
    pthread_create(&other, 0, worker, 0);
    for (long i = 0; i < times; i++) {
        caught = 0;
        a_while();
        pthread_kill(other, SIGTRAP);
        int came = comes(1);
        wrong += !came || is_wrong(1, SI_TKILL);
    }
    end = 1;
    pthread_join(other, 0);
    return wrong;
}

static pthread_t target;

static void *sender(void *unused)
{
    for (long i = 0; i < times; i++) {
        pthread_kill(target, SIGTRAP);
        a_while();
    }
    end = 1;
    return unused;
}

static long way_both(void)
{
    long wrong = 0, raised = 0;
    pthread_t other;
    end = 0;
    caught = 0;
    target = pthread_self();
    pthread_create(&other, 0, sender, 0);
    while (!end) {
        int before = caught;
        raise(SIGTRAP);
        raised++;
        wrong += caught == before;
    }
    pthread_join(other, 0);
    wrong += caught > raised + times || caught < raised;
    return wrong;
}

static long way_nested(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        caught = 0;
        nest = 1;
        a_while();
        raise(SIGTRAP);
        wrong += is_wrong(2, SI_TKILL);
    }
    return wrong;
}

static long way_blocked(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        caught = 0;
        sigprocmask(SIG_BLOCK, &traps, 0);
        a_while();
        raise(SIGTRAP);
        wrong += caught != 0;
        a_while();
        raise(SIGTRAP);
        wrong += caught != 0 || !is_pending();
        sigprocmask(SIG_UNBLOCK, &traps, 0);
        wrong += is_wrong(1, SI_TKILL) || is_pending();
        a_while();
        wrong += caught != 1;
    }
    return wrong;
}

static long way_killed(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        caught = 0;
        sigprocmask(SIG_BLOCK, &traps, 0);
        a_while();
        kill(getpid(), SIGTRAP);
        a_while();
        wrong += caught != 0 || !is_pending();
        sigprocmask(SIG_SETMASK, &none, 0);
        wrong += is_wrong(1, SI_USER) || is_pending();
    }
    return wrong;
}

static long way_waited(void)
{
    long wrong = 0;
    caught = 0;
    sigprocmask(SIG_BLOCK, &traps, 0);
    for (long i = 0; i < times; i++) {
        struct timespec now = {0, 0}, soon = {10, 0};
        siginfo_t info = {0};
        a_while();
        raise(SIGTRAP);
        a_while();
        int got = sigtimedwait(&traps, &info, &soon);
        /* The C library tells SI_TKILL from SI_USER to nobody who waits. */
        wrong += got != SIGTRAP || info.si_code != SI_USER || info.si_pid != getpid();
        a_while();
        got = sigtimedwait(&traps, &info, &now);
        wrong += got != -1 || errno != EAGAIN || is_pending();
    }
    sigprocmask(SIG_UNBLOCK, &traps, 0);
    return wrong + caught;
}

static long way_suspended(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        caught = 0;
        sigprocmask(SIG_BLOCK, &traps, 0);
        a_while();
        raise(SIGTRAP);
        int before = caught, result = sigsuspend(&none);
        wrong += before != 0 || result != -1 || errno != EINTR || is_wrong(1, SI_TKILL);
        sigprocmask(SIG_UNBLOCK, &traps, 0);
        wrong += caught != 1;
    }
    return wrong;
}

static long way_polled(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        struct timespec soon = {10, 0}, now = {0, 1000};
        caught = 0;
        sigprocmask(SIG_BLOCK, &traps, 0);
        int result = ppoll(0, 0, &now, &none);
        wrong += result != 0 || caught;
        a_while();
        raise(SIGTRAP);
        result = ppoll(0, 0, &soon, &none);
        wrong += result != -1 || errno != EINTR || is_wrong(1, SI_TKILL);
        sigprocmask(SIG_UNBLOCK, &traps, 0);
        wrong += caught != 1;
    }
    return wrong;
}

static long way_reset(void)
{
    long wrong = 0;
    for (long i = 0; i < times; i++) {
        struct sigaction seen;
        caught = 0;
        handle(SA_RESETHAND);
        a_while();
        raise(SIGTRAP);
        sigaction(SIGTRAP, 0, &seen);
        wrong += is_wrong(1, SI_TKILL) || seen.sa_handler != SIG_DFL;
    }
    return wrong;
}

static struct { const char *name; long (*run)(void); } ways[] = {
    {"raise", way_raise}, {"kill", way_kill}, {"int3", way_int3}, {"thread", way_thread}, {"both", way_both},
    {"nested", way_nested}, {"blocked", way_blocked}, {"killed", way_killed}, {"waited", way_waited},
    {"suspended", way_suspended}, {"polled", way_polled}, {"reset", way_reset},
};

static int is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], name))
            return 1;
    return argc < 3;
}

int main(int argc, char **argv)
{
    times = argc > 1 ? atol(argv[1]) : 1000;
    sink = 88172645463325252u;
    setvbuf(stdout, 0, _IOLBF, 0);
    sigemptyset(&none);
    sigemptyset(&traps);
    sigaddset(&traps, SIGTRAP);
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!is_wanted(ways[i].name, argc, argv))
            continue;
        handle(0);
        printf("%s: %ld wrong\n", ways[i].name, ways[i].run());
    }
    return 0;
}
