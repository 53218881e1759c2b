/* A library whose linkage table is closed when it is loaded, with the addresses of an executable that does not move
 * (closed.c): before the loader has bound them, words of the table look like addresses of that. */
int scaled(int number) { return number * 7 + 3; }
int more(int number) { return scaled(number) + 1; }

int sum_of(int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += more(i);
    return sum;
}
