package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/upstream"
	"github.com/caisson-run/caisson/gateway/usage"
)

var requests = []Request{
	{Seq: 1, Op: Ping},
	{Seq: 2, Op: Configure, Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.53:53"), netip.MustParseAddrPort("[::1]:5353")}},
	{Seq: 9, Op: Configure, Proxy: &Proxy{URL: "http://proxy.corp:3128", Except: []string{"*.corp.example"}, Credentials: "agent:s3cret"}},
	{Seq: 3, Op: SetPolicy, Sandbox: "abc", Policy: policy.Spec{Mode: policy.Allow, Allow: []string{"<&>.example"}, Map: map[string]string{"a.test": "10.1.2.3"}}},
	{Seq: 4, Op: Remove, Sandbox: "abc"},
	{Seq: 6, Op: Publish, Sandbox: "abc", Ports: []uint16{8080, 3000}, Clients: [][]netip.Prefix{nil, {netip.MustParsePrefix("10.0.0.0/8")}}, Exposed: []uint16{5432}},
	{Seq: 14, Op: Admit, Sandbox: "abc", Clients: [][]netip.Prefix{nil, {netip.MustParsePrefix("10.0.0.0/8")}}},
	{Seq: 8, Op: Publish, Sandbox: "abc", Exposed: []uint16{5432}},
	{Seq: 7, Op: Supply, Sandbox: "abc", Sockets: attempt.Batch},
	{Seq: 10, Op: Watch, Sandbox: "abc"},
	{Seq: 11, Op: Secrets, Secrets: []string{"key", "other"}, Kept: []string{"third"}},
	{Seq: 12, Op: TrySecret, Secrets: []string{"key"}},
	{Seq: 12, Op: Secrets},
	{Seq: 5, Op: Add, Sandbox: "abc", Policy: policy.Spec{AirGapped: true}, Names: map[policy.Name]netip.Addr{"a.test": netip.MustParseAddr("198.18.0.9")}},
}

var reports = []Report{
	{Confined: true},
	{Answer: &Answer{Seq: 7}},
	{Answer: Answered(8, sbxerr.New(sbxerr.NetPolicy, "test", "no"))},
	{Attempt: &attempt.Attempt{Sandbox: "abc", Name: "a.test", Asked: netip.MustParseAddrPort("198.18.0.9:443"), Verdict: attempt.Allowed, Begun: time.Unix(1700000000, 5).UTC(), Sent: 3}, Lost: 4},
	{Query: &lookup.Query{Sandbox: "abc", Name: "A.test", Type: "A", Verdict: lookup.Refused, Code: sbxerr.EgressDenied}},
	{Arrival: &attempt.Arrival{Sandbox: "abc", Peer: netip.MustParseAddrPort("[::1]:4000"), Port: 8080, Verdict: attempt.Failed, Code: sbxerr.EgressDial, Begun: time.Unix(1700000000, 5).UTC(), Sent: 3}},
	{Use: &usage.Use{Sandbox: "abc", Name: "up.caisson.internal", Credential: "key", Method: "GET", Path: "/v1", Status: 200, Begun: time.Unix(1700000000, 5).UTC(), Sent: 3}},
	{Need: &Need{"abc"}},
	{Named: &Named{"abc", "a.test", netip.MustParseAddr("198.18.0.9")}},
	{Open: &Open{"abc", 3}},
	{Inbound: &Inbound{"abc", 2}},
	{Broken: &Broken{"abc", "no more"}},
}

func TestRequestsComeThrough(t *testing.T) {
	for _, want := range requests {
		frame, err := EncodeRequest(want)
		if err != nil {
			t.Fatal(err)
		}
		body, err := ReadFrame(bytes.NewReader(frame), MaxRequest)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeRequest(body); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s came back as %+v, %v", want.Op, got, err)
		}
	}
}

// What travels of a proxy is what it was made of, credentials too.
func TestProxyComesThrough(t *testing.T) {
	spec := upstream.Spec{URL: "http://proxy.corp:3128", Except: []string{"*.corp.example"}, Credentials: upstream.NewSecret("agent:s3cret")}
	u, err := upstream.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ProxyOf(u).Compile()
	if err != nil || again.String() != u.String() || again.Spec().Credentials.Reveal() != "agent:s3cret" || !slices.Equal(again.Spec().Except, spec.Except) {
		t.Errorf("%+v, %v", again, err)
	}
	if none, err := ProxyOf(nil).Compile(); none != nil || err != nil {
		t.Errorf("of none: %v, %v", none, err)
	}
	if bad, err := (&Proxy{URL: "ftp://x:1"}).Compile(); bad != nil || sbxerr.Of(err) != sbxerr.DaemonConf {
		t.Errorf("%v, %v", bad, err)
	}
}

