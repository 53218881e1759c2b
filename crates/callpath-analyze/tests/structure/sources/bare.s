# Assembler without lines: loops are told by address. `one` has one, `nested` three, `none` has none.
    .text
    .type one, @function
one:
    .cfi_startproc
    mov $10, %ecx
1:  sub $1, %ecx
    jnz 1b
    ret
    .cfi_endproc
    .size one, . - one

    .globl nested
    .type nested, @function
nested:
    .cfi_startproc
2:  mov $20, %edx
3:  sub $1, %edx
    jnz 3b
    mov $5, %edx
4:  dec %edx
    jne 4b
    sub $1, %edi
    jnz 2b
    ret
    .cfi_endproc
    .size nested, . - nested

    .globl none
    .type none, @function
none:
    .cfi_startproc
    test %edi, %edi
    jz 5f
    call one
5:  ret
    .cfi_endproc
    .size none, . - none
    .section .note.GNU-stack, "", @progbits
