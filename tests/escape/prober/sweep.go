package main

import (
	"fmt"
	"slices"
)

// highest is the number up to which calls are swept. Beyond it are calls that
// some of the supported kernels lack.
const highest = 451

// sweep makes every system call with all arguments wrong and prints what came
// of each. Some calls have no arguments to be wrong, and end or change this
// process: those are notSwept.
func sweep() error {
	for nr := uintptr(0); nr <= highest; nr++ {
		if slices.Contains(notSwept, nr) {
			continue
		}
		got := inThread(func() string { return raw(nr, badFD, badFD, badFD, badFD, badFD, badFD) })
		fmt.Printf("%d %s\n", nr, got)
	}
	return nil
}
