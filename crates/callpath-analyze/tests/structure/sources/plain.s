# Assembler: the line map is of this file, a loop stands at the jump that ends it.
    .text
    .globl counted
    .type counted, @function
counted:
    mov $10, %ecx
again:
    mov $20, %edx
inside:
    sub $1, %edx
    jnz inside #@ loop inside: counted > again
    sub $1, %ecx
    jnz again #@ loop again: counted
    ret
    .size counted, . - counted
    .section .note.GNU-stack, "", @progbits
