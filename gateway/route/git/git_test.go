package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestScope(t *testing.T) {
	for want, s := range map[string]Scope{
		"":                                {Repositories: []string{"a/b", "a/*", "**", "g/*/x-*", "a/.github"}, Write: true, Branches: []string{"agent/**", "*", "fix-*"}},
		"repositories names none":         {},
		"branches are of pushes":          {Repositories: []string{"a/b"}, Branches: []string{"x"}},
		`"a/b.git" ends in .git`:          {Repositories: []string{"a/b.git"}},
		`"/a" is empty, or begins`:        {Repositories: []string{"/a"}},
		`"a/" is empty, or begins`:        {Repositories: []string{"a/"}},
		`"" is empty`:                     {Repositories: []string{""}},
		`"a/**/b" has ** before`:          {Repositories: []string{"a/**/b"}},
		`"a**" has ** before`:             {Repositories: []string{"a**"}},
		`"https://x/a" is empty`:          {Repositories: []string{"https://x/a"}},
		`"a/../b" has a segment`:          {Repositories: []string{"a/../b"}},
		`"a/b?" has a space`:              {Repositories: []string{"a/b?"}},
		`xff" has a space`:                {Repositories: []string{"a\xff"}},
		"is longer than 256":              {Repositories: []string{strings.Repeat("a", 257)}},
		"more than 64":                    {Repositories: slices.Repeat([]string{"a"}, 65)},
		`branches: "refs/heads/x" is a r`: {Repositories: []string{"a"}, Write: true, Branches: []string{"refs/heads/x"}},
		`branches: "a b" has a space`:     {Repositories: []string{"a"}, Write: true, Branches: []string{"a b"}},
	} {
		if err := s.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

func TestMatches(t *testing.T) {
	for pattern, names := range map[string][2]string{ // those that match, and others
		"a/b":     {"a/b", "a a/c a/b/c A/b b/a/b a/bb"},
		"a/*":     {"a/b a/c.d a/.github", "a a/b/c b/a"},
		"a/**":    {"a/b a/b/c", "a b/a ab/c"},
		"**":      {"a a/b a/b/c", ""},
		"*/x-*-y": {"a/x-1-y a/x--y", "a/x-y a/x-1-yz a/x-1/2-y"},
		"*/*/**":  {"a/b/c a/b/c/d", "a/b a"},
	} {
		for i, list := range names {
			for name := range strings.FieldsSeq(list) {
				if got := matches(pattern, name); got != (i == 0) {
					t.Errorf("%s, %s: %v", pattern, name, got)
				}
			}
		}
	}
}

const oid = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestRequest(t *testing.T) {
	read := Scope{Repositories: []string{"acme/tools", "group/**"}}
	write := read
	write.Write = true
	for _, tt := range []struct {
		method, path, query string
		reads, writes       bool
	}{
		{"GET", "/acme/tools/info/refs", "service=git-upload-pack", true, true},
		{"GET", "/acme/tools.git/info/refs", "service=git-upload-pack", true, true},
		{"GET", "/acme/tools.git/info/refs", "service=git-receive-pack", false, true},
		{"POST", "/acme/tools.git/git-upload-pack", "", true, true},
		{"POST", "/acme/tools/git-receive-pack", "", false, true},
		{"POST", "/group/a/b/git-upload-pack", "", true, true},
		{"POST", "/acme/tools.git.git/git-upload-pack", "", false, false},
		{"POST", "/acme/other/git-upload-pack", "", false, false},
		{"POST", "/group/git-upload-pack", "", false, false},
		{"POST", "/group/.git/git-upload-pack", "", false, false},
		{"POST", "/Acme/tools/git-upload-pack", "", false, false},
		{"POST", "/git-upload-pack", "", false, false},
		{"POST", "/acme/tools/git-upload-pack", "service=git-upload-pack", false, false},
		{"POST", "/acme/tools/git-upload-archive", "", false, false},
		{"POST", "/acme/tools.git/info/lfs/objects/batch", "", true, true},
		{"POST", "/acme/other.git/info/lfs/objects/batch", "", false, false},
		{"POST", "/acme/tools.git/info/lfs/objects/batch", "x=y", false, false},
		{"GET", "/acme/tools.git/info/lfs/objects/" + oid, "", true, true},
		{"GET", "/acme/tools.git/gitlab-lfs/objects/" + oid, "sign=1", true, true},
		{"PUT", "/acme/tools.git/info/lfs/objects/" + oid, "", false, true},
		{"PUT", "/acme/tools.git/gitlab-lfs/objects/" + oid + "/12", "", false, true},
		{"POST", "/acme/tools.git/info/lfs/objects/" + oid + "/verify", "", false, true},
		{"POST", "/acme/tools.git/info/lfs/verify", "", false, true},
		{"POST", "/acme/tools.git/info/lfs/locks/verify", "", false, true},
		{"POST", "/acme/tools.git/info/lfs/locks", "", false, false},
		{"DELETE", "/acme/tools.git/info/lfs/objects/" + oid, "", false, false},
		{"GET", "/acme/tools.git/info/lfs/objects/" + oid[1:], "", false, false},
		{"GET", "/acme/other.git/info/lfs/objects/" + oid, "", false, false},
		{"GET", "/acme/tools/git-upload-pack", "", false, false},
		{"GET", "/acme/tools/info/refs", "", false, false}, // the old protocol
		{"GET", "/acme/tools/info/refs", "service=git-upload-pack&service=git-receive-pack", false, false},
		{"GET", "/acme/tools/info/refs", "service=git-receive%2dpack", false, false},
		{"GET", "/acme/tools/HEAD", "", false, false},
		{"GET", "/acme/tools", "", false, false},
		{"PUT", "/acme/tools/info/refs", "service=git-upload-pack", false, false},
		{"HEAD", "/acme/tools/info/refs", "service=git-upload-pack", false, false},
	} {
		for s, want := range map[*Scope]bool{&read: tt.reads, &write: tt.writes} {
			if kind, err := s.Request(tt.method, tt.path, tt.query); (err == nil) != want || (kind == Other) == want {
				t.Errorf("%s %s?%s, write %v: %v, %v", tt.method, tt.path, tt.query, s.Write, kind, err)
			}
		}
	}
	if kind, err := write.Request(http.MethodPost, "/acme/tools/git-receive-pack", ""); kind != Push || err != nil {
		t.Errorf("a push: %v, %v", kind, err)
	}
}

const (
	none = "0000000000000000000000000000000000000000"
	one  = "1111111111111111111111111111111111111111"
	two  = "2222222222222222222222222222222222222222"
	caps = "\x00 report-status-v2 side-band-64k object-format=sha1 agent=git/2.39.5"
)

// updating is a push of main, with more lines.
func updating(lines ...string) string {
	text := pkt(one + " " + two + " refs/heads/main" + caps)
	for _, line := range lines {
		text += pkt(line)
	}
	return text + flush
}

func TestReadUpdates(t *testing.T) {
	for _, tt := range []struct{ head, refs string }{
		{updating(), "refs/heads/main"},
		{pkt("shallow "+one) + pkt("shallow "+two+"\n") + updating(one+" "+none+" refs/heads/old\n"), "refs/heads/main refs/heads/old"},
		{pkt(strings.Repeat("a", 64)+" "+strings.Repeat("b", 64)+" refs/tags/v1"+caps+"\n") + flush, "refs/tags/v1"},
	} {
		r := strings.NewReader(tt.head + "PACK")
		u, err := ReadUpdates(r)
		var refs []string
		for _, update := range u.List {
			refs = append(refs, update.Ref)
			if update.Delete != (update.Ref == "refs/heads/old") {
				t.Errorf("%+v", update)
			}
		}
		rest, _ := io.ReadAll(r)
		if err != nil || strings.Join(refs, " ") != tt.refs || string(u.Head) != tt.head || string(rest) != "PACK" || !u.can("side-band-64k") || !u.can("agent") {
			t.Errorf("%q: %+v, %v, rest %q", tt.head, u, err, rest)
		}
	}
	if u, err := ReadUpdates(strings.NewReader(flush)); err != nil || len(u.List) != 0 || string(u.Head) != flush { // a probe
		t.Errorf("%+v, %v", u, err)
	}
}

func TestUpdatesAreNamed(t *testing.T) {
	u := Updates{List: []Update{{Ref: "a"}, {Ref: strings.Repeat("b", 200)}, {Ref: "c"}}}
	if want := "a, " + strings.Repeat("b", 100) + "…, c"; u.String() != want {
		t.Errorf("%q", u)
	}
	u.List = append(u.List, Update{}, Update{})
	if !strings.HasSuffix(u.String(), ", c and 2 more") || (Updates{}).String() != "" {
		t.Errorf("%q", u)
	}
}

// What cannot be read is refused, however it goes on.
func TestUnreadable(t *testing.T) {
	line := one + " " + two + " refs/heads/main"
	for head, want := range map[string]string{
		"":                                       "breaks off",
		"00":                                     "breaks off",
		"zzzz":                                   "does not begin with its length",
		"+004":                                   "does not begin with its length",
		"0001" + updating():                      "has the length 1",
		"0004" + updating():                      "has the length 4",
		"fff1" + strings.Repeat("x", 70000):      "has the length 65521",
		pkt(line + caps):                         "breaks off",
		pkt(line+caps) + "0002":                  "has the length 2",
		flush + "x":                              "goes on",
		flush + updating():                       "goes on",
		pkt("shallow "+one) + flush + updating(): "goes on",
		pkt(line) + flush:                        "capabilities are not where",
		updating(line + caps):                    "capabilities are not where",
		updating("shallow " + one):               "not the update of a ref",
		pkt("shallow "+one+caps) + flush:         "not the update of a ref",
		updating("ERR no"):                       "not the update of a ref",
		pkt(line+"\n"+caps) + flush:              "control character",
		updating(line + "\x1b[2J"):               "control character",
		updating(line + "\u009b2J"):              "control character",
		updating(line + "\xff"):                  "control character",
		updating(one + " " + two):                "not the update of a ref",
		updating(one + " " + two + " "):          "not the update of a ref",
		updating(one[1:] + " " + two + " refs/heads/x"):                      "not the update of a ref",
		updating(one + "  " + two + " refs/heads/x"):                         "not the update of a ref",
		updating(one + " " + strings.Repeat("2", 64) + " refs/heads/x"):      "not the update of a ref",
		pkt("push-cert"+caps) + pkt("certificate version 0.1\n"):             "signed push",
		pkt(line+"\x00 a\x00 push-options") + flush:                          "not printable",
		pkt(line+"\x00 a\n push-options") + flush:                            "not printable",
		updating(line + strings.Repeat("x", maxRef)):                         "longer than 1024",
		updating(slices.Repeat([]string{line}, maxUpdates)...):               "more than 4096",
		pkt(line+caps) + strings.Repeat(pkt(strings.Repeat("x", 60000)), 20): "not the update of a ref",
		strings.Repeat(pkt("shallow "+one), 30000):                           "longer than 1048576",
	} {
		u, err := ReadUpdates(strings.NewReader(head))
		if err == nil || !strings.Contains(err.Error(), want) || len(u.Head) > maxHead {
			t.Errorf("%.80q: %v, want %q", head, err, want)
		}
	}
	if _, err := ReadUpdates(io.MultiReader(strings.NewReader(flush), broken{})); err == nil {
		t.Error("a probe that breaks off passes")
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestRefuses(t *testing.T) {
	all := Scope{Repositories: []string{"**"}, Write: true}
	some := all
	some.Branches = []string{"agent/**", "fix-*"}
	for ref, why := range map[string][2]string{ // of all and of some
		"refs/heads/main":          {"", "only agent/**, fix-* may be pushed"},
		"refs/heads/agent/a/b":     {"", ""},
		"refs/heads/fix-1":         {"", ""},
		"refs/heads/fix-1/x":       {"", "only agent/**, fix-* may be pushed"},
		"refs/heads/agent":         {"", "only agent/**, fix-* may be pushed"},
		"refs/heads/agent/../main": {"only branches", "only branches"},
		"refs/heads/agent//x":      {"only branches", "only branches"},
		"refs/heads/agent/x\n":     {"only branches", "only branches"},
		"refs/heads/":              {"only branches", "only branches"},
		"refs/tags/v1":             {"only branches", "only branches"},
		"refs/for/main":            {"only branches", "only branches"},
		"HEAD":                     {"only branches", "only branches"},
		"refs/heads":               {"only branches", "only branches"},
	} {
		for i, s := range []Scope{all, some} {
			refused, err := s.Refuses(Updates{List: []Update{{"refs/heads/agent/x", false}, {ref, false}}})
			if err != nil || (why[i] == "") != (len(refused) == 0) || !strings.HasPrefix(refused[ref], why[i]) {
				t.Errorf("%q of %v: %q, %v", ref, s.Branches, refused, err)
			}
			if refused, _ := s.Refuses(Updates{List: []Update{{ref, true}}}); len(refused) != 1 {
				t.Errorf("%q may be deleted", ref)
			}
		}
	}
	options := Updates{Capabilities: []string{"push-options"}}
	if _, err := some.Refuses(options); err == nil {
		t.Error("options pass")
	}
	if _, err := all.Refuses(options); err != nil {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	u, err := ReadUpdates(strings.NewReader(updating(one + " " + two + " refs/heads/x")))
	if err != nil {
		t.Fatal(err)
	}
	inner := pkt("unpack ok\n") + pkt("ng refs/heads/main C: no\n") + pkt("ng refs/heads/x C: another ref of this push was refused\n") + flush
	if got, ok := u.Report("C", "text", map[string]string{"refs/heads/main": "no"}); !ok || got != pkt("\x02text\n")+pkt("\x01"+inner)+flush {
		t.Errorf("%q", got)
	}
	u.Capabilities = []string{"report-status"}
	if got, ok := u.Report("C", "text", map[string]string{"refs/heads/main": "no"}); !ok || got != inner {
		t.Errorf("%q", got)
	}
	if got, _ := u.Report("C", "text", nil); !strings.HasPrefix(got, pkt("unpack text\n")) {
		t.Errorf("%q", got)
	}
	u.Capabilities = nil
	if _, ok := u.Report("C", "text", nil); ok {
		t.Error("a client that takes no report gets one")
	}
}

// packets reads pkt-lines in another way than the package does.
func packets(b []byte) (list [][]byte, rest []byte) {
	for len(b) >= 4 {
		n, err := strconv.ParseInt(string(b[:4]), 16, 32)
		if err != nil || n < 4 || int(n) > len(b) {
			return list, b
		}
		list, b = append(list, b[4:n]), b[n:]
	}
	return list, b
}

// Whatever a push says, no ref that a server would find in it is left out of the list, and
// the answer to it is one of pkt-lines.
func FuzzReadUpdates(f *testing.F) {
	for _, seed := range []string{updating(), flush, updating(one + " " + none + " refs/heads/agent/x\n"), pkt("shallow "+one) + updating(), pkt("push-cert" + caps), "0004", updating() + "PACK"} {
		f.Add([]byte(seed))
	}
	s := Scope{Repositories: []string{"**"}, Write: true, Branches: []string{"agent/**"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		u, err := ReadUpdates(r)
		if !bytes.HasPrefix(data, u.Head) || len(u.Head) > maxHead {
			t.Fatalf("%d bytes are no beginning of the push", len(u.Head))
		}
		if text, ok := u.Report("SBX-711", "no", nil); ok {
			if _, rest := packets([]byte(text)); string(rest) != flush {
				t.Fatalf("the answer is %q", text)
			}
		}
		if err != nil {
			return
		}
		if len(u.List) > 0 && r.Len() != len(data)-len(u.Head) {
			t.Fatal("more was read than is sent on")
		}
		list, rest := packets(u.Head)
		if string(rest) != flush {
			t.Fatalf("the head ends in %q", rest)
		}
		var refs []string
		for _, line := range list {
			text, _, hasMore := bytes.Cut(line, []byte{0})
			if !hasMore {
				text = bytes.TrimSuffix(text, []byte("\n"))
			}
			if !bytes.HasPrefix(text, []byte("shallow ")) {
				refs = append(refs, strings.SplitN(string(text), " ", 3)[2])
			}
		}
		refused, err := s.Refuses(u)
		for i, ref := range refs {
			if u.List[i].Ref != ref {
				t.Fatalf("%q is read as %q", ref, u.List[i].Ref)
			}
			if err == nil && refused[ref] == "" && !strings.HasPrefix(ref, "refs/heads/agent/") {
				t.Fatalf("%q may be pushed", ref)
			}
		}
		if len(refs) != len(u.List) {
			t.Fatal(fmt.Sprint(refs, u.List))
		}
	})
}
