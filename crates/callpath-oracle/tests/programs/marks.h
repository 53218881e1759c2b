/* A program's own idea of its call path: every function that says IN keeps its return address, and a mark prints
 * what is kept: `mark KIND ADDRESS-OF-THE-MARK RETURN-ADDRESS...`, innermost first.
 * `exact`: the path begins with that. `within`: that is in the path, in this order; library code stands between.
 * `cut`: the same, but nothing may be visible beyond what a signal interrupted. */
#include <stdio.h>

static void *kept[4096];
static volatile int kept_len;

#define IN kept[kept_len++] = __builtin_return_address(0)
#define OUT kept_len--

#define MARK(name, kind)                                             \
    static __attribute__((noinline, noclone)) void name(void) {     \
        printf("mark " kind " %p %p", (void *)name, __builtin_return_address(0)); \
        for (int i = kept_len; i-- > 0;) printf(" %p", kept[i]);    \
        printf("\n");                                                \
        fflush(stdout);                                              \
    }
