package server

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
)

// This file translates messages into the runtime's types. It refuses what those
// cannot carry; the runtime judges the values. A refusal names all that is
// wrong.

// requestOf reads a RunSpec.
func requestOf(s *caissonv1.RunSpec) (plan.Request, error) {
	if s == nil {
		return plan.Request{}, sbxerr.New(sbxerr.APIUsage, "server.request", "there is no spec")
	}
	create, errCreate := createOf(s.Sandbox)
	exec, errExec := execOf(s.Exec)
	err := errors.Join(errCreate, errExec)
	if s.LearnPrivate && !s.Learn {
		err = errors.Join(err, sbxerr.New(sbxerr.APIUsage, "server.request", "learn_private is for learn: set both"))
	}
	if s.Keep && (s.Detach || s.Learn) {
		err = errors.Join(err, refuse("keep excludes detach, whose sandbox stays anyway, and learn, whose sandbox goes with its command"))
	}
	return plan.Request{Create: create, Exec: exec, Learn: s.Learn, LearnPrivate: s.LearnPrivate, Keep: s.Keep}, err
}

// createOf reads a SandboxSpec; nil is one with nothing set.
func createOf(s *caissonv1.SandboxSpec) (plan.CreateRequest, error) {
	if s == nil {
		return plan.CreateRequest{}, nil
	}
	var errs []error
	if s.Name != "" {
		errs = append(errs, checkRef("name", s.Name))
	}
	ttl, err := notNegative("ttl", s.Ttl)
	errs = append(errs, err)
	idle, err := notNegative("idle_timeout", s.IdleTimeout)
	errs = append(errs, err)
	env, err := envOf(s.Env)
	errs = append(errs, err)
	return plan.CreateRequest{
		Name: s.Name, Hostname: s.Hostname, Rootfs: s.Rootfs, From: s.From, SnapshotOnEnd: s.SnapshotOnEnd, Image: s.Image, Language: s.Language, LanguageReason: s.LanguageReason, Profile: s.Profile, User: s.User, Env: env, Network: s.Network, Allow: s.Allow, Deny: s.Deny, DNS: s.Dns, Routes: s.Routes, AllowECH: s.AllowEch, Publish: s.Publish,
		Expose: s.Expose, Links: s.Links,
		Workspace: workspaceOf(s.Workspace), Mounts: mountsOf(s.Mounts), Caches: s.Caches, Limits: s.Limits,
		Labels: s.Labels, Session: s.Session, Task: s.Task, TTL: ttl, IdleTimeout: idle, OnIdle: s.OnIdle,
		Nested: nestedOf(s.Nested),
	}, errors.Join(errs...)
}

func nestedOf(n *caissonv1.Nested) *plan.NestedRequest {
	if n == nil {
		return nil
	}
	return &plan.NestedRequest{Sandboxes: n.Sandboxes, MemoryBytes: n.MemoryBytes, MilliCPU: n.MilliCpu}
}

// createRequestOf reads a CreateRequest.
func createRequestOf(m *caissonv1.CreateRequest) (plan.CreateRequest, error) {
	req, err := createOf(m.Spec)
	req.Ensure, req.Replace, req.Key = m.Ensure, m.Replace, m.IdempotencyKey
	return req, err
}

// execOf reads an ExecSpec; nil is one with nothing set.
func execOf(e *caissonv1.ExecSpec) (plan.ExecRequest, error) {
	if e == nil {
		return plan.ExecRequest{}, nil
	}
	var err error
	if len(e.Args) > 0 && e.Shell != "" {
		err = refuse("args and shell exclude each other")
	}
	timeout, errTimeout := durationOf("timeout", e.Timeout)
	size, errSize := winSizeOf(e.Tty)
	env, errEnv := envOf(e.Env)
	if errTimeout != nil || errSize != nil || errEnv != nil {
		err = errors.Join(err, errTimeout, errSize, errEnv)
	}
	return plan.ExecRequest{
		Args: e.Args, Shell: e.Shell, Env: env, Cwd: e.Workdir, User: e.User, Stdin: e.Stdin, TTY: size,
		Timeout: timeout, OutputLimit: e.OutputLimitBytes, Rlimits: rlimitsOf(e.Rlimits), Limits: execLimitsOf(e.Limits), Inputs: inputsOf(e),
	}, err
}

