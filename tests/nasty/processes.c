/* Children: processes MODE BURN MILLISECONDS. The child works; the parent waits, then works as long.
 * Modes: fork, fork-exec, vfork-exec, spawn, system, failed-exec, exec (no child: works, then becomes BURN), orphan (the
 * parent does not wait), clears (the child gets an empty environment). */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

volatile uint64_t sink;

__attribute__((noinline)) void compute(long ms)
{
    struct timespec start, now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    do {
        for (int i = 0; i < 100000; i++)
            sink = sink * 6364136223846793005u + 1;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < ms);
}

__attribute__((noinline)) void parent_work(long ms)
{
    compute(ms);
    __asm__ volatile("");
}

__attribute__((noinline)) void child_work(long ms)
{
    compute(ms);
    __asm__ volatile("");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *mode = argv[1];
    long ms = atol(argv[3]);
    char *burn[] = {argv[2], argv[3], 0};
    char *nothing[] = {0};
    pid_t child = -1;
    int status = 0;
    if (!strcmp(mode, "exec")) {
        parent_work(ms);
        execv(burn[0], burn);
        return 3;
    } else if (!strcmp(mode, "failed-exec")) {
        parent_work(ms);
        execv("/no/such/program", burn);
        perror("exec");
    } else if (!strcmp(mode, "fork") || !strcmp(mode, "orphan")) {
        child = fork();
        if (child == 0) {
            child_work(ms);
            _exit(5);
        }
    } else if (!strcmp(mode, "fork-exec") || !strcmp(mode, "clears")) {
        child = fork();
        if (child == 0) {
            execve(burn[0], burn, !strcmp(mode, "clears") ? nothing : environ);
            _exit(127);
        }
    } else if (!strcmp(mode, "vfork-exec")) {
        child = vfork();
        if (child == 0) {
            execv(burn[0], burn);
            _exit(127);
        }
    } else if (!strcmp(mode, "spawn")) {
        if (posix_spawn(&child, burn[0], 0, 0, burn, environ))
            return 4;
    } else if (!strcmp(mode, "system")) {
        char line[4096];
        snprintf(line, sizeof line, "%s %ld", burn[0], ms);
        fflush(stdout);
        status = system(line);
    } else {
        return 2;
    }
    if (child > 0 && strcmp(mode, "orphan"))
        waitpid(child, &status, 0);
    parent_work(ms);
    printf("%s: status %d\n", mode, status);
    return 0;
}
