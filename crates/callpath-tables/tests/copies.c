// Procedures that cannot be copied, each for a reason of its own, and some that can.
#include <stdio.h>
#include <unistd.h>

#define PLAIN __attribute__((noinline, noclone))

PLAIN int plain(int n) { return n * 3 + 1; }

static int one(void) { return plain(1); }
__attribute__((used)) static void *chosen_by(void) { return one; }
int chosen(void) __attribute__((ifunc("chosen_by")));

PLAIN int forks(void) {
    int child = vfork();
    if (child == 0) _exit(0);
    return child;
}

__attribute__((noinline, cold)) void rarely(int n) { printf("%d\n", n); }

PLAIN int split(int n) {
    if (n == 77) rarely(n);
    return n + plain(n);
}

int sequence(void), aborted(void), forks_itself(void), another_call(void);

__asm__(".text\n"
        ".p2align 4\n.type sequence, @function\nsequence: .cfi_startproc\n nop\n1: mov $1, %eax\n nopl 0(%rax)\n2: ret\n"
        " .cfi_endproc\n .size sequence, .-sequence\n"
        ".p2align 4\n .long 0x53053053\n.type aborted, @function\naborted: .cfi_startproc\n xor %eax, %eax\n nopl 0(%rax)\n"
        " ret\n .cfi_endproc\n .size aborted, .-aborted\n"
        ".pushsection __rseq_cs, \"aw\"\n .balign 32\n .long 0, 0\n .quad 1b, 2b - 1b, aborted\n.popsection\n"
        ".p2align 4\n.type forks_itself, @function\nforks_itself: .cfi_startproc\n mov $58, %eax\n syscall\n ret\n"
        " .cfi_endproc\n .size forks_itself, .-forks_itself\n"
        ".p2align 4\n.type another_call, @function\nanother_call: .cfi_startproc\n mov $39, %eax\n syscall\n ret\n"
        " .cfi_endproc\n .size another_call, .-another_call\n"
        ".p2align 4\n.type _dl_tlsdesc_mine, @function\n_dl_tlsdesc_mine: .cfi_startproc\n mov 8(%rax), %rax\n ret\n"
        " .cfi_endproc\n .size _dl_tlsdesc_mine, .-_dl_tlsdesc_mine\n"
        ".p2align 4\n.globl __fentry__\n.type __fentry__, @function\n__fentry__: .cfi_startproc\n nopl 0(%rax)\n nopl 0(%rax)\n"
        " ret\n .cfi_endproc\n .size __fentry__, .-__fentry__\n");

int main(int count, char **arguments) {
    (void)arguments;
    return chosen() + forks() + split(count) + sequence() + aborted() + another_call();
}
