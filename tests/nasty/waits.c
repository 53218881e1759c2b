/* Calls that wait and that no SA_RESTART restarts, each for a while and many times, while another thread works: waits MODE.
 *   calls     none of them may end with EINTR, or before its time
 *   sent      msgrcv, semop and sleep until another thread sends something
 *   handler   a handler of the program's own ends each of them with EINTR, as it should
 *   wanted    sigwait, sigwaitinfo, sigtimedwait and signalfd for all signals: only what was sent comes
 *   sudden    a handler runs at any moment of each wait, and ends it always
 *   opened    SIGTRAP sent while blocked: sigsuspend, ppoll, pselect, epoll_pwait open it, and its handler ends them
 * It counts what is wrong, and prints the counts. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS 3000000
static volatile int done, caught;
static int epoll, queue = -1, semaphores = -1;
static sem_t semaphore;
volatile uint64_t sink;

static void *busy(void *unused)
{
    while (!done)
        sink = sink * 6364136223846793005u + 1;
    return unused;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static struct timespec in(clockid_t clock, int64_t ns)
{
    struct timespec at;
    clock_gettime(clock, &at);
    ns += at.tv_nsec;
    return (struct timespec){at.tv_sec + ns / 1000000000, ns % 1000000000};
}

/* Each returns 0 for its end by time, else errno. */
static const struct timespec time_ = {0, WAIT_NS};
static int ends(int result) { return result == -1 && errno != EAGAIN && errno != ETIMEDOUT ? errno : 0; }
static int w_poll(void) { return ends(poll(0, 0, WAIT_NS / 1000000)); }
static int w_ppoll(void) { return ends(ppoll(0, 0, &time_, 0)); }
static int w_select(void) { struct timeval tv = {0, WAIT_NS / 1000}; return ends(select(0, 0, 0, 0, &tv)); }
static int w_pselect(void) { return ends(pselect(0, 0, 0, 0, &time_, 0)); }
static int w_epoll_wait(void) { struct epoll_event e; return ends(epoll_wait(epoll, &e, 1, WAIT_NS / 1000000)); }
static int w_epoll_pwait(void) { struct epoll_event e; return ends(epoll_pwait(epoll, &e, 1, WAIT_NS / 1000000, 0)); }
static int w_epoll_pwait2(void) { struct epoll_event e; return ends(epoll_pwait2(epoll, &e, 1, &time_, 0)); }
static int w_nanosleep(void) { return ends(nanosleep(&time_, 0)); }
static int w_clock_nanosleep(void) { return clock_nanosleep(CLOCK_MONOTONIC, 0, &time_, 0); }
static int w_clock_until(void) { struct timespec t = in(CLOCK_MONOTONIC, WAIT_NS); return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0); }
static int w_usleep(void) { return ends(usleep(WAIT_NS / 1000)); }
/* What is left may be written to where the time stands; of a wait that was not ended nothing is. */
static int w_nanosleep_rest(void) { struct timespec t = time_; int e = ends(nanosleep(&t, &t)); return e ? e : t.tv_sec || t.tv_nsec != WAIT_NS ? EINVAL : 0; }
static int w_clock_nanosleep_rest(void) { struct timespec t = time_; int e = clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t); return e ? e : t.tv_nsec != WAIT_NS ? EINVAL : 0; }
static int w_thrd_sleep(void) { return thrd_sleep(&time_, 0) == -1 ? EINTR : 0; }
static int w_sem_timedwait(void) { struct timespec t = in(CLOCK_REALTIME, WAIT_NS); return ends(sem_timedwait(&semaphore, &t)); }
static int w_sem_clockwait(void) { struct timespec t = in(CLOCK_MONOTONIC, WAIT_NS); return ends(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &t)); }
static int w_semtimedop(void) { struct sembuf op = {0, -1, 0}; return ends(semtimedop(semaphores, &op, 1, &time_)); }
static int w_sigtimedwait(void) { sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR2); return ends(sigtimedwait(&set, 0, &time_)); }

