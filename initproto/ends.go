package initproto

// The file of a Welcome, in which PID 1 leaves what only it knows when it gives
// up waiting for a daemon. It is a row of entries, in the order of the commands'
// numbers: all Exited first, then the output that was in the pipes, stdout before
// stderr, and an entry of the kind EndsWhole where all of it had room.
//
// It is as hostile to the daemon as what PID 1 sends.

// EndsKind is what an Ended tells.
type EndsKind uint8

// The kinds. The numbers are the format.
const (
	EndsWhole  EndsKind = 1 + iota // the last entry
	EndsExited                     // Data is an Exited
	EndsStdout                     // Data is output, which follows that of earlier entries
	EndsStderr
	endsKindEnd
)

// EndsSize is what the file holds at most, in bytes.
const EndsSize = 4 << 20

// maxEnds bounds the entries of a file: one of its end and a few of output for each command
// that PID 1 keeps in mind.
const maxEnds = 8 * MaxHeld

// endsHeader is the length of what comes before an entry's data.
const endsHeader = 9

// Ended is one entry.
type Ended struct {
	Kind EndsKind
	Exec uint32 // 0 in an EndsWhole
	Data []byte
}

// AppendEnded appends e to b.
func AppendEnded(b []byte, e Ended) []byte {
	enc := encoder{b: b}
	enc.u8(uint8(e.Kind))
	enc.u32(e.Exec)
	enc.u32(uint32(len(e.Data)))
	return append(enc.b, e.Data...)
}

// DecodeEnds reads a file's entries up to the first that is cut off, broken or one too many.
// Their data is part of b. whole says that nothing is missing.
func DecodeEnds(b []byte) (entries []Ended, whole bool) {
	d := decoder{b: b}
	for len(d.b) >= endsHeader && len(entries) < maxEnds {
		e := Ended{Kind: EndsKind(d.u8()), Exec: d.u32()}
		size := d.u32()
		if uint64(size) > uint64(len(d.b)) {
			return entries, false
		}
		e.Data = d.take(int(size))
		switch {
		case e.Kind == 0 || e.Kind >= endsKindEnd:
			return entries, false
		case e.Kind == EndsWhole:
			return entries, len(d.b) == 0 && e.Exec == 0 && size == 0
		case e.Exec == 0:
			return entries, false
		}
		entries = append(entries, e)
	}
	return entries, false
}
