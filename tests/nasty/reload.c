/* Two libraries in turn at the same address: reload LIBRARY_A LIBRARY_B ROUNDS.
 * The hazard: a path that names the library that is there now, not the one that was there at the time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long use(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void (*run)(void) = (void (*)(void))dlsym(handle, "plug_run");
    run();
    unsigned long base = ((struct link_map *)handle)->l_addr;
    dlclose(handle);
    return base;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int same = 0, rounds = atoi(argv[3]);
    for (int i = 0; i < rounds; i++)
        same += use(argv[1]) == use(argv[2]);
    printf("%s\n", same == rounds ? "at the same address each time" : "at different addresses");
    return 0;
}
