/* A library with 3 MB of machine code that nothing describes. What it takes to find out how it is unwound takes
 * longer than anybody would wait for at a program's start. */
__asm__(
    ".text\n"
    ".macro procedure\n"
    "push %rbp\n push %rbx\n sub $24, %rsp\n mov %rdi, %rbx\n mov %esi, 8(%rsp)\n test %esi, %esi\n jz 2f\n"
    "1: add %rbx, %rbp\n dec %esi\n jnz 1b\n"
    "2: mov %rbp, %rax\n add $24, %rsp\n pop %rbx\n pop %rbp\n ret\n"
    ".endm\n"
    ".rept 50000\n procedure\n .endr\n"
    ".globl large_run\n .type large_run, @function\n"
    "large_run: push %rbx\n sub $48, %rsp\n mov %rdi, %rbx\n"
    "1: call *%rbx\n test %eax, %eax\n jnz 1b\n"
    "add $48, %rsp\n pop %rbx\n ret\n"
    ".rept 50000\n procedure\n .endr\n");
