/* Stacks that begin in their own ways: bases MODE. Each runs `work` on the stack that it has made, and says so.
 *   scratch   code without call frame information that keeps zeros where others have return addresses, as GHC's: its
 *             procedures jump to each other, and rsp leads to a scratch area
 *   trampoline  two coroutines as boost.context's make_fcontext makes them
 *   slices    as greenlets do: a coroutine that begins in the midst of its starter's stack, of which slices are copied
 *   top       a stack with a zero for its first procedure's return address at its very top, in a mapping of its own
 *   inside    the same within a larger array that is in use above it */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((noinline)) uint64_t work(uint64_t steps)
{
    volatile uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
    return x;
}

/* scratch: `machine` (with call frame information) gives way to `turns` and `adds`, which have none. */
void machine(uint64_t turns);
__asm__(".text\n"
        ".globl machine\n.type machine, @function\nmachine:\n.cfi_startproc\n"
        "    push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rbx, -16\n"
        "    sub $16384, %rsp\n.cfi_adjust_cfa_offset 16384\n"
        "    mov %rdi, %rbx\n    mov %rsp, %rdi\n    mov $2048, %ecx\n    xor %eax, %eax\n    rep stosq\n"
        "    jmp turns\n"
        "leave_machine:\n"
        "    add $16384, %rsp\n.cfi_adjust_cfa_offset -16384\n"
        "    pop %rbx\n.cfi_adjust_cfa_offset -8\n"
        "    ret\n.cfi_endproc\n.size machine, .-machine\n"
        ".p2align 4\n.type turns, @function\nturns:\n"
        "    mov %rbx, %rax\n    shr $1, %rax\n    and $0, %rax\n    mov %rax, 8(%rsp)\n"
        "    lea adds(%rip), %rdx\n    dec %rbx\n    jz leave_machine\n    jmp *%rdx\n.size turns, .-turns\n"
        ".p2align 4\n.type adds, @function\nadds:\n"
        "    mov $400, %ecx\n1:  add %rcx, %rax\n    dec %ecx\n    jnz 1b\n"
        "    lea turns(%rip), %rdx\n    jmp *%rdx\n.size adds, .-adds\n");

static int run_scratch(void)
{
    machine(3000000);
    return 0;
}

/* trampoline: by Boost's way of starting a coroutine, without call frame information. */
void *first_context(void *top, void (*routine)(void *));
void *to_context(void *context, void *argument);
__asm__(".text\n.p2align 4\n.globl first_context\n.type first_context, @function\nfirst_context:\n"
        "    mov %rdi, %rax\n    and $-16, %rax\n    lea -64(%rax), %rax\n"
        "    mov %rsi, 40(%rax)\n"
        "    lea 2f(%rip), %rcx\n    mov %rcx, 56(%rax)\n"
        "    lea 3f(%rip), %rcx\n    mov %rcx, 48(%rax)\n    ret\n"
        "2:  push %rbp\n    jmp *%rbx\n"
        "3:  xor %rdi, %rdi\n    call _exit@PLT\n    hlt\n.size first_context, .-first_context\n"
        ".p2align 4\n.globl to_context\n.type to_context, @function\nto_context:\n"
        "    lea -56(%rsp), %rsp\n    mov %r12, 8(%rsp)\n    mov %r13, 16(%rsp)\n    mov %r14, 24(%rsp)\n"
        "    mov %r15, 32(%rsp)\n    mov %rbx, 40(%rsp)\n    mov %rbp, 48(%rsp)\n"
        "    mov %rsp, %rax\n    mov %rdi, %rsp\n    mov 56(%rsp), %r8\n"
        "    mov 8(%rsp), %r12\n    mov 16(%rsp), %r13\n    mov 24(%rsp), %r14\n    mov 32(%rsp), %r15\n"
        "    mov 40(%rsp), %rbx\n    mov 48(%rsp), %rbp\n    lea 64(%rsp), %rsp\n"
        "    mov %rax, %rdi\n    jmp *%r8\n.size to_context, .-to_context\n");

__attribute__((noinline)) void routine(void *back)
{
    for (;;) {
        work(1000000);
        back = to_context(back, 0);
    }
}

static int run_trampoline(void)
{
    static char stacks[2][1 << 16];
    void *contexts[2];
    for (int i = 0; i < 2; i++)
        contexts[i] = first_context(stacks[i] + sizeof stacks[i], routine);
    for (int i = 0; i < 400; i++)
        contexts[i % 2] = to_context(contexts[i % 2], 0);
    return 0;
}

