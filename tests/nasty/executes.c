// Executes itself in all ways that there are: one unit of work after the other, in programs that know how many.
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 4, THREADS = 4 };

static volatile long sum;
static pthread_barrier_t barrier;
static char *own;

__attribute__((noinline)) void unit(int value) {
    if (value % 3 == 0)
        sum += value;
    else
        sum -= value;
}

__attribute__((noinline)) void work(int units) {
    for (int value = 0; value < units; value++)
        unit(value);
}

static void become(const char *units) {
    execl(own, own, "leaf", units, (char *)NULL);
    _exit(99);
}

static void *thread(void *last) {
    work(50);
    pthread_barrier_wait(&barrier);
    // The one that executes ends all others.
    if (last)
        become("400");
    for (;;)
        pause();
}

static int ended_well(void) {
    int status, all = 1, count = 0;
    for (; wait(&status) > 0; count++)
        all &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return all ? count : -1;
}

int main(int argc, char **argv) {
    own = argv[0];
    if (argc > 2 && strcmp(argv[1], "leaf") == 0) {
        work(atoi(argv[2]));
        return 0;
    }
    work(10);
    for (int child = 0; child < CHILDREN; child++)
        if (fork() == 0)
            become("100");
    char *words[] = {own, "leaf", "200", NULL};
    extern char **environ;
    pid_t spawned;
    if (posix_spawn(&spawned, own, NULL, NULL, words, environ) != 0)
        return 2;
    if (vfork() == 0) {
        execl(own, own, "leaf", "300", (char *)NULL);
        _exit(99);
    }
    if (fork() == 0) {
        pthread_barrier_init(&barrier, NULL, THREADS);
        for (int number = 0; number < THREADS; number++) {
            pthread_t created;
            pthread_create(&created, NULL, thread, number + 1 == THREADS ? own : NULL);
        }
        for (;;)
            pause();
    }
    int children = ended_well();
    printf("%d children\n", children);
    fflush(stdout);
    become("1000");
}
