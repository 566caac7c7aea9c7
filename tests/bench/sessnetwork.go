package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/tests/harness"
)

// What is moved by the measurements of the network.
const (
	connections = 300
	streamBytes = 1 << 30
	wireServer  = "93.184.215.14:7"
	wireName    = "server.example"
)

// lan is three network namespaces in a row: a client behind a veth and NAT, as
// other runtimes have it, what stands for the host, and a server.
type lan struct {
	t                   *driver
	dir                 string
	client, host, serve string
	program             string // wire
}

func newLAN(t *driver) *lan {
	dir, err := os.MkdirTemp("/var/tmp", "caisson-bench-")
	if err != nil {
		t.Fatal(err)
	}
	l := &lan{t: t, dir: dir, program: filepath.Join(dir, "bin", "wire")}
	for name, path := range map[string]*string{"client": &l.client, "host": &l.host, "server": &l.serve} {
		*path = filepath.Join(dir, name)
		if err := netns.Create(*path); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		err := errors.Join(netns.Remove(l.client), netns.Remove(l.host), netns.Remove(l.serve), os.RemoveAll(dir))
		if err != nil {
			t.Error(err)
		}
	})
	build := exec.Command("go", "build", "-trimpath", "-o", l.program, "./tests/bench/wire")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	l.run(build)
	l.link("s", l.serve, "93.184.215.1", "93.184.215.14")
	l.link("c", l.client, "10.77.0.1", "10.77.0.2")
	l.in(l.client, "ip", "route", "add", "default", "via", "10.77.0.1")
	l.in(l.host, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	l.in(l.host, "iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.77.0.0/24", "-j", "MASQUERADE")
	l.startServer()
	return l
}

// link joins the host and another namespace.
func (l *lan) link(name, other, here, there string) {
	l.in(l.host, "ip", "link", "add", name+"0", "type", "veth", "peer", "name", name+"1", "netns", other)
	l.in(l.host, "ip", "addr", "add", here+"/24", "dev", name+"0")
	l.in(l.host, "ip", "link", "set", name+"0", "up")
	l.in(other, "ip", "addr", "add", there+"/24", "dev", name+"1")
	l.in(other, "ip", "link", "set", name+"1", "up")
}

func enter(ns string, line ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + ns, "--"}, line...)...)
}

func (l *lan) in(ns string, line ...string) { l.run(enter(ns, line...)) }

func (l *lan) run(cmd *exec.Cmd) []byte {
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return out
}

func (l *lan) startServer() {
	cmd := enter(l.serve, l.program, "serve", wireServer)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it serves until then
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		l.t.Fatalf("the server did not start: %v", err)
	}
}

// took reads what wire printed.
func (l *lan) took(printed []byte) times {
	var all []time.Duration
	if err := json.Unmarshal(printed, &all); err != nil {
		l.t.Fatalf("%q: %v", printed, err)
	}
	return all
}

// network measures what a network through the gateway costs, beside a plain veth
// with NAT and beside none.
func (s *suite) network() {
	for _, program := range []string{"ip", "nsenter", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			s.r.Sessions = append(s.r.Sessions, Section{Name: "network", Runs: []Run{{Name: "caisson", Skipped: program + " is not installed"}}})
			return
		}
	}
	l := newLAN(s.t)
	d := harness.New(s.t)
	d.Wrap = []string{"nsenter", "--net=" + l.host, "--"}
	d.Config = "network: {map: {" + wireName + ": 93.184.215.14}}\n" +
		"profiles: {web: {network: {mode: allow, allow: [" + wireName + ":7+8]}}, alone: {}}\n" +
		"pools: [{profile: web, size: 4}, {profile: alone, size: 4}]\n"
	d.Launch(s.t)
	s.t.Cleanup(func() {
		d.Stop(s.t)
		d.CheckNothingLeft(s.t)
	})
	site := newSite(s.t, d)
	s.networkCreates(site)
	s.networkExecs(site)
	s.networkTraffic(site, l)
}

// stockFilled is how long the daemon takes to have network namespaces ready again: it waits
// for 120 ms without a create, and makes one in 20 ms. Without one that is ready, a create
// takes 20 ms more.
const stockFilled = 400 * time.Millisecond

// networkCreates compares the making of a sandbox with a network to that of one
// without, cold and from the pool.
func (s *suite) networkCreates(site *site) {
	made := func(spec *caissonv1.SandboxSpec) time.Duration {
		begin := time.Now()
		box, err := site.Create(s.t.Context(), &caissonv1.CreateRequest{Spec: spec})
		if err != nil {
			s.t.Fatal(err)
		}
		took := time.Since(begin)
		site.mustRemove(box.Id)
		return took
	}
	cold := func(network string) *caissonv1.SandboxSpec {
		return &caissonv1.SandboxSpec{Profile: "compat", Network: network}
	}
	var alone, allow, pooledAlone, pooledAllow times
	for round := range s.rounds {
		site.awaitPools() // whose filling would take part
		time.Sleep(stockFilled)
		if round%2 == 0 { // each is first as often: the removal of the one before takes part
			alone = append(alone, made(cold("none")))
		}
		allow = append(allow, made(cold("allow")))
		if round%2 == 1 {
			alone = append(alone, made(cold("none")))
		}
		pooledAlone = append(pooledAlone, made(&caissonv1.SandboxSpec{Profile: "alone"}))
		pooledAllow = append(pooledAllow, made(&caissonv1.SandboxSpec{Profile: "web"}))
	}
	s.r.Sessions = append(s.r.Sessions, Section{Name: "network, create", Runs: []Run{
		{Name: "none", What: "create, cold, without a network", Took: alone.summary()}, {Name: "allow", What: "the same with one", Took: allow.summary()},
		{Name: "none, pool", What: "create from the pool", Took: pooledAlone.summary()}, {Name: "allow, pool", What: "the same with a network", Took: pooledAllow.summary()},
	}})
	s.r.target(atMost("create with a network, more than without, cold, p50", allow.summary().P50-alone.summary().P50, 1, "ms"))
	s.r.target(atMost("create with a network, more than without, from the pool, p50", pooledAllow.summary().P50-pooledAlone.summary().P50, 1, "ms"))
}

