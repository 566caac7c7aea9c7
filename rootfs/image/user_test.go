package image

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const passwdFile = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1::/:/bin/false
app:x:1001:1002:App,,:/srv:/bin/sh
app:x:0:0:second:/:/bin/sh
sneaky:x:0:1000::/:/bin/sh
wheely:x:1003:0::/:/bin/sh
wrapped:x:4294967296:1::/:/bin/sh
negative:x:-1:1::/:/bin/sh
big:x:65536:1::/:/bin/sh
padded:x: 7:1::/:/bin/sh
octal:x:010:1::/:/bin/sh
biggid:x:1004:4294967295::/:/bin/sh
2000:x:0:0::/:/bin/sh
+::::::
short:x:5
long:x:5:5::/:/bin/sh:more
`

const groupFile = `root:x:0:
wheel:x:0:app
staff:x:50:other,app
app:x:1002:app
audio:x:29:app
audio2:x:29:app
big:x:65536:app
neg:x:-5:app
apps:x:77:apps,xapp
short:x:1
`

func TestResolveUser(t *testing.T) {
	type ids struct {
		uid, gid uint32
		gids     []uint32
	}
	ok := map[string]ids{
		"0":           {0, 0, nil},
		"0:0":         {0, 0, nil},
		"root":        {0, 0, nil},
		"root:root":   {0, 0, nil},
		"1":           {1, 1, nil},
		"1000":        {1000, 1000, nil}, // unknown: never group 0
		"65535:65535": {65535, 65535, nil},
		"2000":        {2000, 2000, nil}, // a number, though there is a "user" 2000
		"app":         {1001, 1002, []uint32{29, 50}},
		"1001":        {1001, 1002, []uint32{29, 50}},
		"app:staff":   {1001, 50, nil},
		"app:7":       {1001, 7, nil},
		"1001:root":   {1001, 0, nil},
		"wheely:0":    {1003, 0, nil},
		"5:audio":     {5, 29, nil},
	}
	for user, want := range ok {
		u, err := ResolveUser(user, strings.NewReader(passwdFile), strings.NewReader(groupFile))
		if err != nil || u.UID != want.uid || u.GID != want.gid || !slices.Equal(u.GIDs, want.gids) {
			t.Errorf("%q: %+v, err %v; want %v", user, u, err, want)
		}
	}
	bad := []string{
		"", ":", ":0", "0:", "-1", "4294967295", "4294967296", "2147483648", "65536", "0x0", "+0", " 0", "0 ", "00", "010", "1e3", "-0", "0\n",
		"0:-1", "1000:9e18", "1000:4294967296", "1000:65536", "1000:+0", "root:root:root", "٠", "nonexistent", "app:nonexistent", "root\x00", "ro ot", "../root",
		"sneaky", "1003", "wheely", "app:wheel", "wrapped", "negative", "big", "padded", "octal", "biggid", "app:big", "app:neg", "short", "long", "+",
		strings.Repeat("a", 33), "app:" + strings.Repeat("9", 400),
	}
	for _, user := range bad {
		u, err := ResolveUser(user, strings.NewReader(passwdFile), strings.NewReader(groupFile))
		if sbxerr.Of(err) != sbxerr.ImageUser || !reflect.ValueOf(u).IsZero() {
			t.Errorf("%q: %+v, err %v", user, u, err)
		}
	}
}

func TestResolveUserWithoutFiles(t *testing.T) {
	if u, err := ResolveUser("7", nil, nil); u.UID != 7 || u.GID != 7 || u.GIDs != nil || err != nil {
		t.Errorf("%+v, err %v", u, err)
	}
	if _, err := ResolveUser("root", nil, nil); sbxerr.Of(err) != sbxerr.ImageUser {
		t.Errorf("a name: %v", err)
	}
}

func TestResolveUserReadsHostileFiles(t *testing.T) {
	endless := func() io.Reader { return zeroReader{} }
	broken := errors.New("input/output error")
	var many strings.Builder
	for i := range maxGroups + 1 {
		fmt.Fprintf(&many, "g%d:x:%d:root\n", i, i+1)
	}
	for name, tc := range map[string]struct{ passwd, group io.Reader }{
		"endless passwd": {endless(), nil},
		"endless group":  {strings.NewReader(passwdFile), endless()},
		"broken passwd":  {failingReader{broken}, nil},
		"broken group":   {strings.NewReader(passwdFile), failingReader{broken}},
		"many groups":    {strings.NewReader(passwdFile), strings.NewReader(many.String())},
	} {
		if _, err := ResolveUser("root", tc.passwd, tc.group); sbxerr.Of(err) != sbxerr.ImageUser {
			t.Errorf("%s: %v", name, err)
		}
	}
	last := "root:x:0:0::/:/bin/sh" // without a line feed
	if _, err := ResolveUser("root", strings.NewReader(last), nil); err != nil {
		t.Errorf("last line: %v", err)
	}
}

func TestHomeOfUser(t *testing.T) {
	const passwd = "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node/:/bin/sh\nnone:x:5:5:::\nfar:x:6:6::home:/bin/sh\nodd:x:7:7::/a\x1b[0m:/bin/sh\n"
	for user, want := range map[string][2]string{
		"node": {"node", "/home/node"}, "1000": {"node", "/home/node"}, "1000:5": {"node", "/home/node"}, "root": {"root", "/root"},
		"none": {"none", ""}, "far": {"far", ""}, "odd": {"odd", ""}, "4321": {DefaultName, ""},
	} {
		u, err := ResolveUser(user, strings.NewReader(passwd), nil)
		if err != nil || u.Name != want[0] || u.Home != want[1] {
			t.Errorf("%q: %q in %q, err %v; want %q", user, u.Name, u.Home, err, want)
		}
	}
}

func TestAddTo(t *testing.T) {
	for name, tt := range map[string]struct{ user, passwd, group, wantPasswd, wantGroup string }{
		"neither":         {"9:8", "", "", "caisson:x:9:8::/home/caisson:/bin/sh\n", "caisson:x:8:\n"},
		"no line feed":    {"9", "a:x:1:1::/:", "b:x:1:", "a:x:1:1::/:\ncaisson:x:9:9::/home/caisson:/bin/sh\n", "b:x:1:\ncaisson:x:9:\n"},
		"name taken":      {"9", "caisson:x:1:1::/:\n", "caisson:x:1:\n", "caisson:x:1:1::/:\ncaisson9:x:9:9::/home/caisson:/bin/sh\n", "caisson:x:1:\ncaisson9:x:9:\n"},
		"user alone":      {"9", "", "g:x:9:\n", "caisson:x:9:9::/home/caisson:/bin/sh\n", ""},
		"both are listed": {"9", "u:x:9:9::/:\n", "g:x:9:\n", "", ""},
	} {
		u, err := ResolveUser(tt.user, strings.NewReader(tt.passwd), strings.NewReader(tt.group))
		if err != nil {
			t.Fatal(err)
		}
		passwd, group, err := u.AddTo(strings.NewReader(tt.passwd), strings.NewReader(tt.group))
		if err != nil || string(passwd) != tt.wantPasswd || string(group) != tt.wantGroup || u.Listed() != (passwd == nil && group == nil) {
			t.Errorf("%s: %q, %q, err %v", name, passwd, group, err)
		}
	}
}

// zeroReader is an endless file of zeros.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }
