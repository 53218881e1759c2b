/* Starts another program: starts HOW PROGRAM [ARGUMENTS]. It works before, so that its clock runs.
 *
 * HOW: exec (in this process), fork, vfork, spawn, spawnp, system, popen, clone (by the raw system call), clone-vm (sharing
 * memory, as vfork does, on a stack of its own), times-N (N processes one after the other, by vfork), detach (by a double fork,
 * not waited for, its output closed). A prefix changes the surroundings: cleared:HOW without any environment, chroot=DIR:HOW,
 * user=NUMBER:HOW, ignore:HOW and block:HOW with SIGTRAP ignored or blocked.
 * The child writes to its memory; the parent says whether it saw that, which it does of a vfork's at once. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

volatile uint64_t sink;
static volatile int seen;
static char **program;

__attribute__((noinline)) void work_before(long ms)
{
    struct timespec start, now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    do {
        for (int i = 0; i < 20000; i++)
            sink = sink * 6364136223846793005u + 1;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < ms);
}

static void line_of(char *line, size_t size)
{
    line[0] = 0;
    for (char **word = program; *word; word++)
        snprintf(line + strlen(line), size - strlen(line), "%s%s", word == program ? "" : " ", *word);
}

static int in_child(void *unused)
{
    (void)unused;
    seen = 1;
    execve(program[0], program, environ);
    _exit(127);
}

static pid_t start(const char *how)
{
    pid_t child = -1;
    if (!strcmp(how, "fork")) {
        child = fork();
        if (child == 0)
            in_child(0);
    } else if (!strcmp(how, "vfork")) {
        child = vfork();
        if (child == 0)
            in_child(0);
    } else if (!strcmp(how, "clone")) {
        child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            in_child(0);
    } else if (!strcmp(how, "clone-vm")) {
        static char stack[65536] __attribute__((aligned(16)));
        child = clone(in_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
    } else if (!strcmp(how, "spawn")) {
        int error = posix_spawn(&child, program[0], 0, 0, program, environ);
        if (error)
            printf("posix_spawn: %s\n", strerror(error)), child = -1;
    } else if (!strcmp(how, "spawnp")) {
        int error = posix_spawnp(&child, program[0], 0, 0, program, environ);
        if (error)
            printf("posix_spawnp: %s\n", strerror(error)), child = -1;
    } else {
        exit(2);
    }
    return child;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    setvbuf(stdout, 0, _IOLBF, 0);
    char *how = argv[1], line[4096];
    program = argv + 2;
    work_before(30);
    for (char *rest; (rest = strchr(how, ':')); how = rest + 1) {
        *rest = 0;
        static char *nothing[] = {0};
        sigset_t traps;
        sigemptyset(&traps);
        sigaddset(&traps, SIGTRAP);
        if (!strcmp(how, "cleared"))
            environ = nothing;
        else if (!strcmp(how, "ignore"))
            signal(SIGTRAP, SIG_IGN);
        else if (!strcmp(how, "block"))
            sigprocmask(SIG_BLOCK, &traps, 0);
        else if (!strncmp(how, "chroot=", 7)) {
            if (chroot(how + 7) || chdir("/"))
                return perror("chroot"), 3;
        } else if (!strncmp(how, "user=", 5)) {
            uid_t user = atoi(how + 5);
            if (setgroups(0, 0) || setresgid(user, user, user) || setresuid(user, user, user))
                return perror("setresuid"), 3;
        }
    }
    int status = 0, times = 1;
    if (!strcmp(how, "exec")) {
        execv(program[0], program);
        perror("execv");
        work_before(30);
        return 3;
    } else if (!strcmp(how, "system")) {
        line_of(line, sizeof line);
        status = system(line);
    } else if (!strcmp(how, "popen")) {
        line_of(line, sizeof line);
        FILE *pipe = popen(line, "r");
        if (!pipe)
            return perror("popen"), 3;
        while (fgets(line, sizeof line, pipe))
            printf("it said: %s", line);
        status = pclose(pipe);
    } else if (!strcmp(how, "detach")) {
        pid_t child = fork();
        if (child == 0) {
            setsid();
            if (fork() == 0) {
                int null = open("/dev/null", O_RDWR);
                dup2(null, 0), dup2(null, 1), dup2(null, 2);
                in_child(0);
            }
            _exit(0);
        }
        waitpid(child, &status, 0);
    } else {
        if (!strncmp(how, "times-", 6))
            times = atoi(how + 6), how = "vfork";
        for (int i = 0; i < times; i++) {
            pid_t child = start(how);
            int at_return = seen;
            if (child > 0 && waitpid(child, &status, 0) != child)
                return perror("waitpid"), 3;
            printf("the child's write was %s\n", at_return ? "seen" : "not seen");
        }
    }
    printf("status %d\n", status);
    work_before(30);
    return 0;
}
