// A freestanding object, as callpath loads one. Routines leave what they have to say in `result`.
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))
__attribute__((visibility("protected"))) uint64_t result;

static uint64_t counter = 40;
static uint64_t *const table[] = {&counter, &counter};

EXPORTED void add(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
    result = a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f;
}

// Uses memory, relocated pointers, and the thread's vector registers.
EXPORTED void use(uint64_t which) {
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n pcmpeqd %%xmm7, %%xmm7\n pcmpeqd %%xmm15, %%xmm15\n"
                     : : : "xmm0", "xmm7", "xmm15");
    result = ++*table[which & 1];
}

EXPORTED void own_pid(void) {
    int64_t pid;
    __asm__ volatile("syscall" : "=a"(pid) : "a"(39) : "rcx", "r11", "memory");
    result = pid;
}

EXPORTED void fault(void) { result = *(volatile uint64_t *)8; }

EXPORTED void forever(void) {
    for (;;)
        __asm__ volatile("pause");
}

// Takes so many turns, some nanoseconds each.
EXPORTED void work(uint64_t turns) {
    while (turns--)
        __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n pcmpeqd %%xmm15, %%xmm15" : : : "xmm0", "xmm15");
}
