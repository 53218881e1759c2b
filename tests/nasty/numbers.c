/* Logs the context that it is in, by the number that callpath gives it: `callpath probe -m context -f 'known_*'`. It writes
 * `logged`: a line `PID NUMBER PATH` for each message, PATH the names from the outermost function to the innermost one that is
 * probed, `-` for none. There are threads, recursion, a thread that comes after another has ended, functions left by longjmp,
 * a handler on a stack of its own, a coroutine, and a fork's child. `numbers asked` says its context for each line of input. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "truth.h"

#define APART __attribute__((noinline, noclone))
#define NO_TAIL_CALL __asm__ volatile("")

__attribute__((weak)) unsigned long callpath_context(void)
{
    return 0;
}

static int logged;

/* The names down to the last one that is probed: `text` up to there. */
static void last_probed(char *text)
{
    char *end = NULL;
    for (char *name = text; name; name = strchr(name, ';')) {
        name += *name == ';';
        if (!strncmp(name, "known_", 6))
            end = name + strcspn(name, ";");
    }
    if (end)
        *end = 0;
    else
        strcpy(text, "-");
}

static size_t names(struct truth *from, struct truth *node, char *text)
{
    if (node == from)
        return 0;
    for (struct truth *caller = truth_all; caller < truth_all + truth_used; caller++)
        for (struct truth *callee = caller->callees; callee; callee = callee->next)
            if (callee == node) {
                size_t len = names(from, caller, text);
                return len + sprintf(text + len, "%s%s", len ? ";" : "", node->name);
            }
    abort();
}

APART void logs(void)
{
    unsigned long number = callpath_context();
    char path[4096], line[4200];
    names(truth_all, truth_here ? truth_here : truth_all, path);
    last_probed(path);
    int len = sprintf(line, "%d %lu %s\n", (int)getpid(), number, path);
    if (write(logged, line, len) != len)
        abort();
    NO_TAIL_CALL;
}

APART void known_leaf(void)
{
    ENTERED;
    logs();
    LEFT;
}

APART void plain(int n)
{
    ENTERED;
    logs();
    if (n > 0)
        known_leaf();
    logs();
    LEFT;
}

APART void known_down(int n)
{
    ENTERED;
    logs();
    if (n > 1)
        known_down(n - 1);
    plain(n);
    logs();
    LEFT;
}

static jmp_buf back;

APART void known_leaves(int n)
{
    ENTERED;
    logs();
    if (n > 0)
        known_leaves(n - 1);
    else
        longjmp(back, 1);
    LEFT;
}

APART void known_stays(void)
{
    ENTERED;
    if (!setjmp(back))
        known_leaves(3);
    truth_here = truth_callee(truth_caller, "known_stays");
    logs();
    known_leaf();
    logs();
    LEFT;
}

static void handler(int signal)
{
    ENTERED;
    logs();
    if (signal == SIGUSR1)
        known_leaf();
    logs();
    LEFT;
}

APART void known_raises(void)
{
    ENTERED;
    raise(SIGUSR1);
    raise(SIGUSR2);
    logs();
    LEFT;
}

static ucontext_t of_main, of_routine;

static void turn(ucontext_t *from, ucontext_t *to)
{
    struct truth *here = truth_here;
    swapcontext(from, to);
    truth_here = here;
}

APART void known_pauses(void)
{
    ENTERED;
    logs();
    turn(&of_routine, &of_main);
    logs();
    LEFT;
}

static void routine(void)
{
    truth_here = NULL;
    ENTERED;
    known_pauses();
    known_leaf();
    LEFT;
    turn(&of_routine, &of_main);
}

APART void known_resumes(void)
{
    ENTERED;
    turn(&of_main, &of_routine);
    logs();
    known_leaf();
    turn(&of_main, &of_routine);
    logs();
    LEFT;
}

APART void *beside(void *argument)
{
    ENTERED;
    logs();
    for (int i = 0; i < 20; i++) {
        known_down(3);
        known_leaf();
    }
    logs();
    LEFT;
    return argument;
}

APART unsigned long known_tells(void)
{
    unsigned long number = callpath_context();
    __asm__ volatile("" : "+r"(number));
    return number;
}

APART char *known_reads(char *line, int len)
{
    char *read = fgets(line, len, stdin);
    __asm__ volatile("" : "+r"(read));
    return read;
}

/* For each line of the input, the number of known_tells. */
static int asked(void)
{
    char line[64];
    printf("known_tells %p callpath_context %p\n", (void *)known_tells, (void *)callpath_context);
    fflush(stdout);
    while (known_reads(line, sizeof line)) {
        printf("%lu\n", known_tells());
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "asked"))
        return asked();
    truth_enter(__func__);
    logged = open("logged", O_WRONLY | O_CREAT | O_APPEND, 0666);
    logs();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, beside, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pthread_create(&threads[0], NULL, beside, NULL);
    for (int i = 0; i < 5; i++)
        known_down(5);
    plain(1);
    pthread_join(threads[0], NULL);
    known_stays();
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    known_raises();
    getcontext(&of_routine);
    of_routine.uc_stack = (stack_t){.ss_sp = malloc(1 << 18), .ss_size = 1 << 18};
    makecontext(&of_routine, routine, 0);
    known_resumes();
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        known_down(2);
        known_leaf();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    logs();
    puts(WIFEXITED(status) && !WEXITSTATUS(status) ? "all is logged" : "the child failed");
    return 0;
}
