// C called from Go, and Go called back from it.
package main

/*
extern int goWeigh(int);

static int inC(int number)
{
    unsigned sum = number;
    for (int i = 0; i < 100; i++)
        sum = (sum << 5 | sum >> 27) ^ (sum * 31 + i);
    return number % 8 ? (int)sum : goWeigh((int)sum);
}
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
)

//export goWeigh
func goWeigh(number C.int) C.int {
	sum := uint32(number)
	for i := uint32(0); i < 300; i++ {
		sum = sum*31 + i
	}
	return C.int(sum)
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	sum := 0
	for i := 0; i < count; i++ {
		sum += int(C.inC(C.int(i)))
	}
	fmt.Println(sum)
}