/* slices: two parties take turns on the stack below `mark`. */
struct slice { /* `sp` is known to the code below */
    char *sp, *saved;
};
static char *mark;
int switch_slices(struct slice *from, struct slice *to);
void save_slice(struct slice *slice)
{
    size_t length = slice->sp < mark ? mark - slice->sp : 0;
    slice->saved = realloc(slice->saved, length + 1);
    memcpy(slice->saved, slice->sp, length);
}
void restore_slice(struct slice *slice)
{
    if (slice->sp < mark)
        memcpy(slice->sp, slice->saved, mark - slice->sp);
}
__asm__(".text\n.globl switch_slices\n.type switch_slices, @function\nswitch_slices:\n.cfi_startproc\n"
        "    push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rbp, -16\n"
        "    push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rbx, -24\n"
        "    push %r12\n.cfi_adjust_cfa_offset 8\n.cfi_offset %r12, -32\n"
        "    push %r13\n.cfi_adjust_cfa_offset 8\n.cfi_offset %r13, -40\n"
        "    push %r14\n.cfi_adjust_cfa_offset 8\n.cfi_offset %r14, -48\n"
        "    push %r15\n.cfi_adjust_cfa_offset 8\n.cfi_offset %r15, -56\n"
        "    sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rbx\n    call save_slice\n"
        "    mov (%rbx), %rax\n    test %rax, %rax\n    mov $1, %eax\n    jz 1f\n"
        "    mov (%rbx), %rsp\n    mov %rbx, %rdi\n    call restore_slice\n    xor %eax, %eax\n"
        "1:  add $8, %rsp\n.cfi_adjust_cfa_offset -8\n"
        "    pop %r15\n.cfi_adjust_cfa_offset -8\n    pop %r14\n.cfi_adjust_cfa_offset -8\n"
        "    pop %r13\n.cfi_adjust_cfa_offset -8\n    pop %r12\n.cfi_adjust_cfa_offset -8\n"
        "    pop %rbx\n.cfi_adjust_cfa_offset -8\n    pop %rbp\n.cfi_adjust_cfa_offset -8\n"
        "    ret\n.cfi_endproc\n.size switch_slices, .-switch_slices\n");

static struct slice hub, greenlet;
/* The name by which greenlet's library is known. */
void boot(void *self, void *run) __asm__("_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object");
__attribute__((noinline)) void runs(void)
{
    for (;;) {
        work(1000000);
        switch_slices(&greenlet, &hub);
    }
}
__attribute__((noinline)) void boot(void *self, void *run)
{
    (void)self, (void)run;
    runs();
    abort();
}
__attribute__((noinline)) void begins(void)
{
    char here;
    mark = &here;
    if (switch_slices(&hub, &greenlet))
        boot(0, 0);
    __asm__ volatile("" ::"r"(&here) : "memory");
}
/* Other frames of the hub's than those that were there when the greenlet began. */
__attribute__((noinline)) void goes_on(int depth)
{
    volatile char room[64];
    room[depth % 64] = 1;
    if (depth)
        goes_on(depth - 1);
    else
        switch_slices(&hub, &greenlet);
    __asm__ volatile("" ::"r"(room) : "memory");
}
static int run_slices(void)
{
    begins();
    for (int i = 0; i < 400; i++)
        goes_on(i % 20);
    return 0;
}

/* top, inside: the first procedure is entered by a return, and returns to zero. */
void onto(void **sp, void **old);
__asm__(".text\n.globl onto\n.type onto, @function\nonto:\n.cfi_startproc\n"
        "    push %rbp\n.cfi_adjust_cfa_offset 8\n    push %rbx\n.cfi_adjust_cfa_offset 8\n"
        "    push %r12\n.cfi_adjust_cfa_offset 8\n    push %r13\n.cfi_adjust_cfa_offset 8\n"
        "    push %r14\n.cfi_adjust_cfa_offset 8\n    push %r15\n.cfi_adjust_cfa_offset 8\n"
        "    mov %rsp, (%rsi)\n    mov %rdi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n    ret\n"
        ".cfi_endproc\n.size onto, .-onto\n");
static void *home, *away;
__attribute__((noinline)) void entry(void)
{
    for (;;) {
        work(1000000);
        onto(home, &away);
    }
}
static int run_entry(char *top)
{
    void **sp = (void **)top;
    *--sp = 0;
    *--sp = entry;
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
    away = sp;
    for (int i = 0; i < 300; i++)
        onto(away, &home);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    int status = 2;
    if (!strcmp(mode, "scratch"))
        status = run_scratch();
    if (!strcmp(mode, "trampoline"))
        status = run_trampoline();
    if (!strcmp(mode, "slices"))
        status = run_slices();
    if (!strcmp(mode, "top")) {
        size_t length = 1 << 16;
        char *stack = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        status = stack == MAP_FAILED ? 3 : run_entry(stack + length);
    }
    if (!strcmp(mode, "inside")) {
        static char array[1 << 17] __attribute__((aligned(4096)));
        memset(array, 1, sizeof array);
        status = run_entry(array + (1 << 16) + 1024);
    }
    printf("%s: %d\n", mode, status);
    return status;
}
