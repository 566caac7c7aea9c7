package sbxerr

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// Whoever meets a shortage of descriptors names it so, and not what it was about to do.
func TestShortage(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		err := fmt.Errorf("open: %w", &os.PathError{Op: "open", Path: "/x", Err: errno})
		for code, want := range map[Code]Code{
			Internal: NoFiles, UserNS: NoFiles, Mount: NoFiles, Engine: NoFiles, StateDir: NoFiles, Init: NoFiles, ImageUser: NoFiles,
			Limits: Limits, FilePath: FilePath, FileFailed: FileFailed, EgressDial: EgressDial, ClientIO: ClientIO, Canceled: Canceled,
		} {
			for name, got := range map[string]error{"Wrap": Wrap(code, "a.b", err), "New": New(code, "a.b", "x: %w", err), "WithRemedy": WithRemedy(code, "a.b", err, "do y")} {
				if Of(got) != want || !errors.Is(got, errno) {
					t.Errorf("%s of %s and %v has code %s, want %s", name, code, errno, Of(got), want)
				}
				if remedy := RemedyOf(got); want == NoFiles && remedy == "do y" {
					t.Errorf("%s: the remedy is that of another failure", name)
				}
			}
		}
		if got := Of(err); got != NoFiles {
			t.Errorf("without a code it is %s", got)
		}
	}
	if got := Of(Wrap(UserNS, "a.b", syscall.EPERM)); got != UserNS {
		t.Errorf("another failure is %s", got)
	}
}
