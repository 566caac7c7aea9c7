package egress

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestHostServers(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := hostServers(file("# x\nsearch corp.test\nnameserver 9.9.9.9\nnameserver 2a00::1\noptions edns0\n"))
	if want := "[9.9.9.9:53 [2a00::1]:53]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v; want %s", got, err, want)
	}
	if got, err := hostServers(file("search corp.test\n")); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for _, path := range []string{file("nameserver resolver.test\n"), filepath.Join(t.TempDir(), "none")} {
		if got, err := hostServers(path); sbxerr.Of(err) != sbxerr.EgressResolve {
			t.Errorf("%v, %v", got, err)
		}
	}
}
