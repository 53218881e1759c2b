/* How people write assembly: a procedure in each style, called by styles.c with (a function to call, a number).
   With -DBARE nothing is said of frames; else call frame information is right at every instruction. */
#ifdef BARE
#define CFI(...)
#else
#define CFI(...) .cfi_##__VA_ARGS__
#endif
#define BEGIN(name) .globl name; .type name, @function; name: CFI(startproc)
#define FINISH(name) CFI(endproc); .size name, .-name
/* Not for others: no symbol is exported, some are not even local ones. */
#define HIDDEN(name) .type name, @function; name: CFI(startproc)
#define PUSH(reg) push reg; CFI(adjust_cfa_offset 8)
#define POP(reg) pop reg; CFI(adjust_cfa_offset -8)

        .text
        .p2align 4
BEGIN(leaf_style)
        mov     %rsi, %rax
        imul    %rsi, %rax
        test    $1, %sil
        jz      1f
        inc     %rax
        ret
1:      dec     %rax
        ret
FINISH(leaf_style)

/* The frame pointer's way. */
        .p2align 4
BEGIN(frame_style)
        endbr64
        PUSH(%rbp)
        CFI(rel_offset rbp, 0)
        mov     %rsp, %rbp
        CFI(def_cfa_register rbp)
        sub     $32, %rsp
        mov     %rdi, -8(%rbp)
        mov     %rsi, -16(%rbp)
        mov     %rsi, %rdi
        call    *-8(%rbp)
        add     -16(%rbp), %rax
        cmp     $10, %rax
        CFI(remember_state)
        ja      1f
        leave
        CFI(def_cfa rsp, 8)
        ret
1:      CFI(restore_state)
        sub     $3, %rax
        mov     %rbp, %rsp
        CFI(def_cfa_register rsp)
        POP(%rbp)
        CFI(restore rbp)
        ret
FINISH(frame_style)

/* enter and leave. */
BEGIN(enter_style)
        enter   $48, $0
        CFI(def_cfa rbp, 16)
        CFI(offset rbp, -16)
        mov     %rdi, %rax
        mov     %rsi, %rdi
        call    *%rax
        leave
        CFI(def_cfa rsp, 8)
        CFI(restore rbp)
        ret
FINISH(enter_style)

/* All that is to be kept is pushed, and rbp is a number. */
        .p2align 4
BEGIN(pushing_style)
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        PUSH(%rbp)
        CFI(rel_offset rbp, 0)
        PUSH(%r12)
        CFI(rel_offset r12, 0)
        PUSH(%r13)
        CFI(rel_offset r13, 0)
        PUSH(%r14)
        CFI(rel_offset r14, 0)
        mov     %rdi, %rbx
        lea     (%rsi,%rsi,4), %rbp
        mov     $2, %r12d
        xor     %r13d, %r13d
1:      lea     (%rbp,%r12), %rdi
        call    *%rbx
        add     %rax, %r13
        dec     %r12
        jnz     1b
        mov     %r13, %rax
        POP(%r14)
        POP(%r13)
        POP(%r12)
        POP(%rbp)
        POP(%rbx)
        ret
FINISH(pushing_style)

/* Room first, then moves; given back by lea. */
        .p2align 5
BEGIN(moving_style)
        lea     -72(%rsp), %rsp
        CFI(adjust_cfa_offset 72)
        mov     %rbx, 24(%rsp)
        mov     %rbp, 32(%rsp)
        mov     %r12, 40(%rsp)
        mov     %r15, 64(%rsp)
        CFI(rel_offset rbx, 24)
        CFI(rel_offset rbp, 32)
        CFI(rel_offset r12, 40)
        CFI(rel_offset r15, 64)
        mov     %rdi, %r12
        mov     %rsi, %rbp
        mov     %rsi, %rdi
        call    *%r12
        mov     %rax, %rbx
        lea     1(%rbp), %rdi
        call    *%r12
        add     %rbx, %rax
        mov     24(%rsp), %rbx
        mov     32(%rsp), %rbp
        mov     40(%rsp), %r12
        mov     64(%rsp), %r15
        lea     72(%rsp), %rsp
        CFI(adjust_cfa_offset -72)
        ret
FINISH(moving_style)

/* The old stack pointer in rax, kept in an aligned frame: cryptographers' way. */
        .p2align 5
BEGIN(aligned_style)
        mov     %rsp, %rax
        CFI(def_cfa_register rax)
        push    %rbx
        CFI(offset rbx, -16)
        push    %rbp
        CFI(offset rbp, -24)
        push    %r12
        CFI(offset r12, -32)
        push    %r13
        CFI(offset r13, -40)
        push    %r14
        CFI(offset r14, -48)
        push    %r15
        CFI(offset r15, -56)
        sub     $160, %rsp
        and     $-64, %rsp
        mov     %rax, 152(%rsp)
        CFI(escape 0x0f, 6, 0x77, 0x98, 0x01, 0x06, 0x23, 0x08)
        pxor    %xmm0, %xmm0
        movdqa  %xmm0, 0(%rsp)
        movdqa  %xmm0, 16(%rsp)
        mov     %rsi, 64(%rsp)
        mov     $3, %ebx
        mov     %rdi, %r13
