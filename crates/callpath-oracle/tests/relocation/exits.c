// Procedures that are left in all ways that code can, each a number of times of its own, and values in the red zone.
#include <stdio.h>
#include <stdlib.h>

long leaf(long, long), popping(long), repeated(long), branching(long), indirect(long), own_entry(long), falls(long),
    pushed(long), twice(long);

__asm__(".text\n"
        // Values below rsp, and flags that are read behind the places.
        ".p2align 4\n.type leaf, @function\nleaf: .cfi_startproc\n mov %rdi, -8(%rsp)\n mov %rsi, -120(%rsp)\n mov %rdi, %rax\n"
        "1: cmp %rsi, %rdi\n jmp 2f\n .p2align 4\n"
        "2: jb 3f\n 4: adc $1, %rax\n add -8(%rsp), %rax\n sub -120(%rsp), %rax\n ret\n"
        "3: seto %cl\n adc $5, %rax\n sub $1, %rdi\n mov %rdi, -8(%rsp)\n jmp 1b\n .cfi_endproc\n .size leaf, .-leaf\n"
        ".p2align 4\n.type popping, @function\npopping: .cfi_startproc\n lea (%rdi), %rax\n push $0\n call pops\n lea 1(%rax), %rax\n ret\n .cfi_endproc\n .size popping, .-popping\n"
        ".p2align 4\n.type pops, @function\npops: .cfi_startproc\n mov %rdi, %rax\n ret $8\n .cfi_endproc\n .size pops, .-pops\n"
        ".p2align 4\n.type repeated, @function\nrepeated: .cfi_startproc\n mov %rdi, %rax\n test $1, %dil\n je 1f\n lea 2(%rax), %rax\n rep ret\n"
        "1: bnd ret\n .cfi_endproc\n .size repeated, .-repeated\n"
        ".p2align 4\n.type branching, @function\nbranching: .cfi_startproc\n test $3, %dil\n je repeated\n lea 8(%rdi), %rdi\n jmp leaf_of\n"
        " .cfi_endproc\n .size branching, .-branching\n"
        ".p2align 4\n.type leaf_of, @function\nleaf_of: .cfi_startproc\n mov $7, %esi\n jmp leaf\n .cfi_endproc\n .size leaf_of, .-leaf_of\n"
        ".p2align 4\n.type indirect, @function\nindirect: .cfi_startproc\n lea repeated(%rip), %rax\n add $3, %rdi\n jmp *%rax\n"
        " .cfi_endproc\n .size indirect, .-indirect\n"
        ".p2align 4\n.type own_entry, @function\nown_entry: .cfi_startproc\n lea -1(%rdi), %rdi\n test %rdi, %rdi\n jg own_entry\n"
        " mov %rdi, %rax\n ret\n .cfi_endproc\n .size own_entry, .-own_entry\n"
        ".p2align 4\n.type falls, @function\nfalls: .cfi_startproc\n add $9, %rdi\n nopl 0(%rax)\n .cfi_endproc\n .size falls, .-falls\n"
        ".type fallen, @function\nfallen: .cfi_startproc\n lea (%rdi,%rdi), %rax\n ret\n .cfi_endproc\n .size fallen, .-fallen\n"
        ".p2align 4\n.type pushed, @function\npushed: .cfi_startproc\n lea 1f(%rip), %rax\n push %rax\n ret\n"
        "1: mov %rdi, %rax\n ret\n .cfi_endproc\n .size pushed, .-pushed\n"
        ".p2align 4\n.type twice, @function\ntwice: .cfi_startproc\n lea (%rdi), %rax\n push %rbx\n mov %rdi, %rbx\n call own_entry\n add %rax, %rbx\n mov $5, %edi\n"
        " call own_entry\n add %rbx, %rax\n pop %rbx\n ret\n .cfi_endproc\n .size twice, .-twice\n");

int main(void) {
    long sum = 0;
    for (long i = 0; i < 40; i++) {
        sum = sum * 3 + leaf(i, 20);
        if (i % 2) sum += popping(i);
        if (i % 3) sum ^= repeated(i);
        if (i % 5) sum += branching(i);
        if (i % 7) sum ^= indirect(i) + falls(i);
        if (i % 11) sum += own_entry(i & 7) + pushed(i) + twice(i & 3);
    }
    printf("%ld\n", sum);
    return 0;
}
