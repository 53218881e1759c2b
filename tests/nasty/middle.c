/* A procedure that another one enters in the middle, as hand-written code does: whatever its own entry puts into registers is not there then. */
#include <stdint.h>
#include <stdio.h>

uint64_t sums(uint64_t count);
uint64_t goes_in(uint64_t count);

__asm__(
    ".text\n"
    ".globl sums\n.type sums,@function\n"
    "sums:\n"
    "  xor %eax, %eax\n"
    "  mov %rdi, %rdx\n"
    "  shl $3, %rdx\n"
    "  cmp $2, %rdi\n"
    "  jb 3f\n"
    "in_the_middle:\n"
    "  add %rdi, %rax\n"
    "  test $1, %dil\n"
    "  jz 2f\n"
    "  lea 3(%rax), %rax\n"
    "  add %rdx, %rax\n"
    "2:\n"
    "  sub $1, %rdi\n"
    "  jnz in_the_middle\n"
    "3:\n"
    "  ret\n"
    ".size sums, . - sums\n"
    ".globl goes_in\n.type goes_in,@function\n"
    "goes_in:\n"
    "  mov $0x7fff12345678abc1, %r11\n"
    "  mov %r11, %r9\n"
    "  mov %r11, %r8\n"
    "  mov %r11, %rcx\n"
    "  mov %r11, %rsi\n"
    "  xor %eax, %eax\n"
    "  mov $5, %edx\n"
    "  jmp in_the_middle\n"
    ".size goes_in, . - goes_in\n");

int main(void) {
    uint64_t all = 0;
    for (uint64_t round = 1; round < 2000; round++) all += sums(round % 17) + 7 * goes_in(round % 13 + 1);
    printf("%llu\n", (unsigned long long)all);
    return 0;
}