.Laligned_loop:
        mov     64(%rsp), %rdi
        add     %rbx, %rdi
        call    *%r13
        add     %rax, 0(%rsp)
        dec     %ebx
        jnz     .Laligned_loop
        mov     0(%rsp), %rax
        mov     152(%rsp), %rsi
        CFI(def_cfa rsi, 8)
        mov     -48(%rsi), %r15
        CFI(restore r15)
        mov     -40(%rsi), %r14
        CFI(restore r14)
        mov     -32(%rsi), %r13
        CFI(restore r13)
        mov     -24(%rsi), %r12
        CFI(restore r12)
        mov     -16(%rsi), %rbp
        CFI(restore rbp)
        mov     -8(%rsi), %rbx
        CFI(restore rbx)
        lea     (%rsi), %rsp
        CFI(def_cfa_register rsp)
        ret
FINISH(aligned_style)

/* The old stack pointer in a register that callees keep. */
BEGIN(kept_style)
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        PUSH(%r14)
        CFI(rel_offset r14, 0)
        mov     %rsp, %r14
        CFI(def_cfa_register r14)
        mov     %rsi, %rbx
        shl     $4, %rsi
        sub     %rsi, %rsp
        and     $-32, %rsp
        mov     %rdi, %rax
        mov     %rbx, %rdi
        call    *%rax
        mov     %rax, (%rsp)
        mov     (%rsp), %rax
        mov     %r14, %rsp
        CFI(def_cfa_register rsp)
        POP(%r14)
        CFI(restore r14)
        POP(%rbx)
        CFI(restore rbx)
        ret
FINISH(kept_style)

/* The old stack pointer in the red zone. */
        .p2align 4
BEGIN(zone_style)
        mov     %rsp, -16(%rsp)
        lea     -96(%rsp), %r11
        and     $-32, %r11
        xchg    %rsp, %r11
        CFI(def_cfa r11, 8)
        mov     %r11, 64(%rsp)
        CFI(escape 0x0f, 6, 0x77, 0xc0, 0x00, 0x06, 0x23, 0x08)
        mov     %rsi, %rcx
        xor     %eax, %eax
1:      add     %rcx, %rax
        mov     %rax, 32(%rsp)
        loop    1b
        mov     64(%rsp), %rsp
        CFI(def_cfa rsp, 8)
        ret
FINISH(zone_style)

/* rsp is a number for a while: its value is in memory, nothing is called. */
BEGIN(scratch_style)
        PUSH(%rbp)
        CFI(rel_offset rbp, 0)
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        mov     %rsp, %rbp
        CFI(def_cfa_register rbp)
        mov     %rsi, %rbx
        imul    %rbx, %rbx
        lea     3(%rbx,%rbx), %rax
        mov     %rbp, %rsp
        CFI(def_cfa_register rsp)
        POP(%rbx)
        POP(%rbp)
        ret
FINISH(scratch_style)

/* Cases by a table of differences. */
        .p2align 4
BEGIN(table_style)
        sub     $8, %rsp
        CFI(adjust_cfa_offset 8)
        mov     %rdi, %rax
        mov     %rsi, %rdi
        cmp     $4, %rsi
        ja      .Lcase_else
        lea     .Lcases(%rip), %rdx
        movslq  (%rdx,%rsi,4), %rcx
        add     %rdx, %rcx
        jmp     *%rcx
.Lcase0: call   *%rax
        jmp     .Lcase_end
.Lcase1: call   *%rax
        neg     %rax
        jmp     .Lcase_end
.Lcase2: PUSH(%rax)
        PUSH(%rdi)
        call    *%rax
        add     $16, %rsp
        CFI(adjust_cfa_offset -16)
        jmp     .Lcase_end
.Lcase3:
        add     $8, %rsp
        CFI(adjust_cfa_offset -8)
        jmp     *%rax
        CFI(adjust_cfa_offset 8)
.Lcase_else:
        mov     $77, %eax
.Lcase_end:
        add     $8, %rsp
        CFI(adjust_cfa_offset -8)
        ret
FINISH(table_style)
        .p2align 2
/* Data amid code. */
.Lcases: .long  .Lcase0-.Lcases, .Lcase1-.Lcases, .Lcase2-.Lcases, .Lcase3-.Lcases, .Lcase_else-.Lcases
        .byte   0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0xe8, 0, 0x53, 0xc3, 0xc9, 0x48
        .quad   0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc
        .asciz  "CRYPTOGAMS by a person of taste"

