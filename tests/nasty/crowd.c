/* Many that live at the same time, or end soon: crowd MODE COUNT MICROSECONDS.
 * processes: forks COUNT children; none works before all are there. Each works so long and ends by _exit.
 * exec: COUNT times in turn, a child executes this program again, which works so long and ends by _exit.
 * threads: COUNT threads that give themselves names and work so long. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static long work_ns;

static long thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) static void work(void)
{
    long until_ns = thread_ns() + work_ns;
    do {
        for (int i = 0; i < 1000; i++)
            sink += i;
    } while (thread_ns() < until_ns);
}

static void *named(void *number)
{
    char name[16];
    snprintf(name, sizeof name, "worker-%ld", (long)number);
    pthread_setname_np(pthread_self(), name);
    work();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const char *mode = argv[1];
    long count = atol(argv[2]);
    work_ns = atol(argv[3]) * 1000;
    if (!strcmp(mode, "alone")) {
        work();
        _exit(0);
    } else if (!strcmp(mode, "processes")) {
        int all_are_there[2];
        char none;
        if (pipe(all_are_there))
            return 1;
        for (long i = 0; i < count; i++) {
            pid_t child = fork();
            if (child < 0)
                return 1;
            if (child == 0) {
                close(all_are_there[1]);
                (void)!read(all_are_there[0], &none, 1);
                work();
                _exit(0);
            }
        }
        close(all_are_there[1]);
        while (wait(NULL) > 0)
            ;
    } else if (!strcmp(mode, "exec")) {
        for (long i = 0; i < count; i++) {
            pid_t child = fork();
            if (child == 0) {
                execl("/proc/self/exe", argv[0], "alone", "1", argv[3], NULL);
                _exit(1);
            }
            waitpid(child, NULL, 0);
        }
    } else {
        pthread_t *threads = calloc(count, sizeof *threads);
        for (long i = 0; i < count; i++)
            if (pthread_create(&threads[i], NULL, named, (void *)i))
                return 1;
        for (long i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
    }
    puts("done");
    return 0;
}
