// A freestanding object, as callpath loads one.
#include <stdint.h>

static uint64_t counter = 40;
static uint64_t *const table[] = {&counter, &counter};

__attribute__((visibility("default"))) uint64_t add(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                                                    uint64_t f) {
    return a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f;
}

// Uses memory, relocated pointers, and the thread's vector registers.
__attribute__((visibility("default"))) uint64_t use(uint64_t which) {
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n pcmpeqd %%xmm7, %%xmm7\n pcmpeqd %%xmm15, %%xmm15\n"
                     : : : "xmm0", "xmm7", "xmm15");
    return ++*table[which & 1];
}

__attribute__((visibility("default"))) int64_t own_pid(void) {
    int64_t result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(39) : "rcx", "r11", "memory");
    return result;
}

__attribute__((visibility("default"))) uint64_t fault(void) { return *(volatile uint64_t *)8; }

__attribute__((visibility("default"))) void forever(void) {
    for (;;)
        __asm__ volatile("pause");
}
