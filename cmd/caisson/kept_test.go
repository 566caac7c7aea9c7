package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/server/servertest"
	"github.com/caisson-run/caisson/runtime"
)

// TestKept writes streams in pieces of all sizes and compares with cutting the
// whole.
func TestKept(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for limit := int64(1); limit < 20; limit++ {
		for total := range int64(100) {
			var stream []byte
			for i := range total {
				stream = append(stream, byte('a'+i%26))
			}
			k := kept{limit: limit}
			for rest := stream; len(rest) > 0; {
				n := 1 + random.IntN(len(rest))
				if _, err := k.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			want := stream
			if total > limit {
				mark := fmt.Sprintf("\n[caisson: %d bytes left out]\n", total-limit)
				want = []byte(string(stream[:limit-limit/2]) + mark + string(stream[total-limit/2:]))
			}
			if got := k.bytes(total); !bytes.Equal(got, want) {
				t.Errorf("limit %d, %d bytes: got %q, want %q", limit, total, got, want)
			}
		}
	}
}

// TestKeptOfCutStream has a daemon that has left bytes out already: the sum of
// what is left out is told once.
func TestKeptOfCutStream(t *testing.T) {
	f := &servertest.Fake{OnRun: func(_ context.Context, _ runtime.Request, rio runtime.IO) (*runtime.Result, error) {
		_, err := fmt.Fprint(rio.Stdout, strings.Repeat("h", 9), "\n[caisson: 80 bytes left out]\n", strings.Repeat("t", 5))
		return &runtime.Result{StdoutBytes: 94, Truncated: true}, err
	}}
	_, stdout, _ := invoke(t, f, "", "run", "--json", "--output-limit", "10", "--", "x")
	var got struct{ Stdout string }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if want := "hhhhh\n[caisson: 84 bytes left out]\nttttt"; got.Stdout != want {
		t.Errorf("got %q, want %q", got.Stdout, want)
	}
}
