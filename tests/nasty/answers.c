/* Loads a library that calls back at once: answers LIBRARY
 * Probes must give the calls of `answers` their paths through the library, which nothing but the map of the memory tells of. */
#include <dlfcn.h>
#include <stdio.h>

static long answered;

__attribute__((noinline)) int answers(int n)
{
    answered++;
    return n + 1;
}

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*asks)(int (*)(int)) = library ? (int (*)(int (*)(int)))dlsym(library, "asks") : NULL;
    if (!asks) {
        puts(dlerror());
        return 1;
    }
    int sum = asks(answers);
    sum += asks(answers);
    printf("%d of %ld\n", sum, answered);
    return 6;
}
