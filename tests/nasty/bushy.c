/* A small tree of calls whose shape is known: docs/paths.md, "The tree's shape". Compiled without optimization, so that
 * each call in the source is a call site.
 *
 *   main ├ 1st site: twig ├ leaf            (three times)
 *        │                └ leaf
 *        ├ 2nd site: twig ├ leaf
 *        │                └ leaf
 *        ├ 3rd site: down ─ down ─ down     (its other site is not used)
 *        ├ 4th site: through ├ twig ├ leaf  (one site, two callees)
 *        │                   │      └ leaf
 *        │                   └ leaf
 *        └ 5th site: not used
 */
#ifndef DEEPER
#define DEEPER 0
#endif

static volatile int sink;

void leaf(void)
{
    sink++;
}

void twig(void)
{
    leaf();
    leaf();
}

void down(int more)
{
    if (more > 0)
        down(more - 1);
    if (more > 100)
        leaf();
}

void through(void (*callee)(void))
{
    callee();
}

int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; i < 3; i++)
        twig();
    twig();
    down(2 + DEEPER);
    for (int i = 0; i < 2; i++)
        through(i ? twig : leaf);
    if (argc > 100)
        leaf();
    return 4;
}
