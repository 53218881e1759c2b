/* Runs a program and writes what it cost by the kernel's own account: rusage FILE PROGRAM ARGS. Microseconds of user and
 * system time of the program and the children that it waited for. Ends as the program did. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3)
        return 125;
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) != child)
        return 125;
    FILE *file = fopen(argv[1], "w");
    if (!file)
        return 125;
    fprintf(file, "%lld %lld\n", usage.ru_utime.tv_sec * 1000000ll + usage.ru_utime.tv_usec,
            usage.ru_stime.tv_sec * 1000000ll + usage.ru_stime.tv_usec);
    fclose(file);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