// networkExecs compares short commands in a sandbox with a network to those in one
// without.
func (s *suite) networkExecs(site *site) {
	site.awaitPools() // whose filling would take part
	var boxes [2]string
	for i, network := range []string{"none", "allow"} {
		box, err := site.Create(s.t.Context(), &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{Profile: "compat", Network: network}})
		if err != nil {
			s.t.Fatal(err)
		}
		defer site.mustRemove(box.Id)
		boxes[i] = box.Id
	}
	var took [2]times
	for round := range s.rounds*execRounds + warmRounds {
		for i, id := range boxes {
			begin := time.Now()
			if _, err := site.execTrue(s.t.Context(), id); err != nil {
				s.t.Fatal(err)
			}
			if round >= warmRounds {
				took[i] = append(took[i], time.Since(begin))
			}
		}
	}
	alone, allow := took[0].summary(), took[1].summary()
	s.r.Sessions = append(s.r.Sessions, Section{Name: "network, exec", Runs: []Run{
		{Name: "none", What: "exec /bin/true in a live sandbox without a network", Took: alone}, {Name: "allow", What: "the same with one", Took: allow},
	}})
	s.r.target(atMost("exec with a network, more than without, p50", allow.P50-alone.P50, 0.1, "ms"))
}

// awaitPools returns when all pools are full.
func (s *site) awaitPools() {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { // nothing announces it
		st, err := s.Info(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		full := true
		for _, p := range st.Pools {
			full = full && p.Ready >= p.Size && p.Filling == 0
		}
		if full {
			return
		}
	}
	s.t.Fatalf("the pools are not full")
}

// networkTraffic compares connections and a stream through the gateway to those
// through a veth and NAT.
func (s *suite) networkTraffic(site *site, l *lan) {
	box, err := site.Create(s.t.Context(), &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{
		Profile: "web", Limits: &caissonv1.Limits{MilliCpu: ptr(int64(2000))}, Workspace: &caissonv1.Workspace{Dir: filepath.Dir(l.program), Mode: "ro"},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer site.mustRemove(box.Id)
	plain := func(verb, n string) []byte { return l.run(enter(l.client, l.program, verb, wireServer, n)) }
	gateway := func(verb, n string) []byte {
		out, err := site.Output(s.t.Context(), box.Id, &caissonv1.ExecSpec{Args: []string{"/workspace/wire", verb, wireName + ":7", n}}, nil)
		if err != nil || out.GetResult().GetExitCode() != 0 {
			s.t.Fatalf("wire %s: %v, %s", verb, err, out.GetStderr())
		}
		return out.GetStdout()
	}
	var viaPlain, viaGateway, pulledPlain, pulledGateway times
	var cpuPlain, cpuGateway time.Duration
	for range max(3, s.rounds/5) {
		viaPlain = append(viaPlain, l.took(plain("connect", strconv.Itoa(connections)))...)
		viaGateway = append(viaGateway, l.took(gateway("connect", strconv.Itoa(connections)))...)
		cpuPlain += s.busy(func() { pulledPlain = append(pulledPlain, l.took(plain("pull", strconv.Itoa(streamBytes)))...) })
		cpuGateway += s.busy(func() { pulledGateway = append(pulledGateway, l.took(gateway("pull", strconv.Itoa(streamBytes)))...) })
	}
	added := viaGateway.summary().P50 - viaPlain.summary().P50
	rate := pulledPlain.summary().P50 / pulledGateway.summary().P50
	cpu := float64(cpuGateway) / float64(cpuPlain)
	s.r.Sessions = append(s.r.Sessions, Section{Name: "network, traffic", Runs: []Run{
		{Name: "veth and NAT, connection", What: "connect, a byte and back", Took: viaPlain.summary()}, {Name: "gateway, connection", What: "the same", Took: viaGateway.summary()},
		{Name: "veth and NAT, 1 GiB", What: "one stream", Took: pulledPlain.summary()}, {Name: "gateway, 1 GiB", What: "the same", Took: pulledGateway.summary()},
	}, Figures: []Figure{{"throughput, of veth and NAT", round(rate), ""}, {"processor time, of veth and NAT", round(cpu), ""}}})
	s.r.target(atMost("new connection through the gateway, added, p50", added, 0.3, "ms"))
	s.r.target(atLeast("one stream, throughput of veth and NAT", rate, 0.7, ""))
	s.r.target(atMost("one stream, processor time of veth and NAT", cpu, 1.5, ""))
}

func ptr[T any](v T) *T { return &v }

// busy returns the time that all processors together worked during do (proc(5),
// /proc/stat).
func (s *suite) busy(do func()) time.Duration {
	before := s.worked()
	do()
	return s.worked() - before
}

func (s *suite) worked() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		s.t.Fatal(err)
	}
	var user, nice, system, idle, wait, irq, soft int64
	if _, err := fmt.Sscanf(string(data), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft); err != nil {
		s.t.Fatal(err)
	}
	return time.Duration(user+nice+system+irq+soft) * 10 * time.Millisecond // a tick is USER_HZ
}
