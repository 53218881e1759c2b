/* Calls every procedure of styles.S with numbers and callbacks; callbacks have frames of their own. */
#include <setjmp.h>
#include <stdio.h>

typedef long (*callback)(long);
typedef long (*style)(callback, long);

#define STYLES(X) \
    X(leaf_style) X(frame_style) X(enter_style) X(pushing_style) X(moving_style) X(aligned_style) X(kept_style) \
    X(zone_style) X(scratch_style) X(table_style) X(twin_style) X(other_twin_style) X(third_twin_style) X(falling_style) \
    X(stack_style) X(popping_style) X(probing_style) X(probing_loop_style) X(balanced_style) X(helper_style) \
    X(realigned_style) X(tail_style) X(last_call_style) X(dispatch_style)

#define DECLARED(name) long name(callback, long);
STYLES(DECLARED)

#define LISTED(name) {#name, name},
static const struct {
    const char *name;
    style call;
} styles[] = {STYLES(LISTED)};

static jmp_buf place;

/* What last_call_style calls at its end. */
__attribute__((noreturn)) void leaves(long n) { longjmp(place, (int)n | 1); }

static long twice(long n) { return 2 * n + 1; }

static __attribute__((noinline)) long deeper(long n) {
    volatile long array[8] = {n};
    return n <= 0 ? array[0] : deeper(n / 2) + array[0];
}

static long again(long n) {
    static int level;
    if (level > 1) return twice(n);
    level++;
    volatile long sum = 0;
    for (unsigned i = 0; i < sizeof styles / sizeof *styles; i += 3) sum += styles[i].call(deeper, n % 7);
    level--;
    return sum;
}

int main(void) {
    for (volatile unsigned i = 0; i < sizeof styles / sizeof *styles; i++)
        for (volatile long n = 1; n < 8; n++)
            if (setjmp(place)) printf("left\n");
            else
                printf("%s %ld: %ld %ld %ld\n", styles[i].name, n, styles[i].call(twice, n), styles[i].call(deeper, n), styles[i].call(again, n));
    return 0;
}
