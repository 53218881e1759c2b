/* A program with signals of its own: traps MODE.
 *   handler   its own SIGTRAP handler, raised, by int3 and by int1, with sa_mask and SA_NODEFER as set
 *   masks     blocks SIGTRAP, sees it blocked, gets it when it unblocks; sigwait on a full set
 *   pending   sends itself SIGTRAP that it has blocked: it waits until it is unblocked or waited for
 *   ignore    ignores SIGTRAP, in a child by exec too
 *   default   SIGTRAP by default: dies of it
 *   prof      SIGPROF by ITIMER_PROF, SIGALRM, and errno that no handler may change
 *   sleeps    calls that do not restart after a handler: none may end with EINTR */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int caught, profiled;
static volatile sig_atomic_t caught_code;

__attribute__((noinline)) uint64_t work(uint64_t steps)
{
    volatile uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
    return x;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    caught++;
    caught_code = info->si_code;
    /* Some virtual machines leave the program at an int1 that it has executed: it would run again, without end. */
    greg_t *pc = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (caught_code == TRAP_BRKPT && *(const unsigned char *)*pc == 0xf1)
        ++*pc;
    work(1000000);
}

static void on_prof(int signal)
{
    (void)signal;
    profiled++;
}

static void set(int signal, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(signal, &action, 0);
}

static int run_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, seen;
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGTRAP, 0, &seen);
    printf("at first %s\n", seen.sa_handler == SIG_DFL ? "default" : "something else");
    sigaction(SIGTRAP, &action, 0);
    sigaction(SIGTRAP, 0, &seen);
    printf("then %s, flags %x, SIGUSR2 %d\n", seen.sa_sigaction == on_trap ? "mine" : "not mine",
           seen.sa_flags & ~0x04000000, sigismember(&seen.sa_mask, SIGUSR2));
    for (int i = 0; i < 20; i++) {
        work(5000000);
        raise(SIGTRAP);
    }
    printf("raised: %d caught, code %s\n", caught, caught_code == SI_TKILL ? "SI_TKILL" : "another");
    for (int i = 0; i < 20; i++) {
        __asm__ volatile("int3");
        work(5000000);
    }
    printf("int3: %d caught, code %s\n", caught, caught_code == SI_KERNEL ? "SI_KERNEL" : "another");
    /* int1 */
    __asm__ volatile(".byte 0xf1");
    printf("int1: %d caught, code %s\n", caught, caught_code == TRAP_BRKPT ? "TRAP_BRKPT" : "another");
    printf("signal() gives back %s\n", signal(SIGTRAP, SIG_DFL) == (void (*)(int))on_trap ? "mine" : "not mine");
    work(100000000);
    return 0;
}

static int run_masks(void)
{
    sigset_t traps, full, seen;
    sigemptyset(&traps);
    sigaddset(&traps, SIGTRAP);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, 0);
    sigprocmask(SIG_BLOCK, &traps, 0);
    sigprocmask(SIG_BLOCK, 0, &seen);
    printf("blocked %d\n", sigismember(&seen, SIGTRAP));
    work(200000000);
    printf("caught while blocked %d\n", caught);
    pthread_sigmask(SIG_UNBLOCK, &traps, &seen);
    printf("was blocked %d\n", sigismember(&seen, SIGTRAP));
    pthread_sigmask(SIG_BLOCK, 0, &seen);
    printf("blocked %d, caught %d\n", sigismember(&seen, SIGTRAP), caught);
    /* A full mask while work goes on, then a wait for anything: only what was sent may come. */
    sigfillset(&full);
    sigprocmask(SIG_SETMASK, &full, &seen);
    work(200000000);
    raise(SIGUSR1);
    int got = 0;
    sigwait(&full, &got);
    printf("waited for %s\n", got == SIGUSR1 ? "SIGUSR1" : got == SIGTRAP ? "SIGTRAP" : "another");
    struct timespec soon = {0, 50000000};
    got = sigtimedwait(&full, 0, &soon);
    printf("then %s\n", got == -1 && errno == EAGAIN ? "nothing" : "something");
    sigprocmask(SIG_SETMASK, &seen, 0);
    work(100000000);
    return 0;
}

static int is_pending(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTRAP);
}

