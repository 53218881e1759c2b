// Goroutines over channels, with a sort and a regular expression.
package main

import (
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"sync"
)

var pattern = regexp.MustCompile(`(\d+)7(\d)`)

func weigh(seed int) int {
	numbers := make([]int, 5000)
	state := uint64(seed)*2862933555777941757 + 3037000493
	for i := range numbers {
		state = state*6364136223846793005 + 1442695040888963407
		numbers[i] = int(state >> 33)
	}
	sort.Slice(numbers, func(i, j int) bool { return numbers[i] < numbers[j] })
	matched := 0
	for _, number := range numbers[:1000] {
		if pattern.MatchString(strconv.Itoa(number)) {
			matched++
		}
	}
	return matched
}

func main() {
	rounds, _ := strconv.Atoi(os.Args[1])
	seeds, found := make(chan int), make(chan int, 16)
	var workers sync.WaitGroup
	for i := 0; i < 8; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for seed := range seeds {
				found <- weigh(seed)
			}
		}()
	}
	go func() {
		for seed := 0; seed < rounds*20; seed++ {
			seeds <- seed
		}
		close(seeds)
		workers.Wait()
		close(found)
	}()
	sum := 0
	for matched := range found {
		sum += matched
	}
	fmt.Println(sum)
}
