package settings

import (
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// Each field of the API's Limits has one row, which reads that very field; so has each number
// of Limits.
func TestTableIsComplete(t *testing.T) {
	fields := (&caissonv1.Limits{}).ProtoReflect().Descriptor().Fields()
	if fields.Len() != len(Table) {
		t.Fatalf("%d rows for %d fields", len(Table), fields.Len())
	}
	numbers := map[*int64]bool{}
	var l Limits
	for i := range Table {
		row := &Table[i]
		numbers[row.Of(&l)] = true
		m := &caissonv1.Limits{}
		*row.Asked(m) = new(int64(i + 1))
		if f := fields.ByName(protoreflect.Name(row.Field)); f == nil || m.ProtoReflect().Get(f).Int() != int64(i+1) {
			t.Errorf("%s: the row sets another field: %v", row.Field, m)
		}
		changes := (&caissonv1.UpdateRequest{}).ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(row.Field))
		if (changes != nil) != (row.Change != nil) || (row.Update != "") != (row.Change != nil) {
			t.Errorf("%s: the row and the API's UpdateRequest differ in whether a live sandbox can change it", row.Field)
		}
		if row.Change != nil {
			r := &caissonv1.UpdateRequest{}
			*row.Change(r) = new(int64(7))
			if r.ProtoReflect().Get(changes).Int() != 7 || *row.In(Changes(r)) != 7 {
				t.Errorf("%s: the row changes another field: %v", row.Field, r)
			}
		}
	}
	if len(numbers) != len(Table) {
		t.Errorf("%d numbers for %d rows", len(numbers), len(Table))
	}
	if Changes(&caissonv1.UpdateRequest{Ref: "x"}) != nil {
		t.Error("a request that changes nothing changes limits")
	}
}

func TestLimitsAndMessages(t *testing.T) {
	asked := &caissonv1.Limits{}
	for i := range Table {
		*Table[i].Asked(asked) = new(int64(i + 100))
	}
	l := Defaults()
	l.Override(nil)
	if l != Defaults() {
		t.Errorf("nothing asked for: %+v", l)
	}
	l.Override(asked)
	if got := l.Message(); !proto.Equal(got, asked) {
		t.Errorf("asked for %v, got %v", asked, got)
	}
	if got := (Limits{}).Filled(); got != (Limits{CPUShares: 1024}) {
		t.Errorf("filled: %+v", got)
	}
	if m := Defaults().Message(); m.IoReadBps != nil || m.MemoryBytes == nil || m.ShmBytes == nil {
		t.Errorf("the defaults as a message: %v", m)
	}
	if got := KindOf(asked); !proto.Equal(got, &caissonv1.Limits{Pids: asked.Pids, OpenFiles: asked.OpenFiles, DiskBytes: asked.DiskBytes, DiskInodes: asked.DiskInodes}) || !proto.Equal(KindOf(nil), &caissonv1.Limits{}) {
		t.Errorf("kind %v", got)
	}
	if got := l.Kind(); got != (Limits{PIDs: l.PIDs, OpenFiles: l.OpenFiles, DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes}) {
		t.Errorf("kind %+v", got)
	}
}

func TestBounds(t *testing.T) {
	for i := range Table {
		row := &Table[i]
		for _, n := range []int64{row.Min, row.Max, row.Default} {
			if err := row.Check(n); err != nil {
				t.Errorf("%s: %v", row.Name, err)
			}
		}
		for _, n := range []int64{-1, row.Min - 1, row.Max + 1, math.MinInt64, math.MaxInt64} {
			if row.Check(n) == nil {
				t.Errorf("%s %d is in range", row.Name, n)
			}
		}
		asked := &caissonv1.Limits{}
		*row.Asked(asked) = new(int64(0))
		l := Defaults()
		l.Override(asked)
		made, changed := CheckZero(asked, false), CheckZero(asked, true)
		if row.Zero == Refused {
			made, changed = row.Check(0), row.Check(0)
		}
		if made == nil || (changed == nil) != (row.Zero == Unbounded) {
			t.Errorf("%s 0: made %v, changed %v", row.Name, made, changed)
		}
	}
	if err := CheckZero(nil, false); err != nil {
		t.Error(err)
	}
	if err := Row("open_files").Check(1); sbxerr.Of(err) != sbxerr.Limits || err.Error() != "settings.check [SBX-102]: open files 1: give 16 to 1048576, such as 1024" {
		t.Error(err)
	}
}

func TestCeilings(t *testing.T) {
	fields := func(rows []*Limit) (names []string) {
		for _, r := range rows {
			names = append(names, r.Field)
		}
		return names
	}
	high := Limits{MemoryBytes: math.MaxInt64, ShmBytes: math.MaxInt64, IOReadBPS: math.MaxInt64}
	if got := high.Exceeding(Endless()); len(got) > 0 || high.AtMost(Endless()) != high {
		t.Errorf("endless ceilings are exceeded: %q", fields(got))
	}
	top := Ceilings()
	top.IOReadBPS, top.IOWriteBPS = 10, 20
	l := Ceilings()
	l.PIDs++
	l.IOWriteBPS = 21
	if got := fields(l.Exceeding(top)); !slices.Equal(got, []string{"pids", "io_read_bps", "io_write_bps"}) {
		t.Errorf("above the ceilings are %q", got)
	}
	if got := l.AtMost(top); got != top || len(got.Exceeding(top)) > 0 {
		t.Errorf("at most %+v: %+v", top, got)
	}
}
