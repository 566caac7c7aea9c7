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

// Packets that leave by a link, and refused ones, have records, whichever daemon and
// gateway runs.
func TestBridgeRecords(t *testing.T) {
	h := newHouse(t)
	s := h.create(t)
	address := addressOf(t, s)
	h.reaches(t, s, "syn "+public+":5432", "udp "+public+":5432", "protocol 1 to "+public, question("A", "web.example", farResolver))
	h.sends(t, s, "syn "+own+":5432")
	begun := len(traffic(t, s))
	s.script(t, strings.Join([]string{
		"./client echo " + public + ":5432", "./client udp " + public + ":5432", "./client ping " + public, "./client query " + farResolver + ":53 web.example A",
		"./client echo " + private + ":5432", "./client udp " + private + ":9", "./client http http://" + metadata + "/", "./client echo " + own + ":5432",
		"./client echo '[" + publicV6 + "]:5432'", "./client udp '[" + publicV6 + "]:53'", "./client udp 224.0.0.251:5353", "./client echo 127.0.0.1:4000", "./client echo " + address + ":4000", "true",
	}, "; "))
	const denied = "SBX-701"
	want := []entry{
		{Kind: "connection", Verdict: "allowed", Address: public, Port: 5432, Rule: "mode bridge"},
		{Kind: "packet", Type: "udp", Verdict: "allowed", Address: public, Port: 5432, Rule: "mode bridge"},
		{Kind: "packet", Type: "icmp", Verdict: "allowed", Address: public, Rule: "mode bridge"},
		{Kind: "packet", Type: "udp", Verdict: "allowed", Address: farResolver, Port: 53, Rule: "network.bridge.dns"},
		{Kind: "connection", Verdict: "refused", Address: private, Port: 5432, Rule: "mode bridge: 10.0.0.0/8", Code: denied, Reason: "private"},
		{Kind: "packet", Type: "udp", Verdict: "refused", Address: private, Port: 9, Rule: "mode bridge: 10.0.0.0/8", Code: denied, Reason: "private"},
		{Kind: "connection", Verdict: "refused", Address: metadata, Port: 80, Rule: "mode bridge: 169.254.0.0/16", Code: denied, Reason: "metadata"},
		{Kind: "connection", Verdict: "refused", Address: own, Port: 5432, Rule: "mode bridge", Code: denied, Reason: "the host's own"},
		{Kind: "connection", Verdict: "refused", Address: publicV6, Port: 5432, Rule: "mode bridge", Code: denied, Reason: "IPv6"},
		{Kind: "packet", Type: "udp", Verdict: "refused", Address: publicV6, Port: 53, Rule: "mode bridge", Code: denied, Reason: "IPv6"},
		{Kind: "packet", Type: "udp", Verdict: "refused", Address: "224.0.0.251", Port: 5353, Rule: "mode bridge: 224.0.0.0/4", Code: denied, Reason: "multicast"},
	}
	list := s.recorded(t, func(list []entry) bool { return len(missing(list, want)) == 0 })
	list = slices.DeleteFunc(list, func(e entry) bool { return e.Kind == "end" }) // what the kernel forgot by now
	if left := missing(list, want); len(left) > 0 || len(list) != begun+len(want) {
		t.Errorf("no records %+v, or others, in %+v", left, list)
	}
	h.counted(t, s, 4, 7)
	if said := s.of.Run(t, "policy", "log", s.id).Stdout; !strings.Contains(said, "allowed  "+public+":5432 by mode bridge\n") {
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
		h.counted(t, s, 6, 9)
		h.daemon.Run(t, "version") // waits for containerd, without which a daemon that ends removes no sandbox
	})
}

