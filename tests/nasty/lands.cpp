// Exceptions that land in the caller of the procedure that throws, all the time: while libgcc installs the landing frame, the
// stack of its own procedure looks as if that frame had called it.
#include <cstdio>

__attribute__((noipa)) static int work(int number)
{
    volatile int sum = 0;
    for (int i = 0; i < 50; i++)
        sum = sum + i;
    if (number >= 0)
        throw number;
    return sum;
}

__attribute__((noipa)) static int outer(int count)
{
    int odd = 0;
    for (int i = 0; i < count; i++) {
        try {
            odd += work(i);
        } catch (int caught) {
            odd += caught & 1;
        }
    }
    return odd;
}

int main()
{
    std::printf("%d odd\n", outer(400000));
}
