package server

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxPage is the most entries in one answer, and how many there are if no limit is given.
const maxPage = 1000

// pageRequest is a request for a page of a list.
type pageRequest interface {
	GetLimit() int32
	GetNext() string
}

// page returns the entries of list that r asks for, in the order of their keys, and the cursor
// of those after them. Keys differ, and an entry keeps its own: so entries that come and go
// change nothing for others. name is that of the list: a cursor is of one list alone.
func page[T any](name string, list []T, key func(T) string, r pageRequest) (entries []T, next string, err error) {
	limit := cmp.Or(int(r.GetLimit()), maxPage)
	if limit < 0 || limit > maxPage {
		return nil, "", sbxerr.WithRemedy(sbxerr.Config, "server.page", fmt.Errorf("limit is %d", limit),
			fmt.Sprintf("give 1 to %d, or no limit, which is %d", maxPage, maxPage))
	}
	after, err := cursor(name, r.GetNext())
	if err != nil {
		return nil, "", err
	}
	type keyed struct {
		key   string
		entry T
	}
	var rest []keyed
	for _, e := range list {
		if k := key(e); k > after {
			rest = append(rest, keyed{k, e})
		}
	}
	slices.SortFunc(rest, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	if len(rest) > limit {
		rest = rest[:limit]
		next = base64.RawURLEncoding.EncodeToString([]byte(name + " " + rest[limit-1].key))
	}
	return each(rest, func(k keyed) T { return k.entry }), next, nil
}

// cursor returns the key that a cursor of the list name holds.
func cursor(name, next string) (key string, err error) {
	data, err := base64.RawURLEncoding.DecodeString(next)
	key, found := strings.CutPrefix(string(data), name+" ")
	if next != "" && (err != nil || !found || key == "") {
		return "", sbxerr.WithRemedy(sbxerr.Config, "server.page", fmt.Errorf("next is %q, which is no cursor of this list", sbxerr.Clip(next)),
			"give next of the answer before, with the same filters, or leave it out to begin again")
	}
	return key, nil
}

// timeKey orders times of the years 0 to 9999.
func timeKey(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000") }

// newestKey orders times of the years 1970 to 2262 from the last one on.
func newestKey(t time.Time) string { return fmt.Sprintf("%019d", math.MaxInt64-t.UnixNano()) }

// ownedKey orders by name, and then by owner.
func ownedKey(name string, owner uint32) string { return fmt.Sprintf("%s\x00%010d", name, owner) }