static int run_pending(void)
{
    sigset_t traps, all;
    sigemptyset(&traps);
    sigaddset(&traps, SIGTRAP);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, 0);
    sigprocmask(SIG_BLOCK, &traps, &all);
    raise(SIGTRAP);
    printf("raised: caught %d, pending %d\n", caught, is_pending());
    sigprocmask(SIG_UNBLOCK, &traps, 0);
    printf("unblocked: caught %d with %d, pending %d\n", caught, caught_code == SI_TKILL, is_pending());
    work(50000000);
    sigprocmask(SIG_BLOCK, &traps, 0);
    kill(getpid(), SIGTRAP);
    kill(getpid(), SIGTRAP);
    printf("sent twice: caught %d, pending %d\n", caught, is_pending());
    sigprocmask(SIG_SETMASK, &all, 0);
    printf("mask restored: caught %d with %d, pending %d\n", caught, caught_code == SI_USER, is_pending());
    sigprocmask(SIG_BLOCK, &traps, 0);
    sigqueue(getpid(), SIGTRAP, (union sigval){.sival_int = 42});
    siginfo_t info;
    struct timespec soon = {1, 0};
    int got = sigtimedwait(&traps, &info, &soon);
    printf("waited for %d with %d, caught %d, pending %d\n", got, info.si_value.sival_int, caught, is_pending());
    sigprocmask(SIG_UNBLOCK, &traps, 0);
    work(200000000);
    return 0;
}

static int run_ignore(char *self)
{
    struct sigaction seen;
    signal(SIGTRAP, SIG_IGN);
    work(100000000);
    raise(SIGTRAP);
    sigaction(SIGTRAP, 0, &seen);
    printf("%s\n", seen.sa_handler == SIG_IGN ? "ignored" : "not ignored");
    fflush(stdout);
    execl(self, self, "ignored-already", (char *)0);
    return 1;
}

static int run_ignored_already(void)
{
    struct sigaction seen;
    sigaction(SIGTRAP, 0, &seen);
    printf("%s after exec\n", seen.sa_handler == SIG_IGN ? "ignored" : "not ignored");
    work(200000000);
    raise(SIGTRAP);
    return 0;
}

static int run_prof(void)
{
    struct itimerval every = {{0, 10000}, {0, 10000}};
    set(SIGPROF, on_prof);
    setitimer(ITIMER_PROF, &every, 0);
    int changed = 0;
    /* On a busy machine the ticks of ITIMER_PROF are late. */
    for (int i = 0; i < 300 || (profiled <= 5 && i < 30000); i++) {
        errno = 4242;
        work(1000000);
        changed += errno != 4242;
    }
    printf("errno changed %d times, SIGPROF %s\n", changed, profiled > 5 ? "came" : "did not come");
    return 0;
}

static volatile int asked;

static void *busy(void *unused)
{
    while (!asked)
        work(100000);
    return unused;
}

static int run_sleeps(void)
{
    pthread_t id;
    pthread_create(&id, 0, busy, 0);
    int interrupted = 0, epoll = epoll_create1(0);
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    for (int i = 0; i < 30; i++) {
        struct timespec ms = {0, 2000000}, until;
        work(200000);
        interrupted += nanosleep(&ms, 0) && errno == EINTR;
        interrupted += poll(0, 0, 2) < 0 && errno == EINTR;
        struct timeval tv = {0, 2000};
        interrupted += select(0, 0, 0, 0, &tv) < 0 && errno == EINTR;
        struct epoll_event event;
        interrupted += epoll_wait(epoll, &event, 1, 2) < 0 && errno == EINTR;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 2000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        interrupted += sem_timedwait(&semaphore, &until) && errno == EINTR;
    }
    asked = 1;
    pthread_join(id, 0);
    printf("interrupted %d times\n", interrupted);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "handler"))
        return run_handler();
    if (!strcmp(mode, "masks"))
        return run_masks();
    if (!strcmp(mode, "pending"))
        return run_pending();
    if (!strcmp(mode, "ignore"))
        return run_ignore(argv[0]);
    if (!strcmp(mode, "ignored-already"))
        return run_ignored_already();
    if (!strcmp(mode, "prof"))
        return run_prof();
    if (!strcmp(mode, "sleeps"))
        return run_sleeps();
    if (!strcmp(mode, "default")) {
        work(100000000);
        raise(SIGTRAP);
        return 1;
    }
    return 2;
}
