package buildplan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// The kinds of messages between the planner and the daemon, after the request: the planner asks
// for an image by a name and gets an answer, any number of times, and ends with the plan.
const (
	Kind         = "plan"  // of the work
	MessageImage = "image" // name of an image that FROM names
	MessagePlan  = "plan"  // Wire
)

// Bounds of messages, in bytes.
const (
	MaxMessage = 32 << 20 // of a plan: a file and its variables, each escaped for JSON
	MaxName    = 256 << 10
)

// Request asks the planner for the plan of a build.
type Request struct {
	File     []byte            `json:"file"`
	Args     map[string]string `json:"args,omitempty"`
	Target   string            `json:"target,omitempty"`
	Secrets  []string          `json:"secrets,omitempty"`
	Platform Platform          `json:"platform"`
}

// Answer tells the planner of an image.
type Answer struct {
	Config  Config             `json:"config"`
	Failure *imageproc.Failure `json:"failure,omitempty"` // why there is none
}

// Wire is a Plan on its way. Commands share most of their variables, so those are sent once.
type Wire struct {
	Plan    Plan     `json:"plan"` // without the variables of commands
	Strings []string `json:"strings,omitempty"`
	Envs    [][]int  `json:"envs,omitempty"` // of each command, in order: indexes of Strings
}

// ToWire packs p. Of the configurations only that of the target is kept.
func (p *Plan) ToWire() Wire {
	w := Wire{Plan: *p}
	w.Plan.Stages = slices.Clone(p.Stages)
	index := map[string]int{}
	for n := range w.Plan.Stages {
		s := &w.Plan.Stages[n]
		if n < len(w.Plan.Stages)-1 {
			s.Config = Config{}
		}
		s.Steps = slices.Clone(s.Steps)
		for m := range s.Steps {
			if s.Steps[m].Run == nil {
				continue
			}
			run := *s.Steps[m].Run
			env := []int{}
			for _, kv := range run.Env {
				at, ok := index[kv]
				if !ok {
					at, index[kv] = len(w.Strings), len(w.Strings)
					w.Strings = append(w.Strings, kv)
				}
				env = append(env, at)
			}
			run.Env, s.Steps[m].Run = nil, &run
			w.Envs = append(w.Envs, env)
		}
	}
	return w
}

// Bounds of what a planner may say, which is not trusted.
const (
	maxSteps = 1024 // of all stages
	maxEnv   = 4096 // variables of a command
	maxParts = 1024 // sources, mounts and the like of a step
	maxID    = 65534
)

// Unpack checks w and returns the plan. secrets are the ids of those that the build was given.
func (w Wire) Unpack(secrets []string) (*Plan, error) {
	p := &w.Plan
	if n := len(p.Stages); n == 0 || n > maxSteps || !p.Stages[n-1].Needed || len(p.Warnings) > maxParts || len(p.Proxies) > maxParts {
		return nil, fmt.Errorf("%d stages, %d warnings and %d proxies are no plan", n, len(p.Warnings), len(p.Proxies))
	}
	steps, envs := 0, w.Envs
	for n, s := range p.Stages {
		if steps += len(s.Steps); steps > maxSteps {
			return nil, fmt.Errorf("there are more than %d steps", maxSteps)
		}
		if s.Base < -1 || s.Image == "" && !s.Empty && (s.Base < 0 || s.Base >= n || s.Needed && !p.Stages[s.Base].Needed) {
			return nil, fmt.Errorf("stage %d begins with stage %d", n, s.Base)
		}
		for _, step := range s.Steps {
			if err := w.check(n, step, secrets); err != nil {
				return nil, fmt.Errorf("stage %d, line %d: %w", n, step.Line, err)
			}
			if step.Run == nil {
				continue
			}
			if len(envs) == 0 {
				return nil, errors.New("a command has no variables")
			}
			if err := w.fill(step.Run, envs[0]); err != nil {
				return nil, err
			}
			envs = envs[1:]
		}
	}
	return p, nil
}

// fill gives a command its variables.
func (w Wire) fill(r *Run, env []int) error {
	if len(env) > maxEnv {
		return fmt.Errorf("a command has %d variables", len(env))
	}
	for _, at := range env {
		if at < 0 || at >= len(w.Strings) {
			return fmt.Errorf("there is no string %d", at)
		}
		r.Env = append(r.Env, w.Strings[at])
	}
	return nil
}

func (w Wire) check(stage int, s Step, secrets []string) error {
	switch {
	case s.Run != nil && s.Copy == nil && s.Dir == nil:
		return w.checkRun(stage, s.Run, secrets)
	case s.Copy != nil && s.Run == nil && s.Dir == nil:
		return w.checkCopy(stage, s.Copy)
	case s.Dir != nil && s.Run == nil && s.Copy == nil:
		return nil
	}
	return errors.New("a step is one of RUN, COPY and WORKDIR")
}

// checkStage takes an earlier stage that is built, or none.
func (w Wire) checkStage(stage, from int) error {
	if from < -1 || from >= stage || from >= 0 && !w.Plan.Stages[from].Needed {
		return fmt.Errorf("it reads stage %d", from)
	}
	return nil
}

func (w Wire) checkCopy(stage int, c *Copy) error {
	if len(c.Sources) > maxParts || len(c.Texts) > maxParts || len(c.Downloads) > maxParts {
		return errors.New("it copies too much")
	}
	if c.Checksum != "" && (c.Checksum.Validate() != nil || c.Checksum.Algorithm() != digest.SHA256 || len(c.Downloads) != 1) {
		return fmt.Errorf("the checksum %.80q is none", c.Checksum)
	}
	return w.checkStage(stage, c.Stage)
}

func (w Wire) checkRun(stage int, r *Run, secrets []string) error {
	if len(r.Args) == 0 || len(r.Mounts) > maxParts || len(r.Env) > 0 {
		return errors.New("the command is none")
	}
	for _, m := range r.Mounts {
		if !slices.Contains([]string{"bind", "cache", "tmpfs", "secret"}, m.Type) || m.Target == "" || m.Target[0] != '/' {
			return fmt.Errorf("the mount %.20q on %.80q is none", m.Type, m.Target)
		}
		if m.Type == "bind" && !m.ReadOnly || m.Type == "secret" && !slices.Contains(secrets, m.ID) {
			return fmt.Errorf("the mount %q on %.80q may not be made", m.Type, m.Target)
		}
		if m.Mode < 0 || m.Mode > 0o777 || m.UID < 0 || m.UID > maxID || m.GID < 0 || m.GID > maxID || m.Size < 0 {
			return fmt.Errorf("the mount on %.80q has the mode %o, the owner %d:%d and %d bytes", m.Target, m.Mode, m.UID, m.GID, m.Size)
		}
		if err := w.checkStage(stage, m.Stage); err != nil {
			return err
		}
	}
	return nil
}