func TestReportsComeThrough(t *testing.T) {
	for _, want := range reports {
		frame, err := EncodeReport(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeReport(frame[header:])
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s came back as %+v, %v", frame[header:], got, err)
		}
	}
}

func TestAnswerKeepsTheError(t *testing.T) {
	want := sbxerr.WithRemedy(sbxerr.NetPolicy, "test", errors.New("line one\nline two"), "do that")
	got := Answered(1, want).Err()
	if sbxerr.Of(got) != sbxerr.NetPolicy || sbxerr.RemedyOf(got) != "do that" || !strings.Contains(got.Error(), "line one?line two") {
		t.Errorf("%v became %v", want, got)
	}
	if err := Answered(1, nil).Err(); err != nil {
		t.Errorf("success became %v", err)
	}
}

// What a daemon may meet from a gateway in hostile hands.
func TestReportsThatAreRefused(t *testing.T) {
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"Confined":true} {"Confined":true}`, `{"Confined":true,"Secret":1}`,
		`{"Confined":true,"Answer":{"Seq":1}}`,
		`{"Answer":{}}`, `{"Answer":{"Seq":-1}}`, `{"Answer":{"Seq":1,"Code":"SBX-999"}}`,
		`{"Open":{"Sandbox":"abc","Connections":-1}}`, `{"Open":{"Sandbox":"../abc","Connections":1}}`, `{"Open":{"Connections":1}}`,
		`{"Broken":{"Sandbox":"a/b"}}`,
		`{"Named":{"Sandbox":"abc","Name":"a.test","Address":"10.0.0.1"}}`,
		`{"Named":{"Sandbox":"abc","Name":"A.test","Address":"198.18.0.9"}}`,
		`{"Named":{"Sandbox":"abc","Name":"","Address":"198.18.0.9"}}`,
		`{"Named":{"Sandbox":"abc","Name":"a.test","Address":"::ffff:198.18.0.9"}}`,
		`{"Attempt":{"Sandbox":"abc","Verdict":"fine"}}`, `{"Attempt":{"Sandbox":"abc","Verdict":"allowed","Sent":-1}}`,
		`{"Attempt":{"Sandbox":"abc","Verdict":"allowed","Name":"1.2.3.4"}}`, `{"Attempt":{"Sandbox":"abc","Verdict":"allowed","Begun":"99999-01-01T00:00:00Z"}}`,
		`{"Attempt":{"Sandbox":"abc","Verdict":"allowed","Duration":-5}}`, `{"Attempt":{"Sandbox":"abc","Verdict":"refused","Code":"x"}}`,
		`{"Arrival":{"Sandbox":"abc","Verdict":"fine"}}`, `{"Arrival":{"Sandbox":"abc","Verdict":"allowed","Sent":-1}}`, `{"Arrival":{"Verdict":"allowed"}}`,
		`{"Arrival":{"Sandbox":"abc","Verdict":"failed","Code":"x"}}`, `{"Use":{"Sandbox":"abc"}}`, `{"Use":{"Sandbox":"abc","Name":"a.test","Status":-1}}`, `{"Use":{"Sandbox":"abc","Name":"a.test","Code":"x"}}`, `{"Use":{"Name":"a.test"}}`,
		`{"Need":{}}`, `{"Need":{"Sandbox":"a/b"}}`,
		`{"Query":{"Sandbox":"abc","Verdict":"cut"}}`, `{"Query":{"Sandbox":"` + strings.Repeat("a", 65) + `","Verdict":"empty"}}`,
	} {
		if r, err := DecodeReport([]byte(body)); err == nil {
			t.Errorf("%s is taken as %+v", body, r)
		}
	}
}

// Texts are one printable line of bounded length, and no time lies in the future.
func TestReportsAreMadeHarmless(t *testing.T) {
	long := strings.Repeat("é\x1b[2J\n", 500)
	body, err := json.Marshal(Report{Attempt: &attempt.Attempt{
		Sandbox: "abc", Verdict: attempt.Refused, Rule: long, Reason: long, Begun: time.Now().Add(time.Hour),
		Address: netip.MustParseAddrPort("[fe80::1%" + strings.Repeat("z", 2000) + "]:1"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := DecodeReport(body)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{r.Attempt.Rule, r.Attempt.Reason} {
		if len(s) > maxText || strings.ContainsAny(s, "\x1b\n") || !strings.HasPrefix(s, "é?[2J?é") {
			t.Errorf("%q is left of the text", s)
		}
	}
	if r.Attempt.Address.String() != "[fe80::1]:1" || r.Attempt.Begun.After(time.Now()) {
		t.Errorf("left: %+v", r.Attempt)
	}
}

func TestFramesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"nothing", nil, io.EOF},
		{"half a header", []byte{0, 0}, io.ErrUnexpectedEOF},
		{"half a message", []byte{0, 0, 0, 9, '{'}, io.ErrUnexpectedEOF},
		{"header alone", []byte{0, 0, 0, 9}, io.ErrUnexpectedEOF},
		{"no message", []byte{0, 0, 0, 0}, nil},
		{"too long", []byte{0, 1, 0, 1}, nil},
		{"4 GiB", []byte{255, 255, 255, 255}, nil},
	} {
		_, err := ReadFrame(bytes.NewReader(c.bytes), MaxReport)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The largest policy and the most names that a sandbox can have fit into one
// request: it could not be handed to the next gateway otherwise.
func TestTheLargestSandboxFits(t *testing.T) {
	r := Request{Seq: 1 << 63, Op: Add, Sandbox: strings.Repeat("a", maxID), Names: map[policy.Name]netip.Addr{}}
	label := strings.Repeat("a", 63)
	tail := fmt.Sprintf(".%s.%s.%s", label, label, strings.Repeat("a", 253-2*64-7))
	for i := range MaxNames {
		name := policy.Name(fmt.Sprintf("%06d", i) + tail[:253-6])
		r.Names[name] = netip.MustParseAddr("198.19.255.255")
	}
	rule := strings.Repeat("r", MaxPolicy-2-2-len(`{"Mode":"","Allow":[],"Deny":null,"Map":null,"AirGapped":false}`))
	r.Policy.Allow = []string{rule}
	if b, err := json.Marshal(r.Policy); err != nil || len(b) > MaxPolicy || len(b) < MaxPolicy-10 {
		t.Fatalf("the policy has %d bytes, not %d: %v", len(b), MaxPolicy, err)
	}
	if _, err := EncodeRequest(r); err != nil {
		t.Error(err)
	}
}

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns []*net.UnixConn
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c.(*net.UnixConn))
	}
	return conns[0], conns[1]
}

// Descriptors arrive with the request that they were sent with, also where many
// requests wait, and one is larger than the socket's buffer.
func TestDescriptorsStayWithTheirRequest(t *testing.T) {
	daemon, gateway := pair(t)
	var files []*os.File
	for i := range 4 {
		f, err := os.Create(fmt.Sprintf("%s/%d", t.TempDir(), i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		files = append(files, f)
	}
	big := Request{Seq: 2, Op: Add, Sandbox: "big", Policy: policy.Spec{Allow: []string{strings.Repeat("x", MaxPolicy-100)}}}
	sent := []Request{{Seq: 1, Op: Ping}, big, {Seq: 3, Op: Ping}, {Seq: 4, Op: Add, Sandbox: "small"}, {Seq: 5, Op: Ping}}
	failed := make(chan error, 1)
	go func() {
		for _, q := range sent {
			frame, err := EncodeRequest(q)
			if err == nil {
				err = Send(daemon, frame, files[:q.Files()]...)
			}
			if err != nil {
				failed <- err
				return
			}
		}
		failed <- daemon.CloseWrite()
	}()
	in := NewReceiver(gateway)
	for _, want := range sent {
		got, passed, err := in.Next()
		if err != nil || got.Seq != want.Seq {
			t.Fatalf("request %d: %d, %v", want.Seq, got.Seq, err)
		}
		for i, f := range passed {
			if a, b := stat(t, f), stat(t, files[i]); a.Ino != b.Ino {
				t.Errorf("descriptor %d of request %d is another file", i, got.Seq)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if _, _, err := in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// A request that lacks its descriptors, or has some that it should not, is
// refused, and none is left open.
func TestDescriptorsThatDoNotBelong(t *testing.T) {
	for _, c := range []struct {
		op    Op
		files int
	}{{Ping, 1}, {Add, 0}, {Add, 3}, {Add, 5}, {Watch, 0}, {Watch, 2}, {Publish, 0}, {Publish, 2}, {Supply, 1}, {Supply, 3}} {
		daemon, gateway := pair(t)
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		q := Request{Seq: 1, Op: c.op}
		if c.op != Ping {
			q.Sandbox = "abc"
		}
		switch c.op {
		case Publish:
			q.Ports = []uint16{8080}
		case Supply:
			q.Sockets = 2
		}
		frame, err := EncodeRequest(q)
		if err != nil {
			t.Fatal(err)
		}
		var files []*os.File
		for range c.files {
			files = append(files, f)
		}
		if err := Send(daemon, frame, files...); err != nil {
			t.Fatal(err)
		}
		before := descriptors(t)
		if _, _, err := NewReceiver(gateway).Next(); err == nil {
			t.Errorf("%s with %d descriptors is taken", c.op, c.files)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%s with %d descriptors leaves %d open", c.op, c.files, after-before)
		}
		_ = f.Close()
	}
}

// What a request of the daemon may not be.
func TestRequestsThatAreRefused(t *testing.T) {
	for _, body := range []string{
		`{"Op":"ping"}`, `{"Seq":1,"Op":"dance"}`, `{"Seq":1,"Op":"ping","Sandbox":"abc"}`, `{"Seq":1,"Op":"add"}`,
		`{"Seq":1,"Op":"publish","Sandbox":"abc"}`, `{"Seq":1,"Op":"publish","Sandbox":"abc","Ports":[0]}`, `{"Seq":1,"Op":"publish","Sandbox":"abc","Ports":[1],"Exposed":[0]}`,
		`{"Seq":1,"Op":"publish","Sandbox":"abc","Ports":[1,2],"Clients":[["10.0.0.0/8"]]}`, `{"Seq":1,"Op":"publish","Sandbox":"abc","Ports":[1],"Clients":[[""]]}`,
		`{"Seq":1,"Op":"publish","Sandbox":"abc","Ports":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}`,
		`{"Seq":1,"Op":"admit","Clients":[]}`, `{"Seq":1,"Op":"admit","Sandbox":"abc","Clients":[[""]]}`, `{"Seq":1,"Op":"admit","Sandbox":"abc","Clients":[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]}`,
		`{"Seq":1,"Op":"supply","Sandbox":"abc"}`, `{"Seq":1,"Op":"supply","Sandbox":"abc","Sockets":-1}`, `{"Seq":1,"Op":"supply","Sandbox":"abc","Sockets":17}`,
	} {
		if r, err := DecodeRequest([]byte(body)); err == nil {
			t.Errorf("%s is taken as %+v", body, r)
		}
	}
}

// A gateway that has no room for all descriptors of a supply takes what it can; of
// other requests it must have all.
func TestDescriptorsWithoutRoom(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, q := range []Request{
		{Seq: 1, Op: Supply, Sandbox: "abc", Sockets: 8},
		{Seq: 2, Op: Publish, Sandbox: "abc", Ports: []uint16{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		daemon, gateway := pair(t)
		frame, err := EncodeRequest(q)
		if err == nil {
			err = Send(daemon, frame, f, f, f, f, f, f, f, f)
		}
		if err != nil {
			t.Fatal(err)
		}
		least, err := unix.Dup(int(f.Fd())) // the first descriptor that is free
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(least); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(least) + 3, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		got, files, err := NewReceiver(gateway).Next()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		if err := closeAll(files); err != nil {
			t.Error(err)
		}
		switch {
		case q.Op == Supply && (err != nil || got.Seq != 1 || len(files) == 0 || len(files) >= 8):
			t.Errorf("supply: %d descriptors, %v", len(files), err)
		case q.Op == Publish && (!errors.Is(err, ErrDescriptors) || got.Seq != 2 || len(files) > 0): // it is answered
			t.Errorf("publish: %+v with %d descriptors, %v", got, len(files), err)
		}
	}
}

func stat(t *testing.T, f *os.File) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func FuzzDecodeReport(f *testing.F) {
	for _, r := range reports {
		frame, err := EncodeReport(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame[header:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeReport(body)
		if err != nil {
			return
		}
		frame, err := EncodeReport(r)
		if err != nil {
			t.Fatalf("%+v is decoded but cannot be encoded: %v", r, err)
		}
		if again, err := DecodeReport(frame[header:]); err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	for _, r := range requests {
		frame, err := EncodeRequest(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame[header:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeRequest(body)
		if err != nil {
			return
		}
		if _, err := EncodeRequest(r); err != nil && len(body) < MaxRequest/8 {
			t.Fatalf("%+v is decoded but cannot be encoded: %v", r, err)
		}
	})
}
