/* A program whose entry point is a procedure in C, of which call frame information says that it has a caller. */
#include <stdint.h>
#include <unistd.h>

__attribute__((noinline)) uint64_t work(uint64_t steps)
{
    volatile uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
    return x;
}

__attribute__((force_align_arg_pointer)) void _start(void)
{
    work(300000000);
    _exit(write(1, "done\n", 5) == 5 ? 0 : 1);
}
