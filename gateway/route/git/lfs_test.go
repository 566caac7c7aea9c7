package git

import (
	"strings"
	"testing"
)

func TestReadBatch(t *testing.T) {
	read, write := Scope{}, Scope{Write: true}
	for text, wants := range map[string][2]string{ // what is sent on by a route that reads, and by one that writes
		`{"operation":"download","objects":[{"oid":"a"}]}`:                                      {`{"operation":"download","transfers":["basic"],"objects":[{"oid":"a"}]}`, "the same"},
		`{"operation":"upload","objects":[],"ref":{"name":"x"},"hash_algo":"sha256","other":1}`: {"", `{"operation":"upload","transfers":["basic"],"ref":{"name":"x"},"objects":[],"hash_algo":"sha256"}`},
		`{"operation":"download","Operation":"upload","transfers":["tus"],"objects":[]}`:        {"", `{"operation":"upload","transfers":["basic"],"objects":[]}`},
		`{"operation":"upload","operation":"download","objects":[]}`:                            {`{"operation":"download","transfers":["basic"],"objects":[]}`, "the same"},
		`{"operation":"lock","objects":[]}`:                                                     {"", ""},
		`[]`:                                                                                    {"", ""}, `{`: {"", ""}, `{"objects":[]}`: {"", ""},
	} {
		for i, s := range []Scope{read, write} {
			want := wants[i]
			if want == "the same" {
				want = wants[0]
			}
			if got, err := s.ReadBatch([]byte(text)); string(got) != want || (err == nil) != (want != "") {
				t.Errorf("%s, write %v: %s, %v", text, s.Write, got, err)
			}
		}
	}
}

func TestRelocated(t *testing.T) {
	to := func(href string) (string, bool) {
		at, by := strings.CutPrefix(href, "https://up/")
		if by {
			return "http://route/" + at, true
		}
		return href, false
	}
	const text = `{"transfer":"basic","objects":[{"oid":"a","size":1,"actions":{"download":{"href":"https://up/x","header":{"Authorization":"Basic y","X":"z"}},"verify":{"href":"https://cdn/v?t=1","header":{"authorization":"own"}}}},{"oid":"b","error":{"code":404}}]}`
	const want = `{"objects":[{"actions":{"download":{"header":{"X":"z"},"href":"http://route/x"},"verify":{"header":{"authorization":"own"},"href":"https://cdn/v?t=1"}},"oid":"a","size":1},{"error":{"code":404},"oid":"b"}],"transfer":"basic"}`
	if got, err := Relocated([]byte(text), to); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "[]", `{"objects":1}`, `{"objects":[{"actions":[]}]}`, `{"objects":[{"actions":{"download":null}}]}`, `{"objects":[{"actions":{"download":{"href":1}}}]}`, `{"message":"no"}`} {
		if got, err := Relocated([]byte(bad), to); err == nil {
			t.Errorf("%s becomes %s", bad, got)
		}
	}
}
