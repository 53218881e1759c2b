// Threads that count, that wait in each kind of system call, that begin and end, and that get signals, until standard
// input ends. Whatever is not as it should be is printed; "right" if all is.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define COUNTERS 8
#define MS 1000000L

static atomic_int stop, wrong;

/* SIGCONT makes these calls fail with EINTR, whether a process is traced or not (signal(7)): `busy stopped` allows it. */
static int may_be_stopped;
#define CONTINUED(result) (may_be_stopped && (result) == -1 && errno == EINTR)

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            int error = errno;                                                                               \
            wrong = 1;                                                                                       \
            printf("line %d: %s: errno %s\n", __LINE__, #condition, strerror(error));                        \
        }                                                                                                    \
    } while (0)

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 * MS + t.tv_nsec;
}

// ---- counting: each step must be made once.

struct counter {
    uint64_t steps, state;
};

// Its first bytes, which the tests replace, are position-independent. Most of its time passes in `pause`: a thread that is
// halted then stands behind it, in the middle of them.
__attribute__((noinline, naked, used)) uint64_t hot(uint64_t state __attribute__((unused))) {
    __asm__("pause\n mov %rdi, %rax\n inc %rax\n imul $0x5851f42d, %rax, %rax\n xor $0x1234, %rax\n ret\n");
}

static void *count(void *argument) {
    struct counter *counter = argument;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (!stop)
        for (int i = 0; i < 1000; i++, counter->steps++) {
            counter->state = hot(counter->state);
            // Elsewhere for about as long: else a thread that is let run to get out of the bytes is in them again.
            for (int j = 0; j < 100; j++)
                __asm__ volatile("");
        }
    return NULL;
}

static int counted_rightly(const struct counter *counter) {
    uint64_t state = 0;
    for (uint64_t i = 0; i < counter->steps; i++)
        state = ((state + 1) * 0x5851f42d) ^ 0x1234;
    return state == counter->state;
}

// ---- signals: each must be handled once, with its value.

static atomic_ullong handled, sum;

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    EXPECT(info->si_code == SI_QUEUE && info->si_pid == getpid());
    handled++;
    sum += info->si_value.sival_int;
}

static void *send_signals(void *argument) {
    unsigned long long *sent = argument;
    while (!stop) {
        union sigval value = {.sival_int = (int)(sent[0] % 1000)};
        if (sigqueue(getpid(), SIGRTMIN, value) == 0) {
            sent[0]++;
            sent[1] += value.sival_int;
        }
        usleep(300);
    }
    return NULL;
}

// ---- waiting: none of these has a handler that may run, so none may fail with EINTR.

static void *in_nanosleep(void *unused) {
    for (; !stop; (void)unused) {
        int64_t before = now();
        struct timespec time = {0, 30 * MS};
        EXPECT(syscall(SYS_nanosleep, &time, NULL) == 0);
        EXPECT(now() - before >= 30 * MS);
    }
    return NULL;
}

static void *in_futex(void *unused) {
    static int word;
    for (; !stop; (void)unused) {
        int64_t before = now();
        struct timespec time = {0, 25 * MS};
        EXPECT(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &time, NULL, 0) == -1 && errno == ETIMEDOUT);
        EXPECT(now() - before >= 25 * MS);
    }
    return NULL;
}

static void *in_poll(void *unused) {
    int ends[2];
    EXPECT(pipe(ends) == 0);
    for (; !stop; (void)unused) {
        struct pollfd polled = {ends[0], POLLIN, 0};
        int64_t before = now();
        EXPECT(poll(&polled, 1, 20) == 0);
        EXPECT(now() - before >= 20 * MS);
        struct timespec time = {0, 20 * MS};
        sigset_t none;
        sigemptyset(&none);
        sigaddset(&none, SIGRTMIN);
        EXPECT(ppoll(&polled, 1, &time, &none) == 0);
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        struct timeval some = {0, 20000};
        EXPECT(select(ends[0] + 1, &set, NULL, NULL, &some) == 0);
    }
    return NULL;
}

static void *in_epoll(void *unused) {
    int poller = epoll_create1(0), event = eventfd(0, 0);
    struct epoll_event interest = {.events = EPOLLIN}, got;
    EXPECT(epoll_ctl(poller, EPOLL_CTL_ADD, event, &interest) == 0);
    for (; !stop; (void)unused) {
        int64_t before = now();
        int ready = epoll_wait(poller, &got, 1, 5);
        EXPECT(ready == 0 || CONTINUED(ready));
        EXPECT(now() - before >= 5 * MS || CONTINUED(ready));
        sigset_t all;
        sigfillset(&all);
        ready = epoll_pwait(poller, &got, 1, 5, &all);
        EXPECT(ready == 0 || CONTINUED(ready));
    }
    return NULL;
}

static void *in_semop(void *unused) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    EXPECT(set >= 0);
    for (; !stop; (void)unused) {
        struct sembuf down = {0, -1, 0};
        struct timespec time = {0, 5 * MS};
        EXPECT(semtimedop(set, &down, 1, &time) == -1 && (errno == EAGAIN || CONTINUED(-1)));
    }
    semctl(set, 0, IPC_RMID);
    return NULL;
}

