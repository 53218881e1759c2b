/* Two threads that add to one number without a lock, for ThreadSanitizer to report: races. main -> starts -> pthread_create */
#include <pthread.h>
#include <stdio.h>

long shared;

static void *adds(void *argument)
{
    for (int i = 0; i < 2000000; i++)
        shared++;
    return argument;
}

__attribute__((noinline)) static void starts(pthread_t *thread)
{
    pthread_create(thread, NULL, adds, NULL);
}

int main(void)
{
    pthread_t thread;
    starts(&thread);
    adds(NULL);
    pthread_join(thread, NULL);
    puts("raced");
    return 0;
}
