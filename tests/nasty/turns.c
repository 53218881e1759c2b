/* Deep stacks that differ in their outermost frames only: turns DEPTH ROUNDS. By turns `first` and `second` go DEPTH frames
 * down the same code and work there, in a procedure of their own. The hazard: what is known of one's stack is taken for the
 * other's: the words in between are the same. The last turn of each lasts as long as 40 others: there is time to walk its
 * stack whole, however slow the machine is. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t work(uint64_t);

static long times = 3000000;

static uint64_t steps(uint64_t x)
{
    for (long i = 0; i < times; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

__attribute__((noinline)) uint64_t work_of_first(uint64_t x)
{
    return steps(x) ^ 1;
}

__attribute__((noinline)) uint64_t work_of_second(uint64_t x)
{
    return steps(x) ^ 2;
}

__attribute__((noinline)) uint64_t descend(uint64_t x, long depth, work *bottom)
{
    return (depth > 1 ? descend(x + 1, depth - 1, bottom) : bottom(x)) ^ depth;
}

__attribute__((noinline)) uint64_t first(uint64_t x, long depth)
{
    return descend(x, depth, work_of_first) + 1;
}

__attribute__((noinline)) uint64_t second(uint64_t x, long depth)
{
    return descend(x, depth, work_of_second) + 1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t sum = 0;
    int rounds = atoi(argv[2]);
    for (int i = 0; i < rounds; i++) {
        times *= i == rounds - 2 ? 40 : 1;
        sum += i % 2 ? first(sum, atol(argv[1])) : second(sum, atol(argv[1]));
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
