package agentsandbox

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const (
	// largestOutput is the most of one stream of a command whose output is one answer, in bytes.
	largestOutput = 8 << 20
	// allOutput is the most of all such commands of the node.
	allOutput = 256 << 20
)

var errOutput = errors.New("the output is larger than one answer holds (8 MiB for each stream, 256 MiB for all commands of the node): write it to a file")

// budget is what may still be kept of output.
type budget struct{ left atomic.Int64 }

func newBudget() *budget {
	b := &budget{}
	b.left.Store(allOutput)
	return b
}

// buffer keeps one stream of a command.
type buffer struct {
	bytes.Buffer
	budget *budget
	taken  int64
}

// Write implements io.Writer. Its error ends the command.
func (b *buffer) Write(p []byte) (int, error) {
	n := int64(len(p))
	if b.taken+n > largestOutput || b.budget.left.Add(-n) < 0 {
		if b.taken+n <= largestOutput {
			b.budget.left.Add(n)
		}
		return 0, errOutput
	}
	b.taken += n
	return b.Buffer.Write(p)
}

func (b *buffer) free() { b.budget.left.Add(b.taken) }

// finished is a command that ended, with its output.
type finished struct {
	*caissonv1.Result
	stdout, stderr buffer
}

func (f *finished) free() {
	f.stdout.free()
	f.stderr.free()
}

// run runs a command to its end; the end of ctx ends it. The caller frees the output, also after an
// error.
func (r *runtime) run(ctx context.Context, spec *caissonv1.ExecSpec) (*finished, error) {
	f := &finished{stdout: buffer{budget: r.output}, stderr: buffer{budget: r.output}}
	var err error
	f.Result, err = r.caisson.Exec(ctx, r.ID, spec, api.IO{Stdout: &f.stdout, Stderr: &f.stderr})
	return f, err
}
