// Computes on the first thread, which is on a stack of the runtime's own, with vector registers, until standard input ends: the sums must be right.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

func init() { runtime.LockOSThread() }

func main() {
	var stop int32
	go func() {
		bytes := make([]byte, 1)
		for {
			if _, err := os.Stdin.Read(bytes); err != nil {
				break
			}
		}
		atomic.StoreInt32(&stop, 1)
	}()
	for i := 0; i < 2; i++ {
		go func() {
			// Garbage, and stacks that move.
			for atomic.LoadInt32(&stop) == 0 {
				deep(50)
			}
		}()
	}
	fmt.Println("ready")
	var sums [4]float64
	rounds := 0.0
	for ; atomic.LoadInt32(&stop) == 0; rounds++ {
		for i := 0; i < 1000; i++ {
			for lane := range sums {
				sums[lane] += float64(i * (lane + 1))
			}
		}
	}
	for lane := range sums {
		if sums[lane] != rounds*499500*float64(lane+1) {
			fmt.Println("wrong:", lane, sums[lane], rounds)
			os.Exit(1)
		}
	}
	fmt.Println("right")
}

func deep(depth int) []byte {
	bytes := make([]byte, 64+depth)
	if depth > 0 {
		bytes[0] = deep(depth - 1)[0] + 1
	}
	return bytes
}
