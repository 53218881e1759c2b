// One odd process each, by name. It says "right" at the end of standard input, if all is.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void ready(const void *address) {
    if (address)
        printf("ready %p\n", address);
    else
        printf("ready\n");
    fflush(stdout);
}

static int end(int right) {
    printf(right ? "right\n" : "wrong\n");
    fflush(stdout);
    _exit(!right);
}

static int at_end(void) {
    char byte;
    return read(0, &byte, 1) == 0;
}

static atomic_ullong counter;

static int counts(void *unused) {
    for (; (void)unused, 1;)
        counter++;
    return 0;
}

// A child with the same memory, no thread.
static int shares(void) {
    static char stack[65536] __attribute__((aligned(16)));
    int child = clone(counts, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    ready((void *)&counter);
    int right = child > 0 && at_end();
    kill(child, SIGKILL);
    return right && waitpid(child, NULL, 0) == child;
}

static void *outlives(void *first) {
    pthread_join(*(pthread_t *)first, NULL);
    ready(NULL);
    end(at_end());
    return NULL;
}

// The first thread ends before the other.
static int without_first(void) {
    static pthread_t first, other;
    first = pthread_self();
    pthread_create(&other, NULL, outlives, &first);
    pthread_exit(NULL);
}

static int filtered(void) {
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, code};
    int right = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, 2, &program) == 0;
    ready(NULL);
    return right & at_end();
}

// A child by vfork that takes its time.
static int vforks(void) {
    ready(NULL);
    int child = vfork();
    if (child == 0) {
        struct timespec time = {0, 700000000};
        nanosleep(&time, NULL);
        _exit(7);
    }
    int status;
    int right = waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7;
    return right & at_end();
}

static atomic_int handled;
static void on_signal(int number) { handled += number == SIGUSR1; }
static pthread_t waiting;
static atomic_int waits, stop, lost;

static void *sends(void *unused) {
    for (int i = 1; !stop && !lost; i++) {
        while (waits != i && !stop)
            usleep(50);
        if (stop)
            break;
        usleep(i % 5 * 400);
        pthread_kill(waiting, SIGUSR1);
        // It comes, also when the end has come: nothing halts the program any more then.
        for (int left = 200000; handled != i && left > 0; left--)
            usleep(50);
        lost = handled != i;
        if (lost)
            printf("signal %d never came\n", i);
    }
    if (unused)
        pthread_kill(waiting, SIGUSR1);
    return unused;
}

// A halt lets epoll_wait begin again, with all of its time-out: of a signal that came before the call was entered nothing is noticed as long as
// halts follow one another faster than that. So the program may have come no further than to its first wait when the last one is over.
static void *ends(void *unused) {
    int ended = at_end();
    for (int left = 20000; waits < 3 && !lost && left > 0; left--)
        usleep(1000);
    stop = ended;
    return unused;
}

// A signal that the call alone lets through interrupts it, each time, and nothing else does.
static int waits_for_signals(void) {
    sigset_t all, most;
    sigfillset(&all);
    most = all;
    sigdelset(&most, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    signal(SIGUSR1, on_signal);
    waiting = pthread_self();
    pthread_t sender, ender;
    pthread_create(&sender, NULL, sends, "to the end");
    pthread_create(&ender, NULL, ends, NULL);
    int poller = epoll_create1(0), right = 1;
    struct epoll_event got;
    ready(NULL);
    while (!stop) {
        waits++;
        int result = epoll_pwait(poller, &got, 1, -1, &most), error = errno, now = handled;
        if (result != -1 || error != EINTR || now != waits) {
            right = 0;
            printf("%d, %s: %d of %d\n", result, strerror(error), now, waits);
        }
    }
    pthread_join(sender, NULL);
    pthread_join(ender, NULL);
    return right && !lost && waits > 1;
}

// An ordinary handler interrupts epoll_wait: the program must see that, each time.
static int waits_interruptibly(void) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    signal(SIGUSR1, on_signal);
    waiting = pthread_self();
    pthread_t sender, ender;
    pthread_create(&sender, NULL, sends, NULL);
    pthread_create(&ender, NULL, ends, NULL);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    int poller = epoll_create1(0), right = 1;
    struct epoll_event got;
    ready(NULL);
    for (int i = 1; !stop; i++) {
        waits = i;
        // One that comes before the call is entered is not seen by it: hence the time-out.
        while (handled < i && !stop) {
            int result = epoll_wait(poller, &got, 1, 20), error = errno, now = handled;
            if (result != 0 && (error != EINTR || now != i)) {
                right = 0;
                printf("%d, %s: %d of %d\n", result, strerror(error), now, i);
            }
        }
    }
    pthread_join(sender, NULL);
    pthread_join(ender, NULL);
    return right && !lost && waits > 1;
}

