// Caisson-node makes a host with caissond a node of a Kubernetes cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "caisson-node:", err)
		os.Exit(1)
	}
}
