/* Loads a library, calls it and unloads it, many times: plugs_in LIBRARY LONG SHORT [probed]
 *   LONG   times it stays; `probed`: before it is called, until there is a jump at the beginning of its functions
 *   SHORT  times after that, it is unloaded at once
 * The file `truth` has the calls of `plugged` (only while it stays) and `briefly` (only otherwise). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long plugged_calls, briefly_calls;

static void *is_there(void *library, const char *name)
{
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        puts(dlerror());
        exit(1);
    }
    return function;
}

static void use(void *library)
{
    void (*plugged)(unsigned long *) = is_there(library, "plugged");
    void (*deep)(unsigned long *, int) = is_there(library, "plugged_deep");
    for (int n = 0; n < 1000; n++) {
        plugged(&plugged_calls);
        deep(&plugged_calls, n % 10);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int is_probed = argc > 4;
    for (int i = atoi(argv[2]); i > 0; i--) {
        void *library = dlopen(argv[1], RTLD_NOW);
        unsigned char *first = is_there(library, "plugged"), *last = is_there(library, "plugged_deep");
        /* A minute at most. */
        for (int looks = 0; is_probed && (*(volatile unsigned char *)first != 0xe9 || *(volatile unsigned char *)last != 0xe9); looks++) {
            if (looks == 60000) {
                puts("it is never probed");
                return 1;
            }
            usleep(1000);
        }
        use(library);
        dlclose(library);
    }
    for (int i = atoi(argv[3]); i > 0; i--) {
        void *library = dlopen(argv[1], RTLD_NOW);
        void (*briefly)(unsigned long *) = is_there(library, "briefly");
        for (int n = 0; n < 1000; n++)
            briefly(&briefly_calls);
        usleep(i % 10 * 1000);
        for (int n = 0; n < 1000; n++)
            briefly(&briefly_calls);
        dlclose(library);
    }
    FILE *truth = fopen("truth", "w");
    fprintf(truth, "process %d\ncalls %lu plugged\ncalls %lu briefly\n", (int)getpid(), plugged_calls, briefly_calls);
    fclose(truth);
    printf("%lu %lu\n", plugged_calls, briefly_calls);
    return 0;
}
