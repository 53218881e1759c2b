// Work in a handler of exceptions, which compilers put into a part of the procedure that nothing jumps to; and calls through
// procedures chosen at run time, which retpolines make returns of.
#include <cstdio>

static volatile unsigned long sink;

__attribute__((noipa)) static void work(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        sink = sink + i;
}

__attribute__((noipa)) static void other_work(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        sink = sink ^ i;
}

__attribute__((noipa)) static void thrower(int number)
{
    if (number >= 0)
        throw number;
}

__attribute__((noipa)) static void handles(int number)
{
    try {
        thrower(number);
    } catch (int caught) {
        work(300000 + static_cast<unsigned long>(caught));
    }
}

extern "C" __attribute__((noipa)) void chooses(void (*const *what)(unsigned long), unsigned long count)
{
    what[count & 1](300000);
    sink = sink + 1;
}

int main()
{
    static void (*const both[])(unsigned long) = {work, other_work};
    for (int i = 0; i < 400; i++) {
        handles(i);
        chooses(both, static_cast<unsigned long>(i));
    }
    std::puts("done");
}