static struct { const char *name; int (*call)(void); } calls[] = {
    {"poll", w_poll}, {"ppoll", w_ppoll}, {"select", w_select}, {"pselect", w_pselect}, {"epoll_wait", w_epoll_wait},
    {"epoll_pwait", w_epoll_pwait}, {"epoll_pwait2", w_epoll_pwait2}, {"nanosleep", w_nanosleep},
    {"clock_nanosleep", w_clock_nanosleep}, {"clock_nanosleep until", w_clock_until}, {"nanosleep, and the rest", w_nanosleep_rest},
    {"clock_nanosleep, and the rest", w_clock_nanosleep_rest}, {"usleep", w_usleep},
    {"thrd_sleep", w_thrd_sleep}, {"sem_timedwait", w_sem_timedwait}, {"sem_clockwait", w_sem_clockwait},
    {"semtimedop", w_semtimedop}, {"sigtimedwait", w_sigtimedwait},
};
#define CALLS (sizeof calls / sizeof *calls)

static int run_calls(void)
{
    for (unsigned c = 0; c < CALLS; c++) {
        int interrupted = 0, early = 0, other = 0;
        for (int i = 0; i < 12; i++) {
            int64_t begin = now_ns();
            int error = calls[c].call();
            interrupted += error == EINTR;
            other += error != 0 && error != EINTR;
            early += error == 0 && now_ns() - begin < WAIT_NS - 1000000;
        }
        printf("%s: %d interrupted, %d early, %d otherwise wrong\n", calls[c].name, interrupted, early, other);
    }
    return 0;
}

static void on_signal(int signal)
{
    (void)signal;
    caught++;
}

/* Calls that wait for something, which another thread sends after a while. */
static void *sends(void *unused)
{
    struct { long type; char text[8]; } message = {1, "hello"};
    struct sembuf up = {0, 1, 0};
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    usleep(30000);
    msgsnd(queue, &message, 8, 0);
    usleep(30000);
    semop(semaphores, &up, 1);
    usleep(400000);
    kill(getpid(), SIGUSR1);
    return unused;
}

static int run_sent(void)
{
    struct { long type; char text[8]; } message;
    struct sembuf down = {0, -1, 0};
    pthread_t id;
    signal(SIGUSR1, on_signal);
    pthread_create(&id, 0, sends, 0);
    ssize_t got = msgrcv(queue, &message, 8, 0, 0);
    printf("msgrcv %zd\n", got);
    printf("semop %d\n", semop(semaphores, &down, 1));
    printf("sleep %u\n", sleep(5));
    pthread_join(id, 0);
    return 0;
}

static int run_handler(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    for (unsigned c = 0; c < CALLS; c++) {
        int interrupted = 0;
        /* The alarm comes within the wait almost always; three tries leave no doubt. */
        for (int i = 0; i < 200 && interrupted < 3; i++) {
            struct itimerval soon = {{0, 0}, {0, 500}};
            setitimer(ITIMER_REAL, &soon, 0);
            interrupted += calls[c].call() == EINTR;
        }
        printf("%s: %s\n", calls[c].name, interrupted == 3 ? "interrupted" : "not interrupted");
    }
    /* Again and again: the first may come before the wait. */
    struct itimerval soon = {{0, 50000}, {0, 50000}};
    setitimer(ITIMER_REAL, &soon, 0);
    int result = pause();
    printf("pause %d %s\n", result, strerror(errno));
    sigset_t none;
    sigemptyset(&none);
    result = sigsuspend(&none);
    soon = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &soon, 0);
    printf("sigsuspend %d %s\n", result, strerror(errno));
    return 0;
}

/* Sends main a signal in each wait, at a time that differs. */
#define SUDDEN_EACH 250
static volatile int turn, answered;
static pthread_t first;

