/* Events of known number and place: events WHAT COUNT [THREADS]. Each of so many threads (the first one alone if none are
 * given) lets WHAT happen COUNT times in a procedure of its own. At the end: its own page faults, context switches,
 * major page faults, and the context switches that its waits in pause_once led to (a wait that is over before the processor is
 * given up leads to none), by the kernel's account, on standard error.
 *   touch     a page is touched for the first time, in touch
 *   sleep     it waits a moment, in pause_once
 *   write     a write of nothing, in write_once
 *   move      it moves to the other processor, in move_once
 *   call      counted is called
 *   fill      COUNT pages are touched by one read(2)
 *   reread    COUNT pages of a file are read through a mapping after the kernel has forgotten them, in reread
 *   both      touch, then sleep COUNT / 10 times, then work for COUNT microseconds in work
 * "exec" before WHAT lets it happen, then executes itself without that word. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096l
volatile unsigned long sink;
static const char *what;
static long count;
static long of_pauses;

static char *pages(long many)
{
    char *at = mmap(0, many * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(at, many * PAGE, MADV_NOHUGEPAGE);
    return at;
}

void touch(long many)
{
    char *at = pages(many);
    for (long i = 0; i < many; i++)
        at[i * PAGE] = 1;
    munmap(at, many * PAGE);
}

void fill(long many)
{
    char *at = pages(many);
    int zero = open("/dev/zero", O_RDONLY);
    if (read(zero, at, many * PAGE) != many * PAGE)
        abort();
    close(zero);
    munmap(at, many * PAGE);
}

void reread(long many)
{
    int file = open(".", O_TMPFILE | O_RDWR, 0600);
    for (long i = 0; i < many; i++)
        if (pwrite(file, "page", 4, i * PAGE) != 4)
            abort();
    fsync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    char *at = mmap(0, many * PAGE, PROT_READ, MAP_SHARED, file, 0);
    madvise(at, many * PAGE, MADV_RANDOM);
    for (long i = 0; i < many; i++)
        sink += at[i * PAGE];
}

void pause_once(void)
{
    struct timespec moment = {0, 100000};
    nanosleep(&moment, 0);
    sink++;
}

static long switches_of_own(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

void write_once(void)
{
    if (write(1, "", 0) != 0)
        abort();
    sink++;
}

void move_once(long to)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(to % sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
    sink++;
}

void counted(void)
{
    __asm__ volatile("nop");
}

void work(long micros)
{
    struct timespec start, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do {
        for (long i = 0; i < 10000; i++)
            sink = sink * 3 + i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < micros);
}

static void *happen(void *unused)
{
    (void)unused;
    if (!strcmp(what, "touch"))
        touch(count);
    if (!strcmp(what, "fill"))
        fill(count);
    if (!strcmp(what, "reread"))
        reread(count);
    long before = switches_of_own();
    for (long i = 0; i < count; i++) {
        if (!strcmp(what, "sleep"))
            pause_once();
        if (!strcmp(what, "write"))
            write_once();
        if (!strcmp(what, "move"))
            move_once(i);
        if (!strcmp(what, "call"))
            counted();
    }
    if (!strcmp(what, "both")) {
        touch(count);
        before = switches_of_own();
        for (long i = 0; i < count / 10; i++)
            pause_once();
        work(count);
    }
    __atomic_fetch_add(&of_pauses, switches_of_own() - before, __ATOMIC_RELAXED);
    return 0;
}

int main(int argc, char **argv)
{
    int again = argc > 3 && !strcmp(argv[1], "exec");
    what = argv[1 + again];
    count = atol(argv[2 + again]);
    int threads = argc > 3 + again ? atoi(argv[3 + again]) : 0;
    pthread_t made[16];
    for (int i = 0; i < threads; i++)
        pthread_create(&made[i], 0, happen, 0);
    if (!threads)
        happen(0);
    for (int i = 0; i < threads; i++)
        pthread_join(made[i], 0);
    if (again) {
        argv[1] = argv[0];
        execv("/proc/self/exe", argv + 1);
        return 1;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    long switches = usage.ru_nvcsw + usage.ru_nivcsw;
    dprintf(2, "%ld %ld %ld %ld\n", usage.ru_minflt + usage.ru_majflt, switches, usage.ru_majflt, of_pauses);
    return 0;
}
