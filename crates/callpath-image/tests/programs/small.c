/* Procedures of each kind that a symbol table knows; nothing runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int __attribute__((noinline)) local_procedure(int x) { return x * 3; }

int exported_procedure(int x) { return local_procedure(x) + 1; }
int _alias_with_underscore(int x) __attribute__((alias("exported_procedure")));
int weak_alias(int x) __attribute__((weak, alias("exported_procedure")));

/* gcc puts the part that leads to a cold procedure into another section, as splits.cold. */
static void __attribute__((cold, noinline)) complain(int x) { fprintf(stderr, "%d\n", x); }
int __attribute__((noinline)) splits(int x) {
    if (x > 100) {
        complain(x);
        x = x / 7 + rand();
    }
    return x + 2;
}

__asm__(".text\n"
        ".globl assembled\n"
        "assembled:\n" /* neither type nor size nor CFI */
        "  mov %edi, %eax\n"
        "inner_label:\n"
        "  add $1, %eax\n"
        "  ret\n");
int assembled(int);

int main(int argc, char **argv) {
    char *copy = strdup(argv[0]);
    printf("%d %s\n", exported_procedure(argc) + splits(argc) + assembled(argc), copy);
    free(copy);
    return 0;
}
