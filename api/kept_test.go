package api_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api"
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
			k := api.NewKept(limit)
			for rest := stream; len(rest) > 0; {
				n := 1 + random.IntN(len(rest))
				if _, err := k.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			want := stream
			if total > limit {
				mark := api.Mark(total - limit)
				want = []byte(string(stream[:limit-limit/2]) + mark + string(stream[total-limit/2:]))
			}
			if got := k.Bytes(total); !bytes.Equal(got, want) {
				t.Errorf("limit %d, %d bytes: got %q, want %q", limit, total, got, want)
			}
		}
	}
}

// TestKeptTellsOnce has a daemon that has left bytes out already: the sum of
// what is left out is told once.
func TestKeptTellsOnce(t *testing.T) {
	for _, tt := range []struct {
		limit int64
		want  string
	}{
		{10, "hhhhh" + api.Mark(84) + "ttttt"},
		{20, "hhhhhhhhh" + api.Mark(80) + "ttttt"},
		{98, "hhhhhhhhh" + api.Mark(80) + "ttttt"},
	} {
		k := api.NewKept(tt.limit)
		fmt.Fprint(k, strings.Repeat("h", 9))
		if err := k.Skip(80); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(k, strings.Repeat("t", 5))
		if got := string(k.Bytes(94)); got != tt.want {
			t.Errorf("limit %d: got %q, want %q", tt.limit, got, tt.want)
		}
	}
}
