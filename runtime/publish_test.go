package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// fakeEgress remembers who is published.
type fakeEgress struct {
	mu        sync.Mutex // sandboxes are removed beside the test
	published map[string]egress.Published
	views     map[string]egress.View
	refreshed int
	silent    bool // it does not answer to Refresh
	behind    bool // it has more to tell than can be waited for
	fail      error
	refuse    map[string]error // policies of sandboxes by ID, of all by the empty one
	policies  map[string]policy.Spec
	removed   []string
}

func (e *fakeEgress) Add(context.Context, egress.Sandbox, netns.Sockets) error {
	return errInjected // no sandbox of these tests has a way out
}

func (e *fakeEgress) SetPolicy(_ context.Context, id string, p policy.Spec) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := cmp.Or(e.refuse[id], e.refuse[""]); err != nil {
		return err
	}
	if e.policies == nil {
		e.policies = map[string]policy.Spec{}
	}
	e.policies[id] = p
	return nil
}

func (e *fakeEgress) SetBill(context.Context, string, budget.Bill) error { return nil }

// refuseFor has policies of a sandbox refused.
func (e *fakeEgress) refuseFor(id string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = map[string]error{id: err}
}

// policy is that which was set last for a sandbox.
func (e *fakeEgress) policy(id string) (p policy.Spec, told bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, told = e.policies[id]
	return p, told
}

// gone lists the sandboxes that were removed.
func (e *fakeEgress) gone() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.removed)
}

func (e *fakeEgress) Watch(context.Context, string, traffic.Counts, *os.File) error {
	return nil
}

func (e *fakeEgress) Publish(_ context.Context, p egress.Published) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail == nil {
		e.published[p.ID] = p
	}
	return e.fail
}

func (e *fakeEgress) Admit(_ context.Context, id string, clients [][]netip.Prefix) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail == nil {
		p := e.published[id]
		p.Clients = clients
		e.published[id] = p
	}
	return e.fail
}

func (e *fakeEgress) Remove(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.published, id)
	e.removed = append(e.removed, id)
	return nil
}

func (e *fakeEgress) View(id string) (egress.View, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, ok := e.views[id]
	return v, ok
}

func (e *fakeEgress) Refresh(ctx context.Context, _ string) error {
	e.refreshed++
	if e.silent {
		<-ctx.Done()
	}
	if e.behind {
		return sbxerr.New(sbxerr.EgressBusy, "gateway.settle", "too much")
	}
	return ctx.Err()
}

func newPublishing(t *testing.T, with ...func(*Options)) (*fixture, *fakeEgress) {
	t.Helper()
	f := newFixture(t, with...)
	gateway := &fakeEgress{published: map[string]egress.Published{}}
	f.opts.Egress = gateway
	absent := func(string) string { return f.dir + "/absent/file" }
	f.opts.Traffic = traffic.New(traffic.Files{Carried: absent, Rest: absent, Names: absent}, slog.New(slog.DiscardHandler))
	return f, gateway
}

func dials(p PortInfo) error {
	c, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(p.Address), p.HostPort).String())
	if err != nil {
		return err
	}
	return c.Close()
}

