/* A library asks for the definition behind its own, by a procedure of the program that jumps to dlsym: who asks is known by
 * where dlsym returns to, which is where that procedure does, in the library. Every other time the jump is through a pointer.
 * Some frames deep, all the time. The answer is that there is none. With `through` the library has no other trace of dlsym than a
 * pointer that the program gives it, and jumps there itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

typedef void *Asks(int steps);
typedef void *Finds(void *, const char *);
int down(int depth, Asks *asks);
extern Finds *finds;
void *asks_through(int steps);

static volatile uint64_t sink;

__attribute__((noinline)) static void burn(int steps)
{
    for (int i = 0; i < steps; i++)
        sink = sink * 3 + 1;
}

#ifdef LIBRARY

Finds *finds;

__attribute__((optimize("optimize-sibling-calls"))) void *asks_through(int steps)
{
    burn(steps);
    return finds(RTLD_NEXT, "known_here");
}

void *known_here(int steps)
{
    (void)steps;
    return 0;
}

int down(int depth, Asks *asks)
{
    if (depth == 0) {
        int found = 0;
        for (int i = 0; i < 300; i++)
            found += asks(20 + i * 10) != 0;
        return found;
    }
    return down(depth - 1, asks) + 0 * depth;
}

#else

__attribute__((optimize("optimize-sibling-calls"))) static void *asks(int steps)
{
    burn(steps);
    return dlsym(RTLD_NEXT, "known_here");
}

static void *(*volatile whom)(void *, const char *) = dlsym;

__attribute__((optimize("optimize-sibling-calls"))) static void *asks_somebody(int steps)
{
    burn(steps);
    return whom(RTLD_NEXT, "known_here");
}

int main(int argc, char **argv)
{
    (void)argv;
    int found = 0;
    finds = dlsym;
    for (int i = 0; argc > 1 && i < 200; i++)
        found += down(300, asks_through);
    for (int i = 0; argc == 1 && i < 200; i++)
        found += down(300, i % 2 ? asks : asks_somebody);
    printf("%d found\n", found);
}

#endif
