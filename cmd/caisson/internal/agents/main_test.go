package agents

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/verbs"
	"github.com/caisson-run/caisson/server/servertest"
)

// invoke runs the CLI against f.
func invoke(t *testing.T, f *servertest.Fake, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	var out, errOut bytes.Buffer
	code = cli.Program{Groups: verbs.Groups(Verbs...)}.Run(t.Context(), args, strings.NewReader(stdin), &out, &errOut)
	return code, out.String(), errOut.String()
}