func TestPublish(t *testing.T) {
	f, gateway := newPublishing(t)
	ctx := callerContext(t)
	info, err := f.Create(ctx, plan.CreateRequest{Name: "web", Publish: []string{"0:3000", "[::1]:0:3001"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Ports) != 2 || info.Ports[0].Port != 3000 || info.Ports[0].HostPort == 0 || info.Ports[1].Address != "::1" {
		t.Fatalf("%+v", info.Ports)
	}
	if p := gateway.published[info.ID]; len(p.Ports) != 2 || p.Ports[1] != 3001 || len(p.Listeners) != 2 {
		t.Errorf("served: %+v", p)
	}
	if err := dials(info.Ports[0]); err != nil {
		t.Errorf("nothing listens: %v", err)
	}
	r, err := readRecord(f.paths.record(info.ID), f.boot)
	if err != nil || len(r.Ports) != 2 || r.Ports[0].Host != info.Ports[0].HostPort {
		t.Errorf("kept: %+v, %v", r.Ports, err)
	}
	if _, err := f.Remove(ctx, info.ID, true); err != nil {
		t.Fatal(err)
	}
	if err := dials(info.Ports[0]); err == nil {
		t.Error("it listens after the removal")
	}
	if len(gateway.published) != 0 {
		t.Errorf("served after the removal: %+v", gateway.published)
	}
}

// Where it fails, nothing listens.
func TestPublishFails(t *testing.T) {
	f, gateway := newPublishing(t)
	gateway.fail = errInjected
	probe, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	_, number, _ := strings.Cut(address, ":")
	if _, err := f.Create(callerContext(t), plan.CreateRequest{Publish: []string{number + ":3000"}}); !errors.Is(err, errInjected) {
		t.Errorf("%v", err)
	}
	if _, err := net.Dial("tcp4", address); err == nil {
		t.Error("it listens")
	}
	f.opts.Egress = nil
	_, err = f.Create(callerContext(t), plan.CreateRequest{Publish: []string{"0:3000"}})
	errtest.Want(t, err, sbxerr.Gateway, "no gateway")
}

// Who has a port is told to whom may know of that sandbox.
func TestPublishTellsTheHolder(t *testing.T) {
	f, _ := newPublishing(t)
	rule := peer.Rule{UIDs: []uint32{1000, 1001}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32) context.Context { return peer.NewContext(t.Context(), peer.User(uid, uid, nil, 0)) }
	info, err := f.Create(as(1000), plan.CreateRequest{Name: "secret", Publish: []string{"0:3000"}})
	if err != nil {
		t.Fatal(err)
	}
	again := func(uid uint32) error {
		_, err := f.Create(as(uid), plan.CreateRequest{Publish: []string{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), info.Ports[0].HostPort).String() + ":3000"}})
		return err
	}
	errtest.Want(t, again(1000), sbxerr.PortTaken, "sandbox secret publishes it")
	errtest.Want(t, again(0), sbxerr.PortTaken, "sandbox secret publishes it")
	stranger := again(1001)
	errtest.Want(t, stranger, sbxerr.PortTaken, "is taken")
	if strings.Contains(stranger.Error()+sbxerr.RemedyOf(stranger), "secret") || strings.Contains(stranger.Error(), info.ID) {
		t.Errorf("a stranger is told %v", stranger)
	}
	for text, word := range map[string]string{"0.0.0.0:0:3000": "not loopback is not granted", "80:3000": "below 1024 is for root"} {
		_, err := f.Create(as(1000), plan.CreateRequest{Publish: []string{text}})
		errtest.Want(t, err, sbxerr.Peer, word)
	}
}

func TestPublishIsPlanned(t *testing.T) {
	f, _ := newPublishing(t)
	ctx := callerContext(t)
	f.opts.Network.AirGapped = true
	_, err := f.Create(ctx, plan.CreateRequest{Publish: []string{"0.0.0.0:0:3000"}})
	errtest.Want(t, err, sbxerr.NetPolicy, "air_gapped", "0.0.0.0:0")
	_, err = f.Create(ctx, plan.CreateRequest{Publish: []string{"8080:53", "x"}})
	errtest.Want(t, err, sbxerr.Config, "below 54", `"x"`)
	if _, err := f.Create(ctx, plan.CreateRequest{Publish: []string{"0:3000"}}); err != nil {
		t.Errorf("on loopback: %v", err)
	}
}

// After a restart what is to be had is opened again; the rest is a warning.
func TestRepublish(t *testing.T) {
	f, gateway := newPublishing(t)
	thief, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	free, err := f.published.Open("probe", []Port{{Address: netip.MustParseAddr("127.0.0.1"), Inside: 3000}})
	if err != nil || f.published.Close("probe") != nil {
		t.Fatal(err)
	}
	taken := netip.MustParseAddrPort(thief.Addr().String())
	s := f.newSandbox(nil, record{ID: idA1, Ports: []Port{{Address: taken.Addr(), Host: taken.Port(), Inside: 3001}, free[0]}})
	if err := f.adoptPorts(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.published.Close(idA1) })
	if list := s.info().Ports; len(list) != 1 || list[0].HostPort != free[0].Host || len(gateway.published[idA1].Ports) != 1 {
		t.Errorf("%+v", list)
	}
	if r := s.kept(); len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "taken") || len(r.Ports) != 2 {
		t.Errorf("%+v", r)
	}
}

