/* A program as Go builds it with C: a note says so, its threads are the C library's, and they start a program by system calls of their own,
 * which nobody stands before: past_hooks THREADS TIMES PROGRAM ARGUMENTS... It ends with the greatest status of all. With no threads, it executes
 * the program itself. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
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
    intptr_t greatest = 0;
    for (int times = atoi(arguments[1]); times > 0; times--) {
        int status = 0;
        long pid = start(arguments[2], arguments + 2, environ);
        if (pid < 0 || waitpid((pid_t)pid, &status, 0) != pid)
            return (void *)126;
        intptr_t one = WIFEXITED(status) ? WEXITSTATUS(status) : 125;
        greatest = one > greatest ? one : greatest;
    }
    return (void *)greatest;
}

int main(int argc, char **argv)
{
    enum { MOST = 16 };
    pthread_t threads[MOST];
    intptr_t greatest = 0;
    int count = argc > 3 ? atoi(argv[1]) : 0;
    if (count == 0 && argc > 3) {
        long result;
        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(59L), "D"(argv[3]), "S"(argv + 3), "d"(environ)
                         : "rcx", "r11", "memory");
        return 122;
    }
    if (count < 1 || count > MOST)
        return 124;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, starts, argv + 1) != 0)
            return 123;
    for (int i = 0; i < count; i++) {
        void *status;
        pthread_join(threads[i], &status);
        greatest = (intptr_t)status > greatest ? (intptr_t)status : greatest;
    }
    return (int)greatest;
}
