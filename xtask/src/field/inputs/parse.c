/* Expressions parsed and evaluated, and printed again. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Node {
    char kind;
    long value;
    struct Node *left, *right;
} Node;

static const char *at;

static Node *node(char kind, long value, Node *left, Node *right)
{
    Node *made = malloc(sizeof *made);
    *made = (Node){kind, value, left, right};
    return made;
}

static Node *sum(void);

static Node *atom(void)
{
    if (*at == '(') {
        at++;
        Node *inner = sum();
        at += *at == ')';
        return inner;
    }
    long value = 0;
    while (isdigit((unsigned char)*at))
        value = value * 10 + *at++ - '0';
    return node('n', value, NULL, NULL);
}

static Node *product(void)
{
    Node *left = atom();
    while (*at == '*' || *at == '/') {
        char kind = *at++;
        left = node(kind, 0, left, atom());
    }
    return left;
}

static Node *sum(void)
{
    Node *left = product();
    while (*at == '+' || *at == '-') {
        char kind = *at++;
        left = node(kind, 0, left, product());
    }
    return left;
}

static long value(const Node *of)
{
    switch (of->kind) {
    case 'n':
        return of->value;
    case '+':
        return value(of->left) + value(of->right);
    case '-':
        return value(of->left) - value(of->right);
    case '*':
        return value(of->left) * value(of->right) % 1000003;
    default: {
        long by = value(of->right);
        return by ? value(of->left) / by : 0;
    }
    }
}

static void release(Node *of)
{
    if (of) {
        release(of->left);
        release(of->right);
        free(of);
    }
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1, all = 0;
    char text[256];
    for (long i = 0; i < rounds; i++) {
        snprintf(text, sizeof text, "(%ld+3)*(%ld-7)/(2+%ld*(1+%ld))-%ld", i, i * 3, i % 5, i % 7, i % 11);
        at = text;
        Node *tree = sum();
        all += value(tree);
        release(tree);
    }
    printf("%ld\n", all);
}
