// Goroutines on all threads, calls of C, a signal of the program's own, and Go's own preemption by SIGURG.
// Known calls: outer -> work, and cOuter -> c_work.
package main

// __attribute__((noinline)) static double c_work(long n)
// {
//     volatile double sum = 0;
//     for (long i = 0; i < n; i++)
//         sum += i * 0.5;
//     return sum;
// }
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

//go:noinline
func work(n int) float64 {
	sum := 0.0
	for i := 0; i < n; i++ {
		sum += float64(i) * 0.5
	}
	return sum
}

//go:noinline
func outer(n int) float64 {
	sum := 0.0
	for i := 0; i < 100; i++ {
		sum += work(n)
	}
	return sum + 1
}

//go:noinline
func cOuter(n int) float64 {
	return float64(C.c_work(C.long(n))) + 1
}

func main() {
	arrived := make(chan os.Signal, 8)
	signal.Notify(arrived, syscall.SIGUSR1)
	var group sync.WaitGroup
	var results [4]float64
	for k := 0; k < 4; k++ {
		group.Add(1)
		go func(k int) {
			defer group.Done()
			results[k] = outer(300000) + cOuter(5000000)
			for i := 0; i < 100; i++ {
				runtime.Gosched()
				_ = make([]byte, 100000)
			}
		}(k)
	}
	group.Wait()
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	select {
	case got := <-arrived:
		fmt.Println("got", got)
	case <-time.After(10 * time.Second):
		fmt.Println("got nothing")
	}
	output, err := exec.Command("/bin/echo", "a child").Output()
	fmt.Println(string(output), err, results)
	os.Exit(3)
}
