package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilexec "k8s.io/utils/exec"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/pod"
)

// auth knows alice, who may do all, and bob, who may do nothing.
type auth struct{ nodeutil.Auth }

func (auth) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	name := r.Header.Get("X-User")
	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
}

func (auth) GetRequestAttributes(u user.Info, r *http.Request) authorizer.Attributes {
	return authorizer.AttributesRecord{User: u, Verb: "get", Resource: "nodes", Path: r.URL.Path}
}

func (auth) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "alice" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "not alice", nil
}

// line is a part of the output of a command.
type line struct {
	stderr bool
	text   string
	at     int // seconds
}

// caisson has one sandbox with one command.
type caisson struct {
	Caisson
	result *caissonv1.Result
	err    error
	lines  []line
}

func (c *caisson) Exec(_ context.Context, _ string, spec *caissonv1.ExecSpec, rio api.IO) (*caissonv1.Result, error) {
	if c.err == nil && rio.Stdout != nil {
		_, _ = fmt.Fprint(rio.Stdout, strings.Join(spec.Args, " "))
	}
	return c.result, c.err
}

func (c *caisson) Logs(_ context.Context, req *caissonv1.LogsRequest, stdout, stderr io.Writer) error {
	offsets := map[bool]int64{}
	for _, l := range c.lines {
		to, from := stdout, req.StdoutOffset
		if l.stderr {
			to, from = stderr, req.StderrOffset
		}
		begin := offsets[l.stderr]
		offsets[l.stderr] += int64(len(l.text))
		if req.Stream != "" && (req.Stream == "stderr") != l.stderr || begin < from {
			continue
		}
		if err := to.(api.Placer).Place(begin, epoch.Add(time.Duration(l.at)*time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(to, l.text); err != nil {
			return err
		}
	}
	return nil
}

func (c *caisson) Stats(_ context.Context, _ *caissonv1.StatsRequest, yield func(*caissonv1.StatsResponse) error) error {
	return yield(&caissonv1.StatsResponse{Time: timestamppb.New(epoch), Sandboxes: []*caissonv1.SandboxStats{
		{SandboxId: "box", MemoryBytes: 7, Cpu: durationpb.New(1500 * time.Millisecond)}, {SandboxId: "other"}}})
}

var epoch = time.Unix(1_700_000_000, 0)

// pods knows one, with one sandbox.
type pods struct{}

func (pods) Find(_ context.Context, namespace, name, _ string, _ bool) (string, error) {
	if namespace+"/"+name != "ns/p" {
		return "", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	return "box", nil
}

func (pods) Live(context.Context) ([]*caissonv1.Sandbox, error) {
	return []*caissonv1.Sandbox{{Id: "box", CreatedAt: timestamppb.New(epoch), Labels: map[string]string{
		pod.LabelNamespace: "ns", pod.LabelPod: "p", pod.LabelContainer: "c"}}}, nil
}

func (pods) Pods() []*corev1.Pod { return nil }

// get asks as a user, and returns status and body.
func get(t *testing.T, c *caisson, who, path string) (int, string) {
	t.Helper()
	s := &Server{Node: "n", Pods: pods{}, Caisson: c}
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req.Header.Set("X-User", who)
	res := httptest.NewRecorder()
	s.Handler(auth{}).ServeHTTP(res, req)
	return res.Code, res.Body.String()
}

// TestStrangersGetNothing asks each route, of which alice gets something.
func TestStrangersGetNothing(t *testing.T) {
	for _, path := range []string{
		"/pods", "/containerLogs/ns/p/c", "/exec/ns/p/c?command=true", "/attach/ns/p/c", "/portForward/ns/p", "/stats/summary", "/metrics/resource", "/healthz",
	} {
		for who, want := range map[string]int{"": http.StatusUnauthorized, "bob": http.StatusForbidden} {
			if code, _ := get(t, &caisson{}, who, path); code != want {
				t.Errorf("%s as %q: %d, not %d", path, who, code, want)
			}
		}
		if code, _ := get(t, &caisson{}, "alice", path); code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound {
			t.Errorf("%s as alice: %d", path, code)
		}
	}
}

func TestLogs(t *testing.T) {
	c := &caisson{lines: []line{{true, "c\n", 3}, {false, "a\n", 1}, {false, "b\nd", 2}, {true, "e\n", 4}}}
	for query, want := range map[string]string{
		"":             "a\nb\ndc\ne\n",
		"tailLines=0":  "",
		"tailLines=2":  "c\ne\n",
		"limitBytes=3": "a\nb",
		"sinceTime=" + epoch.Add(3*time.Second).UTC().Format(time.RFC3339): "c\ne\n",
		"follow=true":                 "a\nb\nc\ne\nd",
		"timestamps=true&tailLines=1": epoch.Add(4*time.Second).UTC().Format(time.RFC3339Nano) + " e\n",
	} {
		if code, got := get(t, c, "alice", "/containerLogs/ns/p/c?"+query); code != http.StatusOK || got != want {
			t.Errorf("%s: %d %q, not %q", query, code, got, want)
		}
	}
	for path, want := range map[string]int{"ns/p/c?tailLines=-1": http.StatusBadRequest, "ns/p/c?follow=x": http.StatusBadRequest, "ns/other/c": http.StatusNotFound} {
		if code, body := get(t, c, "alice", "/containerLogs/"+path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestExitCodes(t *testing.T) {
	broken := errors.New("the daemon is away")
	for _, c := range []struct {
		caisson
		code int
	}{{caisson{result: &caissonv1.Result{}}, 0}, {caisson{result: &caissonv1.Result{ExitCode: 7}}, 7}, {caisson{err: broken}, -1}} {
		err := ended(c.caisson.Exec(t.Context(), "box", &caissonv1.ExecSpec{}, api.IO{}))
		var exit utilexec.CodeExitError
		switch {
		case c.code == 0 && err != nil, c.code > 0 && (!errors.As(err, &exit) || exit.Code != c.code), c.code < 0 && !errors.Is(err, broken):
			t.Errorf("%d: %v", c.code, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	_, body := get(t, &caisson{}, "alice", "/metrics/resource")
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="c",namespace="ns",pod="p"} 1.5 1700000000000`, `pod_memory_working_set_bytes{namespace="ns",pod="p"} 7 `,
		"scrape_error 0\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	// The node's use is the machine's. That is more than the sandbox's.
	for _, name := range []string{"node_cpu_usage_seconds_total", "node_memory_working_set_bytes"} {
		_, rest, _ := strings.Cut(body, "\n"+name+" ")
		value, _, _ := strings.Cut(rest, " ")
		if n, err := strconv.ParseFloat(value, 64); err != nil || n <= 7 {
			t.Errorf("%s is %q", name, value)
		}
	}
	if _, body := get(t, &caisson{}, "alice", "/stats/summary"); !strings.Contains(body, `"usageCoreNanoSeconds":1500000000`) && !strings.Contains(body, `"usageCoreNanoSeconds": 1500000000`) {
		t.Errorf("the summary is %s", body)
	}
}