// inputsOf takes the input files out of e, so that no secret lives as long as the call.
func inputsOf(e *caissonv1.ExecSpec) []plan.InputRequest {
	if len(e.Inputs) == 0 {
		return nil
	}
	list := each(e.Inputs, func(f *caissonv1.Input) plan.InputRequest {
		return plan.InputRequest{Path: f.Path, Data: f.Data, Mode: f.Mode}
	})
	e.Inputs = nil
	return list
}

// envOf is an environment as execve(2) takes it.
func envOf(m map[string]string) ([]string, error) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if name == "" || strings.Contains(name, "=") {
			return nil, refuse("env has a variable named %q: a name is not empty and holds no =", sbxerr.Clip(name))
		}
		list = append(list, name+"="+m[name])
	}
	return list, nil
}

func rlimitsOf(list []*caissonv1.Rlimit) []plan.Rlimit {
	if len(list) == 0 {
		return nil
	}
	return each(list, func(r *caissonv1.Rlimit) plan.Rlimit {
		return plan.Rlimit{Name: "RLIMIT_" + strings.ToUpper(r.Name), Soft: r.Soft, Hard: r.Hard}
	})
}

func execLimitsOf(l *caissonv1.ExecLimits) plan.ExecLimits {
	if l == nil {
		return plan.ExecLimits{}
	}
	return plan.ExecLimits{MemoryBytes: l.MemoryBytes, MilliCPU: l.MilliCpu, PIDs: l.Pids}
}

// winSizeOf reads a terminal's size; nil is no terminal.
func winSizeOf(s *caissonv1.WinSize) (*plan.WinSize, error) {
	if s == nil {
		return nil, nil
	}
	if s.Rows < 1 || s.Rows > math.MaxUint16 || s.Cols < 1 || s.Cols > math.MaxUint16 {
		return nil, refuse("a terminal of %d rows and %d columns: give 1 to %d of each", s.Rows, s.Cols, math.MaxUint16)
	}
	return &plan.WinSize{Rows: uint16(s.Rows), Cols: uint16(s.Cols)}, nil
}

// updateOf reads an UpdateRequest.
func updateOf(m *caissonv1.UpdateRequest) (runtime.UpdateRequest, error) {
	ttl, errTTL := notNegative("ttl", m.Ttl)
	idle, errIdle := notNegative("idle_timeout", m.IdleTimeout)
	req := runtime.UpdateRequest{
		Limits: settings.Changes(m), TTL: ttl, IdleTimeout: idle, OnIdle: m.OnIdle, Labels: m.Labels,
		Network: m.Network, Allow: rulesOf(m.Allow), Deny: rulesOf(m.Deny), Publish: rulesOf(m.Publish),
	}
	err := errors.Join(errTTL, errIdle)
	network := m.Network != nil || m.Allow != nil || m.Deny != nil || m.Publish != nil
	if err == nil && !network && req.Limits == nil && ttl == nil && idle == nil && m.OnIdle == nil && len(m.Labels) == 0 {
		err = refuse("there is nothing to update: set a limit, a time, a label, rules or clients of ports")
	}
	return req, err
}

// rulesOf reads rules that may be absent.
func rulesOf(r *caissonv1.Rules) *runtime.Rules {
	if r == nil {
		return nil
	}
	return &runtime.Rules{Rules: r.Rules}
}

