package network

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// missing returns the entries of want that list lacks.
func missing(list, want []entry) []entry {
	return slices.DeleteFunc(slices.Clone(want), func(w entry) bool {
		return slices.ContainsFunc(list, func(e entry) bool {
			return e.Kind == w.Kind && e.Type == w.Type && e.Verdict == w.Verdict && e.Address == w.Address && e.Port == w.Port &&
				e.Rule == w.Rule && e.Code == w.Code && strings.Contains(e.Reason, w.Reason)
		})
	})
}

// Refused packets have records, and no others have, whichever daemon and gateway runs.
func TestBridgeRecords(t *testing.T) {
	h := newHouse(t)
	s := h.create(t)
	address := addressOf(t, s)
	h.reaches(t, s, "syn "+public+":5432", "udp "+public+":5432", "protocol 1 to "+public, question("A", "web.example", farResolver))
	h.sends(t, s, "syn "+own+":5432")
	s.script(t, strings.Join([]string{
		"./client echo " + public + ":5432", "./client udp " + public + ":5432", "./client ping " + public, "./client query " + farResolver + ":53 web.example A",
		"./client echo " + private + ":5432", "./client udp " + private + ":9", "./client http http://" + metadata + "/", "./client echo " + own + ":5432",
		"./client echo '[" + publicV6 + "]:5432'", "./client udp '[" + publicV6 + "]:53'", "./client udp 224.0.0.251:5353", "./client echo 127.0.0.1:4000", "./client echo " + address + ":4000", "true",
	}, "; "))
	const denied = "SBX-701"
	want := []entry{
		{Kind: "connection", Verdict: "refused", Address: private, Port: 5432, Rule: "mode bridge: 10.0.0.0/8", Code: denied, Reason: "private"},
		{Kind: "packet", Type: "udp", Verdict: "refused", Address: private, Port: 9, Rule: "mode bridge: 10.0.0.0/8", Code: denied, Reason: "private"},
		{Kind: "connection", Verdict: "refused", Address: metadata, Port: 80, Rule: "mode bridge: 169.254.0.0/16", Code: denied, Reason: "metadata"},
		{Kind: "connection", Verdict: "refused", Address: publicV6, Port: 5432, Rule: "mode bridge", Code: denied, Reason: "IPv6"},
		{Kind: "packet", Type: "udp", Verdict: "refused", Address: publicV6, Port: 53, Rule: "mode bridge", Code: denied, Reason: "IPv6"},
		{Kind: "packet", Type: "udp", Verdict: "refused", Address: "224.0.0.251", Port: 5353, Rule: "mode bridge: 224.0.0.0/4", Code: denied, Reason: "multicast"},
	}
	h.refused(t, s, 6)
	list := traffic(t, s)
	if left := missing(list, want); len(left) > 0 || len(list) != len(want) {
		t.Errorf("no records %+v, or others, in %+v", left, list)
	}
	if said := s.of.Run(t, "policy", "log", s.id).Stdout; !strings.Contains(said, "refused  "+private+":5432 [SBX-701]") || strings.Contains(said, "allowed") {
		t.Errorf("the log says %q", said)
	}
	t.Run("the gateway is killed", func(t *testing.T) {
		if err := syscall.Kill(gateway(t, h.daemon), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h.recordsOn(t, s)
	})
	t.Run("the daemon is killed", func(t *testing.T) {
		h.daemon.Kill(t)
		h.daemon.Launch(t)
		h.recordsOn(t, s)
		h.refused(t, s, 8)
		h.daemon.Run(t, "version") // waits for containerd, without which a daemon that ends removes no sandbox
	})
}

// linkBytes are those of a sandbox's link, and its other counters.
type linkBytes struct {
	Allowed, Refused, Lost int64
	Sent                   int64 `json:"sent_bytes"`
	Received               int64 `json:"received_bytes"`
}

// about reports whether so much was sent and received once: headers, acknowledgements and
// what is sent again add up to a fifth on a busy machine.
func (b linkBytes) about(data int64) bool {
	most := data + data/2
	return b.Sent >= data && b.Sent <= most && b.Received >= data && b.Received <= most
}

// lateBytes are the most that comes after a result: the last packets of connections that
// have ended.
const lateBytes = 4096

// follows reports whether b was read after earlier, with nothing sent in between.
func (b linkBytes) follows(earlier linkBytes) bool {
	sent, received := b.Sent-earlier.Sent, b.Received-earlier.Received
	b.Sent, b.Received = earlier.Sent, earlier.Received
	return b == earlier && sent >= 0 && sent <= lateBytes && received >= 0 && received <= lateBytes
}

// The bytes are those of the sandbox's link: also those of a connection that is open, and of
// an earlier daemon.
func TestBridgeBytes(t *testing.T) {
	h := newHouse(t)
	s := h.create(t)
	h.reaches(t, s, "syn "+public+":5432")
	const data = 2 << 20
	var result struct{ Sandbox struct{ Egress linkBytes } }
	transfer := func(times int64) {
		t.Helper()
		bulk := []string{"/workspace/client", "bulk", public + ":5432", strconv.Itoa(data)}
		s.of.Run(t, append([]string{"exec", "--json", s.id, "--"}, bulk...)...).JSONIn(t, "result", &result)
		if !result.Sandbox.Egress.about(times * data) {
			t.Errorf("%d times %d bytes: %+v", times, data, result.Sandbox.Egress)
		}
	}
	transfer(1)
	if said := s.try("bulk", "127.0.0.1:4000", "1000"); !strings.Contains(said, "error:") {
		t.Errorf("nobody listens inside: %q", said)
	}
	h.daemon.Kill(t)
	h.daemon.Launch(t)
	var detail struct{ Egress linkBytes }
	s.of.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
	if !detail.Egress.follows(result.Sandbox.Egress) {
		t.Errorf("the next daemon has %+v, the one before had %+v", detail.Egress, result.Sandbox.Egress)
	}
	transfer(2)
	if list := traffic(t, s); len(list) > 0 {
		t.Errorf("what left has records: %+v", list)
	}
	var stats struct{ Sandboxes []linkBytes }
	if !until(5*time.Second, func() bool {
		s.of.Run(t, "stats", "--no-stream", "--json", s.id).JSON(t, &stats)
		sent := stats.Sandboxes[0].Sent
		return sent >= result.Sandbox.Egress.Sent && sent <= result.Sandbox.Egress.Sent+lateBytes
	}) {
		t.Errorf("stats have %+v, want %+v", stats, result.Sandbox.Egress)
	}
	var ended struct {
		Result struct{ Sandbox struct{ Egress linkBytes } }
	}
	run := sandbox{strings.TrimSpace(h.daemon.Run(t, "run", "-d", "--network", "bridge", "--workspace", clientDir(t)+":ro", "--", "sh", "-c",
		"sleep 1; /workspace/client bulk "+public+":5432 "+strconv.Itoa(data)).Stdout), h.daemon}
	h.reaches(t, run, "syn "+public+":5432")
	h.daemon.Run(t, "wait", "--json", run.id).JSON(t, &ended)
	if !ended.Result.Sandbox.Egress.about(data) {
		t.Errorf("the result of run has %+v", ended.Result.Sandbox.Egress)
	}
}

// However much it is, all of it is counted, and too many connections are told as such.
func TestBridgeFloodIsCounted(t *testing.T) {
	h := newHouse(t)
	var ended struct {
		Result struct {
			Warnings []string
			Sandbox  struct{ Egress linkBytes }
		}
	}
	s := sandbox{strings.TrimSpace(h.daemon.Run(t, "run", "-d", "--network", "bridge", "--workspace", clientDir(t)+":ro", "--", "sh", "-c",
		"cd /workspace; sleep 1; ./client flood "+public+":5432 5000; ./client flood "+private+":5432 3000; ./client flood '["+publicV6+"]:5432' 2000").Stdout), h.daemon}
	h.reaches(t, s, "udp "+public+":5432")
	h.daemon.Run(t, "wait", "--json", s.id).JSON(t, &ended)
	said := strings.Fields(strings.ReplaceAll(h.daemon.Run(t, "logs", s.id).Stdout, "\n", " "))
	if len(said) != 12 {
		t.Fatalf("the client said %q", said)
	}
	var refused [3]int64
	for i := range refused {
		n, err := strconv.ParseInt(said[4*i], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		refused[i] = n
	}
	if refused[0] < 200 || refused[1] != 3000 || refused[2] != 2000 {
		t.Errorf("refused were %d", refused)
	}
	left := 5000 - refused[0]
	const each = 14 + 20 + 8 + int64(len("ping\n"))
	want := linkBytes{Refused: refused[0] + refused[1] + refused[2], Sent: left * each, Received: left * each}
	if ended.Result.Sandbox.Egress != want || len(ended.Result.Warnings) > 0 {
		t.Errorf("of %d that left, and %v that did not, the result has %+v, with %q", left, refused, ended.Result.Sandbox.Egress, ended.Result.Warnings)
	}
	if !slices.ContainsFunc(traffic(t, s), func(e entry) bool {
		return e.Kind == "packet" && e.Verdict == "refused" && e.Address == public && e.Rule == "limit of connections" && e.Code == "SBX-706"
	}) {
		t.Error("nothing is told as too much")
	}
}

// What is tried where nothing leads anywhere is counted.
//
//caisson:kernel
func TestNoneIsCounted(t *testing.T) {
	type counters struct{ Allowed, Refused int64 }
	s := create(t, "--network", "none") // outside each attempt arrives: see TestNotAllowed
	var detail struct{ Egress *counters }
	s.of.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
	if detail.Egress != nil {
		t.Errorf("nothing was tried, and counted is %+v", detail.Egress)
	}
	s.script(t, "./client echo "+public+":5432; ./client echo '["+publicV6+"]:5432'; ./client flood "+public+":5432 100; ./client echo 127.0.0.1:4000; true")
	type network struct {
		ID      string `json:"sandbox_id"`
		Network string
		Egress  counters
	}
	var stats struct{ Networks []network }
	s.of.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
	s.of.Run(t, "info", "--json").JSON(t, &stats)
	want := counters{Refused: 102}
	if detail.Egress == nil || *detail.Egress != want {
		t.Errorf("inspect has %+v, want %+v", detail.Egress, want)
	}
	if !slices.Contains(stats.Networks, network{s.id, "none", want}) {
		t.Errorf("stats have %+v", stats)
	}
	var result struct{ Sandbox struct{ Egress *counters } }
	daemon.Run(t, "run", "--json", "--workspace", clientDir(t)+":ro", "--", "sh", "-c", "/workspace/client flood "+public+":5432 7").JSONIn(t, "result", &result)
	if result.Sandbox.Egress == nil || *result.Sandbox.Egress != (counters{Refused: 7}) {
		t.Errorf("the result has %+v", result.Sandbox.Egress)
	}
}

// recordsOn expects that refusals of s are recorded from now on too.
func (h *house) recordsOn(t *testing.T, s sandbox) {
	t.Helper()
	before := len(traffic(t, s))
	s.script(t, "./client echo "+public+":5432; ./client echo "+private+":5432; true")
	want := []entry{{Kind: "connection", Verdict: "refused", Address: private, Port: 5432, Rule: "mode bridge: 10.0.0.0/8", Code: "SBX-701"}}
	var list []entry
	if !until(10*time.Second, func() bool { list = traffic(t, s)[before:]; return len(missing(list, want)) == 0 }) || len(list) != 1 {
		t.Errorf("no record %+v, or others, in %+v", want, list)
	}
}

// refused expects that so much was refused, wherever it is told, and nothing else is counted.
func (h *house) refused(t *testing.T, s sandbox, refused int64) {
	t.Helper()
	type counters struct{ Allowed, Refused, Failed, Lost int64 }
	want := counters{Refused: refused}
	var detail struct{ Egress counters }
	var result struct{ Sandbox struct{ Egress counters } }
	s.of.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
	s.of.Run(t, "exec", "--json", s.id, "--", "true").JSONIn(t, "result", &result)
	var stats struct {
		Networks []struct {
			Network string
			Egress  counters
		}
	}
	s.of.Run(t, "info", "--json").JSON(t, &stats)
	if detail.Egress != want || result.Sandbox.Egress != want || len(stats.Networks) != 1 || stats.Networks[0].Network != "bridge" || stats.Networks[0].Egress != want {
		t.Errorf("want %+v; inspect %+v, result %+v, stats %+v", want, detail.Egress, result.Sandbox.Egress, stats)
	}
}
