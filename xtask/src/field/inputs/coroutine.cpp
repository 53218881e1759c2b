// A tree walked by coroutines that each walk a part of it.
#include <boost/coroutine2/all.hpp>
#include <cstdio>
#include <cstdlib>

using Coroutine = boost::coroutines2::coroutine<unsigned long>;

__attribute__((noinline)) static unsigned long weigh(unsigned long number)
{
    for (int i = 0; i < 100; i++)
        number = (number << 5 | number >> 59) ^ (number * 31 + i);
    return number;
}

static void walk(Coroutine::push_type &to, unsigned long from, unsigned long end)
{
    if (end - from < 16) {
        for (; from < end; from++)
            to(weigh(from));
        return;
    }
    unsigned long middle = from + (end - from) / 2;
    Coroutine::pull_type left([&](Coroutine::push_type &inner) { walk(inner, from, middle); });
    for (unsigned long number : left)
        to(number);
    walk(to, middle, end);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    unsigned long sum = 0;
    for (int round = 0; round < rounds; round++) {
        Coroutine::pull_type numbers([&](Coroutine::push_type &to) { walk(to, 0, 4096); });
        for (unsigned long number : numbers)
            sum += number;
    }
    printf("%lu\n", sum);
}
