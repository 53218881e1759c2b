// Procedures that begin with calls: passed by exceptions, looked at by backtrace(). With an argument nothing is thrown.
#include <cstdio>
#include <execinfo.h>

#define PLAIN __attribute__((noinline, noclone))

extern "C" {
extern char __executable_start, etext;
// Their stack is not aligned.
int first(int n), second(int n), through_register(int n), through_memory(int n), through_stack(int n);
void no_return(int n);
}

static volatile int throws;

// Where the callers return to, as far as they are of this program: the same in every run.
static PLAIN int callers() {
    void *frames[64];
    int sum = 0, count = backtrace(frames, 64);
    for (int i = 0; i < count; i++) {
        char *at = (char *)frames[i];
        if (at >= &__executable_start && at < &etext) printf(" %lx", (long)(at - &__executable_start)), sum++;
    }
    puts("");
    return sum;
}

extern "C" __attribute__((noinline, used, force_align_arg_pointer)) int inner(int n) {
    if (throws) {
        callers();
        if (n & 1) throw n;
    }
    return n * 3;
}

asm(".text\n"
    ".globl first, second, through_register, through_memory, through_stack, no_return\n"
    // Right one behind the other, without padding.
    "no_return: .cfi_startproc\n call inner_that_throws\n .cfi_endproc\n"
    "first: .cfi_startproc\n call inner\n ret\n nop; nop; nop; nop\n .cfi_endproc\n"
    "second: .cfi_startproc\n push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_offset %rbx, -16\n call inner\n"
    " pop %rbx\n .cfi_adjust_cfa_offset -8\n ret\n nop; nop; nop\n .cfi_endproc\n"
    "through_memory: .cfi_startproc\n call *slot(%rip)\n add $1, %eax\n ret\n nop\n .cfi_endproc\n"
    "by_register: .cfi_startproc\n call *%rax\n add $1, %eax\n ret\n nop; nop; nop; nop; nop\n .cfi_endproc\n"
    "by_stack: .cfi_startproc\n call *8(%rsp)\n add $1, %eax\n ret\n nop; nop; nop\n .cfi_endproc\n"
    "through_register: .cfi_startproc\n lea inner(%rip), %rax\n jmp by_register\n .cfi_endproc\n"
    "through_stack: .cfi_startproc\n lea inner(%rip), %rax\n push %rax\n .cfi_adjust_cfa_offset 8\n call by_stack\n"
    " add $8, %rsp\n .cfi_adjust_cfa_offset -8\n ret\n .cfi_endproc\n"
    ".type first, @function; .type second, @function; .type through_memory, @function; .type by_register, @function\n"
    ".type by_stack, @function; .type through_register, @function; .type through_stack, @function\n"
    ".type no_return, @function\n"
    ".data\nslot: .quad inner\n.text\n");

extern "C" __attribute__((noinline, used, noreturn, force_align_arg_pointer)) void inner_that_throws(int n) {
    throw n * 2;
}

static int destroyed;
struct Counted {
    ~Counted() { destroyed++; }
};

// sub rsp, 8; call
static PLAIN int plain(int n) { return inner(n) + 1; }
// With a landing pad.
static PLAIN int cleans() {
    Counted counted;
    return inner(1) + 1;
}
static PLAIN int catches() {
    try {
        return first(3);
    } catch (int thrown) {
        return -thrown;
    }
}
// push rbx; mov ebx, edi; call
static PLAIN int itself(int n) { return n <= 0 ? 0 : itself(n - 1) + inner(n) + n; }

int main(int argc, char **) {
    throws = argc < 2;
    int (*const all[])(int) = {first, second, through_register, through_memory, through_stack, plain, itself};
    int sum = 0, number = 0;
    for (auto call : all) {
        number++;
        for (int i = 0; i <= 5; i++) {
            try {
                sum += call(i);
            } catch (int thrown) {
                sum += thrown * number * 100;
            }
        }
    }
    sum += catches();
    if (throws) {
        try { sum += cleans(); } catch (int thrown) { sum += thrown; }
        try { no_return(21); } catch (int thrown) { sum += thrown; }
    }
    printf("%d %d\n", sum, destroyed);
}
