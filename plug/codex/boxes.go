package codex

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// variant is how much stricter than the flags a sandbox is.
type variant struct {
	readOnly, offline bool
	protected         string // names of directories of the workspace that are read-only, with / between them
}

// boxes are the sandboxes of a session: that of the flags, and stricter ones that Codex
// asks for. Each is made when it is first needed.
type boxes struct {
	client *api.Client
	spec   *caissonv1.SandboxSpec

	mu   sync.Mutex
	made map[variant]*box
}

// box is a sandbox that was made.
type box struct {
	ref      string
	shell    string
	env      []string // names of the variables of all its commands
	network  string   // its mode
	readOnly bool     // the workspace is
}

func (b *boxes) workspace() string { return b.spec.GetWorkspace().GetPath() }

// open returns a sandbox, and makes it unless it is there.
func (b *boxes) open(ctx context.Context, v variant) (*box, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if made := b.made[v]; made != nil {
		return made, nil
	}
	spec, _ := proto.Clone(b.spec).(*caissonv1.SandboxSpec) // the same type
	if v.readOnly {
		spec.Name += "-ro"
		spec.Workspace.Mode = "ro"
	}
	if v.protected != "" {
		spec.Name += "-" + digest(v.protected)
		for name := range strings.SplitSeq(v.protected, "/") {
			w := spec.GetWorkspace()
			spec.Mounts = append(spec.Mounts, &caissonv1.Mount{
				Type: "bind", Source: path.Join(w.GetDir(), name), Target: path.Join(w.GetPath(), name), ReadOnly: true,
			})
		}
	}
	if v.offline {
		spec.Name += "-off"
		spec.Network, spec.Allow, spec.Deny, spec.Publish, spec.Expose, spec.Links = "none", nil, nil, nil, nil, nil
	}
	if v != (variant{}) {
		spec.Publish = nil // the ports are the first's
	}
	there, err := b.client.Create(ctx, &caissonv1.CreateRequest{Spec: spec, Ensure: true})
	if err != nil {
		return nil, err
	}
	made, err := b.examine(ctx, there.GetId())
	if err != nil {
		return nil, err
	}
	made.network, made.readOnly = there.GetNetwork(), spec.GetWorkspace().GetMode() == "ro"
	if b.made == nil {
		b.made = map[variant]*box{}
	}
	b.made[v] = made
	return made, nil
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// forget is for a sandbox that was removed.
func (b *boxes) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.made)
}

// examine asks a sandbox for its shell and its environment.
func (b *boxes) examine(ctx context.Context, ref string) (*box, error) {
	spec := &caissonv1.ExecSpec{Args: []string{"/bin/sh", "-c", "if [ -x /bin/bash ]; then echo /bin/bash; else echo /bin/sh; fi; exec env -0"}}
	answer, err := b.client.Output(ctx, ref, spec, nil)
	if err != nil {
		return nil, err
	}
	shell, env, _ := strings.Cut(string(answer.GetStdout()), "\n")
	if code := answer.GetResult().GetExitCode(); code != 0 {
		return nil, fmt.Errorf("the image of the sandbox %s lacks sh or env (exit code %d): %s", ref, code, answer.GetStderr())
	}
	made := &box{ref: ref, shell: shell}
	for entry := range strings.SplitSeq(env, "\x00") {
		if name, _, ok := strings.Cut(entry, "="); ok {
			made.env = append(made.env, name)
		}
	}
	slices.Sort(made.env)
	return made, nil
}
