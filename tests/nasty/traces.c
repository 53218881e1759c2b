/* A child that its parent traces: says its PID, waits until its input ends, lets it run to its end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(11);
    }
    waitpid(child, &status, 0);
    printf("%d\n", child);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    ptrace(PTRACE_CONT, child, NULL, NULL);
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 11)
        puts("traced to its end");
    return 0;
}
