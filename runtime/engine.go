package runtime

import (
	"context"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Engine makes containers out of finished specs. runtime/ctrd implements it
// with containerd.
type Engine interface {
	// Create makes a container and its first process, which waits for Start,
	// and returns the process's ID on the host.
	Create(ctx context.Context, c Container) (pid int, err error)
	Start(ctx context.Context, id string) error
	// Delete kills and removes the container. Absent is success.
	Delete(ctx context.Context, id string) error
	// Containers lists the IDs of all containers of this daemon.
	Containers(ctx context.Context) ([]string, error)
}

// Container is what an engine makes.
type Container struct {
	ID     string
	Spec   *specs.Spec
	Labels map[string]string
	// Group lets containers of the same group share what serves them outside, so
	// that each costs less memory. They end together when that is killed. Empty is
	// a container by itself.
	Group string
}
