package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

const importers = `
peers:
  - uids: [54321, 54322]
    images: true
    quota: {images: 64M}
pools:
  - size: 1
`

// mark prints what the image of a sandbox was made with.
var mark = []string{"--", "sh", "-c", "cat /mark 2>/dev/null || echo none"}

func markOf(t *testing.T, run func(testing.TB, ...string) harness.Result, flags ...string) string {
	t.Helper()
	return strings.TrimSpace(run(t, append(append([]string{"run"}, flags...), mark...)...).Stdout)
}

// importAs imports an archive as a user.
func importAs(u harness.User, files string, args ...string) harness.Result {
	return u.TryWith(files, append([]string{"image", "import", "-o", "json", "-"}, args...)...)
}

type listedImage struct {
	Name, Digest string
	Owner        uint32
}

func images(t *testing.T, run func(testing.TB, ...string) harness.Result) (list []listedImage) {
	t.Helper()
	run(t, "image", "ls", "-o", "json").JSON(t, &list)
	return list
}

// What a user imports is that user's own. Nobody else's sandboxes run on it, and it
// takes no name that somebody else's requests mean.
func TestImagesHaveOwners(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, importers)
	a, b := d.User(t, ann), d.User(t, bob)
	archive := func(mark, name string) string { return string(tarOf(t, dockerArchiveOf(t, mark, name))) }

	importAs(a, archive("evil", "base")).Refused(t, "SBX-220")
	importAs(a, archive("evil", "base"), "--name", "base").Refused(t, "SBX-220")
	for who, run := range map[string]func(testing.TB, ...string) harness.Result{"root": d.Run, "ann": a.Run, "bob": b.Run} {
		if got := markOf(t, run); got != "none" {
			t.Errorf("%s runs on %q instead of the embedded image", who, got)
		}
	}

	d.Run(t, "image", "import", "--name", "tools", writeTar(t, rootFiles(t, "of root")))
	importAs(a, archive("evil", "tools")).Refused(t, "SBX-220")
	for _, own := range []struct {
		user harness.User
		mark string
	}{{a, "of ann"}, {b, "of bob"}} {
		if r := importAs(own.user, string(tarOf(t, rootFiles(t, own.mark))), "--name", "tools"); r.Code != 0 || !strings.Contains(r.Stdout, `"replaced": ""`) {
			t.Fatalf("import: %+v", r)
		}
	}
	if r, x, y := markOf(t, d.Run, "--image", "tools"), markOf(t, a.Run, "--image", "tools"), markOf(t, b.Run, "--image", "tools"); r != "of root" || x != "of ann" || y != "of bob" {
		t.Errorf("tools is %q for root, %q for ann and %q for bob", r, x, y)
	}
	if r, x := markOf(t, d.Run, "--image", "54321+tools"), markOf(t, a.Run, "--image", "0+tools"); r != "of ann" || x != "of root" {
		t.Errorf("named with their owners they are %q and %q", r, x)
	}
	all := images(t, d.Run)
	own := images(t, a.Run)
	if len(all) != 4 || len(own) != 3 || slices.ContainsFunc(own, func(i listedImage) bool { return i.Owner == bob }) {
		t.Errorf("root sees %+v, ann %+v", all, own)
	}
	theirs := all[slices.IndexFunc(all, func(i listedImage) bool { return i.Owner == bob })].Digest
	for _, ref := range []string{"54322+tools", theirs, "54322+none"} {
		f := a.Refused(t, "SBX-201", "run", "--json", "--image", ref, "--", "true")
		if all := f.Error.Message + f.Error.Cause; strings.Contains(all, "54322+tools,") {
			t.Errorf("ann is told of another's image: %s", all)
		}
	}

	a.Refused(t, "SBX-805", "image", "rm", "-o", "json", "base")
	a.Refused(t, "SBX-805", "image", "rm", "-o", "json", "0+tools")
	a.Refused(t, "SBX-201", "image", "rm", "-o", "json", "54322+tools")
	a.Run(t, "image", "rm", "tools")
	if got := markOf(t, a.Run, "--image", "tools"); got != "of root" {
		t.Errorf("without an own image tools is %q", got)
	}
	d.Run(t, "image", "rm", "54322+tools")
	if list := images(t, b.Run); len(list) != 2 {
		t.Errorf("bob has %+v", list)
	}
}

// Who replaces an image is told of it, and an archive's own name replaces none, not
// even for root. The same archive again changes nothing.
func TestImportReplaces(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	first, second := writeTar(t, dockerArchiveOf(t, "1", "tool:1")), writeTar(t, dockerArchiveOf(t, "2", "tool:1"))
	d.Run(t, "image", "import", first)
	old := images(t, d.Run)[1].Digest
	d.Run(t, "image", "import", first)
	f := d.Refused(t, "SBX-220", "image", "import", "-o", "json", second)
	if !strings.Contains(f.Error.Remedy, "--name") {
		t.Errorf("remedy %q", f.Error.Remedy)
	}
	if r := d.Run(t, "image", "import", "--name", "tool:1", second); !strings.Contains(r.Stderr, "replaced the image tool:1, "+old) {
		t.Errorf("it was not told what it replaced: %q", r.Stderr)
	}
	var got struct{ Replaced string }
	d.Run(t, "image", "import", "-o", "json", "--name", "tool:1", first).JSON(t, &got)
	if got.Replaced == "" || got.Replaced == old {
		t.Errorf("replaced %q", got.Replaced)
	}
}

// The images of a user stay within the quota.
func TestImageQuota(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, importers)
	a := d.User(t, ann)
	big := append(rootFiles(t, "big"), file{name: "fill", data: make([]byte, 40<<20), mode: 0o644})
	if r := importAs(a, string(tarOf(t, big)), "--name", "one"); r.Code != 0 {
		t.Fatalf("import: %+v", r)
	}
	big[len(big)-2].data = []byte("another")
	f := importAs(a, string(tarOf(t, big)), "--name", "two").Refused(t, "SBX-204")
	if !strings.Contains(f.Error.Remedy, "quota.images") {
		t.Errorf("remedy %q", f.Error.Remedy)
	}
	a.Run(t, "image", "rm", "one")
	if r := importAs(a, string(tarOf(t, big)), "--name", "two"); r.Code != 0 {
		t.Fatalf("import: %+v", r)
	}
}
