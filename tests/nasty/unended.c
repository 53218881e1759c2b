/* Procedures with code behind calls that do not come back, one where a table and a call lead to the same code, and one that a call comes
 * back to twice. Ends with 3. */
#include <pthread.h>
#include <setjmp.h>

static jmp_buf there, back;
static volatile unsigned sum;

__attribute__((noipa)) void leaf(unsigned n)
{
    sum += n;
}

/* Called 6 times, and never left. */
__attribute__((noipa)) void deep(int n)
{
    leaf(1);
    if (n)
        deep(n - 1);
    else
        pthread_exit(NULL);
}

__attribute__((noipa)) void *runs(void *unused)
{
    deep(5);
    return unused;
}

/* Case n is chosen n + 1 times, and each even one goes on in the next one. */
__attribute__((noipa)) void chooses(unsigned how)
{
    switch (how) {
    case 0: leaf(10); /* fall through */
    case 1: leaf(11); break;
    case 2: leaf(12); /* fall through */
    case 3: leaf(13); break;
    case 4: leaf(14); /* fall through */
    case 5: leaf(15); break;
    case 6: leaf(16); /* fall through */
    case 7: longjmp(back, 1);
    }
    sum++;
}

__attribute__((noipa)) void returns_from(unsigned how)
{
    if (!setjmp(back))
        chooses(how);
}

__attribute__((noipa)) void comes_back(unsigned times)
{
    if (setjmp(there)) {
        leaf(2);
    } else {
        leaf(3);
        longjmp(there, 1);
    }
    for (unsigned n = 0; n < times; n++)
        leaf(n);
}

int main(int count, char **words)
{
    pthread_t thread;
    pthread_create(&thread, NULL, runs, NULL);
    pthread_join(thread, NULL);
    comes_back(100);
    for (unsigned how = 0; how < 8; how++)
        for (unsigned n = 0; n <= how; n++)
            returns_from(how);
    (void)words;
    return count + 2;
}