/* Two ways into one body, and an end that two procedures share. */
        .p2align 4
BEGIN(twin_style)
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        sub     $16, %rsp
        CFI(adjust_cfa_offset 16)
        mov     $1, %ebx
        jmp     .Ltwin_body
FINISH(twin_style)
BEGIN(other_twin_style)
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        sub     $16, %rsp
        CFI(adjust_cfa_offset 16)
        mov     $2, %ebx
.Ltwin_body:
        mov     %rdi, %rax
        lea     (%rsi,%rbx), %rdi
        call    *%rax
        jmp     .Lshared_end
FINISH(other_twin_style)
BEGIN(third_twin_style)
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        sub     $16, %rsp
        CFI(adjust_cfa_offset 16)
        mov     %rsi, %rbx
        mov     %rdi, %rax
        mov     %rsi, %rdi
        call    *%rax
.Lshared_end:
        add     %rbx, %rax
        add     $16, %rsp
        CFI(adjust_cfa_offset -16)
        POP(%rbx)
        CFI(restore rbx)
        ret
FINISH(third_twin_style)

/* One procedure runs into the next, which others call, too. */
        .p2align 4
BEGIN(falling_style)
        mov     %rdi, %rdx
        add     $5, %rsi
        cmp     $40, %rsi
        ja      1f
        inc     %rsi
1:      nop
FINISH(falling_style)
BEGIN(fallen_style)
        PUSH(%rcx)
        mov     %rsi, %rdi
        call    *%rdx
        POP(%rcx)
        ret
FINISH(fallen_style)

/* Arguments on the stack; the callee takes them away. */
HIDDEN(stack_callee)
        mov     8(%rsp), %rax
        imul    16(%rsp), %rax
        ret     $16
FINISH(stack_callee)
        .p2align 4
BEGIN(stack_style)
        PUSH(%rsi)
        PUSH(%rsi)
        call    stack_callee
        CFI(adjust_cfa_offset -16)
        PUSH($7)
        PUSH(%rax)
        call    stack_callee
        CFI(adjust_cfa_offset -16)
        sub     $24, %rsp
        CFI(adjust_cfa_offset 24)
        mov     %rax, 8(%rsp)
        movq    $9, (%rsp)
        mov     %rsi, %rax
        xchg    %rdi, %rax
        call    *%rax
        add     8(%rsp), %rax
        add     $24, %rsp
        CFI(adjust_cfa_offset -24)
        ret
FINISH(stack_style)

/* Its own address by a call, and a return by a jump. */
BEGIN(popping_style)
        call    1f
1:      CFI(adjust_cfa_offset 8)
        POP(%rax)
        lea     1b(%rip), %rcx
        sub     %rcx, %rax
        PUSH(%rax)
        mov     %rdi, %rax
        mov     %rsi, %rdi
        call    *%rax
        POP(%rcx)
        add     %rcx, %rax
        pop     %rcx
        CFI(adjust_cfa_offset -8)
        CFI(register rip, rcx)
        jmp     *%rcx
FINISH(popping_style)

/* Large frames touched page by page, and a loop that does so. */
        .p2align 4
BEGIN(probing_style)
        PUSH(%rbp)
        CFI(rel_offset rbp, 0)
        sub     $4096, %rsp
        CFI(adjust_cfa_offset 4096)
        orq     $0, (%rsp)
        sub     $4096, %rsp
        CFI(adjust_cfa_offset 4096)
        orq     $0, (%rsp)
        sub     $64, %rsp
        CFI(adjust_cfa_offset 64)
        mov     %rsi, %rbp
        mov     %rdi, %rax
        mov     %rsi, %rdi
        call    *%rax
        add     %rbp, %rax
        add     $8256, %rsp
        CFI(adjust_cfa_offset -8256)
        POP(%rbp)
        CFI(restore rbp)
        ret
FINISH(probing_style)
BEGIN(probing_loop_style)
        lea     -12288(%rsp), %r11
        CFI(def_cfa r11, 12296)
1:      sub     $4096, %rsp
        orq     $0, (%rsp)
        cmp     %r11, %rsp
        jne     1b
        CFI(def_cfa_register rsp)
        sub     $8, %rsp
        CFI(adjust_cfa_offset 8)
        mov     %rdi, %rax
        mov     %rsi, %rdi
        call    *%rax
        add     $12296, %rsp
        CFI(adjust_cfa_offset -12296)
        ret
FINISH(probing_loop_style)

/* Flags and registers pushed and popped around things, in a loop too. */
        .p2align 4
BEGIN(balanced_style)
        mov     %esi, %ecx
        and     $3, %ecx
        inc     %ecx
        xor     %eax, %eax
