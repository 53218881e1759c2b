/* Where contexts are hard to find: a recursion 1,000,000 calls deep, 10,000 threads, frames of unknown size, a stack that begins with an
 * address which is none, and calls through pointers of which one asks for its caller. Each function counts its own calls. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PLAIN __attribute__((noinline, noclone))
#define COUNTED(name) __atomic_fetch_add(&count_of_##name, 1, __ATOMIC_RELAXED)

static unsigned long count_of_leaf, count_of_deep, count_of_wide, count_of_own_stack, count_of_brief, count_of_points;

PLAIN long leaf(long n)
{
    COUNTED(leaf);
    __asm__ volatile("" : "+r"(n));
    return n + 1;
}

PLAIN long deep(long n)
{
    COUNTED(deep);
    long r = n ? deep(n - 1) : leaf(n);
    __asm__ volatile("" : "+r"(r));
    return r + 1;
}

PLAIN long wide(long n)
{
    COUNTED(wide);
    char *room = alloca(n * 40 + 1);
    memset(room, (int)n, n * 40 + 1);
    long r = leaf(room[n]);
    __asm__ volatile("" : "+r"(r));
    return r + leaf(room[0]);
}

static void *deep_thread(void *words)
{
    return (void *)deep((long)words);
}

PLAIN void *brief(void *words)
{
    COUNTED(brief);
    return (void *)leaf((long)words);
}

static void *interrupted_rsp;

PLAIN void own_stack(void)
{
    COUNTED(own_stack);
    for (long i = 0; i < 10; i++)
        leaf(i);
    /* Nobody returns to what lies at the end of this stack. */
    __asm__ volatile("mov %0, %%rsp\n\tpop %%r15\n\tpop %%r14\n\tpop %%r13\n\tpop %%r12\n\tpop %%rbx\n\tpop %%rbp\n\tret" : : "r"(interrupted_rsp));
    __builtin_unreachable();
}

/* Goes on on another stack, above which there is a word that is no address, and comes back from there. */
void on_another_stack(void *top, void **kept, void (*goes_on)(void));
__asm__(".text\n"
        ".type on_another_stack,@function\n"
        "on_another_stack:\n\t.cfi_startproc\n\t"
        "push %rbp\n\tpush %rbx\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n\t"
        "mov %rsp, (%rsi)\n\tmov %rdi, %rsp\n\tjmp *%rdx\n\t.cfi_endproc\n"
        ".size on_another_stack, . - on_another_stack\n");

/* What is called through a pointer may be dlsym, which asks where it is called from. */
static void *(*volatile finds)(void *, const char *) = dlsym;
static long (*volatile leads)(long) = leaf;

PLAIN long points(long n)
{
    COUNTED(points);
    return leads(n) + leads(n + 1) + (finds(RTLD_DEFAULT, "stdout") != NULL);
}

int main(void)
{
    long sum = 0;
    pthread_attr_t attributes;
    pthread_t thread;
    void *result;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 20);
    for (int i = 0; i < 2; i++) {
        pthread_create(&thread, &attributes, deep_thread, (void *)999999);
        pthread_join(thread, &result);
        sum += (long)result;
    }
    for (long i = 0; i < 10000; i++) {
        pthread_create(&thread, NULL, brief, (void *)i);
        pthread_join(thread, &result);
        sum += (long)result;
    }
    for (long i = 0; i < 100; i++)
        sum += wide(i) + points(i);
    unsigned long *stack = malloc(1 << 16);
    unsigned long *top = stack + (1 << 16) / sizeof *stack - 1;
    for (int i = 0; i < 100; i++) {
        *top = 0xdeaddeaddeaddeadul;
        on_another_stack(top, &interrupted_rsp, own_stack);
    }
    printf("%ld\n", sum);
    FILE *truth = fopen("truth", "w");
#define WRITTEN(name) fprintf(truth, "%s %lu\n", #name, count_of_##name)
    WRITTEN(leaf), WRITTEN(deep), WRITTEN(wide), WRITTEN(own_stack), WRITTEN(brief), WRITTEN(points);
    fclose(truth);
    return 7;
}
