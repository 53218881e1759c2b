# Assembler that a generator wrote: `.loc` says the lines of its own source, located_source.txt.
    .file 1 "located_source.txt"
    .text
    .globl generated
    .type generated, @function
generated:
    .loc 1 3
    mov %rdi, %rbx
    .loc 1 4
again:
    test %rbx, %rbx
    je done
    .loc 1 5
    mov $20, %edx
inside:
    sub $1, %edx
    .loc 1 6
    jnz inside
    .loc 1 7
    sub $1, %rbx
    jmp again
done:
    .loc 1 9
    ret
    .size generated, . - generated
end:
    .section .debug_info, "", @progbits
    .long unit_end - unit
unit:
    .value 4
    .long abbreviations
    .byte 8
    .uleb128 1
    .long lines
    .quad generated
    .quad end - generated
    .asciz "located_source.txt"
    .uleb128 2
    .asciz "generated"
    .byte 1
    .byte 3
    .quad generated
    .quad end - generated
    .byte 0
unit_end:
    .section .debug_abbrev, "", @progbits
abbreviations:
    .uleb128 1, 0x11            # a unit, with children
    .byte 1
    .uleb128 0x10, 0x17, 0x11, 0x01, 0x12, 0x07, 0x03, 0x08, 0, 0
    .uleb128 2, 0x2e            # a procedure: name, file, line, code
    .byte 0
    .uleb128 0x03, 0x08, 0x3a, 0x0b, 0x3b, 0x0b, 0x11, 0x01, 0x12, 0x07, 0, 0
    .byte 0
    .section .debug_line, "", @progbits
lines:
    .section .note.GNU-stack, "", @progbits
