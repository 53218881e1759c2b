// Go without C: goroutines on all threads, in known calls: outer -> middle -> work, into which half is inlined. Built stripped, its own table is all that there is.
package main

import (
	"fmt"
	"os"
	"sync"
)

//go:noinline
func work(n int) float64 {
	sum := 0.0
	for i := 0; i < n; i++ {
		sum += half(i)
	}
	return sum
}

//go:noinline
func middle(n int, depth int) float64 {
	if depth > 0 {
		return middle(n, depth-1) + 1
	}
	return work(n) + float64(len(make([]byte, n/100)))
}

//go:noinline
func outer(n int) float64 {
	sum := 0.0
	for i := 0; i < 300; i++ {
		sum += middle(n, 3)
	}
	return sum + 1
}

func main() {
	var group sync.WaitGroup
	var results [4]float64
	for k := range results {
		group.Add(1)
		go func(k int) {
			defer group.Done()
			results[k] = outer(300000)
		}(k)
	}
	group.Wait()
	fmt.Println(results[0] == results[3])
	os.Exit(5)
}

// The compiler inlines it; the division takes most of the time.
func half(n int) float64 {
	return float64(n/(n%7+1)) * 0.5
}
