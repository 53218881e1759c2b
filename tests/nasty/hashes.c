/* A procedure that tells its callers apart by some bits of its own return address, as hashes of call sites do, below 600 frames:
 * hashes. Each way to read it is an instruction of its own: 32 bits by xor, 16 bits, all bits into a checksum. It prints how many
 * calls from one place found another address than the first. */
#include <stdint.h>
#include <stdio.h>

#define HERE ((uintptr_t)__builtin_return_address(0))
#define APART __attribute__((noinline, noclone))

static volatile int sink;

APART static void work(int rounds)
{
    for (int i = 0; i < rounds; i++)
        sink += i;
}

APART static uint32_t by_word(uint32_t seed)
{
    work(500);
    return seed ^ (uint32_t)HERE;
}

APART static uint32_t by_half(uint32_t seed)
{
    work(500);
    return seed + (uint16_t)HERE;
}

__attribute__((noinline, noclone, target("sse4.2"))) static uint32_t by_sum(uint32_t seed)
{
    work(500);
    return (uint32_t)__builtin_ia32_crc32di(seed, HERE);
}

APART static long ask(int calls)
{
    int has_checksum = __builtin_cpu_supports("sse4.2");
    uint32_t first[3] = {0};
    long others = 0;
    for (int i = 0; i < calls; i++) {
        uint32_t now[3] = {by_word(1), by_half(1), has_checksum ? by_sum(1) : 0};
        for (int way = 0; way < 3; way++) {
            if (i == 0)
                first[way] = now[way];
            others += now[way] != first[way];
        }
    }
    return others;
}

APART static long below(int frames)
{
    long found = frames > 0 ? below(frames - 1) : ask(200000);
    sink++;
    return found;
}

int main(void)
{
    printf("%ld other addresses\n", below(600));
}
