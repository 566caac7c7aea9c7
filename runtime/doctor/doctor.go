// Package doctor finds out what would fail on this host before anything runs, with the code
// of the failure and a remedy.
//
// It probes: it creates the resource that a sandbox needs, checks it, and removes it. It
// compares no kernel version. If a probe gives no answer the result is "unknown". A sandbox
// that needs the resource is then refused.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
)

// The states of a check.
const (
	OK      = "ok"
	Warn    = "warn"    // sandboxes run; something around them should be better
	Fail    = "fail"    // no sandbox can be made
	Unknown = "unknown" // could not be found out
)

// Host is the host to examine, and its configuration.
type Host struct {
	Root, State  string // the daemon's; absent ones are looked at where they would be made
	BinDir       string
	CgroupParent string
	// External says that the engine is the host's own containerd, which brings
	// its own programs.
	External bool
	// Engine returns the versions of a running engine. Nil asks the
	// programs in BinDir.
	Engine func(context.Context) (containerd, runc string, err error)
	Bridge netns.BridgeConfig // what the operator says of the network mode bridge
	// IDBase and IDBlocks are the reserved range; 0 where none is yet.
	IDBase, IDBlocks uint32
	MaxSandboxes     int         // sandboxes.max of the configuration
	Each             plan.Limits // what one sandbox may have; OpenFiles is of each of its processes
}

// examination looks at one side of a host.
type examination struct {
	name    string
	examine func(context.Context, Host) []runtime.Check
	// late says that its findings only concern sandboxes that ask for more than the
	// minimum.
	late bool
}

// examinations in the order in which their findings are told. Rights come
// first: without them the others say little.
var examinations = []examination{
	{name: "rights", examine: examineRights},
	{name: "kernel", examine: examineKernel},
	{name: "cgroups", examine: examineCgroups},
	{name: "user namespaces", examine: examineUserNS},
	{name: "host ids", examine: examineIDs},
	{name: "file systems", examine: examineFiles},
	{name: "state", examine: examineState},
	{name: mountsName, examine: examineMounts},
	{name: "disks", examine: examineDisks},
	{name: "counters", examine: examineCounters},
	{name: "network namespaces", examine: examineNetwork},
	{name: "iptables", examine: examineFilters, late: true}, // runs iptables: most of the time of all
	{name: "network mode bridge", examine: examineBridge},
	{name: "engine", examine: examineEngine},
	{name: filtersName, examine: examineInForce},
	{name: "memory of filters", examine: examineJIT},
	{name: "memory of sockets", examine: examineSockets, late: true}, // reads the kernel's types
	{name: "hardening", examine: examineHardening},
}

// Examine returns all findings about h.
func Examine(ctx context.Context, h Host) []runtime.Check { return examine(ctx, h, examinations) }

// Preflight refuses a host on which no sandbox could be made. It looks at no more
// than that takes: every start of a daemon waits for it.
func Preflight(ctx context.Context, h Host) error {
	first := slices.DeleteFunc(slices.Clone(examinations), func(e examination) bool { return e.late })
	return Refusal(examine(ctx, h, first))
}

// examine looks at everything at once: most of the time is waiting for the kernel
// and for programs.
func examine(ctx context.Context, h Host, list []examination) []runtime.Check {
	if os.Geteuid() != 0 {
		return examineRights(ctx, h) // all others would say in their words that it is not root
	}
	found := make([][]runtime.Check, len(list))
	var wg sync.WaitGroup
	for i, e := range list {
		wg.Go(func() { found[i] = e.within(ctx, h) })
	}
	wg.Wait()
	return slices.Concat(found...)
}

// checkTimeout bounds each examination: a program or a file system that hangs must not
// hold up what is known of the rest. A host that starts all at once can take seconds.
const checkTimeout = 35 * time.Second

// within examines h, or says that there was no answer in time.
func (e examination) within(ctx context.Context, h Host) []runtime.Check {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %s: something that it uses hangs", checkTimeout))
	defer cancel()
	done := make(chan []runtime.Check, 1)
	go func() { done <- e.examine(ctx, h) }()
	select {
	case found := <-done:
		return found
	case <-ctx.Done():
		return features([]finding.Feature{{Name: e.name, Needed: !e.late, Err: context.Cause(ctx)}}, sbxerr.Deadline)
	}
}

// Refusal returns the failed checks as one error, or nil where a sandbox can
// be made.
func Refusal(checks []runtime.Check) error {
	var errs []error
	for _, c := range checks {
		if c.Status == Fail {
			errs = append(errs, sbxerr.WithRemedy(sbxerr.Code(c.Code), "doctor."+strings.ReplaceAll(c.Name, " ", "_"), errors.New(c.Detail), c.Remedy))
		}
	}
	return errors.Join(errs...)
}

func ok(name, detail string) []runtime.Check {
	return []runtime.Check{{Name: name, Status: OK, Detail: detail}}
}

// problem makes a finding of an error. Its code is the error's own, else code.
func problem(name, status string, code sbxerr.Code, err error) []runtime.Check {
	if c := sbxerr.Of(err); c != sbxerr.Unknown {
		code = c
	}
	return []runtime.Check{{Name: name, Status: status, Detail: err.Error(), Code: string(code), Remedy: remedy(code, err)}}
}

func remedy(code sbxerr.Code, err error) string {
	if sbxerr.Of(err) == code {
		return sbxerr.RemedyOf(err)
	}
	d, _ := sbxerr.Describe(code)
	return d.Remedy
}