// How much it was that left is known when it is over, and at the latest when the sandbox is.
func TestBridgeCounts(t *testing.T) {
	h := newHouse(t)
	var ended struct {
		Result struct {
			Egress struct {
				Allowed, Refused int64
				Sent             int64 `json:"sent_bytes"`
				Received         int64 `json:"received_bytes"`
			}
		}
	}
	s := sandbox{strings.TrimSpace(h.daemon.Run(t, "run", "-d", "--network", "bridge", "--workspace", clientDir(t)+":ro", "--", "sh", "-c",
		"cd /workspace; sleep 1; ./client echo 127.0.0.1:4000; ./client udp "+public+":5432; ./client echo "+public+":5432; ./client udp "+private+":5432; sleep 0.1").Stdout), h.daemon}
	h.reaches(t, s, "syn "+public+":5432", "udp "+public+":5432")
	h.daemon.Run(t, "wait", "--json", s.id).JSON(t, &ended)
	result := ended.Result
	const udp = 20 + 8 + int64(len("ping\n"))
	if c := result.Egress; c.Allowed != 2 || c.Refused != 1 || c.Sent <= 2*udp || c.Received <= 2*udp || c.Sent > 4096 {
		t.Errorf("the result has %+v", c)
	}
	ends := traffic(t, s)
	ends = slices.DeleteFunc(ends, func(e entry) bool { return e.Kind != "end" })
	if len(ends) != 2 {
		t.Fatalf("ends %+v", ends)
	}
	sent, received := int64(0), int64(0)
	for _, e := range ends {
		sent, received = sent+e.Sent, received+e.Received
		if e.Verdict != "allowed" || e.Address != public || e.Port != 5432 || e.Rule != "mode bridge" || e.Duration < 50 || e.Duration > 20000 {
			t.Errorf("%+v", e)
		}
		if e.Type == "udp" && (e.Sent != udp || e.Received != udp) {
			t.Errorf("%d bytes each way, not %+v", udp, e)
		}
	}
	if sent != result.Egress.Sent || received != result.Egress.Received {
		t.Errorf("the entries come to %d and %d bytes, the result to %+v", sent, received, result.Egress)
	}
}

// However much it is, all of it is counted, and what is too much is told as such.
func TestBridgeFloodIsCounted(t *testing.T) {
	h := newHouse(t)
	var ended struct {
		Result struct {
			Warnings []string
			Egress   struct {
				Allowed, Refused, Lost int64
				Sent                   int64 `json:"sent_bytes"`
				Received               int64 `json:"received_bytes"`
			}
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
	const each = 20 + 8 + int64(len("ping\n"))
	if c := ended.Result.Egress; c.Allowed > left || c.Allowed < left-500 || c.Refused != refused[0]+refused[1]+refused[2] || c.Lost != 0 || c.Sent != left*each || c.Received != left*each || len(ended.Result.Warnings) > 0 {
		t.Errorf("of %d that left, some from a port that another had, and %v that did not the result has %+v, with %q", left, refused, c, ended.Result.Warnings)
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
	s.of.Run(t, "inspect", s.id).JSON(t, &detail)
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
	s.of.Run(t, "inspect", s.id).JSON(t, &detail)
	s.of.Run(t, "info", "--json").JSON(t, &stats)
	want := counters{Refused: 102}
	if detail.Egress == nil || *detail.Egress != want {
		t.Errorf("inspect has %+v, want %+v", detail.Egress, want)
	}
	if !slices.Contains(stats.Networks, network{s.id, "none", want}) {
		t.Errorf("stats have %+v", stats)
	}
	var result struct{ Egress *counters }
	daemon.Run(t, "run", "--json", "--workspace", clientDir(t)+":ro", "--", "sh", "-c", "/workspace/client flood "+public+":5432 7").JSON(t, &result)
	if result.Egress == nil || *result.Egress != (counters{Refused: 7}) {
		t.Errorf("the result has %+v", result.Egress)
	}
}

// recordsOn expects that what s tries from now on is recorded too.
func (h *house) recordsOn(t *testing.T, s sandbox) {
	t.Helper()
	before := len(traffic(t, s))
	s.script(t, "./client echo "+public+":5432; ./client echo "+private+":5432; true")
	want := []entry{
		{Kind: "connection", Verdict: "allowed", Address: public, Port: 5432, Rule: "mode bridge"},
		{Kind: "connection", Verdict: "refused", Address: private, Port: 5432, Rule: "mode bridge: 10.0.0.0/8", Code: "SBX-701"},
	}
	var list []entry
	if !until(10*time.Second, func() bool { list = traffic(t, s)[before:]; return len(missing(list, want)) == 0 }) {
		t.Errorf("no records %+v in %+v", missing(list, want), list)
	}
}

// counted expects that so much left and was refused, wherever it is told.
func (h *house) counted(t *testing.T, s sandbox, allowed, refused int64) {
	t.Helper()
	type counters struct{ Allowed, Refused, Failed, Lost int64 }
	want := counters{Allowed: allowed, Refused: refused}
	var detail, result struct{ Egress counters }
	s.of.Run(t, "inspect", s.id).JSON(t, &detail)
	s.of.Run(t, "exec", "--json", s.id, "--", "true").JSON(t, &result)
	var stats struct {
		Networks []struct {
			Network string
			Egress  counters
		}
	}
	s.of.Run(t, "info", "--json").JSON(t, &stats)
	if detail.Egress != want || result.Egress != want || len(stats.Networks) != 1 || stats.Networks[0].Network != "bridge" || stats.Networks[0].Egress != want {
		t.Errorf("want %+v; inspect %+v, result %+v, stats %+v", want, detail.Egress, result.Egress, stats)
	}
}
