package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/server/servertest"
)

// everyMessage has those of all answers, with a value in every field, as the daemon writes them.
func everyMessage(t *testing.T) map[string][]json.RawMessage {
	t.Helper()
	data, err := os.ReadFile("../../../../api/testdata/messages.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || len(all) < 60 {
		t.Fatalf("%d messages: %v", len(all), err)
	}
	return all
}

// plain is JSON or YAML as values, with documents in base64 as the API has them.
func plain(t *testing.T, text []byte, read func([]byte, any) error) any {
	t.Helper()
	var v any
	if err := read(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	data, err := json.Marshal(encoded(v))
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func encoded(v any) any {
	switch of := v.(type) {
	case map[string]any:
		for name, value := range of {
			of[name] = encoded(value)
			document, isObject := value.(map[string]any)
			if !isObject || !strings.HasSuffix(name, "_json") {
				continue
			}
			data, err := json.Marshal(document)
			if err != nil {
				panic(err) // it was read from JSON
			}
			of[name] = base64.StdEncoding.EncodeToString(data)
		}
	case []any:
		for i := range of {
			of[i] = encoded(of[i])
		}
	}
	return v
}

// TestEveryFieldIsPrinted: the JSON, the YAML and the templates have every field of every
// answer, in the form that it has by plain HTTP.
func TestEveryFieldIsPrinted(t *testing.T) {
	for name, list := range everyMessage(t) {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("caisson.v1." + name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range list {
			m := kind.New().Interface()
			if err := protojson.Unmarshal(text, m); err != nil {
				t.Fatal(err)
			}
			want := plain(t, text, json.Unmarshal)
			for form, got := range printed(t, m) {
				read := json.Unmarshal
				if form == "yaml" {
					read = yaml.Unmarshal
				}
				if got := plain(t, got, read); !reflect.DeepEqual(got, want) {
					t.Errorf("%s as %s:\ngot  %v\nwant %v", name, form, got, want)
				}
			}
		}
	}
}

// printed is m in all forms.
func printed(t *testing.T, m proto.Message) map[string][]byte {
	t.Helper()
	forms := map[string][]byte{}
	for name, flag := range map[string]string{"json": "--output=json", "yaml": "--output=yaml", "template": "--format={{json .}}"} {
		var out bytes.Buffer
		a := cli.NewApp(whole, nil, &out, nil)
		cmd := &cobra.Command{}
		a.OutputFlags(cmd)
		if err := cmd.ParseFlags([]string{flag}); err != nil {
			t.Fatal(err)
		}
		if err := a.PrintJSON(m); err != nil {
			t.Fatal(err)
		}
		forms[name] = out.Bytes()
	}
	return forms
}

// TestPrintsWhatHTTPHas: verbs print the answer that plain HTTP gives, or a list of it.
func TestPrintsWhatHTTPHas(t *testing.T) {
	for line, route := range map[string]struct{ path, list string }{
		"ls --json":                  {"/sandboxes", "sandboxes"},
		"inspect --all --json build": {"/sandboxes/build", ""},
		"ps --json build":            {"/sandboxes/build/execs", "execs"},
		"history --json build":       {"/sandboxes/build/history", ""},
		"image ls --json":            {"/images", "images"},
		"image inspect base":         {"/images/base", ""},
		"volume ls --json":           {"/volumes", "volumes"},
		"secret ls --json":           {"/secrets", "secrets"},
		"info --json":                {"/info", ""},
		"ping --json":                {"/ping", ""},
		"doctor --json":              {"/doctor", ""},
		"capabilities --json":        {"/capabilities", "capabilities"},
		"stats --no-stream --json":   {"/stats?no_stream=true", ""},
		"image du --json":            {"/image-usage", ""},
	} {
		f := sample()
		_, stdout, stderr := invoke(t, f, "", strings.Fields(line)...)
		want := plain(t, fetched(t, f, route.path), json.Unmarshal)
		if route.list != "" {
			want = want.(map[string]any)[route.list]
		}
		if got := plain(t, []byte(stdout), json.Unmarshal); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s\ngot  %v\nwant %v", line, stderr, got, want)
		}
	}
}

// fetched is the answer of f by plain HTTP.
func fetched(t *testing.T, f *servertest.Fake, path string) []byte {
	t.Helper()
	socket := servertest.Listen(t, f)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://caisson/v1"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v: %s", path, res.Status, err, text)
	}
	return text
}