// Spins; the code is position-independent. A handler that interrupts it waits, on a stack of its own if so asked.
__attribute__((naked, noinline)) void spin(volatile int *flag __attribute__((unused))) {
    __asm__("nop\n 1: nop\n mov (%rdi), %eax\n nop\n test %eax, %eax\n je 1b\n ret\n .balign 16\n");
}

static volatile struct {
    int spun, in_handler, go_on, in_second;
    void *returns_by;
} flags;

static void on_wait(int number) {
    // Where the address that it returns to stands.
    flags.returns_by = (void **)__builtin_frame_address(0) + 1;
    flags.in_handler = number;
    while (!flags.go_on)
        usleep(100);
}

// Waits with a large frame that it has not written to: the stack that the kernel lists ends above its pointer.
static void on_wait_deep(int number) {
    flags.returns_by = (void **)__builtin_frame_address(0) + 1;
    __asm__ volatile("sub $0x200000, %%rsp\n movl %1, %0\n 2: pause\n cmpl $0, %2\n je 2b\n add $0x200000, %%rsp\n"
                     : "=m"(flags.in_handler)
                     : "r"(number), "m"(flags.go_on)
                     : "memory");
}

static void on_second(int number) {
    flags.in_second = number;
    while (!flags.go_on)
        usleep(100);
}

static void *ends_spinning(void *unused) {
    int right = at_end();
    flags.spun = 1;
    return right ? unused : NULL;
}

// The stack of a handler, if it has one of its own.
static char other[65536];
static stack_t stack = {.ss_sp = other, .ss_size = sizeof other};

static int spins(void (*handler)(int), int on_other_stack) {
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = on_other_stack ? SA_ONSTACK : 0};
    sigaction(SIGUSR1, &action, NULL);
    struct sigaction second = {.sa_handler = on_second, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &second, NULL);
    pthread_t ender;
    void *right;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigaddset(&one, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    pthread_create(&ender, NULL, ends_spinning, "right");
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    printf("ready %p %p\n", (void *)spin, (void *)&flags);
    fflush(stdout);
    spin(&flags.spun);
    pthread_join(ender, &right);
    return right && flags.in_handler == SIGUSR1;
}

static int spins_here(void) { return spins(on_wait, 0); }
static int spins_elsewhere(void) { return spins(on_wait, 1); }

// The file in which that stack is ends behind it, the memory that it is mapped to does not.
static int spins_cut(void) {
    int file = memfd_create("stack", 0);
    if (ftruncate(file, sizeof other) != 0)
        return 0;
    stack.ss_sp = mmap(NULL, 2 * sizeof other, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return stack.ss_sp != MAP_FAILED && spins(on_wait, 1);
}

static int spins_deep(void) { return spins(on_wait_deep, 0); }

// One signal, and nothing else, interrupts it.
static int waits_once(void) {
    signal(SIGUSR1, on_signal);
    int poller = epoll_create1(0);
    struct epoll_event got;
    ready(NULL);
    int right = epoll_wait(poller, &got, 1, -1) == -1 && errno == EINTR && handled == 1;
    return right & at_end();
}

int main(int count, char **arguments) {
    struct {
        const char *name;
        int (*body)(void);
    } bodies[] = {{"shares", shares},   {"without_first", without_first},         {"filtered", filtered},
                  {"vforks", vforks}, {"waits_once", waits_once}, {"spins_here", spins_here}, {"spins_elsewhere", spins_elsewhere}, {"spins_deep", spins_deep}, {"spins_cut", spins_cut},   {"waits_for_signals", waits_for_signals}, {"waits_interruptibly", waits_interruptibly}};
    for (unsigned i = 0; count == 2 && i < sizeof bodies / sizeof *bodies; i++)
        if (strcmp(bodies[i].name, arguments[1]) == 0)
            return end(bodies[i].body());
    return 2;
}
