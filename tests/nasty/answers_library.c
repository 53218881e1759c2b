/* The library of answers.c. */
__attribute__((noinline)) int asks_often(int (*answers)(int))
{
    int sum = 0;
    for (int n = 0; n < 1000; n++)
        sum += answers(n);
    return sum;
}

int asks(int (*answers)(int))
{
    return asks_often(answers) + 1;
}
