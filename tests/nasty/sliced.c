/* A library with 12 MB of machine code, all of it described. Its parts are far from each other: a path through it
 * leads through several slices of its recipe table. With BARE, nothing describes one of them. */
__asm__(
    ".text\n"
    ".macro procedures count\n"
    ".rept \\count\n"
    ".cfi_startproc\n push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_offset rbx, -16\n"
    ".fill 2000, 1, 0x90\n"
    "pop %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore rbx\n ret\n .cfi_endproc\n"
    ".endr\n"
    ".endm\n"
    ".macro hop name, size, to:vararg\n"
    ".globl \\name\n .type \\name, @function\n"
    "\\name:\n .cfi_startproc\n push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_offset rbx, -16\n"
    "sub $\\size, %rsp\n .cfi_adjust_cfa_offset \\size\n"
    "mov %rdi, %rbx\n"
    "1: mov %rbx, %rdi\n call \\to\n test %eax, %eax\n jnz 1b\n"
    "add $\\size, %rsp\n .cfi_adjust_cfa_offset -\\size\n"
    "pop %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore rbx\n ret\n .cfi_endproc\n"
    ".size \\name, . - \\name\n"
    ".endm\n"
    "procedures 2000\n"
    "hop large_run, 48, hop_two@plt\n"
    "procedures 2000\n"
    "hop hop_three, 16, *%rbx\n"
    "procedures 2000\n"
#ifdef BARE
    ".globl hop_two\n .type hop_two, @function\n"
    "hop_two: push %rbx\n sub $32, %rsp\n mov %rdi, %rbx\n"
    "1: mov %rbx, %rdi\n call hop_three@plt\n test %eax, %eax\n jnz 1b\n"
    "add $32, %rsp\n pop %rbx\n ret\n .size hop_two, . - hop_two\n"
#else
    "hop hop_two, 32, hop_three@plt\n"
#endif
    );