1:      pushf
        CFI(adjust_cfa_offset 8)
        PUSH(%rcx)
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        mov     %ecx, %ebx
        add     %rbx, %rax
        POP(%rbx)
        CFI(restore rbx)
        POP(%rcx)
        popf
        CFI(adjust_cfa_offset -8)
        loop    1b
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        xor     %eax, %eax
        cpuid
        xor     %eax, %eax
        POP(%rbx)
        CFI(restore rbx)
        jmp     leaf_style
FINISH(balanced_style)

/* A helper of its own convention, that keeps a frame for its caller's sake. */
        .p2align 4
HIDDEN(rounds)
        movaps  %xmm0, -24(%rsp)
        add     %rdx, %rax
        rol     $7, %rax
        PUSH(%r10)
        lea     (%rax,%r10), %rax
        POP(%r10)
        ret
FINISH(rounds)
BEGIN(helper_style)
        mov     %rsp, %r11
        CFI(def_cfa_register r11)
        sub     $104, %rsp
        mov     %r12, -8(%r11)
        CFI(offset r12, -16)
        mov     %r11, %r12
        CFI(def_cfa_register r12)
        mov     %rsi, %rdx
        mov     $5, %r10d
        xor     %eax, %eax
1:      call    rounds
        call    rounds
        dec     %r10
        jnz     1b
        and     $0xff, %eax
        mov     %rdi, %rcx
        lea     (%rsi,%rax), %rdi
        call    *%rcx
        mov     %r12, %rsp
        CFI(def_cfa_register rsp)
        mov     -8(%r12), %r12
        CFI(restore r12)
        ret
FINISH(helper_style)

/* The compiler's way of aligning a frame whose arguments are needed. */
        .p2align 4
BEGIN(realigned_style)
        lea     8(%rsp), %r10
        CFI(def_cfa r10, 0)
        and     $-64, %rsp
        pushq   -8(%r10)
        push    %rbp
        mov     %rsp, %rbp
        CFI(escape 0x10, 6, 2, 0x76, 0)
        push    %r10
        CFI(escape 0x0f, 3, 0x76, 0x78, 6)
        sub     $72, %rsp
        mov     %rdi, %rax
        mov     %rsi, %rdi
        call    *%rax
        mov     -8(%rbp), %r10
        CFI(def_cfa r10, 0)
        leave
        CFI(restore rbp)
        lea     -8(%r10), %rsp
        CFI(def_cfa rsp, 8)
        ret
FINISH(realigned_style)

/* Conditional tail calls with and without a frame; a cold part far away. */
        .p2align 4
BEGIN(tail_style)
        test    $1, %sil
        jnz     leaf_style
        PUSH(%rdi)
        PUSH(%rsi)
        PUSH(%rbp)
        CFI(rel_offset rbp, 0)
        mov     %rsi, %rbp
        cmp     $6, %rsi
        je      .Ltail_cold
.Ltail_back:
        POP(%rbp)
        CFI(restore rbp)
        POP(%rsi)
        POP(%rdi)
        jmp     frame_style
FINISH(tail_style)
        .section .text.unlikely, "ax", @progbits
        CFI(startproc)
        CFI(def_cfa_offset 32)
        CFI(offset rbp, -32)
.Ltail_cold:
        mov     %rbp, %rdi
        call    *16(%rsp)
        mov     8(%rsp), %rsi
        jmp     .Ltail_back
        CFI(endproc)
        .text

/* The last thing in it is a call that does not come back: the return address is the next procedure's first. */
        .p2align 4
BEGIN(last_call_style)
        PUSH(%rbx)
        CFI(rel_offset rbx, 0)
        mov     %rsi, %rbx
        mov     %rdi, %rax
        mov     %rsi, %rdi
        call    *%rax
        cmp     $5, %rbx
        CFI(remember_state)
        je      1f
        POP(%rbx)
        CFI(restore rbx)
        ret
1:      CFI(restore_state)
        mov     %rax, %rdi
        call    leaves
FINISH(last_call_style)

/* A stub that gives its caller's place to the one that it calls: jumps through memory and registers. */
BEGIN(dispatch_style)
        lea     targets(%rip), %rax
        mov     %rsi, %rcx
        and     $3, %ecx
        notrack jmp *(%rax,%rcx,8)
FINISH(dispatch_style)
        .section .data.rel.ro, "aw", @progbits
        .p2align 3
targets: .quad  leaf_style, pushing_style, hidden_target, moving_style
        .text
        .p2align 4
HIDDEN(hidden_target)
        sub     $40, %rsp
        CFI(adjust_cfa_offset 40)
        mov     %rdi, %rax
        mov     %rsi, %rdi
        call    *%rax
        add     $40, %rsp
        CFI(adjust_cfa_offset -40)
        ret
FINISH(hidden_target)

        .section .note.GNU-stack, "", @progbits
