/* Threads and their ends: threads MODE.
 *   short      5,000 short-lived threads, one after the other. Says what they took till their last instruction, in nanoseconds
 *   many       200 threads at once
 *   exits      pthread_exit from a nested procedure, with cleanup handlers and thread-specific destructors
 *   cancel     cancellation of threads that compute and of threads that wait
 *   detached   detached threads that are at work when the process exits
 *   live       exit() from a thread while others, main included, are at work
 *   raw        a thread made by clone without the C library, without a TLS of its own */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) uint64_t work(uint64_t steps)
{
    volatile uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
    return x;
}

static uint64_t short_ns;

static void *short_one(void *unused)
{
    struct timespec t;
    work(30000);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    short_ns += t.tv_sec * 1000000000ull + t.tv_nsec;
    return unused;
}

static void *many_one(void *unused)
{
    work(3000000);
    return unused;
}

static pthread_key_t key;
static int cleaned, destroyed;

static void clean(void *unused)
{
    (void)unused;
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_RELAXED);
}

static void destroy(void *unused)
{
    (void)unused;
    work(2000000);
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
}

__attribute__((noinline)) static void nested(int depth)
{
    if (depth == 0) {
        work(20000000);
        pthread_exit((void *)7);
    }
    nested(depth - 1);
    __asm__ volatile("");
}

static void *exits_one(void *unused)
{
    pthread_setspecific(key, &key);
    pthread_cleanup_push(clean, 0);
    nested(10);
    pthread_cleanup_pop(0);
    return unused;
}

static void *cancelled_one(void *waits)
{
    pthread_setspecific(key, &key);
    pthread_cleanup_push(clean, 0);
    for (;;) {
        if (waits)
            sleep(100);
        work(100000);
        pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return 0;
}

static void *forever(void *unused)
{
    for (;;)
        work(1000000);
    return unused;
}

static void *exits_process(void *unused)
{
    work(100000000);
    puts("exit from a thread");
    exit(6);
    return unused;
}

static int raw_tid;
static volatile uint64_t raw_sink;

/* Uses no libc: it shares its creator's thread pointer. */
__attribute__((noinline)) static void raw_work(void)
{
    for (long i = 0; i < 200000000; i++)
        raw_sink = raw_sink * 6364136223846793005u + 1;
}

static int raw_start(void *unused)
{
    (void)unused;
    raw_work();
    return 0;
}

static int run_raw(void)
{
    size_t size = 1 << 20;
    char *stack = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID |
                CLONE_CHILD_CLEARTID;
    raw_tid = -1;
    if (clone(raw_start, stack + size, flags, 0, &raw_tid, 0, &raw_tid) < 0)
        return 1;
    work(300000000);
    int tid;
    while ((tid = __atomic_load_n(&raw_tid, __ATOMIC_ACQUIRE)) != 0)
        syscall(SYS_futex, &raw_tid, FUTEX_WAIT, tid, 0, 0, 0);
    puts("the raw thread ended");
    return 0;
}

static void join_all(pthread_t *ids, int count)
{
    int sevens = 0, cancelled = 0;
    for (int i = 0; i < count; i++) {
        void *result;
        pthread_join(ids[i], &result);
        sevens += result == (void *)7;
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("%d ended with 7, %d were cancelled, %d cleaned, %d destroyed\n", sevens, cancelled, cleaned, destroyed);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    pthread_t ids[200];
    pthread_key_create(&key, destroy);
    if (!strcmp(mode, "short")) {
        for (int i = 0; i < 5000; i++)
            if (pthread_create(&ids[0], 0, short_one, 0) || pthread_join(ids[0], 0))
                return 1;
        puts("5000 threads");
        fprintf(stderr, "%llu\n", (unsigned long long)short_ns);
    } else if (!strcmp(mode, "many")) {
        for (int i = 0; i < 200; i++)
            if (pthread_create(&ids[i], 0, many_one, 0))
                return 1;
        join_all(ids, 200);
    } else if (!strcmp(mode, "exits")) {
        for (int i = 0; i < 8; i++)
            pthread_create(&ids[i], 0, exits_one, 0);
        join_all(ids, 8);
    } else if (!strcmp(mode, "cancel")) {
        for (int i = 0; i < 8; i++)
            pthread_create(&ids[i], 0, cancelled_one, i % 2 ? &key : 0);
        work(200000000);
        for (int i = 0; i < 8; i++)
            pthread_cancel(ids[i]);
        join_all(ids, 8);
    } else if (!strcmp(mode, "detached") || !strcmp(mode, "live")) {
        for (int i = 0; i < 3; i++) {
            pthread_create(&ids[i], 0, forever, 0);
            pthread_detach(ids[i]);
        }
        if (!strcmp(mode, "live")) {
            pthread_create(&ids[3], 0, exits_process, 0);
            for (;;)
                work(1000000);
        }
        work(200000000);
        puts("main returns");
    } else if (!strcmp(mode, "raw")) {
        return run_raw();
    } else {
        return 2;
    }
    return 0;
}
