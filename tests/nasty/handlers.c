/* Handlers of signals, set in every way and asked for: each is called for its signal, with what the kernel passes, and
 * what was set is what is returned. handlers
 * Prints what it sees, which is the same without a profiler. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void (*handler_t)(int);
handler_t ssignal(int, handler_t);
handler_t bsd_signal(int, handler_t);

static volatile int called_a, called_b, called_info, value, of_sender;
static void a(int signal) { called_a += signal; }
static void b(int signal) { called_b += signal; }
static void with_info(int signal, siginfo_t *info, void *context)
{
    called_info += signal;
    value = info->si_value.sival_int;
    of_sender = info->si_pid == getpid() && ((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP] != 0;
}

static handler_t chained;
static volatile int called_chain;
static void with_chain(int signal)
{
    called_chain += signal;
    if (chained)
        chained(signal);
}

static const char *name(handler_t handler)
{
    static const struct { handler_t handler; const char *name; } names[] = {
        {a, "a"}, {b, "b"}, {(handler_t)with_info, "with_info"}, {with_chain, "with_chain"}, {SIG_DFL, "SIG_DFL"}, {SIG_IGN, "SIG_IGN"}, {SIG_ERR, "SIG_ERR"},
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].handler == handler)
            return names[i].name;
    return handler == SIG_HOLD ? "SIG_HOLD" : "another";
}

static const char *asked(int signal)
{
    struct sigaction now;
    return sigaction(signal, 0, &now) == 0 ? name(now.sa_handler) : "error";
}

static void in_child(int forked)
{
    /* A vfork's child has its parent's memory, and signals of its own. */
    if (forked == 0) {
        signal(SIGUSR1, SIG_DFL);
        signal(SIGUSR2, b);
        struct sigaction action = {.sa_handler = b};
        sigaction(SIGUSR1, &action, 0);
        signal(SIGUSR1, SIG_IGN);
        _exit(0);
    }
    int status;
    waitpid(forked, &status, 0);
    called_a = called_b = 0;
    raise(SIGUSR1);
    raise(SIGUSR2);
    printf("after a child: %d %d %d, %s %s\n", status, called_a, called_b, asked(SIGUSR1), asked(SIGUSR2));
}

static void *changes(void *unused)
{
    for (int i = 0; i < 20000; i++)
        signal(SIGURG, i % 2 ? a : b);
    return unused;
}

int main(void)
{
    struct sigaction now;
    int signals[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGSEGV, SIGCHLD, SIGRTMIN + 3, 64};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        int s = signals[i];
        printf("%d: %s", s, name(signal(s, a)));
        printf(" %s", name(bsd_signal(s, b)));
        printf(" %s", name(ssignal(s, SIG_IGN)));
        printf(" %s", name(sysv_signal(s, a)));
        called_a = called_b = called_info = 0;
        raise(s);
        printf(" %s, called %d", asked(s), called_a);
        struct sigaction action = {.sa_sigaction = with_info, .sa_flags = SA_SIGINFO | SA_RESETHAND}, before;
        sigemptyset(&action.sa_mask);
        sigaddset(&action.sa_mask, SIGUSR2);
        printf(", %d", sigaction(s, &action, &before));
        printf(" %s %x", name(before.sa_handler), (unsigned)before.sa_flags);
        /* One place for both. */
        printf(" %d", sigaction(s, &action, &action));
        printf(" %s %x %d", name(action.sa_handler), (unsigned)action.sa_flags, sigismember(&action.sa_mask, SIGUSR2));
        sigqueue(getpid(), s, (union sigval){.sival_int = 77});
        printf(", called %d with %d %d, %s\n", called_info, value, of_sender, asked(s));
    }
    printf("invalid: %s %s %d %d\n", name(signal(0, a)), name(signal(SIGKILL, a)), sigaction(65, 0, 0), sigaction(SIGSTOP, &(struct sigaction){.sa_handler = a}, 0));
    signal(SIGUSR1, a);
    signal(SIGUSR2, b);
    in_child(vfork());
    in_child(fork());
    fflush(stdout);
    int asked_for[] = {SIGTERM, SIGTRAP};
    for (int i = 0; i < 2; i++) {
        int s = asked_for[i];
        handler_t first = (signal(s, a), sigset(s, b));
        printf("by sigset: %s %s", name(first), name(sigset(s, SIG_HOLD)));
        printf(" %s", name(sigset(s, with_chain)));
        /* The handler before is called from the new one. */
        chained = signal(s, with_chain) == with_chain ? first : 0;
        called_a = called_b = called_chain = 0;
        raise(s);
        printf(", called %d %d %d", called_chain, called_a, called_b);
        siginterrupt(s, 0);
        sigaction(s, 0, &now);
        printf(", %s %d", name(now.sa_handler), !!(now.sa_flags & SA_RESTART));
        siginterrupt(s, 1);
        sigaction(s, 0, &now);
        printf(" %d", !!(now.sa_flags & SA_RESTART));
        printf(", back %s", name(signal(s, first)));
        called_a = 0;
        raise(s);
        printf(" %d", called_a);
        printf(", ignored %d", sigignore(s));
        raise(s);
        printf(" %s\n", asked(s));
    }
    /* Set while it comes. */
    pthread_t id;
    signal(SIGURG, a);
    called_a = called_b = 0;
    pthread_create(&id, 0, changes, 0);
    for (int i = 0; i < 20000; i++)
        raise(SIGURG);
    pthread_join(id, 0);
    printf("while it is changed: %d calls\n", (called_a + called_b) / SIGURG);
    return 0;
}