/* Whether main sleeps: it does so nowhere but in its wait. */
static int sleeps(FILE *stat)
{
    char text[512] = {0}, *name_end;
    rewind(stat);
    fflush(stat);
    return fread(text, 1, sizeof text - 1, stat) > 0 && (name_end = strrchr(text, ')')) && name_end[2] == 'S';
}

static void *suddenly(void *unused)
{
    char path[64];
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    FILE *stat = fopen(path, "r");
    uint32_t seed = 1;
    for (int now; stat && !done; answered = now) {
        while ((now = turn) == answered && !done)
            ;
        while (!done && !sleeps(stat))
            ;
        seed = seed * 1664525 + 1013904223;
        for (int64_t until = now_ns() + (seed >> 12) % 400000; now_ns() < until;)
            ;
        if (!done)
            pthread_kill(first, SIGUSR1);
    }
    return unused;
}

static int s_nanosleep(void) { struct timespec t = {2, 0}; return nanosleep(&t, 0); }
static int s_poll(void) { return poll(0, 0, 2000); }
static int s_select(void) { struct timeval tv = {2, 0}; return select(0, 0, 0, 0, &tv); }
static int s_epoll_wait(void) { struct epoll_event e; return epoll_wait(epoll, &e, 1, 2000); }
static int s_sem_timedwait(void) { struct timespec t = in(CLOCK_REALTIME, 2000000000); return sem_timedwait(&semaphore, &t); }
static int s_semtimedop(void) { struct sembuf op = {0, -1, 0}; struct timespec t = {2, 0}; return semtimedop(semaphores, &op, 1, &t); }

static int run_sudden(void)
{
    static const struct { const char *name; int (*call)(void); } waits[] = {
        {"nanosleep", s_nanosleep}, {"poll", s_poll}, {"select", s_select}, {"epoll_wait", s_epoll_wait},
        {"sem_timedwait", s_sem_timedwait}, {"semtimedop", s_semtimedop},
    };
    pthread_t id;
    first = pthread_self();
    /* By each of the functions that set one: what they set, they return. */
    struct sigaction action = {.sa_handler = on_signal}, before;
    int same = sigaction(SIGUSR1, &action, &before) == 0 && before.sa_handler == SIG_DFL;
    same = same && signal(SIGUSR1, SIG_IGN) == on_signal && signal(SIGUSR1, on_signal) == SIG_IGN;
    same = same && signal(SIGUSR1, on_signal) == on_signal && sigaction(SIGUSR1, 0, &before) == 0;
    printf("handler %s\n", same && before.sa_handler == on_signal ? "the same" : "another");
    pthread_create(&id, 0, suddenly, 0);
    for (unsigned w = 0; w < sizeof waits / sizeof *waits; w++) {
        int slept = 0;
        caught = 0;
        for (int i = 0; i < SUDDEN_EACH; i++) {
            turn++;
            slept += !(waits[w].call() == -1 && errno == EINTR);
            while (answered != turn)
                ;
        }
        printf("%s: %d slept on, %d caught\n", waits[w].name, slept, caught);
    }
    done = 1;
    pthread_join(id, 0);
    return 0;
}

