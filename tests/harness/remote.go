package harness

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// Remote is a daemon that serves the network by TLS.
type Remote struct {
	*Daemon
	CA        Authority
	Dir       string // of the certificates
	Address   string
	Cert, Key string // files
	Settings  string
}

// The users for whom a Remote takes keys.
const remotePeers = `
peers:
  - uids: [54321]
    volumes: true
  - uids: [54322]
`

// StartRemote starts a daemon, as StartWith does, that serves the network on loopback. More is for
// listen, each begun with a comma.
func StartRemote(t testing.TB, more string, config ...string) Remote {
	t.Helper()
	dir := t.TempDir()
	r := Remote{CA: NewAuthority(t, dir, "ca"), Dir: dir, Address: FreeAddress(t)}
	r.Cert, r.Key = r.CA.Sign(t, dir, "localhost", time.Now().Add(time.Hour))
	r.Settings = remotePeers + fmt.Sprintf("listen: {tcp: '%s', cert: %s, key: %s%s}\n", r.Address, r.Cert, r.Key, more) + strings.Join(config, "")
	r.Daemon = StartWith(t, r.Settings)
	return r
}

// FreeAddress is an address of loopback that was free just now.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// MakeKey makes a key that the daemon knows when this returns.
func (r Remote) MakeKey(t testing.TB, args ...string) string {
	t.Helper()
	key := strings.TrimSpace(r.Run(t, append([]string{"key", "create"}, args...)...).Stdout)
	for range 100 {
		if strings.Contains(r.Log(), "key.added name="+args[0]) {
			return key
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the daemon did not take the key %s:\n%s", args[0], r.Log())
	return ""
}