// TestUpdateClients: a live sandbox has other clients at the same ports, or all is as it was.
func TestUpdateClients(t *testing.T) {
	f, gateway := newPublishing(t)
	ctx := callerContext(t)
	info, err := f.Create(ctx, plan.CreateRequest{Name: "s", Publish: []string{"0:3000", "0:3001@10.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.published.Close(info.ID) })
	publish := func(clients ...string) []string {
		var all []string
		for i, p := range info.Ports {
			all = append(all, fmt.Sprintf("%d:%d%s", p.HostPort, p.Port, clients[i]))
		}
		return all
	}
	have := func(want ...string) {
		t.Helper()
		for i, p := range f.mustFind(t, info.ID).info().Ports {
			served := fmt.Sprint(gateway.published[info.ID].Clients[i])
			if got := strings.Join(p.Clients, "+"); got != want[i] || served != "["+strings.ReplaceAll(want[i], "+", " ")+"]" {
				t.Errorf("port %d has %q and is served for %s, want %q", i, got, served, want[i])
			}
		}
	}
	have("", "10.0.0.0/8")
	update := func(texts []string, r UpdateRequest) error {
		r.Publish = &Rules{texts}
		_, err := f.Update(ctx, "s", r)
		return err
	}
	if err := update(publish("@192.0.2.0/24+10.0.0.0/8", ""), UpdateRequest{}); err != nil {
		t.Fatal(err)
	}
	have("192.0.2.0/24+10.0.0.0/8", "")
	all := publish("", "")
	for name, texts := range map[string][]string{
		"none": {}, "one of two": all[:1], "one more": append(all, "8080:3002"), "no port": {"here"},
		"other inside": {all[0], strings.Replace(all[1], ":3001", ":3002", 1)}, "other address": {all[0], "127.0.0.2:" + all[1]},
	} {
		if err := update(texts, UpdateRequest{}); sbxerr.Of(err) != sbxerr.Config || sbxerr.RemedyOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	gateway.fail = sbxerr.New(sbxerr.Gateway, "test", "no")
	errtest.Want(t, update(all, UpdateRequest{Labels: map[string]string{"a": "b"}}), sbxerr.Gateway, "no")
	gateway.fail = nil
	have("192.0.2.0/24+10.0.0.0/8", "")
	if r := f.mustFind(t, info.ID).kept(); len(r.Labels) > 0 || r.Ports[0].Clients != "192.0.2.0/24+10.0.0.0/8" {
		t.Errorf("%+v", r)
	}
}

// TestUpdateClientsOfWide: other clients at an address that is not loopback need the right to
// publish there now.
func TestUpdateClientsOfWide(t *testing.T) {
	f, gateway := newPublishing(t)
	ctx := peer.NewContext(t.Context(), peer.User(1000, 1000, nil, 0))
	grant := func(network bool) {
		t.Helper()
		rule := peer.Rule{UIDs: []uint32{1000}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota(), Network: network}
		var err error
		if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
			t.Fatal(err)
		}
	}
	grant(true)
	info, err := f.Create(ctx, plan.CreateRequest{Name: "s", Publish: []string{"0.0.0.0:0:3000@10.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.published.Close(info.ID) })
	update := func(clients string) error {
		_, err := f.Update(ctx, "s", UpdateRequest{Publish: &Rules{[]string{fmt.Sprintf("0.0.0.0:%d:3000%s", info.Ports[0].HostPort, clients)}}})
		return err
	}
	if err := update("@10.1.0.0/16"); err != nil {
		t.Fatal(err)
	}
	grant(false)
	if err := update(""); sbxerr.Of(err) != sbxerr.Peer {
		t.Errorf("without the right: %v", err)
	}
	if err := update("@10.1.0.0/16"); err != nil {
		t.Errorf("nothing new: %v", err)
	}
	if got := fmt.Sprint(gateway.published[info.ID].Clients); got != "[[10.1.0.0/16]]" {
		t.Errorf("it is served for %s", got)
	}
}
