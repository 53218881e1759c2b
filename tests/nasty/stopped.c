/* A recorder that gets no processor: stopped LIBRARY MILLISECONDS.
 * The program stops its recorder, its parent, works for so long in a library that nothing is known of yet, and lets it go on. Then it
 * works in its own code. The hazard: samples that there is no room for, whose time later samples get. Says how long both
 * took, ns of CPU time. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

typedef void Run(void);

__attribute__((noinline)) static void unknown(Run *run, long ns)
{
    for (long end = cpu_ns() + ns; cpu_ns() < end;)
        run();
}

__attribute__((noinline)) static void later(long ns)
{
    for (long end = cpu_ns() + ns; cpu_ns() < end;)
        for (volatile int i = 0; i < 2000; i++)
            ;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long ns = atol(argv[2]) * 1000000;
    void *library = dlopen(argv[1], RTLD_NOW);
    Run *run = library ? (Run *)dlsym(library, "plug_run") : 0;
    if (!run)
        return 1;
    pid_t recorder = getppid();
    kill(recorder, SIGSTOP);
    long begin = cpu_ns();
    unknown(run, ns);
    long middle = cpu_ns();
    kill(recorder, SIGCONT);
    later(ns / 4);
    printf("%ld %ld\n", middle - begin, cpu_ns() - middle);
    return 0;
}
