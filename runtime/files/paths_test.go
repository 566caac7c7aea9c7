package files

import (
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// TestRemedies: what to do about a failure depends on what was asked for.
func TestRemedies(t *testing.T) {
	for _, tt := range []struct {
		verb  string
		errno syscall.Errno
		want  string
	}{
		{"write", syscall.ENOENT, "make_parents"},
		{"make", syscall.ENOENT, "make_parents"},
		{"stat", syscall.ENOENT, "check the path"},
		{"remove", syscall.ENOENT, "check the path"},
		{"move", syscall.EXDEV, "different file systems"},
		{"copy", syscall.EIO, "the message names the reason"},
	} {
		err := subject{verb: tt.verb, path: "/x"}.failure(wire.Failure{Reason: wire.ReasonErrno, Errno: tt.errno})
		if got := sbxerr.RemedyOf(err); !strings.Contains(got, tt.want) || strings.Contains(got, "make_parents") != (tt.want == "make_parents") {
			t.Errorf("%v: remedy %q, want %q", err, got, tt.want)
		}
	}
}
