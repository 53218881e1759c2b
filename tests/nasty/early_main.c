/* Threads made before main, by a library's constructor. The hazard: a thread that nobody measures. */
#include <stdint.h>
#include <stdio.h>

void early_end(void);
volatile uint64_t sink;

__attribute__((noinline)) void main_work(void)
{
    for (long i = 0; i < 300000000; i++)
        sink = sink * 6364136223846793005u + 1;
}

int main(void)
{
    main_work();
    early_end();
    puts("done");
    return 0;
}
