/* Loads a library of closed_library.c and calls it: closed LIBRARY. The executable does not move, and is as long as the library. */
#include <dlfcn.h>
#include <stdio.h>

const char filler[1 << 20] = {1};

int main(int argc, char **argv)
{
    void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
    int (*sum_of)(int) = library ? (int (*)(int))dlsym(library, "sum_of") : 0;
    if (!sum_of)
        return puts(dlerror()), 1;
    printf("%d\n", sum_of(1000) + filler[0]);
    return 0;
}
