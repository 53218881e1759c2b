/* Time in the kernel: reads COUNT reads of 64 KiB from /dev/zero. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char buffer[1 << 16];

__attribute__((noinline)) long read_all(int file, long count)
{
    long sum = 0;
    for (long i = 0; i < count; i++)
        sum += read(file, buffer, sizeof buffer);
    return sum;
}

int main(int argc, char **argv)
{
    int file = open("/dev/zero", O_RDONLY);
    printf("%ld\n", read_all(file, argc > 1 ? atol(argv[1]) : 1000));
    return 0;
}
