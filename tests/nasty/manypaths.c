/* A procedure with 2^24 paths, and one with 2^20 through a loop's body: manypaths.c ROUNDS. It counts its own, and prints how many executions each path of
 * `chooses` had: "path BITS COUNT". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t sink;
static uint64_t state = 1;

static uint32_t chance(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

#define ONE(bit)                             \
    if (bits >> (bit) & 1)                   \
        __asm__ volatile("add $1, %0" : "+r"(sum) : : "cc"); \
    else                                     \
        __asm__ volatile("add $3, %0" : "+r"(sum) : : "cc");
#define FOUR(bit) ONE(bit) ONE(bit + 1) ONE(bit + 2) ONE(bit + 3)

__attribute__((noinline)) static uint64_t chooses(uint32_t bits, uint64_t sum) {
    FOUR(0) FOUR(4) FOUR(8) FOUR(12) FOUR(16) FOUR(20)
    return sum;
}

__attribute__((noinline)) static uint64_t loops(uint32_t rounds, uint64_t sum) {
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t bits = chance();
        FOUR(0) FOUR(4) FOUR(8) FOUR(12) FOUR(16)
    }
    return sum;
}

int main(int argc, char **argv) {
    uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 10000;
    static uint32_t counted[1 << 12];
    uint64_t sum = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        /* Of 4,096 paths. */
        uint32_t few = chance() & 0xfff;
        uint32_t bits = (few & 0x3f) | (few & 0xfc0) << 12;
        counted[few]++;
        sum = chooses(bits, sum);
    }
    sum = loops(rounds, sum);
    for (uint32_t few = 0; few < 1 << 12; few++)
        if (counted[few]) printf("path %u %u\n", few, counted[few]);
    sink = sum;
    return 0;
}
