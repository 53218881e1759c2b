/* A library that calls its loader back as soon as it is there: calls_back LIBRARY...; -DLIBRARY: the library. The hazard:
 * its code is in no load map yet, and what is called from it then stands on a path that ends there, for good. */
#ifdef LIBRARY

#define APART __attribute__((noinline, noipa))

static APART int inside(int (*back)(int), int n)
{
    return back(n) + back(n + 1);
}

APART int enters(int (*back)(int), int n)
{
    return inside(back, n) + 1;
}

#else
#include <dlfcn.h>
#include <stdio.h>

#define APART __attribute__((noinline, noipa))

APART int leaf(int n)
{
    return n & 3;
}

APART int back(int n)
{
    return leaf(n) + leaf(n + 1);
}

APART int loads(const char *name)
{
    void *library = dlopen(name, RTLD_NOW);
    int (*enters)(int (*)(int), int) = library ? dlsym(library, "enters") : 0;
    if (!enters) {
        puts(dlerror());
        return -1;
    }
    int sum = 0;
    for (int n = 0; n < 5; n++)
        sum += enters(back, n);
    return sum;
}

int main(int argc, char **argv)
{
    int sum = 0;
    for (int i = 1; i < argc; i++)
        sum += loads(argv[i]);
    printf("%d\n", sum);
    return 3;
}
#endif
