package imageservice

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/layertar"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

// stepOf says of which step err is: a line of a file, or one that has none.
func stepOf(s buildplan.Step, err error) error {
	if s.Line == 0 {
		return fmt.Errorf("%s: %w", sbxerr.Clip(s.Text), err)
	}
	return fmt.Errorf("line %d: %w", s.Line, err)
}

// do does one step, or takes what an earlier build made of it.
func (t *buildStage) do(ctx context.Context, s buildplan.Step) error {
	if s.Run != nil {
		mounts, err := t.mounts(ctx, s.Run.Mounts)
		if err != nil {
			return err
		}
		return t.cached(ctx, s, mounts.content, func() error { return t.runStep(ctx, s, mounts) })
	}
	into, err := t.service.view(ctx, t.img)
	if err != nil {
		return err
	}
	defer into.Close() // it was only read
	switch {
	case s.Copy != nil && len(s.Copy.Downloads) > 0:
		return t.downloadStep(ctx, s, into)
	case s.Copy != nil:
		return t.copyStep(ctx, s, into)
	}
	owner, err := t.owner(ctx, s.Dir.User)
	if err != nil {
		return err
	}
	layer, err := layertar.Directory(into, s.Dir.Name, *cmp.Or(owner, &layertar.Owner{}))
	if err != nil {
		return err
	}
	return t.addLayer(ctx, s, "", layer)
}

// addLayer adds what a step planned. One that changes nothing adds no layer.
func (t *buildStage) addLayer(ctx context.Context, s buildplan.Step, content digest.Digest, layer layertar.Layer) error {
	if layer.Empty() {
		t.progress(s.Line, s.Text, false)
		return nil
	}
	return t.cached(ctx, s, content, func() error { return t.add(ctx, t.key(s, content), layer.Write) })
}

// key names the state after a step: equal ones make the same of the same.
func (t *buildStage) key(s buildplan.Step, content digest.Digest) string {
	s.Line, s.Text = 0, ""
	data, err := json.Marshal([]any{t.img.ChainID, s, content, t.salt})
	if err != nil {
		panic(err) // plain data
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// cached calls do, unless the state after the step is there.
func (t *buildStage) cached(ctx context.Context, s buildplan.Step, content digest.Digest, do func() error) error {
	found, err := t.reuse(ctx, s, content)
	if err != nil {
		return err
	}
	t.progress(s.Line, s.Text, found)
	if found {
		return nil
	}
	return do()
}

// reuse takes the state after the step, if an earlier build left it.
func (t *buildStage) reuse(ctx context.Context, s buildplan.Step, content digest.Digest) (found bool, err error) {
	if t.request.NoCache || t.layer != nil {
		return false, nil
	}
	img, err := t.service.store.GetImage(ctx, t.sink().key(images.CachePrefix+t.key(s, content)))
	if err == nil && img.Source == image.KindBuildCache && img.Damaged == "" {
		t.img = img
		return true, nil
	}
	if err != nil && img.Name == "" && !errors.Is(err, sbxerr.ImageNotFound) {
		return false, err
	}
	return false, nil
}

// ownFiles are those that every sandbox has of its own. Changes of them are no part of the
// image.
var ownFiles = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"}

// runStep runs a command in a sandbox whose root can be written, and stores what it
// changed.
func (t *buildStage) runStep(ctx context.Context, s buildplan.Step, mounts stepMounts) error {
	if t.isEmpty() {
		return sbxerr.WithRemedy(sbxerr.BuildFailed, "images.build", errors.New("the image has no files, so no program that RUN could run"),
			"begin with another image than scratch, or COPY a program before")
	}
	layers, err := t.service.Layers(ctx, t.img)
	if err != nil {
		return err
	}
	home, err := homeOf(layers, cmp.Or(s.Run.User, rootUser))
	if err != nil {
		return err
	}
	done, err := t.alone(ctx, s.Run.Mounts)
	if err != nil {
		return err
	}
	defer done()
	request := t.runRequest(s.Run, home)
	request.Create.Mounts = mounts.list
	return t.inSandbox(ctx, request, t.output(false), t.output(true), func(r StepResult, w written) error {
		if err := commandFailed(r, w); err != nil {
			return err
		}
		skip := slices.Concat(ownFiles, mounts.points)
		return t.add(ctx, t.key(s, mounts.content), func(to io.Writer) error { return layertar.Changes(w.root, w.by.HostIDBase, skip, to) })
	})
}

// StepSandbox is the sandbox of a build step.
type StepSandbox struct {
	Upper      string // directory of what is written into its root
	HostIDBase uint32 // owner of what its root writes
	User       plan.User
	Limits     plan.Limits
	Mounts     []plan.MountRequest
}

// StepResult is how the command of a build step ended.
type StepResult struct {
	ExitCode     int
	Reason       string // what ended it; empty: it exited
	TimedOut     bool
	OOMKilled    bool
	PIDsLimitHit bool
	FullTmpfs    []string // full when the command failed
	Network      string   // mode
	Refusals     []Refusal
}

// Refusal is a destination that was refused while a command ran.
type Refusal struct {
	Name  string // or an address; empty: the sandbox has no network
	Port  uint16 // 0 of a lookup, and of a packet without ports
	Needs string // the rule that would allow it; empty where none can
}

// written is what a command wrote into the root of its sandbox.
type written struct {
	root  *os.Root
	by    StepSandbox
	asked plan.CreateRequest
}

// inSandbox runs a command in a sandbox whose root can be written. It passes on how the
// command ended and what it wrote, which is gone afterwards.
func (t *buildStage) inSandbox(ctx context.Context, request plan.Request, stdout, stderr io.Writer, then func(StepResult, written) error) (err error) {
	w := written{asked: request.Create}
	keep := func(made StepSandbox) (err error) {
		// The mount of the sandbox goes when the command ends. An open file holds its content.
		w.by = made
		w.root, err = os.OpenRoot(made.Upper)
		return errors.Join(sbxerr.Wrap(sbxerr.StateDir, "images.build", err), failpoint.At("build/run"))
	}
	defer func() {
		if w.root != nil {
			err = errors.Join(err, w.root.Close())
		}
	}()
	result, err := t.service.fleet.RunStep(ctx, request, keep, stdout, stderr)
	if err != nil {
		return err
	}
	return then(result, w)
}

// StepRequest is r with the profile that a build step of it has.
func StepRequest(r plan.CreateRequest) plan.CreateRequest {
	r.Profile = cmp.Or(r.Profile, plan.StepProfile)
	return r
}

// rootUser is the user of build steps without USER.
const rootUser = "0:0"

func (t *buildStage) runRequest(r *buildplan.Run, home string) plan.Request {
	c := StepRequest(t.request.Sandbox)
	c.Build, c.Image, c.Env, c.User = true, t.img.Key(), slices.Concat([]string{"HOME=" + home}, t.build.plan.Proxies, r.Env), cmp.Or(r.User, rootUser)
	e := plan.ExecRequest{Args: r.Args, Cwd: r.Dir, Timeout: t.request.Timeout}
	if r.Script != "" {
		mode := uint32(0o500)
		e.Inputs = []plan.InputRequest{{Path: r.Args[0], Data: []byte(r.Script), Mode: &mode}}
	}
	return plan.Request{Create: c, Exec: e}
}

// output reports the output of a command as it comes.
func (t *buildStage) output(stderr bool) io.Writer {
	return outputFunc(func(p []byte) {
		t.report(images.BuildEvent{Step: t.step, Steps: t.steps, Output: p, Stderr: stderr})
	})
}

type outputFunc func([]byte)

// Write implements io.Writer.
func (f outputFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
