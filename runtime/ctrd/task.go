package ctrd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/identifiers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/ctrd/shimcall"
)

// ManagedLabel marks what is caisson's; List and recovery go by it.
const ManagedLabel = "caisson.managed"

// groupLabel keeps a container's group, so that it is known after a restart.
const groupLabel = "caisson.shim_group"

// defaultShim is found by the server next to itself or on its PATH.
const defaultShim = "io.containerd.runc.v2"

// Create makes a container and its first process, which waits for Start. Its
// standard streams are /dev/null. The spec's root must be an absolute path with
// everything mounted: containerd is given no mounts.
//
// A failure leaves nothing behind, unless the server is away too long to say. A
// server that goes away in between costs a second try from the beginning; as
// nothing of the sandbox has run by then, that cannot be noticed inside.
func (e *Engine) Create(ctx context.Context, c runtime.Container) (int, error) {
	const op = "ctrd.create"
	record, err := e.record(c)
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	defer e.warmer.use()()
	var pid uint32
	err = e.call(ctx, op, "create container", c.ID, func(ctx context.Context) error {
		var err error
		if pid, err = e.createOnce(ctx, record); err == nil {
			err = makePunctual(int(pid))
		}
		if err == nil || errdefs.IsAlreadyExists(err) {
			return err // not ours to delete
		}
		return errors.Join(err, e.Delete(context.WithoutCancel(ctx), c.ID))
	})
	return int(pid), err
}

// createOnce takes two calls where the client's NewContainer and NewTask take
// six: there is no image, no snapshot and no stream to ask for.
func (e *Engine) createOnce(ctx context.Context, record containers.Container) (uint32, error) {
	if record.Labels[groupLabel] == "" {
		return e.createTask(ctx, record)
	}
	shim := e.socketOf(record)
	made, err := e.gate.create(ctx, shim, record.ID)
	if err != nil {
		return 0, err
	}
	ctx, cancel := outlast(ctx, shimEndGrace) // a shim that is cut short ends while the next create meets it
	defer cancel()
	pid, err := e.createTask(ctx, record)
	if err != nil && e.gate.empty(shim) {
		e.awaitShimEnd(context.WithoutCancel(ctx), shim)
	}
	made(err == nil)
	return pid, err
}

// outlast is a context that ends for the reason of ctx, but a grace later.
func outlast(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		select {
		case <-ctx.Done():
		case <-late.Done():
			return
		}
		if sleep(late, grace) {
			cancel(context.Cause(ctx))
		}
	}()
	return late, func() { cancel(nil) }
}

func (e *Engine) createTask(ctx context.Context, record containers.Container) (uint32, error) {
	if _, err := e.client.ContainerService().Create(ctx, record); err != nil {
		return 0, err
	}
	r, err := e.client.TaskService().Create(ctx, &tasks.CreateTaskRequest{ContainerID: record.ID})
	return r.GetPid(), native(err)
}

// record is what containerd keeps of a container: no image, no snapshot, and only
// labels that the caller made.
func (e *Engine) record(c runtime.Container) (containers.Container, error) {
	if err := checkGroup(c); err != nil {
		return containers.Container{}, err
	}
	spec, err := typeurl.MarshalAny(grouped(c))
	if err != nil {
		return containers.Container{}, fmt.Errorf("encode spec: %w", err)
	}
	options, err := typeurl.MarshalAny(&runcoptions.Options{BinaryName: e.cfg.Runc, Root: e.cfg.RuncRoot})
	if err != nil {
		return containers.Container{}, fmt.Errorf("encode runtime options: %w", err)
	}
	labels := map[string]string{ManagedLabel: "true"}
	for k, v := range c.Labels {
		labels[k] = v
	}
	if c.Group != "" {
		labels[groupLabel] = c.Group
	}
	shim := e.cfg.Shim
	if shim == "" {
		shim = defaultShim
	}
	return containers.Container{
		ID:      c.ID,
		Labels:  labels,
		Runtime: containers.RuntimeInfo{Name: shim, Options: options},
		Spec:    spec,
	}, nil
}

// checkGroup refuses a group that the shim's socket could not be named after, and
// one that comes in by another way.
func checkGroup(c runtime.Container) error {
	if _, set := c.Spec.Annotations[shimcall.GroupAnnotation]; set {
		return fmt.Errorf("create container %q: its spec names a group of shims", c.ID)
	}
	if c.Group == "" {
		return nil
	}
	if err := identifiers.Validate(c.Group); err != nil {
		return fmt.Errorf("use group %q: %w", c.Group, err)
	}
	return nil
}

// grouped is c's spec with its group, which is added to what containerd gets and is
// no part of the spec that the caller made and checks.
func grouped(c runtime.Container) *specs.Spec {
	if c.Group == "" {
		return c.Spec
	}
	spec := *c.Spec
	spec.Annotations = maps.Clone(spec.Annotations)
	if spec.Annotations == nil {
		spec.Annotations = map[string]string{}
	}
	spec.Annotations[shimcall.GroupAnnotation] = c.Group
	return &spec
}

// restartGrace bounds the second try of a start.
const restartGrace = 5 * time.Second

// Start lets the first process of id go on.
//
// If the server goes away meanwhile, a second try shows what became of it. It may
// never end: when runc was killed after it had released the process and before it
// noted so, it waits for a process that has long gone on. Then Start fails, as it
// cannot be told whether the process runs, and the container is good for Delete.
func (e *Engine) Start(ctx context.Context, id string) error {
	again := false
	return e.call(ctx, "ctrd.start", "start container", id, func(ctx context.Context) error {
		if again {
			return e.startAgain(ctx, id)
		}
		again = true
		_, err := e.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: id})
		return err
	})
}