// policyQueryOf reads a PolicyQuery.
func policyQueryOf(q *caissonv1.PolicyQuery) (runtime.PolicyQuery, error) {
	if q == nil {
		return runtime.PolicyQuery{}, nil
	}
	out := runtime.PolicyQuery{Ref: q.Ref, Profile: q.Profile, Network: q.Network, Allow: q.Allow, Deny: q.Deny}
	if q.Ref == "" {
		return out, nil
	}
	err := checkRef("ref", q.Ref)
	if q.Profile != "" || q.Network != "" || len(q.Allow)+len(q.Deny) > 0 {
		err = errors.Join(err, refuse("ref names a sandbox, whose policy it has: leave profile, network, allow and deny away"))
	}
	return out, err
}

// attachOf reads a AttachExecRequest.
func attachOf(a *caissonv1.AttachExecRequest) (runtime.AttachOptions, error) {
	err := errors.Join(checkRef("ref", a.Ref), checkRef("id", a.Id),
		checkOffset("stdout_offset", a.StdoutOffset), checkOffset("stderr_offset", a.StderrOffset))
	return runtime.AttachOptions{StdoutOffset: a.StdoutOffset, StderrOffset: a.StderrOffset}, err
}

// logOptionsOf reads a LogsRequest.
func logOptionsOf(m *caissonv1.LogsRequest) (runtime.LogOptions, error) {
	err := errors.Join(checkRef("ref", m.Ref), checkStream(m.Stream),
		checkOffset("stdout_offset", m.StdoutOffset), checkOffset("stderr_offset", m.StderrOffset))
	if m.ExecId != "" {
		err = errors.Join(err, checkRef("exec_id", m.ExecId))
	}
	since, noSince := momentOf("since", m.Since)
	until, noUntil := momentOf("until", m.Until)
	if !until.IsZero() && until.Before(since) {
		err = errors.Join(err, sbxerr.WithRemedy(sbxerr.Config, "server.request", fmt.Errorf("until %s is before since %s", until.Format(time.RFC3339Nano), since.Format(time.RFC3339Nano)), "give since the earlier of both times"))
	}
	return runtime.LogOptions{
		Follow: m.Follow, Stream: m.Stream, Exec: m.ExecId, StdoutOffset: m.StdoutOffset, StderrOffset: m.StderrOffset, Since: since, Until: until,
	}, errors.Join(err, noSince, noUntil)
}

// momentOf reads a point in time that may be absent.
func momentOf(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, sbxerr.WithRemedy(sbxerr.Config, "server.request", fmt.Errorf("%s: %w", field, err), "give a time of the years 1 to 9999")
	}
	return t.AsTime(), nil
}

// durationOf reads a time that may be absent.
func durationOf(field string, d *durationpb.Duration) (*time.Duration, error) {
	if d == nil {
		return nil, nil
	}
	if err := d.CheckValid(); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Config, "server.request", fmt.Errorf("%s: %w", field, err))
	}
	v := d.AsDuration()
	return &v, nil
}

func notNegative(field string, d *durationpb.Duration) (*time.Duration, error) {
	v, err := durationOf(field, d)
	if v != nil && *v < 0 {
		return nil, sbxerr.WithRemedy(sbxerr.Limits, "server.request", fmt.Errorf("%s of %v is negative", field, *v), "give one such as 30s, or 0")
	}
	return v, err
}

func workspaceOf(w *caissonv1.Workspace) *plan.WorkspaceRequest {
	if w == nil {
		return nil
	}
	return &plan.WorkspaceRequest{Dir: w.Dir, Mode: w.Mode, Path: w.Path}
}

func mountsOf(list []*caissonv1.Mount) []plan.MountRequest {
	if len(list) == 0 {
		return nil
	}
	return each(list, func(m *caissonv1.Mount) plan.MountRequest {
		return plan.MountRequest{Type: m.Type, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly, SizeBytes: m.SizeBytes, Cow: m.Cow}
	})
}

func refuse(format string, args ...any) error {
	return sbxerr.New(sbxerr.Config, "server.request", format, args...)
}
