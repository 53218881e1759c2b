// Calls from Go to C and back, on goroutines whose stacks grow and move. Each leaf is called on known paths only:
// goA, 51 times -> c_leaf_a; goB, 61 times -> c_leaf_b;
// goC -> (c_back -> goBack) 3 times, below main.func2.1 4 times -> c_leaf_c, and goBackWork below any of these;
// goTime -> time.Now -> the vdso.
package main

/*
extern long goBack(long depth);

#define WORK(name, salt) \
    __attribute__((noinline)) long name(long n) { \
        volatile long sum = 0; \
        for (long i = 0; i < n; i++) \
            sum += (i + salt) ^ (sum >> 3); \
        return sum; \
    }

static WORK(c_leaf_a, 1)
static WORK(c_leaf_b, 2)
static WORK(c_leaf_c, 3)

__attribute__((noinline)) static long c_back(long depth)
{
    volatile long frame[16] = {depth};
    return goBack(frame[0]) + frame[0];
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

var sink [64]byte

//go:noinline
func goA(depth int) int {
	if depth > 0 {
		return goA(depth-1) + 1
	}
	return int(C.c_leaf_a(1500000))
}

//go:noinline
func goB(depth int) int {
	var block [512]byte
	block[depth%512] = byte(depth)
	if depth > 0 {
		return goB(depth-1) + int(block[depth%512])
	}
	return int(C.c_leaf_b(300000)) + int(block[0])
}

//export goBack
func goBack(depth C.long) C.long {
	sum := goBackWork(150000) + grow(int(depth)*40)
	if depth > 0 {
		return C.long(goDeeper(int(depth)-1)) + C.long(sum)
	}
	return C.c_leaf_c(300000) + C.long(sum)
}

//go:noinline
func goDeeper(depth int) int {
	return int(C.c_back(C.long(depth))) + 1
}

//go:noinline
func goBackWork(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum += i ^ (sum >> 3)
	}
	return sum
}

//go:noinline
func grow(depth int) int {
	var block [256]byte
	block[depth%256] = byte(depth)
	if depth > 0 {
		return grow(depth-1) + int(block[depth%256])
	}
	return int(block[0])
}

//go:noinline
func goC(depth int) int {
	return int(C.c_back(C.long(depth))) + 1
}

//go:noinline
func goTime(n int) int64 {
	sum := int64(0)
	for i := 0; i < n; i++ {
		sum += time.Now().UnixNano() & 1
	}
	return sum
}

func main() {
	var group sync.WaitGroup
	stop := make(chan bool)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				for i := range sink {
					sink[i] = byte(len(make([]byte, 10000+i)))
				}
				runtime.GC()
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for k := 0; k < 6; k++ {
		group.Add(1)
		go func(k int) {
			defer group.Done()
			sum := 0
			for i := 0; i < 12; i++ {
				sum += goA(50)
				inner := make(chan int)
				go func() { inner <- goB(60) + goC(3) }()
				sum += <-inner + goC(2) + int(goTime(30000))
			}
			_ = sum
		}(k)
	}
	group.Wait()
	stop <- true
	fmt.Println("done")
}
