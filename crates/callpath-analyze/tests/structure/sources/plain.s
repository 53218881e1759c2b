# Assembler: the line map is of this file, a loop stands at its first instruction.
    .text
    .globl counted
    .type counted, @function
counted:
    mov $10, %ecx
again:
    mov $20, %edx #@ loop again: counted
inside:
    sub $1, %edx #@ loop inside: counted > again
    jnz inside
    sub $1, %ecx
    jnz again
    ret
    .size counted, . - counted
    .section .note.GNU-stack, "", @progbits
