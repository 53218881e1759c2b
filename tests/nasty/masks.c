/* Signal masks that are put back without a call that sets one: by siglongjmp, setcontext, the return of a handler. After each, SIGTRAPs come as
 * the mask says. It prints what it sees, and what a program sees that it executes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile sig_atomic_t hits;
static void on_trap(int signal) { (void)signal; hits++; }

static void set(int how, int one, int other)
{
    sigset_t mask;
    sigemptyset(&mask);
    if (one) sigaddset(&mask, one);
    if (other) sigaddset(&mask, other);
    sigprocmask(how, &mask, 0);
}

static void fill(int how, int without)
{
    sigset_t mask;
    sigfillset(&mask);
    if (without) sigdelset(&mask, without);
    sigprocmask(how, &mask, 0);
}

static void say(const char *what)
{
    sigset_t mask, pending;
    sigprocmask(SIG_SETMASK, 0, &mask);
    sigpending(&pending);
    printf("%s: trap %d stkflt %d usr1 %d pending %d hits %d\n", what, sigismember(&mask, SIGTRAP), sigismember(&mask, SIGSTKFLT),
           sigismember(&mask, SIGUSR1), sigismember(&pending, SIGTRAP), (int)hits);
    fflush(stdout);
}

/* Both ways in which a SIGTRAP comes. */
static void traps(const char *what)
{
    raise(SIGTRAP);
    __asm__ volatile("int3");
    say(what);
}

static void on_usr1(int signal)
{
    (void)signal;
    fill(SIG_BLOCK, 0);
    say("in a handler");
}

static void *thread(void *what)
{
    say(what);
    return 0;
}

static void in_thread(const char *what)
{
    pthread_t made;
    if (!pthread_create(&made, 0, thread, (void *)what)) pthread_join(made, 0);
}

int main(int argc, char **argv)
{
    sigjmp_buf back;
    ucontext_t context;
    volatile int times = 0;
    if (argc > 1) {
        say("executed");
        return 0;
    }
    signal(SIGTRAP, on_trap);

    if (!sigsetjmp(back, 1)) {
        fill(SIG_BLOCK, 0);
        in_thread("a thread that inherits all");
        siglongjmp(back, 1);
    }
    traps("siglongjmp to where it is open");

    getcontext(&context);
    if (!times++) {
        fill(SIG_SETMASK, 0);
        setcontext(&context);
    }
    traps("setcontext to where it is open");

    signal(SIGUSR1, on_usr1);
    raise(SIGUSR1);
    traps("a handler that blocked it has returned");

    set(SIG_BLOCK, SIGTRAP, SIGSTKFLT);
    if (!sigsetjmp(back, 1)) {
        set(SIG_UNBLOCK, SIGTRAP, SIGSTKFLT);
        traps("unblocked");
        siglongjmp(back, 1);
    }
    raise(SIGTRAP);
    say("siglongjmp to where it is blocked, and sent");
    set(SIG_UNBLOCK, SIGTRAP, SIGSTKFLT);
    traps("unblocked again");

    fill(SIG_SETMASK, SIGTRAP);
    traps("all but trap");
    in_thread("a thread that inherits all but trap");
    set(SIG_SETMASK, SIGTRAP, 0);
    say("trap alone");
    in_thread("a thread that inherits trap alone");
    set(SIG_SETMASK, SIGSTKFLT, SIGUSR1);
    traps("stkflt and usr1");
    set(SIG_UNBLOCK, SIGSTKFLT, 0);
    say("usr1");
    set(SIG_SETMASK, 0, 0);

    struct sigaction action = {.sa_handler = on_usr1}, before;
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, SIGTRAP);
    sigaction(SIGUSR2, &action, 0);
    sigaction(SIGUSR2, 0, &before);
    printf("an action's mask: trap %d stkflt %d\n", sigismember(&before.sa_mask, SIGTRAP), sigismember(&before.sa_mask, SIGSTKFLT));
    fflush(stdout);

    for (int which = 0; which < 4; which++) {
        if (!sigsetjmp(back, 1)) {
            if (which & 1) fill(SIG_BLOCK, which & 2 ? SIGTRAP : 0);
            else set(SIG_SETMASK, SIGTRAP, 0);
            pid_t child = fork();
            if (!child) {
                execl(argv[0], argv[0], "shown", (char *)0);
                _exit(1);
            }
            waitpid(child, 0, 0);
            siglongjmp(back, 1);
        }
    }
    execl(argv[0], argv[0], "shown", (char *)0);
    return 1;
}
