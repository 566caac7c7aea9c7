package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// result is what a call of kubectl gave.
type result struct {
	args        []string
	out, errs   string
	code        int
	took        time.Duration
	interrupted bool
}

func prepare(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program("CAISSON_KUBERNETES", "kubernetes"), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+site.kubeconfig("admin"), "HOME="+site.dir)
	return cmd
}

func try(stdin string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	cmd := prepare(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	begin := time.Now()
	err := cmd.Run()
	r := result{args: args, took: time.Since(begin), out: out.String(), errs: errs.String(), code: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	r.interrupted = err != nil && !errors.As(err, &exit)
	return r
}

// kubectl makes a call that must succeed.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	r := try("", args...)
	if r.code != 0 {
		t.Fatalf("kubectl %q: exit code %d after %s\n%s%s", args, r.code, r.took, r.out, r.errs)
	}
	return r.out
}

// equal compares what a call printed.
func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, not %q", what, got, want)
	}
}
