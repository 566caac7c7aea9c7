package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Report is what Verify found.
type Report struct {
	Segments int
	Records  uint64 // that were read
	Removed  uint64 // by retention, as signed
	Last     Head
	Signed   uint64 // number of the newest record that a head is about
	Torn     int64  // bytes after the last record, as a killed daemon leaves them until the next one starts
	Key      string // public key
	Problems []Problem
}

// Problem is one place where the log is not what was written.
type Problem struct {
	File string // name of the file
	Line int    // 0: the file as a whole
	Seq  uint64 // of the record; 0 if it is not known
	What string
}

// String tells the problem in one line.
func (p Problem) String() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s, line %d", p.File, p.Line)
	}
	if p.Seq > 0 {
		where += fmt.Sprintf(", record %d", p.Seq)
	}
	return where + ": " + p.What
}

// Err is nil for a log that is whole.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	var lines []string
	for _, p := range r.Problems {
		lines = append(lines, p.String())
	}
	return sbxerr.New(sbxerr.AuditBroken, "audit.verify", "%s", strings.Join(lines, "; "))
}

// maxProblems bounds those of a report: the first ones tell where to look.
const maxProblems = 20

// verifier goes through the segments in order.
type verifier struct {
	dir    string
	key    note.Verifier
	report Report
	next   Head // the number of the next record less one, and the hash that it must name
	known  bool // next.Hash is known
	latest Head // of the log, as signed
	found  bool // and it is there

	against Head // that was known before; zero is none
	seen    bool // and it is there
}

// VerifyOptions say what somebody knows who does not trust the directory of the log.
type VerifyOptions struct {
	Key string // the public key; empty is the one in the directory
	// Against is a head that was written down or copied: NUMBER:HASH, as Verify reports the
	// last record, or the path of a copy of the file head. An older copy of the log lacks it.
	Against string
}

// Verify compares all of the log in dir with its chain and its signed heads. It decodes no
// record. A daemon may write to the log meanwhile.
func Verify(dir string, o VerifyOptions) (*Report, error) {
	if _, err := segments(dir); err != nil {
		return nil, forbidden(err)
	}
	public, err := publicKey(dir, o.Key)
	if err != nil {
		return nil, err
	}
	against, err := knownHead(o.Against, public)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		r, err := verify(dir, public, against)
		if err == nil || try == verifyTries || !errors.Is(err, fs.ErrNotExist) { // retention was faster
			return r, err
		}
	}
}

// verifyTries is how often it is begun again when segments go meanwhile.
const verifyTries = 3

func verify(dir string, public note.Verifier, against Head) (*Report, error) {
	v := &verifier{dir: dir, key: public, known: true, against: against}
	latest, latestErr := readNote(latestPath(dir), latestTitle, public) // before the records, which may become more
	v.latest = latest
	firsts, err := segments(dir)
	if err != nil {
		return nil, forbidden(err)
	}
	v.start(firsts)
	for i, first := range firsts {
		if err := v.segment(first, i == len(firsts)-1); err != nil {
			return nil, forbidden(err)
		}
	}
	v.report.Last, v.report.Signed = v.next, latest.Seq
	v.compare()
	switch {
	case len(firsts) == 0:
		v.problem(dir, 0, 0, "there is no segment")
	case latestErr != nil:
		v.problem(latestPath(dir), 0, 0, "the log has no signed head: %v", latestErr)
	case latest.Seq > v.next.Seq:
		v.problem(segmentPath(dir, firsts[len(firsts)-1]), 0, latest.Seq, "it is cut: this record was signed, and the last that is there is %d", v.next.Seq)
	case latest.Seq >= firsts[0] && !v.found:
		v.problem(segmentPath(dir, firsts[len(firsts)-1]), 0, latest.Seq, "it is not the record that was signed")
	}
	return &v.report, nil
}

// compare looks for what somebody knew before, and for what retention signed.
func (v *verifier) compare() {
	switch {
	case v.report.Removed > v.next.Seq:
		v.problem(startPath(v.dir), 0, v.report.Removed, "retention removed the records up to this one, and the last that is there is %d", v.next.Seq)
	case v.against.Seq > v.next.Seq:
		v.problem(v.dir, 0, v.against.Seq, "the log was longer: this record is known, and the last that is there is %d", v.next.Seq)
	case v.against.Seq > v.report.Removed && !v.seen:
		v.problem(v.dir, 0, v.against.Seq, "it is not the record that is known, whose hash is %s", v.against.Hash)
	}
}

