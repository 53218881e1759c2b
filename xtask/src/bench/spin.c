/* A fixed amount of arithmetic, three frames deep: about two seconds. */
#include <stdint.h>
#include <stdio.h>

__attribute__((noinline)) static uint64_t turn(uint64_t x, uint64_t steps)
{
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

int main(void)
{
    uint64_t x = 1;
    for (int i = 0; i < 2000; i++)
        x ^= turn(x, 750000);
    printf("%llu\n", (unsigned long long)x);
    return 0;
}
