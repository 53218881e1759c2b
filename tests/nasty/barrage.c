/* A storm of signals over functions that call: a timer of 1 kHz and a thread that queues another signal. The handlers
 * call, too. How often each function was called is counted in plain variables, and written to `truth`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile unsigned long leaves, works, downs, caughts, queueds, insides;
static volatile int over;
static pthread_t target;

void leaf(void)
{
    leaves++;
}

void down(int n)
{
    downs++;
    if (n)
        down(n - 1);
    else
        leaf();
}

void work(long n)
{
    works++;
    leaf();
    down(n % 9);
}

void inside(int n)
{
    /* A handler that this one interrupts may be here, too. */
    __atomic_fetch_add(&insides, 1, __ATOMIC_RELAXED);
    if (n)
        inside(n - 1);
}

void caught(int number)
{
    (void)number;
    caughts++;
    inside(caughts % 5);
}

void queued(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    queueds++;
    inside(info->si_value.sival_int % 3);
}

static void *queues(void *argument)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (int n = 0; !over; n++) {
        pthread_sigqueue(target, SIGRTMIN, (union sigval){.sival_int = n});
        usleep(50);
    }
    return argument;
}

int main(void)
{
    struct sigaction act = {.sa_handler = caught, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &act, NULL);
    struct sigaction with_info = {.sa_sigaction = queued, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigaction(SIGRTMIN, &with_info, NULL);
    target = pthread_self();
    pthread_t thread;
    pthread_create(&thread, NULL, queues, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (long n = 0; caughts < 400 || queueds < 4000; n++)
        work(n);
    over = 1;
    pthread_join(thread, NULL);
    struct itimerval never = {0};
    setitimer(ITIMER_REAL, &never, NULL);
    FILE *truth = fopen("truth", "w");
    fprintf(truth, "process %d\ncalls %lu leaf\ncalls %lu work\ncalls %lu down\n", (int)getpid(), leaves, works, downs);
    fprintf(truth, "calls %lu caught\ncalls %lu queued\ncalls %lu inside\n", caughts, queueds, insides);
    fclose(truth);
    puts("weathered");
    return 8;
}