func (v *verifier) problem(path string, line int, seq uint64, format string, args ...any) {
	if len(v.report.Problems) < maxProblems {
		v.report.Problems = append(v.report.Problems, Problem{filepath.Base(path), line, seq, fmt.Sprintf(format, args...)})
	}
}

// start takes the place up to which retention removed records.
func (v *verifier) start(firsts []uint64) {
	path := startPath(v.dir)
	start, err := readNote(path, startTitle, v.key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		v.problem(path, 0, 0, "%v", err)
	default:
		v.report.Removed = start.Seq
		if len(firsts) > 0 && firsts[0] > start.Seq { // else it was not removed yet
			v.next = start
		}
	}
}

// segment verifies one segment, and its head where it is full.
func (v *verifier) segment(first uint64, newest bool) error {
	v.report.Segments++
	path := segmentPath(v.dir, first)
	if expected := v.next.Seq + 1; first != expected {
		if v.report.Segments > 1 || v.report.Removed < first { // else retention was interrupted
			v.problem(path, 0, first, "%s are missing before it", missing(expected, first))
		}
		v.next, v.known = Head{Seq: first - 1}, false
	}
	if err := v.records(path); err != nil || newest {
		return err
	}
	if v.report.Torn > 0 {
		v.problem(path, 0, v.next.Seq+1, "the record is cut")
		v.report.Torn = 0
	}
	sealed, err := readNote(headPath(v.dir, first), sealedTitle, v.key)
	switch {
	case err != nil:
		v.problem(headPath(v.dir, first), 0, 0, "the segment has no signed head: %v", err)
	case sealed.Seq > v.next.Seq:
		v.problem(path, 0, sealed.Seq, "it is cut: this record was signed, and the last that is there is %d", v.next.Seq)
	case sealed.Seq < v.next.Seq:
		v.problem(path, 0, sealed.Seq+1, "it is not of this segment, whose head is record %d", sealed.Seq)
	case sealed.Hash != v.next.Hash:
		v.problem(path, 0, sealed.Seq, "it is not the record that was signed")
	}
	return nil
}

func missing(from, to uint64) string {
	if to <= from {
		return fmt.Sprintf("records are out of order: %d was expected, and some", from)
	}
	return fmt.Sprintf("the records %d to %d", from, to-1)
}

// records goes through the lines of a segment.
func (v *verifier) records(path string) error {
	f, err := owndir.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, MaxRecord)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			v.report.Torn = int64(len(line))
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			v.problem(path, n, v.next.Seq+1, "the line has more than %d bytes", MaxRecord)
			return nil
		case err != nil:
			return err
		}
		v.record(path, n, line[:len(line)-1])
		v.found, v.seen = v.found || v.next == v.latest, v.seen || v.next == v.against
	}
}

// brokenMark is in the record by which a daemon told, at its start, that the log was not
// what it had signed. In a string of JSON the quotes would be escaped.
var brokenMark = []byte(`"type":"run.caisson.audit.broken"`)

func (v *verifier) record(path string, n int, line []byte) {
	v.report.Records++
	seq, prev, ok := splitRecord(line)
	expected := v.next.Seq + 1
	switch {
	case !ok:
		v.problem(path, n, expected, "it is no record")
		v.next, v.known = Head{Seq: expected}, false
		return
	case seq > expected:
		v.problem(path, n, seq, "%s are missing before it", missing(expected, seq))
	case seq < expected:
		v.problem(path, n, seq, "it is out of order: record %d was expected", expected)
	case v.known && prev != v.next.Hash:
		v.problem(path, n, seq-1, "the record before this line was changed: its hash is %s, and this one names %s", v.next.Hash, prev)
	case bytes.Contains(line, brokenMark):
		v.problem(path, n, seq, "a daemon found at its start that the log before this record is not what it had signed")
	}
	v.next, v.known = Head{seq, sum(line)}, true
}

func sum(line []byte) Hash { return sha256.Sum256(line) }
