/* Everything at once, drawn by a seed: soak SEED STEPS LIBRARY_A LIBRARY_B [SECONDS]. Threads, forks, executed programs,
 * libraries that come and go, recursion, jumps, signals, memory, ends of every kind. What it prints depends on the arguments. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char *self, *libraries[2];
static int is_child;

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

__attribute__((noinline)) static uint64_t work(uint64_t steps)
{
    volatile uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
    return x;
}

__attribute__((noinline)) static uint64_t deep(int depth)
{
    if (depth == 0)
        return work(200000);
    return deep(depth - 1) + 1;
}

static void *thread(void *seed)
{
    uint64_t state = (uint64_t)seed | 1;
    uint64_t sum = work(draw(&state) % 1000000);
    switch (draw(&state) % 6) {
    case 0:
        sum += deep(draw(&state) % 500);
        break;
    case 1:
        usleep(draw(&state) % 2000);
        break;
    case 2: {
        pid_t child = fork();
        if (child == 0) {
            work(300000);
            _exit(3);
        }
        int status;
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
        break;
    }
    case 3:
        pthread_exit((void *)(sum & 0xffff));
    case 4: {
        char *text = 0;
        for (int i = 0; i < 200; i++) {
            free(text);
            text = malloc(1 + draw(&state) % 100000);
            text[0] = (char)i;
        }
        sum += text[0];
        free(text);
        break;
    }
    }
    return (void *)(sum & 0xffff);
}

static void *waits_for_ever(void *unused)
{
    for (;;)
        sleep(1000);
    return unused;
}

static uint64_t threads(uint64_t *state)
{
    pthread_t ids[24];
    int count = 1 + draw(state) % 24;
    uint64_t sum = 0;
    for (int i = 0; i < count; i++)
        if (pthread_create(&ids[i], 0, thread, (void *)draw(state)))
            exit(90);
    for (int i = 0; i < count; i++) {
        void *result;
        pthread_join(ids[i], &result);
        sum += (uintptr_t)result;
    }
    return sum;
}

static uint64_t cancelled(void)
{
    pthread_t id;
    void *result;
    if (pthread_create(&id, 0, waits_for_ever, 0))
        exit(91);
    work(50000);
    pthread_cancel(id);
    pthread_join(id, &result);
    return result == PTHREAD_CANCELED;
}

static uint64_t library(uint64_t *state)
{
    int which = draw(state) % 2;
    void *handle = dlopen(libraries[which], RTLD_NOW);
    if (!handle)
        exit(92);
    void (*procedure)(void) = (void (*)(void))dlsym(handle, which ? "b_work" : "a_work");
    if (!procedure)
        exit(93);
    procedure();
    dlclose(handle);
    return which;
}

static uint64_t ended(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(94);
    return (uint64_t)status;
}

static uint64_t steps(uint64_t *state, int count);

static uint64_t forks(uint64_t *state)
{
    uint64_t seed = draw(state) | 1;
    if (is_child)
        return 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        uint64_t sum = steps(&seed, 2);
        if (seed % 7 == 0)
            abort();
        if (seed % 7 == 1)
            raise(SIGKILL);
        _exit(sum & 0x7f);
    }
    return ended(child);
}

static uint64_t executes(uint64_t *state)
{
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)(draw(state) | 1));
    char *again[] = {self, seed, "0", libraries[0], libraries[1], 0};
    char *nothing[] = {"true", 0};
    pid_t child;
    fflush(stdout);
    switch (draw(state) % 3) {
    case 0:
        if (posix_spawn(&child, self, 0, 0, again, environ))
            exit(95);
        return ended(child);
    case 1:
        child = vfork();
        if (child == 0) {
            execvp("true", nothing);
            _exit(96);
        }
        return ended(child);
    default:
        child = fork();
        if (child == 0) {
            execv("/no/such/program", nothing);
            execv(self, again);
            _exit(97);
        }
        return ended(child);
    }
}

static volatile sig_atomic_t handled;
static void handle(int signal)
{
    (void)signal;
    work(20000);
    handled++;
}

static uint64_t signals(uint64_t *state)
{
    struct sigaction action = {.sa_handler = handle};
    int before = handled;
    action.sa_flags = draw(state) % 2 ? SA_RESTART : SA_NODEFER;
    sigaction(SIGUSR1, &action, 0);
    sigset_t set, old;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    work(100000);
    sigprocmask(SIG_SETMASK, &old, 0);
    raise(SIGUSR1);
    return (uint64_t)(handled - before);
}

static jmp_buf back;
__attribute__((noinline)) static void falls(int depth)
{
    if (depth == 0) {
        work(10000);
        longjmp(back, 1);
    }
    falls(depth - 1);
    __asm__ volatile("");
}

static uint64_t jumps(uint64_t *state)
{
    volatile int times = 0;
    volatile int depth = draw(state) % 200;
    if (setjmp(back))
        times++;
    if (times < 20)
        falls(depth);
    return (uint64_t)times;
}

static uint64_t memory(uint64_t *state)
{
    size_t length = (1 + draw(state) % 64) << 16;
    char *at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        exit(98);
    memset(at, 7, length);
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i += 4096)
        sum += at[i];
    munmap(at, length);
    return sum;
}

static uint64_t waits(uint64_t *state)
{
    struct timespec time = {0, draw(state) % 3000000};
    uint64_t failed = 0;
    for (int i = 0; i < 3; i++)
        failed += nanosleep(&time, 0) != 0;
    return failed + (uint64_t)poll(0, 0, 2);
}

static uint64_t steps(uint64_t *state, int count)
{
    uint64_t sum = 0;
    while (count--) {
        switch (draw(state) % 11) {
        case 0:
        case 1: sum += threads(state); break;
        case 2: sum += forks(state); break;
        case 3: sum += executes(state); break;
        case 4:
        case 5: sum += library(state); break;
        case 6: sum += deep(draw(state) % 3000); break;
        case 7: sum += signals(state); break;
        case 8: sum += jumps(state); break;
        case 9: sum += memory(state) + cancelled(); break;
        case 10: sum += waits(state); break;
        }
        sum += work(draw(state) % 2000000);
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    self = argv[0];
    libraries[0] = argv[3];
    libraries[1] = argv[4];
    /* Small seeds shall differ in more than their last bits. */
    uint64_t state = (strtoull(argv[1], 0, 10) + 1) * 0x9e3779b97f4a7c15u | 1;
    /* For so many seconds instead: how much is done then is not told. */
    if (argc > 5) {
        for (time_t end = time(0) + atoi(argv[5]); time(0) < end;)
            steps(&state, 1);
        return 0;
    }
    printf("%llu\n", (unsigned long long)steps(&state, atoi(argv[2])));
    fflush(stdout);
    switch (draw(&state) % 8) {
    case 0: _exit(3);
    case 1: abort();
    case 2: raise(SIGTERM); break;
    case 3: quick_exit(4);
    case 4: pthread_exit(0);
    case 5: raise(SIGKILL); break;
    }
    return (int)(state % 100);
}
