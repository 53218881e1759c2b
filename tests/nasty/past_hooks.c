/* A program as Go builds it with C: a note says so, its threads are the C library's, and it starts a program by system calls of its own, which
 * nobody stands before: past_hooks PROGRAM ARGUMENTS... It ends with that one's status. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
        ".balign 4\n"
        ".long 4, 4, 4\n"
        ".ascii \"Go\\0\\0none\"\n"
        ".popsection\n");

/* clone(CLONE_VM | CLONE_VFORK | SIGCHLD); in the child, execve. */
static long start(const char *program, char **arguments, char **environment)
{
    long pid;
    __asm__ volatile("mov $56, %%eax\n\t"
                     "mov $0x4111, %%edi\n\t"
                     "xor %%esi, %%esi\n\t"
                     "xor %%edx, %%edx\n\t"
                     "xor %%r10d, %%r10d\n\t"
                     "xor %%r8d, %%r8d\n\t"
                     "syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "mov $59, %%eax\n\t"
                     "mov %1, %%rdi\n\t"
                     "mov %2, %%rsi\n\t"
                     "mov %3, %%rdx\n\t"
                     "syscall\n\t"
                     "mov $60, %%eax\n\t"
                     "mov $127, %%edi\n\t"
                     "syscall\n"
                     "1:"
                     : "=&a"(pid)
                     : "r"(program), "r"(arguments), "r"(environment)
                     : "rcx", "rdx", "rsi", "rdi", "r8", "r10", "r11", "memory", "cc");
    return pid;
}

static void *starts(void *words)
{
    char **arguments = words;
    int status = 0;
    long pid = start(arguments[0], arguments, environ);
    if (pid < 0 || waitpid((pid_t)pid, &status, 0) != pid)
        return (void *)126;
    return (void *)(intptr_t)(WIFEXITED(status) ? WEXITSTATUS(status) : 125);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *status = (void *)124;
    if (argc > 1 && pthread_create(&thread, NULL, starts, argv + 1) == 0)
        pthread_join(thread, &status);
    return (int)(intptr_t)status;
}
