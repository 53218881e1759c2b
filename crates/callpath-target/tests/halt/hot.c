// hot [at_end_of_page]: four threads that call a procedure all the time, until standard input ends. Each looks at what it has computed, and at which signals it holds back: none.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int stop;

// Most of its time passes in `pause`: a thread that is stopped then stands behind it.
__attribute__((noinline, naked, used)) uint64_t hot(uint64_t state __attribute__((unused))) {
    __asm__("pause\n mov %rdi, %rax\n inc %rax\n imul $0x5851f42d, %rax, %rax\n xor $0x1234, %rax\n ret\n");
}

// The same, at the end of a page.
__asm__(".text\n .balign 4096\n .skip 4094, 0x90\n .type hot_at_end, @function\n hot_at_end: pause\n mov %rdi, %rax\n inc %rax\n"
        " imul $0x5851f42d, %rax, %rax\n xor $0x1234, %rax\n ret\n .size hot_at_end, . - hot_at_end\n");
uint64_t hot_at_end(uint64_t state);

static uint64_t (*called)(uint64_t) = hot;

static void *calls(void *unused) {
    uint64_t state = 0, expected = 0, wrong = 0;
    while (!stop) {
        for (int i = 0; i < 1000; i++) {
            state = called(state);
            expected = ((expected + 1) * 0x5851f42d) ^ 0x1234;
        }
        sigset_t held;
        pthread_sigmask(SIG_BLOCK, NULL, &held);
        for (int signal = 1; signal < NSIG; signal++)
            wrong |= sigismember(&held, signal) == 1;
        wrong |= state != expected;
    }
    (void)unused;
    return (void *)(uintptr_t)wrong;
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "at_end_of_page"))
        called = hot_at_end;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, calls, NULL);
    printf("ready %p\n", (void *)called);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    stop = 1;
    int right = 1;
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        right &= !wrong;
    }
    printf(right ? "right\n" : "wrong\n");
    return !right;
}