static int run_wanted(void)
{
    sigset_t all, some;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    int counts[4] = {0}, wrong = 0, got;
    siginfo_t info;
    sigemptyset(&some);
    sigaddset(&some, SIGRTMIN);
    int fd = signalfd(-1, &all, SFD_NONBLOCK);
    for (int i = 0; i < 2000; i++) {
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
        struct signalfd_siginfo read_info;
        switch (i % 4) {
        case 0:
            got = 0;
            sigwait(&all, &got);
            break;
        case 1:
            got = sigwaitinfo(&all, &info);
            wrong += info.si_value.sival_int != i;
            break;
        case 2:
            got = sigtimedwait(&all, &info, &(struct timespec){5, 0});
            wrong += info.si_value.sival_int != i;
            break;
        default:
            got = read(fd, &read_info, sizeof read_info) == sizeof read_info ? (int)read_info.ssi_signo : -1;
        }
        counts[i % 4] += got == SIGRTMIN;
    }
    printf("sigwait %d, sigwaitinfo %d, sigtimedwait %d, signalfd %d, %d wrong\n", counts[0], counts[1], counts[2], counts[3], wrong);
    int nothing = 0;
    for (int i = 0; i < 20; i++)
        nothing += sigtimedwait(&all, 0, &time_) == -1 && errno == EAGAIN;
    printf("nothing %d times\n", nothing);
    /* SIGTRAP alone may be waited for. */
    sigset_t traps;
    sigemptyset(&traps);
    sigaddset(&traps, SIGTRAP);
    int trap_fd = signalfd(-1, &traps, SFD_NONBLOCK);
    kill(getpid(), SIGTRAP);
    struct signalfd_siginfo read_info = {0};
    struct pollfd fds = {trap_fd, POLLIN, 0};
    /* Recorded, it is passed on from thread to thread until all have it really blocked. A read in between finds nothing;
     * then, as everywhere where a descriptor does not block, poll again. */
    ssize_t len;
    do {
        poll(&fds, 1, 5000);
        len = read(trap_fd, &read_info, sizeof read_info);
    } while (len == -1 && errno == EAGAIN && fds.revents);
    printf("SIGTRAP by signalfd: %d\n", len > 0 ? (int)read_info.ssi_signo : -1);
    kill(getpid(), SIGTRAP);
    got = 0;
    sigwait(&traps, &got);
    printf("SIGTRAP by sigwait: %d\n", got);
    return 0;
}

static int run_opened(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTRAP, &action, 0);
    sigset_t traps, none, before;
    sigemptyset(&none);
    sigemptyset(&traps);
    sigaddset(&traps, SIGTRAP);
    struct epoll_event event;
    for (int way = 0; way < 5; way++) {
        static const char *names[] = {"sigsuspend", "ppoll", "pselect", "epoll_pwait", "epoll_pwait2"};
        caught = 0;
        sigprocmask(SIG_BLOCK, &traps, 0);
        raise(SIGTRAP);
        int before_wait = caught, result;
        struct timespec long_time = {5, 0};
        switch (way) {
        case 0: result = sigsuspend(&none); break;
        case 1: result = ppoll(0, 0, &long_time, &none); break;
        case 2: result = pselect(0, 0, 0, 0, &long_time, &none); break;
        case 3: result = epoll_pwait(epoll, &event, 1, 5000, &none); break;
        default: result = epoll_pwait2(epoll, &event, 1, &long_time, &none);
        }
        printf("%s: %d before, result %d, %s, caught %d, ", names[way], before_wait, result, result ? strerror(errno) : "", caught);
        sigprocmask(SIG_BLOCK, 0, &before);
        raise(SIGTRAP);
        printf("then %s, caught %d, ", sigismember(&before, SIGTRAP) ? "blocked" : "not blocked", caught);
        sigprocmask(SIG_UNBLOCK, &traps, 0);
        printf("unblocked: caught %d\n", caught);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    pthread_t id;
    setvbuf(stdout, 0, _IOLBF, 0);
    epoll = epoll_create1(0);
    queue = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    sem_init(&semaphore, 0, 0);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&id, 0, busy, 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    int status = !strcmp(mode, "calls")     ? run_calls()
                 : !strcmp(mode, "sent")    ? run_sent()
                 : !strcmp(mode, "handler") ? run_handler()
                 : !strcmp(mode, "wanted")  ? run_wanted()
                 : !strcmp(mode, "sudden")  ? run_sudden()
                 : !strcmp(mode, "opened")  ? run_opened()
                                            : 2;
    usleep(60000);
    done = 1;
    pthread_join(id, 0);
    msgctl(queue, IPC_RMID, 0);
    semctl(semaphores, 0, IPC_RMID);
    return status;
}
