package runtime

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/dockerfile"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/layertar"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

func lineOf(line int, err error) error { return fmt.Errorf("line %d: %w", line, err) }

// do does one step, or takes what an earlier build made of it.
func (t *buildStage) do(ctx context.Context, s dockerfile.Step) error {
	if s.Run != nil {
		return t.cached(ctx, s, "", func() error { return t.runStep(ctx, s) })
	}
	into, err := t.m.view(ctx, t.img)
	if err != nil {
		return err
	}
	defer into.Close() // it was only read
	if s.Copy != nil {
		return t.copyStep(ctx, s, into)
	}
	there, err := layertar.Has(into, s.Dir)
	if err != nil || there {
		t.progress(s.Line, s.Text, there)
		return err
	}
	return t.cached(ctx, s, "", func() error {
		return t.add(ctx, t.key(s, ""), func(w io.Writer) error { return layertar.Directory(into, s.Dir, w) })
	})
}

// key names the state after a step: equal ones make the same of the same.
func (t *buildStage) key(s dockerfile.Step, content digest.Digest) string {
	s.Line, s.Text = 0, ""
	data, err := json.Marshal([]any{t.img.ChainID, s, content})
	if err != nil {
		panic(err) // plain data
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// cached calls do, unless the state after the step is there.
func (t *buildStage) cached(ctx context.Context, s dockerfile.Step, content digest.Digest, do func() error) error {
	if !t.request.NoCache && t.layer == nil {
		img, err := t.m.images.GetImage(ctx, t.sink().key(images.CachePrefix+t.key(s, content)))
		if err == nil && img.Source == image.KindBuildCache && img.Damaged == "" {
			t.progress(s.Line, s.Text, true)
			t.img = img
			return nil
		}
		if err != nil && img.Name == "" && !errors.Is(err, sbxerr.ImageNotFound) {
			return err
		}
	}
	t.progress(s.Line, s.Text, false)
	return do()
}

// copyStep copies files of the context, a stage or an image.
func (t *buildStage) copyStep(ctx context.Context, s dockerfile.Step, into *os.Root) error {
	from, err := t.source(ctx, s.Copy)
	if err != nil {
		return err
	}
	defer from.Close() // it was only read
	c := layertar.Copy{From: from, Sources: s.Copy.Sources, Into: into, Dest: s.Copy.Dest, Mode: s.Copy.Mode}
	if s.Copy.Owner != "" {
		layers, err := t.m.layers(ctx, t.img)
		if err != nil {
			return err
		}
		owner, err := resolveUser(layers, s.Copy.Owner)
		if err != nil {
			return err
		}
		c.UID, c.GID = int(owner.UID), int(owner.GID)
	}
	content, err := c.Digest()
	if err != nil {
		return err
	}
	return t.cached(ctx, s, content, func() error { return t.add(ctx, t.key(s, content), c.Write) })
}

// source opens the tree that files are copied from.
func (t *buildStage) source(ctx context.Context, c *dockerfile.Copy) (*os.Root, error) {
	switch {
	case c.Stage >= 0:
		return t.m.view(ctx, t.stages[c.Stage])
	case c.Image != "":
		img, err := t.m.verifiedImage(t.m.image(ctx, c.Image))
		if err != nil {
			return nil, err
		}
		return t.m.view(ctx, img)
	case t.request.Context == "":
		return nil, sbxerr.New(sbxerr.Config, "runtime.build", "the build has no context: there is nothing to copy from")
	}
	img, err := t.m.image(ctx, t.request.Context)
	if err != nil {
		return nil, err
	}
	root, err := t.m.view(ctx, img)
	if err != nil {
		return nil, err
	}
	defer root.Close() // it was only read
	files, err := root.OpenRoot(contextRoot)
	if err != nil {
		return nil, sbxerr.New(sbxerr.Config, "runtime.build", "the context has no folder %q: %w", contextRoot, err)
	}
	return files, nil
}

// view opens an image for the daemon, read-only.
func (m *Manager) view(ctx context.Context, img images.Stored) (*os.Root, error) {
	layers, err := m.layers(ctx, img)
	if err != nil {
		return nil, err
	}
	m.viewing.Lock()
	defer m.viewing.Unlock()
	return mount.View(layers, m.paths.view())
}

// ownFiles are those that every sandbox has of its own. Changes of them are no part of the
// image.
var ownFiles = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"}

// runStep runs a command in a sandbox whose root can be written, and stores what it
// changed.
func (t *buildStage) runStep(ctx context.Context, s dockerfile.Step) (err error) {
	var upper *os.Root
	var base uint32 // of its ids
	keep := func(made *sandbox) (err error) {
		// The mount of the sandbox goes when the command ends. An open file holds its content.
		base = made.block.Base
		upper, err = os.OpenRoot(mount.UpperDir(t.m.paths.upper(made.id)))
		return errors.Join(sbxerr.Wrap(sbxerr.StateDir, "runtime.build", err), failpoint("build/run"))
	}
	defer func() {
		if upper != nil {
			err = errors.Join(err, upper.Close())
		}
	}()
	box, e, err := t.m.startMain(ctx, t.runRequest(s.Run), false, keep)
	if err != nil {
		return err
	}
	result, err := t.m.attendMain(ctx, box, e, IO{Stdout: t.output(false), Stderr: t.output(true)})
	if err != nil {
		return err
	}
	if err := failed(s.Run.User, result); err != nil {
		return err
	}
	return t.add(ctx, t.key(s, ""), func(w io.Writer) error { return layertar.Changes(upper, base, ownFiles, w) })
}

// buildProfile is the profile of build steps: package managers give files modes that
// strict refuses.
const buildProfile = "compat"

func (t *buildStage) runRequest(r *dockerfile.Run) plan.Request {
	c := t.request.Sandbox
	c.Build, c.Image, c.Env, c.User = true, t.img.Key(), r.Env, cmp.Or(r.User, "0:0")
	c.Profile = cmp.Or(c.Profile, buildProfile)
	return plan.Request{Create: c, Exec: plan.ExecRequest{Args: r.Args, Shell: r.Shell, Cwd: r.Dir, Timeout: t.request.Timeout}}
}

// failed says why a command of user did not succeed.
func failed(user string, r *Result) error {
	switch {
	case r.OOMKilled:
		return sbxerr.WithRemedy(sbxerr.BuildFailed, "runtime.build", errors.New("the command ran out of memory"), "give it more: --memory; files that it writes count too")
	case r.TimedOut:
		return sbxerr.WithRemedy(sbxerr.BuildFailed, "runtime.build", errors.New("the command timed out"), "give it more time: --timeout")
	case r.ExitCode != 0 && user != "":
		return sbxerr.WithRemedy(sbxerr.BuildFailed, "runtime.build", fmt.Errorf("the command exited with %d (%s); it ran as the user %s", r.ExitCode, r.Reason, user),
			"look at the output of the step; where it lacks rights, put USER root before it")
	case r.ExitCode != 0:
		return sbxerr.New(sbxerr.BuildFailed, "runtime.build", "the command exited with %d (%s)", r.ExitCode, r.Reason)
	}
	return nil
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
