/* Threads, a fork's child and a program that it executes call leaf() and use the processor. Each says how often it called
   it; the executed program is this one again. Status 8. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread unsigned long calls;
static unsigned long in_threads;
static volatile unsigned long sink;

__attribute__((noinline)) unsigned long leaf(unsigned long n)
{
    calls++;
    unsigned long sum = 0;
    for (unsigned long i = 0; i < n; i++)
        sum += i * n ^ sum;
    sink += sum;
    return sum;
}

__attribute__((noinline)) void work(unsigned long times)
{
    for (unsigned long i = 0; i < times; i++)
        leaf(i % 500);
}

static void *in_thread(void *unused)
{
    work(200000);
    __sync_fetch_and_add(&in_threads, calls);
    return unused;
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "executed") == 0) {
        work(100000);
        printf("executed %lu\n", calls);
        return 0;
    }
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, in_thread, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pid_t child = fork();
    if (child == 0) {
        calls = 0;
        work(200000);
        printf("child %lu\n", calls);
        fflush(stdout);
        execl(words[0], words[0], "executed", (char *)NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    work(100000);
    printf("parent %lu\n", in_threads + calls);
    return 8;
}
