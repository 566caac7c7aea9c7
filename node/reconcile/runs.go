package reconcile

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/pod"
)

// run is one start of a container: a sandbox, or what the API server remembers of one that is gone.
type run struct {
	container    string
	try, backoff int
	sandbox      string // ID
	name         string
	ended        bool
	exit, signal int32
	reason       string
	message      string
	started, end time.Time
	volumes      []string
	runtime, dir string // of agent-sandbox, with its base directory; empty: the node answers for none
	ip           string
	published    []string // in the daemon's syntax
}

// runs are the starts of a pod's containers, the oldest first.
type runs []run

// of returns the last start of a container, and the one before it.
func (rs runs) of(container string) (last, before *run) {
	for i := range rs {
		if rs[i].container == container {
			last, before = &rs[i], last
		}
	}
	return last, before
}

func (rs runs) live() runs {
	return slices.DeleteFunc(slices.Clone(rs), func(r run) bool { return r.ended })
}

// runsOf asks the daemon for the sandboxes of a pod.
func (r *Reconciler) runsOf(ctx context.Context, uid types.UID) (runs, error) {
	l, err := r.Caisson.List(ctx, &caissonv1.ListRequest{Labels: map[string]string{pod.LabelNode: r.Node, pod.LabelUID: string(uid)}})
	if err != nil {
		return nil, err
	}
	rs := make(runs, len(l.Sandboxes))
	for i, s := range l.Sandboxes {
		rs[i] = runOf(s)
	}
	slices.SortStableFunc(rs, func(a, b run) int { return cmp.Compare(a.try, b.try) })
	return rs, nil
}

// Ended says that nothing runs in a sandbox any more.
func Ended(s *caissonv1.Sandbox) bool { return s.State == "exited" }

func runOf(s *caissonv1.Sandbox) run {
	r := run{
		container: s.Labels[pod.LabelContainer], sandbox: s.Id, name: s.Name,
		try: number(s.Labels[pod.LabelTry]), backoff: number(s.Labels[pod.LabelBackoff]),
		started: timeOf(s.CreatedAt), end: timeOf(s.ExitedAt), ended: Ended(s),
		runtime: s.Labels[pod.LabelRuntime], dir: s.Labels[pod.LabelDir], ip: s.Labels[pod.LabelIP],
	}
	for _, p := range s.Ports {
		r.published = append(r.published, publishOf(p))
	}
	for _, m := range s.Mounts {
		if m.Type == "volume" {
			r.volumes = append(r.volumes, m.Source)
		}
	}
	if r.ended {
		r.setEnd(s.Result)
	}
	return r
}

// publishOf is a port of a sandbox as it was asked for.
func publishOf(p *caissonv1.Port) string {
	text := net.JoinHostPort(p.Address, strconv.Itoa(int(p.HostPort))) + ":" + strconv.Itoa(int(p.Port))
	if len(p.Clients) > 0 {
		text += "@" + strings.Join(p.Clients, "+")
	}
	return text
}

func (r *run) setEnd(e *caissonv1.Result) {
	if e == nil {
		r.exit, r.reason, r.message = killed, "ContainerStatusUnknown", "nobody knows how the command ended"
		return
	}
	r.exit, r.signal = e.ExitCode, e.Signal
	switch {
	case e.OomKilled:
		r.reason = "OOMKilled"
	case e.ExitCode == 0 && e.Source == "command":
		r.reason = "Completed"
	default:
		r.reason = "Error"
	}
	if e.Source == "runtime" {
		r.message = "caisson: " + e.Reason
		if e.Cause != "" {
			r.message += " (" + e.Cause + ")"
		}
	}
}

// killed is the exit code of a command that KILL ended.
const killed = 137

// remembered is the last start of a container of which there is no sandbox, by its status. A
// container that ran then has ended since.
func remembered(s corev1.ContainerStatus) (run, bool) {
	r := run{container: s.Name, try: int(s.RestartCount), backoff: int(s.RestartCount), ended: true}
	state := s.State
	if state.Waiting != nil {
		state = s.LastTerminationState
	}
	switch {
	case state.Terminated != nil:
		t := state.Terminated
		r.exit, r.signal, r.reason, r.message = t.ExitCode, t.Signal, t.Reason, t.Message
		r.started, r.end = t.StartedAt.Time, t.FinishedAt.Time
	case state.Running != nil:
		r.exit, r.reason, r.message = killed, "ContainerStatusUnknown", "the sandbox is gone"
		r.started, r.end = state.Running.StartedAt.Time, time.Now()
	default:
		return run{}, false
	}
	return r, true
}

// withRemembered adds containers that have no sandbox. It takes the status that was told last: the
// informer may show an older one. Without that it takes the status of the API server.
func (r *Reconciler) withRemembered(p *corev1.Pod, rs runs) runs {
	r.mu.Lock()
	told := r.lastTold[p.UID]
	r.mu.Unlock()
	for _, s := range slices.Concat(told, p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if last, _ := rs.of(s.Name); last != nil {
			continue
		}
		if r, ok := remembered(s); ok {
			rs = append(rs, r)
		}
	}
	return rs
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // 0 for what is not ours
	return n
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
