/* A library to load and unload: -DNAME=a_work, -DPADDING=n moves its procedure. Both have the same size in pages. */
#include <stdint.h>

volatile uint64_t plug_sink;

#if PADDING
__attribute__((noinline)) void padding(void)
{
    __asm__ volatile(".fill 600, 1, 0x90");
    plug_sink++;
}
#endif

__attribute__((noinline)) void NAME(void)
{
    for (long i = 0; i < 6000000; i++)
        plug_sink = plug_sink * 6364136223846793005u + 1;
    __asm__ volatile("");
}

void plug_run(void)
{
    NAME();
    __asm__ volatile("");
}
