// Caisson-images parses what images are made of, for caissond and without any rights: see
// package rootfs/imageproc.
package main

import (
	"fmt"
	"os"

	_ "github.com/caisson-run/caisson/rootfs/imagejobs" // it does the work, before main
)

func main() {
	fmt.Fprintln(os.Stderr, "caisson-images is started by caissond")
	os.Exit(2)
}
