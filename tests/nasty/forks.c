/* Processes that count their own calls: forks HOW [PROGRAM ARGUMENT...]
 *   fork    five children, one with a child of its own, and one of a thread; all call, before and after
 *   vfork   vfork and exec of PROGRAM, posix_spawn of it, and system()
 *   exec    calls, and executes PROGRAM */
#define _GNU_SOURCE
#include "truth.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

static unsigned long sink;
extern char **environ;

void leaf(long n)
{
    ENTERED;
    sink += n;
    LEFT;
}

void work(long n)
{
    ENTERED;
    for (long i = 0; i < n; i++)
        leaf(i);
    LEFT;
}

static void waited(pid_t child, int wanted)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != wanted)
        printf("child ended by %x\n", status);
}

void child(int number)
{
    ENTERED;
    work(100 + number);
    if (number == 3) {
        fflush(stdout);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            truth_forget();
            work(77);
            truth_write();
            _exit(12);
        }
        waited(grandchild, 12);
    }
    LEFT;
}

static void forks(int number)
{
    ENTERED;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        truth_forget();
        child(number);
        truth_write();
        _exit(number);
    }
    work(10);
    waited(pid, number);
    LEFT;
}

static void *of_thread(void *argument)
{
    ENTERED;
    work(5);
    forks(20);
    work(6);
    LEFT;
    return argument;
}

static void spawns(char **words)
{
    ENTERED;
    pid_t pid = vfork();
    if (pid == 0) {
        execv(words[0], words);
        _exit(127);
    }
    work(11);
    waited(pid, 5);
    if (posix_spawn(&pid, words[0], NULL, NULL, words, environ))
        puts("posix_spawn fails");
    work(12);
    waited(pid, 5);
    work(13);
    printf("system %x\n", system("exit 3"));
    LEFT;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    ENTERED;
    work(1000);
    if (!strcmp(how, "fork")) {
        for (int i = 0; i < 5; i++)
            forks(i);
        pthread_t thread;
        pthread_create(&thread, NULL, of_thread, NULL);
        pthread_join(thread, NULL);
    } else if (!strcmp(how, "vfork"))
        spawns(argv + 2);
    work(1);
    LEFT;
    truth_write();
    printf("%lu\n", sink);
    fflush(stdout);
    if (!strcmp(how, "exec"))
        execv(argv[2], argv + 2);
    return 3;
}
