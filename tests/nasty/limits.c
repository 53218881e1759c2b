/* Limits and what lies beyond them: limits MODE.
 *   space        limits its address space to little more than it needs, allocates, makes a thread, forks, executes itself
 *   data         the same with its private memory
 *   memory       takes memory until there is none, works on without any, gives it back
 *   descriptors  allows itself no further descriptor, then works
 *   files        writes a file longer than it allows itself
 *   stack        16,000 frames of 64 KiB on a stack of 1 GiB
 *   at-once      500 threads at once
 *   in-turn N    N threads, one after the other */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

volatile uint64_t sink;

__attribute__((noinline)) void work(long steps)
{
    for (long i = 0; i < steps; i++)
        sink = sink * 6364136223846793005u + 1;
    __asm__ volatile("");
}

static void *works(void *steps)
{
    work((long)steps);
    return 0;
}

static void limit(int resource, rlim_t soft)
{
    struct rlimit limit;
    getrlimit(resource, &limit);
    limit.rlim_cur = soft;
    if (setrlimit(resource, &limit))
        perror("setrlimit");
}

/* RLIMIT_AS or RLIMIT_DATA. */
static int limited = RLIMIT_AS;

static void say_space(const char *who)
{
    struct rlimit one, two;
    getrlimit(limited, &one);
    prlimit(0, limited, 0, &two);
    void *memory = malloc(32 << 20);
    printf("%s: %llu %llu, %s\n", who, (unsigned long long)one.rlim_cur, (unsigned long long)two.rlim_cur,
           memory ? "room" : "no room");
    fflush(stdout);
    free(memory);
}

static int space(char *self)
{
    limit(limited, 64 << 20);
    say_space("parent");
    pthread_t id;
    printf("thread: %d\n", pthread_create(&id, 0, works, (void *)20000000));
    fflush(stdout);
    pthread_join(id, 0);
    int status;
    pid_t child = fork();
    if (child == 0) {
        say_space("child");
        execl(self, self, limited == RLIMIT_AS ? "space-again" : "data-again", (char *)0);
        _exit(9);
    }
    waitpid(child, &status, 0);
    printf("ended with %d\n", status);
    /* As a program does that wants all it may have. */
    struct rlimit all;
    getrlimit(limited, &all);
    all.rlim_cur = all.rlim_max;
    printf("raised: %d\n", setrlimit(limited, &all));
    work(20000000);
    return 0;
}

static int memory(void)
{
    enum { MOST = 600, PIECE = 1 << 20 };
    static void *pieces[MOST];
    int count = 0;
    limit(RLIMIT_AS, 512 << 20);
    while (count < MOST && (pieces[count] = malloc(PIECE)))
        memset(pieces[count++], 1, 4096);
    while (malloc(4096))
        ;
    while (malloc(16))
        ;
    work(60000000);
    printf("%s\n", count > 480 && count < MOST ? "all of it" : "too little");
    while (count)
        free(pieces[--count]);
    return 0;
}

static int descriptors(void)
{
    limit(RLIMIT_NOFILE, 3);
    errno = 0;
    int opened = open("/dev/null", O_RDONLY);
    printf("open: %d, %s\n", opened, strerror(errno));
    pthread_t id;
    printf("thread: %d\n", pthread_create(&id, 0, works, (void *)40000000));
    pthread_join(id, 0);
    work(20000000);
    return 0;
}

static int files(void)
{
    signal(SIGXFSZ, SIG_IGN);
    limit(RLIMIT_FSIZE, 4096);
    char name[] = "limits-XXXXXX", page[4096] = {0};
    int file = mkstemp(name);
    unlink(name);
    long first = write(file, page, sizeof page), second = write(file, page, sizeof page);
    printf("%ld, then %ld: %s\n", first, second, strerror(errno));
    work(60000000);
    return 0;
}

__attribute__((noinline)) static int frame(int depth)
{
    volatile char room[65400];
    room[0] = (char)depth;
    if (depth == 0)
        work(100000000);
    else
        room[1] = (char)frame(depth - 1);
    return room[0] + room[1];
}

static void *deep(void *unused)
{
    frame(16000);
    return unused;
}

static int stack(void)
{
    pthread_attr_t attributes;
    pthread_t id;
    pthread_attr_init(&attributes);
    int set = pthread_attr_setstacksize(&attributes, (size_t)1 << 30);
    printf("%d %d\n", set, pthread_create(&id, &attributes, deep, 0));
    pthread_join(id, 0);
    return 0;
}

static pthread_barrier_t barrier;

static void *meets(void *unused)
{
    /* Several times what it takes to meet. */
    work(1600000);
    pthread_barrier_wait(&barrier);
    work(1600000);
    return unused;
}

static int at_once(void)
{
    enum { COUNT = 500 };
    static pthread_t ids[COUNT];
    pthread_barrier_init(&barrier, 0, COUNT);
    for (int i = 0; i < COUNT; i++)
        if (pthread_create(&ids[i], 0, meets, 0))
            return 1;
    for (int i = 0; i < COUNT; i++)
        pthread_join(ids[i], 0);
    puts("500 met");
    return 0;
}

static int in_turn(int count)
{
    pthread_t id;
    for (int i = 0; i < count; i++)
        if (pthread_create(&id, 0, works, (void *)1000) || pthread_join(id, 0))
            return 1;
    printf("%d threads\n", count);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strncmp(mode, "data", 4))
        limited = RLIMIT_DATA;
    if (!strcmp(mode, "space") || !strcmp(mode, "data"))
        return space(argv[0]);
    if (!strcmp(mode, "space-again") || !strcmp(mode, "data-again")) {
        say_space("executed");
        work(20000000);
        return 0;
    }
    if (!strcmp(mode, "memory"))
        return memory();
    if (!strcmp(mode, "descriptors"))
        return descriptors();
    if (!strcmp(mode, "files"))
        return files();
    if (!strcmp(mode, "stack"))
        return stack();
    if (!strcmp(mode, "at-once"))
        return at_once();
    if (!strcmp(mode, "in-turn") && argc > 2)
        return in_turn(atoi(argv[2]));
    return 2;
}