func (e *Engine) startAgain(ctx context.Context, id string) error {
	if e.running(ctx, id) {
		return nil // only the answer was lost
	}
	ctx, cancel := context.WithTimeout(ctx, restartGrace)
	defer cancel()
	if _, err := e.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: id}); err != nil {
		return fmt.Errorf("%w: %w", errLostStart, native(err))
	}
	return nil
}

var errLostStart = fmt.Errorf("the server went away while it started the process: %w", errDown)

func (e *Engine) running(ctx context.Context, id string) bool {
	s, err := e.state(ctx, id)
	return err == nil && s.Status == StatusRunning
}

// Delete kills and removes the container id, whatever state it is in and whether
// or not its shim still lives. Absent is success.
func (e *Engine) Delete(ctx context.Context, id string) error {
	return e.call(ctx, "ctrd.delete", "delete container", id, func(ctx context.Context) error {
		done, err := e.gate.remove(ctx, id)
		if err != nil {
			return err
		}
		err = e.deleteOnce(ctx, id)
		if shim := e.gate.last(id); shim != "" && err == nil {
			e.awaitShimEnd(ctx, shim)
		}
		done(err == nil)
		if err != nil {
			return err
		}
		return e.endTainted(ctx)
	})
}

func (e *Engine) deleteOnce(ctx context.Context, id string) error {
	err := e.deleteTask(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		if dropped, dropErr := e.dropGarbled(id); dropErr != nil {
			return errors.Join(err, dropErr)
		} else if dropped {
			err = e.deleteTask(ctx, id)
		}
	}
	lost := errdefs.IsNotFound(err)
	if err != nil && !lost {
		return err
	}
	group := ""
	if lost {
		if group, err = e.groupOf(ctx, id); err != nil {
			return err
		}
	}
	if err := e.client.ContainerService().Delete(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if lost {
		return e.deleteRemains(ctx, id, group)
	}
	return nil
}

// groupOf returns the group of id, empty if it has none or is not there.
func (e *Engine) groupOf(ctx context.Context, id string) (string, error) {
	c, err := e.client.ContainerService().Get(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) {
		return "", err
	}
	return c.Labels[groupLabel], nil
}

const (
	exitGrace = 100 * time.Millisecond // for containerd to notice an exit
	killGrace = 10 * time.Second       // for a process to end after SIGKILL
)

// deleteTask kills only what does not end by itself at once: usually the caller has
// killed PID 1, which the shim is about to notice, and a kill costs a run of runc.
// Whether killing worked does not matter, as a shim that is gone cannot tell: the
// delete shows.
func (e *Engine) deleteTask(ctx context.Context, id string) error {
	err := e.awaitTaskExit(ctx, id, exitGrace)
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return err
	}
	var killErr error
	if err != nil {
		_, err := e.client.TaskService().Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL)})
		killErr = errors.Join(native(err), e.awaitTaskExit(ctx, id, killGrace))
	}
	err = e.deleteStopped(ctx, id)
	if err == nil || errdefs.IsNotFound(err) {
		return err
	}
	return errors.Join(err, killErr)
}

// deleteStopped asks a second time after a failure: of a task whose shim is gone,
// containerd removes all that there is and yet reports the closed connection.
func (e *Engine) deleteStopped(ctx context.Context, id string) error {
	var err error
	for range 2 {
		_, err = e.client.TaskService().Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
		if err = native(err); err == nil || errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
			return err
		}
	}
	return err
}

func (e *Engine) awaitTaskExit(ctx context.Context, id string, atMost time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, atMost, fmt.Errorf("no exit within %s: %w", atMost, context.DeadlineExceeded))
	defer cancel()
	if _, err := e.client.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: id}); err != nil {
		return withCause(ctx, native(err))
	}
	return nil
}

// Containers lists the IDs of all containers that this Engine's namespace holds
// and that caisson made.
func (e *Engine) Containers(ctx context.Context) ([]string, error) {
	var ids []string
	err := e.call(ctx, "ctrd.containers", "list containers of", e.cfg.Namespace, func(ctx context.Context) error {
		list, err := e.client.ContainerService().List(ctx, fmt.Sprintf("labels.%q==true", ManagedLabel))
		ids = make([]string, len(list))
		for i := range list {
			ids[i] = list[i].ID
		}
		return err
	})
	return ids, err
}

// Status is where a container's first process stands.
type Status string

// The statuses.
const (
	StatusAbsent  Status = "absent"  // no such container
	StatusNoTask  Status = "no_task" // a record without a process
	StatusCreated Status = "created" // waits for Start
	StatusRunning Status = "running"
	StatusStopped Status = "stopped"
	StatusOther   Status = "other" // paused, or the shim does not say
)

// ContainerState is what containerd knows of a container at one moment.
type ContainerState struct {
	Status Status
	PID    int // on the host; 0 unless created, running or stopped
}

// state asks for the state of id. An absent container is no error.
func (e *Engine) state(ctx context.Context, id string) (ContainerState, error) {
	if _, err := e.client.ContainerService().Get(ctx, id); errdefs.IsNotFound(err) {
		return ContainerState{Status: StatusAbsent}, nil
	} else if err != nil {
		return ContainerState{}, err
	}
	r, err := e.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id})
	if err = native(err); errdefs.IsNotFound(err) {
		return ContainerState{Status: StatusNoTask}, nil
	} else if err != nil {
		return ContainerState{}, err
	}
	return ContainerState{Status: statusOf(r.Process.Status), PID: int(r.Process.Pid)}, nil
}

func statusOf(s task.Status) Status {
	switch s {
	case task.Status_CREATED:
		return StatusCreated
	case task.Status_RUNNING:
		return StatusRunning
	case task.Status_STOPPED:
		return StatusStopped
	}
	return StatusOther
}
