/* Paths that differ from context to context, counted by the program itself: flows HOW
 *   plain    from several callers, by recursion, by pointers; out of loops
 *   jumps    longjmp out of several procedures, into one that goes on
 *   signals  handlers that raise() calls, one handler of which is interrupted by the other
 *   fork     a child and its child, which count their own
 *   threads  8 at once
 *   brief    200, one after another and up to 10 at a time
 *   killed   by SIGKILL, in the middle of work
 * It says how often choose took each way below each caller: `CALLER WAY COUNT`. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLAIN __attribute__((noinline, noclone))

static volatile unsigned long sink;

/* How often choose was called by each caller with each number below 4. */
enum caller { BY_EVEN, BY_ODD, BY_DEEP, BY_HANDLER, BY_THREAD, CALLERS };
static const char *const names[CALLERS] = {"evens", "odds", "deep", "handler", "works"};
static unsigned long truth[CALLERS][4];

PLAIN long choose(unsigned long n, enum caller caller)
{
    __atomic_fetch_add(&truth[caller][n % 4], 1, __ATOMIC_RELAXED);
    if (n % 4 == 0) {
        sink += 1;
        return 1;
    }
    if (n % 4 == 1) {
        sink += 2;
        return 3;
    }
    if (n % 4 == 2)
        sink += 3;
    else
        sink += 4;
    return 5;
}

/* One way of choose and the other, never both. */
PLAIN void evens(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        choose(i * 2, BY_EVEN);
}

PLAIN void odds(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        choose(i * 4 + 1, BY_ODD);
}

PLAIN void deep(int depth)
{
    if (depth)
        deep(depth - 1);
    choose(depth, BY_DEEP);
    sink++;
}

PLAIN void by_pointer(void (*f)(unsigned long), unsigned long n)
{
    f(n);
}

static jmp_buf back;

PLAIN void jumper(int n)
{
    if (n % 3 == 0)
        longjmp(back, 1);
    sink++;
}

PLAIN void passes(int n)
{
    evens(1);
    jumper(n);
    sink += n;
}

PLAIN void lands(int n)
{
    if (!setjmp(back))
        passes(n);
    else
        sink += 7;
}

PLAIN void handler(int number)
{
    choose(number == SIGUSR1, BY_HANDLER);
    if (number == SIGUSR1)
        raise(SIGUSR2);
    sink++;
}

PLAIN void *works(void *argument)
{
    unsigned long rounds = (unsigned long)argument;
    for (unsigned long i = 0; i < rounds; i++)
        choose(i, BY_THREAD);
    evens(rounds % 5);
    return NULL;
}

PLAIN void threads(int count, int at_once, unsigned long rounds)
{
    static pthread_t all[200];
    for (int i = 0; i < count; i++) {
        if (i >= at_once)
            pthread_join(all[i - at_once], NULL);
        pthread_create(&all[i], NULL, works, (void *)(rounds + i));
    }
    for (int i = count - at_once; i < count; i++)
        pthread_join(all[i], NULL);
}

static void say(void)
{
    for (int caller = 0; caller < CALLERS; caller++)
        for (int way = 0; way < 4; way++)
            if (truth[caller][way])
                printf("%s %d %lu\n", names[caller], way, truth[caller][way]);
    fflush(stdout);
}

/* Says and counts what it does itself. */
PLAIN int child(int generation)
{
    memset(truth, 0, sizeof truth);
    odds(10 + generation);
    evens(20);
    int status = 0;
    if (generation < 2) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(generation + 1));
        waitpid(pid, &status, 0);
    }
    printf("generation %d, %x\n", generation, status);
    say();
    return 10 + generation;
}

PLAIN void forks(void)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(child(1));
    waitpid(pid, &status, 0);
    odds(5);
    printf("child ended by %x\n", status);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    evens(1000);
    odds(300);
    if (!strcmp(how, "plain")) {
        by_pointer(evens, 7);
        by_pointer(odds, 8);
        for (int i = 0; i < 10; i++)
            deep(20);
        deep(300);
    } else if (!strcmp(how, "jumps")) {
        for (int i = 0; i < 300; i++)
            lands(i);
    } else if (!strcmp(how, "signals")) {
        signal(SIGUSR1, handler);
        signal(SIGUSR2, handler);
        for (int i = 0; i < 100; i++)
            raise(i % 2 ? SIGUSR1 : SIGUSR2);
    } else if (!strcmp(how, "fork"))
        forks();
    else if (!strcmp(how, "threads"))
        threads(8, 8, 10000);
    else if (!strcmp(how, "brief"))
        threads(200, 10, 20);
    say();
    if (!strcmp(how, "killed"))
        kill(getpid(), SIGKILL);
    return 6;
}
