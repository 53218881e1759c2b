/* Functions that wait, and a thread that sees it: it reads the state of the first thread from /proc, and ends each wait some
 * time after it has seen the thread blocked. What lies between was waited for certain; what the first thread's own clock says
 * around the call is the most that it can be. It writes `known`: `METRIC PATH LEAST MOST` for each path, ns. The hazards: a
 * lock held by another thread, a condition, a pipe, sleep; a callee that waits, too; recursion; a wait that a handler leaves
 * by siglongjmp; a handler that waits itself. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 3
#define BLOCKED_NS 3000000

enum phase { NONE, LOCK, CONDITION, PIPE, SLEEP, LEFT, HANDLER };
static volatile enum phase phase, asked;
static volatile unsigned turn;
static volatile uint64_t least;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, own = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ends[2], others[2];
static char state_path[64];
static pthread_t first;
static sigjmp_buf back;
static volatile int sink;

static struct span {
    const char *metric, *path;
    uint64_t least, most;
} spans[] = {
    {.metric = "wait-time", .path = "main;locks"},
    {.metric = "wait-time", .path = "main;waits"},
    {.metric = "io-time", .path = "main;reads"},
    {.metric = "wait-time", .path = "main;sleeps"},
    {.metric = "wait-time", .path = "main;mixed;locks"},
    {.metric = "io-time", .path = "main;mixed"},
    {.metric = "io-time", .path = "main;deep;deep;deep;reads"},
    {.metric = "io-time", .path = "main;left"},
    {.metric = "io-time", .path = "main;interrupted"},
};

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Whether the first thread is blocked. */
static int is_blocked(void)
{
    char text[256] = {0};
    FILE *file = fopen(state_path, "r");
    if (!file || !fgets(text, sizeof text, file))
        abort();
    fclose(file);
    char *end = strrchr(text, ')');
    return end && end[2] == 'S';
}

static void release(enum phase ended)
{
    if (ended == LOCK)
        pthread_mutex_unlock(&lock);
    if (ended == CONDITION) {
        pthread_mutex_lock(&own);
        sink++;
        pthread_cond_signal(&condition);
        pthread_mutex_unlock(&own);
    }
    if (ended == PIPE && write(ends[1], "x", 1) != 1)
        abort();
    if (ended == LEFT || ended == HANDLER)
        pthread_kill(first, ended == LEFT ? SIGUSR1 : SIGUSR2);
    if (ended == HANDLER && (write(others[1], "y", 1) != 1 || write(ends[1], "x", 1) != 1))
        abort();
}

/* Ends each wait of the first thread, after it has seen that. */
static void *observes(void *argument)
{
    for (unsigned last = 0;; last++) {
        while (turn == last)
            usleep(50);
        enum phase seen = asked;
        if (seen == NONE)
            return argument;
        while (!is_blocked() && phase == seen)
            usleep(50);
        uint64_t begin = now();
        if (seen == SLEEP) {
            uint64_t last = begin;
            for (uint64_t at = now(); is_blocked() && phase == SLEEP; at = now())
                last = at;
            least = last - begin + 1;
        } else {
            while (now() < begin + BLOCKED_NS)
                usleep(200);
            least = now() - begin;
            release(seen);
        }
    }
}

/* Before and after a call that waits. A lock that nobody else has is taken, too: that is hardly a wait. */
static uint64_t begins(enum phase next)
{
    uint64_t begin = now();
    pthread_mutex_lock(next == LOCK ? &lock : &own);
    if (next != LOCK && next != CONDITION)
        pthread_mutex_unlock(&own);
    least = 0;
    phase = asked = next;
    turn++;
    return begin;
}

static void ended(int span, uint64_t begin)
{
    uint64_t took = now() - begin;
    phase = NONE;
    while (!least)
        ;
    spans[span].least += least;
    spans[span].most += took;
}

static int span_of_locks, span_of_reads = 2;

/* The lock is this thread's own already, so that it waits until the other one unlocks it. */
void locks(void)
{
    uint64_t begin = begins(LOCK);
    pthread_mutex_lock(&lock);
    ended(span_of_locks, begin);
    pthread_mutex_unlock(&lock);
}

void waits(void)
{
    struct timespec far;
    clock_gettime(CLOCK_REALTIME, &far);
    far.tv_sec += 1000;
    int before = sink;
    uint64_t begin = begins(CONDITION);
    while (sink == before)
        pthread_cond_timedwait(&condition, &own, &far);
    ended(1, begin);
    pthread_mutex_unlock(&own);
}

void reads(void)
{
    char byte;
    uint64_t begin = begins(PIPE);
    if (read(ends[0], &byte, 1) != 1)
        abort();
    ended(span_of_reads, begin);
}

void sleeps(void)
{
    uint64_t begin = begins(SLEEP);
    usleep(20000);
    ended(3, begin);
}

void mixed(void)
{
    span_of_locks = 4;
    locks();
    span_of_locks = 0;
    char byte;
    uint64_t begin = begins(PIPE);
    if (read(ends[0], &byte, 1) != 1)
        abort();
    ended(5, begin);
}

void deep(int n)
{
    if (n > 1) {
        deep(n - 1);
        sink++;
        return;
    }
    span_of_reads = 6;
    reads();
    span_of_reads = 2;
}

void works(void)
{
    for (int i = 0; i < 1000000; i++)
        sink++;
}

void leaves(int signal)
{
    siglongjmp(back, signal);
}

/* The wait goes on until the next probe: that of works. */
void left(void)
{
    char byte;
    uint64_t begin = begins(LEFT);
    if (!sigsetjmp(back, 1)) {
        if (read(ends[0], &byte, 1) >= 0)
            abort();
    }
    works();
    ended(7, begin);
}

void handler(int signal)
{
    char byte;
    if (read(others[0], &byte, 1) != 1)
        _exit(signal);
}

void interrupted(void)
{
    char byte;
    uint64_t begin = begins(HANDLER);
    if (read(ends[0], &byte, 1) != 1)
        abort();
    ended(8, begin);
}

int main(void)
{
    sprintf(state_path, "/proc/self/task/%ld/stat", syscall(SYS_gettid));
    pthread_mutexattr_t normal;
    pthread_mutexattr_init(&normal);
    pthread_mutexattr_settype(&normal, PTHREAD_MUTEX_NORMAL);
    pthread_mutex_init(&lock, &normal);
    first = pthread_self();
    struct sigaction action = {.sa_handler = leaves};
    sigaction(SIGUSR1, &action, NULL);
    action = (struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    if (pipe(ends) || pipe(others))
        abort();
    pthread_t observer;
    pthread_create(&observer, NULL, observes, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        locks();
        waits();
        reads();
        sleeps();
        mixed();
        deep(3);
        left();
        interrupted();
        works();
    }
    asked = NONE;
    turn++;
    pthread_join(observer, NULL);
    FILE *to = fopen("known", "w");
    for (unsigned i = 0; i < sizeof spans / sizeof *spans; i++)
        fprintf(to, "%s %s %llu %llu\n", spans[i].metric, spans[i].path, (unsigned long long)spans[i].least,
                (unsigned long long)spans[i].most);
    fclose(to);
    puts("waited");
    return 0;
}
