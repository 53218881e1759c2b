/* A dynamically linked program without a C library: without_libc. It works, and ends with 6. */
volatile unsigned long sink;

static long call(long number, long argument)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(argument) : "rcx", "r11", "memory");
    return result;
}

void _start(void)
{
    for (unsigned long i = 0; i < 50000000; i++)
        sink += i;
    call(231, 6);
    __builtin_unreachable();
}
