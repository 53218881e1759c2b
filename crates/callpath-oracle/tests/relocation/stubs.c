// Calls of the C library, through stubs.
#include <stdlib.h>

int main(void) {
    unsigned long sum = 0;
    for (int i = 0; i < 20; i++) sum += strtoul("12", NULL, 10) + labs(-i);
    return sum == 0;
}
