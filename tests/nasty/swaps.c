/* Two libraries in turn at the same address, whose procedures one call calls through a pointer: swaps LIBRARY_A LIBRARY_B ROUNDS.
 * The hazard: what has been remembered of a pointer's value, whose library has gone meanwhile. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    void *last = 0;
    int same = 0, calls = 2 * atoi(argv[3]);
    for (int i = 0; i < calls; i++) {
        void *handle = dlopen(argv[1 + i % 2], RTLD_NOW);
        if (!handle) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        void *run = dlsym(handle, "plug_run");
        ((void (*)(void))run)();
        same += run == last;
        last = run;
        dlclose(handle);
    }
    puts(same == calls - 1 ? "at the same address each time" : "at different addresses");
    return 0;
}
