package filter

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// dockerWith makes a docker-archive from parts. The configuration is named
// after its digest unless name is given.
func dockerWith(t *testing.T, name, config, manifest string, more ...ent) []byte {
	t.Helper()
	if name == "" {
		name = digest.FromString(config).Encoded() + ".json"
	}
	f := files{file(name, config), file("manifest.json", strings.ReplaceAll(manifest, "CONFIG", name))}
	return tarOf(t, append(f, more...)...)
}

func TestDocker(t *testing.T) {
	layer := tarOf(t, file("a", "text"))
	id := digest.FromBytes(layer)
	config := func(ids ...digest.Digest) string {
		return fmt.Sprintf(`{"architecture":%q,"os":"linux","config":{"Labels":{"a":"1","A":"2"}},"rootfs":{"type":"layers","diff_ids":%s}}`, goruntime.GOARCH, encode(t, ids))
	}
	one, l := config(id), file("l/layer.tar", string(layer))
	const m = `[{"Config":"CONFIG","RepoTags":["a:1"],"Layers":["l/layer.tar"]}]`
	sum := digest.FromString(one).Encoded()
	cases := map[string]struct {
		data []byte
		says string // empty: it is imported
	}{
		"hex.json":           {dockerWith(t, "", one, m, l), ""},
		"sha256:hex":         {dockerWith(t, "sha256:"+sum, one, m, l), ""},
		"blobs/sha256/hex":   {dockerWith(t, "blobs/sha256/"+sum, one, m, l), ""},
		"plain name":         {dockerWith(t, "config.json", one, m, l), ""},
		"packed layer":       {dockerWith(t, "", one, m, file("l/layer.tar", string(gz(t, layer)))), ""},
		"no names":           {dockerWith(t, "", one, `[{"Config":"CONFIG","RepoTags":null,"Layers":["l/layer.tar"]}]`, l), ""},
		"same layer twice":   {dockerWith(t, "", config(id, id), `[{"Config":"CONFIG","Layers":["l/layer.tar","m/layer.tar"]}]`, l, symlink("m/layer.tar", "../l/layer.tar")), ""},
		"layer sources":      {dockerWith(t, "", one, strings.Replace(m, "}]", `,"LayerSources":{"x":{"mediaType":"y","size":1}}}]`, 1), l), ""},
		"configuration":      {dockerWith(t, digest.FromString("other").Encoded()+".json", one, m, l), "digest of the configuration"},
		"sha256:other":       {dockerWith(t, digest.FromString("other").String(), one, m, l), "digest of the configuration"},
		"layer's content":    {dockerWith(t, "", one, m, file("l/layer.tar", strings.Replace(string(layer), "text", "evil", 1))), "content's digest is"},
		"layer is cut off":   {dockerWith(t, "", one, m, file("l/layer.tar", string(layer[:1024]))), "content's digest is"},
		"layer is absent":    {dockerWith(t, "", one, m), "no file"},
		"layer is outside":   {dockerWith(t, "", one, strings.Replace(m, "l/layer", "../l/layer", 1), l), "not the name of a file"},
		"layer is absolute":  {dockerWith(t, "", one, strings.Replace(m, "l/layer", "/l/layer", 1), l), "not the name of a file"},
		"layer links out":    {dockerWith(t, "", one, m, symlink("l/layer.tar", "../../etc/passwd")), "no file"},
		"layer links to /":   {dockerWith(t, "", one, m, symlink("l/layer.tar", "/etc/passwd")), "is a symlink"},
		"config is outside":  {dockerWith(t, "", one, strings.Replace(m, "CONFIG", "../CONFIG", 1), l), "not the name of a file"},
		"config is absent":   {dockerWith(t, "", one, strings.Replace(m, "CONFIG", "x", 1), l), "no file"},
		"config is no name":  {dockerWith(t, "", one, strings.Replace(m, "CONFIG", "", 1), l), "not the name of a file"},
		"two images":         {dockerWith(t, "", one, `[{"Config":"CONFIG","Layers":["l/layer.tar"]},{"Config":"CONFIG","Layers":[]}]`, l), "holds 2 images"},
		"no image":           {dockerWith(t, "", one, `[]`, l), "holds 0 images"},
		"no list":            {dockerWith(t, "", one, `{}`, l), "cannot unmarshal"},
		"key twice":          {dockerWith(t, "", one, `[{"Config":"CONFIG","Layers":["l/layer.tar"],"layers":[]}]`, l), `the key "layers" twice`},
		"config's key twice": {dockerWith(t, "", strings.Replace(one, `"os"`, `"os":"windows","os"`, 1), m, l), `the key "os" twice`},
		"more diff IDs":      {dockerWith(t, "", config(id, id), m, l), "lists 2 layers, the manifest 1"},
		"other platform":     {dockerWith(t, "", strings.Replace(one, goruntime.GOARCH, "pdp11", 1), m, l), "the image is for linux/pdp11"},
		"foreign layer":      {dockerWith(t, "", one, strings.Replace(m, "}]", `,"LayerSources":{"x":{"urls":["http://10.0.0.1/"]}}}]`, 1), l), "nothing is fetched"},
		"root file system":   {dockerWith(t, "", one, m, l, file("usr/bin/x", "")), "ambiguous"},
		"config twice":       {dockerWith(t, "", one, m, l, file(sum+".json", "{}")), "twice"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sink, r, err := do(t, tc.data, options(t))
			if tc.says != "" {
				if sbxerr.Of(err) != sbxerr.ImageFormat || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v, want it to say %q", err, tc.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, c, layers := sink.image(t, "test")
			if got := names(list(t, layers[0])); !slices.Equal(got, []string{"a"}) || c.Config.Labels != nil || r.Source == "" {
				t.Errorf("layers %q, config %+v, result %+v", got, c, r)
			}
		})
	}
}
