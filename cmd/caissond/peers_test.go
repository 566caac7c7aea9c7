package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/tests/need"
)

func TestPeers(t *testing.T) {
	c := config.Config{Peers: []config.Peer{
		{UIDs: []config.Account{"root"}, Profiles: []string{"debug"}},
		{
			UIDs: []config.Account{"1000"}, Groups: []config.Account{"root", "7"},
			Limits: config.PeerLimits{Memory: 4 << 30, CPUs: 4000, PIDs: 300, Tmpfs: 1 << 30, TTL: config.Duration(time.Hour)},
			Quota:  config.PeerQuota{Sandboxes: 2, Memory: 5 << 30, CPUs: 5000, Execs: 9, Disk: 20 << 30}, Images: true, // quota.pids follows: 2 of 256
		},
	}}
	p, err := peers(c, plan.BuiltinProfiles())
	if err != nil {
		t.Fatal(err)
	}
	root, err := p.Grant(peer.User(0, 0, nil, 1))
	if err != nil || root.CheckProfile("debug") != nil || root.CheckProfile("compat") == nil || root.CheckImages() == nil {
		t.Errorf("root as it is listed: %v", err)
	}
	if err := root.CheckLimits(peer.DefaultLimits(), root.TTL(nil)); err != nil {
		t.Errorf("the default ceilings: %v", err)
	}
	for name, caller := range map[string]peer.Caller{"by uid": peer.User(1000, 1000, nil, 1), "by name of its group": peer.User(5, 0, nil, 1), "by gid": peer.User(5, 5, []uint32{7}, 1)} {
		g, err := p.Grant(caller)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		hour := time.Hour
		top := peer.Limits{MemoryBytes: 4 << 30, MilliCPU: 4000, PIDs: 300, TmpfsBytes: 1 << 30, OpenFiles: 4096}
		quota := peer.Usage{Sandboxes: 2, MemoryBytes: 5 << 30, MilliCPU: 5000, Execs: 9, PIDs: 512, DiskBytes: 20 << 30}
		if err := errors.Join(g.CheckLimits(top, &hour), g.CheckQuota(peer.Standing{}, quota), g.CheckImages()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, above := range []peer.Limits{{MemoryBytes: 4<<30 + 1}, {MilliCPU: 4001}, {PIDs: 301}, {TmpfsBytes: 1<<30 + 1}, {OpenFiles: 4097}} {
			if g.CheckLimits(above, &hour) == nil {
				t.Errorf("%s: ceiling %d is not there", name, i)
			}
		}
		for i, above := range []peer.Usage{{Sandboxes: 3}, {MemoryBytes: 5<<30 + 1}, {MilliCPU: 5001}, {Execs: 10}, {PIDs: 513}, {DiskBytes: 20<<30 + 1}} {
			if g.CheckQuota(peer.Standing{}, above) == nil {
				t.Errorf("%s: quota %d is not there", name, i)
			}
		}
	}
	if err := p.Admit(peer.User(1001, 1001, nil, 1)); sbxerr.Of(err) != sbxerr.Peer {
		t.Errorf("who is not listed: %v", err)
	}
}

func TestNamesRefused(t *testing.T) {
	noEnvironment(t)
	for text, want := range map[string]string{
		"peers: [{uids: [no-such-user]}]":                                                `peers[0]: no user "no-such-user" on this host`,
		"peers: [{groups: [no-such-group]}]":                                             `peers[0]: no group "no-such-group" on this host`,
		"peers: [{uids: [1]}, {uids: [nobody]}]":                                         "id 65534",
		"peers: [{uids: [1], profiles: [debig]}]":                                        `peers[0]: no profile "debig", did you mean "debug"?`,
		"peers: [{uids: [1], limits: {memory: 64M}}]":                                    `peers[0]: limits: profile "strict"`,
		"peers: [{uids: [1], quota: {pids: 200}}]":                                       `peers[0]: quota: profile "strict"`,
		"{profiles: {many: {open_files: 8192}}, peers: [{uids: [1], profiles: [many]}]}": `limits: profile "many"`,
		"peers: [{uids: [1], quota: {memory: 64M}}]":                                     `peers[0]: quota: profile "strict"`,
		"{profiles: {big: {pids: 2000}}, peers: [{uids: [1], profiles: [big]}]}":         `limits: profile "big"`,
		"{socket_group: no-such-group, peers: [{uids: [1]}]}":                            `socket_group: no group "no-such-group"`,
		"pools: [{profile: buidl, size: 1}]":                                             `pools[0]: no profile "buidl"; there are compat, debug, dev, strict`,
	} {
		_, err := configured(t, "--config", writeConfig(t, text))
		if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if c, err := configured(t, "--config", writeConfig(t, "{socket_group: root, peers: [{uids: [root], profiles: [debug]}], pools: [{size: 1}]}")); err != nil || c.Pools[0].Max != 1 {
		t.Errorf("what there is: %+v, %v", c.Pools, err)
	}
}

func TestDoor(t *testing.T) {
	some := []config.Peer{{UIDs: []config.Account{"1"}}}
	for _, tt := range []struct {
		c    config.Config
		want door
	}{
		{config.Config{}, door{0o600, 0}},
		{config.Config{Peers: some}, door{0o666, 0}},
		{config.Config{Peers: some, SocketGroup: "4321"}, door{0o660, 4321}},
		{config.Config{Peers: some, SocketGroup: "root"}, door{0o660, 0}},
	} {
		if got, err := doorOf(tt.c); err != nil || got != tt.want {
			t.Errorf("%+v: %+v, %v, want %+v", tt.c, got, err, tt.want)
		}
	}
	need.Root(t, "only root gives a socket to another group")
	path := filepath.Join(shortDir(t), "s")
	l, err := published(path, door{0o660, 4321})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, l)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Uid != 0 || st.Gid != 4321 || fs.FileMode(st.Mode&0o7777) != 0o660 {
		t.Errorf("the socket %+v, %v", st, err)
	}
}

// TestListenOpensToPeersOnly: without peers, the mode of the socket already keeps
// everybody but root out.
func TestListenOpensToPeersOnly(t *testing.T) {
	need.Root(t, "only root gives a socket to another group")
	for _, tt := range []struct {
		peers []config.Peer
		want  fs.FileMode
	}{{nil, 0o600}, {[]config.Peer{{UIDs: []config.Account{"1"}}}, 0o666}} {
		c := config.Config{Socket: filepath.Join(shortDir(t), "s"), Peers: tt.peers}
		l, _, err := (&daemon{}).listen(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.publish(); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Lstat(c.Socket); err != nil || st.Mode().Perm() != tt.want {
			t.Errorf("the socket for %v: %v, %v", tt.peers, st, err)
		}
		closed(t, l)
	}
}