static void *in_sigtimedwait(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (; !stop; (void)unused) {
        struct timespec time = {0, 5 * MS};
        EXPECT(sigtimedwait(&set, NULL, &time) == -1 && (errno == EAGAIN || CONTINUED(-1)));
    }
    return NULL;
}

static void *in_receive(void *unused) {
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct timeval time = {0, 5000};
    EXPECT(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    for (char byte; !stop; (void)unused)
        EXPECT(recv(ends[0], &byte, 1, 0) == -1 && (errno == EAGAIN || CONTINUED(-1)));
    return NULL;
}

static int to_read[2];

static void *in_read(void *unused) {
    uint32_t got, expected = 0;
    for (;; (void)unused) {
        ssize_t length = read(to_read[0], &got, sizeof got);
        if (length == 0)
            return NULL;
        EXPECT(length == sizeof got && got == expected++);
    }
}

static void *write_slowly(void *unused) {
    for (uint32_t i = 0; !stop; i++, (void)unused) {
        EXPECT(write(to_read[1], &i, sizeof i) == sizeof i);
        usleep(2500);
    }
    close(to_read[1]);
    return NULL;
}

static int listener;
static struct sockaddr_in address;

static void *in_accept(void *unused) {
    for (char byte = 1; byte; (void)unused) {
        int peer = accept(listener, NULL, NULL);
        EXPECT(peer >= 0);
        EXPECT(read(peer, &byte, 1) == 1);
        close(peer);
    }
    return NULL;
}

static void *connect_slowly(void *unused) {
    for (char byte = 1; byte; (void)unused) {
        usleep(4000);
        byte = !stop;
        int peer = socket(AF_INET, SOCK_STREAM, 0);
        EXPECT(connect(peer, (struct sockaddr *)&address, sizeof address) == 0);
        EXPECT(write(peer, &byte, 1) == 1);
        close(peer);
    }
    return NULL;
}

// A handler runs in sigsuspend only, and each time once.
static atomic_uint woken;
static void on_wake(int number) { woken += number == SIGUSR2; }
static atomic_uint waits;
static pthread_t suspended;

static void *in_sigsuspend(void *unused) {
    sigset_t set;
    sigfillset(&set);
    sigdelset(&set, SIGUSR2);
    for (; !stop; (void)unused) {
        waits++;
        EXPECT(sigsuspend(&set) == -1 && errno == EINTR);
        EXPECT(woken == waits);
    }
    return NULL;
}

static void *wake_slowly(void *unused) {
    for (unsigned i = 1; !stop; i++, (void)unused) {
        while (waits != i && !stop)
            usleep(100);
        usleep(3000);
        pthread_kill(suspended, SIGUSR2);
        while (woken != i && !stop)
            usleep(100);
    }
    pthread_kill(suspended, SIGUSR2);
    return NULL;
}

static void *nothing(void *argument) { return argument; }

static void *begin_and_end(void *unused) {
    for (uintptr_t i = 0; !stop; i++, (void)unused) {
        pthread_t threads[4];
        void *result;
        for (int j = 0; j < 4; j++)
            EXPECT(pthread_create(&threads[j], NULL, nothing, (void *)(i + j)) == 0);
        for (int j = 0; j < 4; j++)
            EXPECT(pthread_join(threads[j], &result) == 0 && result == (void *)(i + j));
        usleep(200);
    }
    return NULL;
}

int main(int argc, char **argv) {
    may_be_stopped = argc > 1 && !strcmp(argv[1], "stopped");
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
    signal(SIGUSR2, on_wake);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    EXPECT(pipe(to_read) == 0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 8) == 0);
    EXPECT(getsockname(listener, (struct sockaddr *)&address, &length) == 0);

    static struct counter counters[COUNTERS];
    static unsigned long long sent[2];
    pthread_t counting[COUNTERS], others[32];
    int other = 0;
    for (int i = 0; i < COUNTERS; i++)
        pthread_create(&counting[i], NULL, count, &counters[i]);
    void *(*bodies[])(void *) = {in_nanosleep, in_futex,     in_poll,   in_epoll,       in_semop,    in_sigtimedwait, in_receive,
                                 in_read,      write_slowly, in_accept, connect_slowly, begin_and_end};
    for (unsigned i = 0; i < sizeof bodies / sizeof *bodies; i++)
        pthread_create(&others[other++], NULL, bodies[i], NULL);
    pthread_create(&suspended, NULL, in_sigsuspend, NULL);
    pthread_create(&others[other++], NULL, wake_slowly, NULL);
    pthread_create(&others[other++], NULL, send_signals, sent);
    printf("ready %p\n", (void *)hot);
    fflush(stdout);

    char byte;
    EXPECT(read(0, &byte, 1) == 0);
    stop = 1;
    for (int i = 0; i < other; i++)
        pthread_join(others[i], NULL);
    pthread_join(suspended, NULL);
    for (int i = 0; i < COUNTERS; i++) {
        pthread_join(counting[i], NULL);
        EXPECT(counters[i].steps > 0 && counted_rightly(&counters[i]));
    }
    // What is still on its way arrives here.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    EXPECT(handled == sent[0]);
    EXPECT(sum == sent[1]);
    EXPECT(waits > 1 && woken >= waits);
    printf(wrong ? "wrong\n" : "right\n");
    return wrong;
}
