package api_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
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
				want = slices.Concat(stream[:limit-limit/2], stream[total-limit/2:])
			}
			if got, skipped := k.Bytes(total); !bytes.Equal(got, want) || skipped != max(0, total-limit) {
				t.Errorf("limit %d, %d bytes: got %q, want %q; %d skipped", limit, total, got, want, skipped)
			}
		}
	}
}

// TestKeptTellsOnce has a daemon that has left bytes out already: the sum of
// what is left out is told once.
func TestKeptTellsOnce(t *testing.T) {
	for _, tt := range []struct {
		limit   int64
		want    string
		skipped int64
	}{
		{10, "hhhhhttttt", 84},
		{20, "hhhhhhhhhttttt", 80},
		{98, "hhhhhhhhhttttt", 80},
	} {
		k := api.NewKept(tt.limit)
		fmt.Fprint(k, strings.Repeat("h", 9))
		if err := k.Skip(80); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(k, strings.Repeat("t", 5))
		if got, skipped := k.Bytes(94); string(got) != tt.want || skipped != tt.skipped {
			t.Errorf("limit %d: got %q, want %q; %d skipped", tt.limit, got, tt.want, skipped)
		}
	}
}
