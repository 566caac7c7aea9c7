package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxArgs bounds the arguments in one event, and the names of variables, in bytes of JSON:
// whoever runs commands must not be able to fill the audit log with them.
const MaxArgs = 4 << 10

// SetArgs notes the arguments of a command and the names of its variables. Arguments
// past MaxArgs, and those that no JSON text holds, are told by their digest and length.
func (d *Data) SetArgs(args, env []string) {
	d.Env = names(env)
	room, whole := MaxArgs, true
	for i, arg := range args {
		if room -= sizeOf(arg); room < 0 {
			d.Args, whole = args[:i], false
			break
		}
		whole = whole && utf8.ValidString(arg)
	}
	if room >= 0 {
		d.Args = args
	}
	if !whole {
		d.ArgsDigest, d.ArgsBytes = digest(args)
	}
}

// sizeOf is the size of an entry of a list in JSON, in bytes.
func sizeOf(text string) int {
	if len(text) > MaxArgs { // it is longer as JSON, and need not be made
		return len(text)
	}
	data, _ := json.Marshal(text) // takes every string
	return len(data) + len(",")
}

// names are those of the variables, sorted. Past MaxArgs "…" stands for the rest.
func names(env []string) (list []string) {
	room := MaxArgs
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if room -= sizeOf(name); room < 0 {
			list = append(list, "…")
			break
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// digest returns the SHA-256 of all args, each with a zero byte at its end, and of how many
// bytes it is.
func digest(args []string) (sum string, size int64) {
	h := sha256.New()
	for _, arg := range args {
		h.Write([]byte(arg)) // a hash takes everything
		h.Write([]byte{0})
		size += int64(len(arg)) + 1
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), size
}

// bound shortens what a caller chooses: paths past MaxArgs are told by their digest and
// length, and input files whose paths are past it together by their bytes.
func (d *Data) bound() {
	for _, path := range []*string{&d.Cwd, &d.Path, &d.To} {
		if sizeOf(*path) > MaxArgs {
			*path = fmt.Sprintf("… sha256:%x of %d bytes", sha256.Sum256([]byte(*path)), len(*path))
		}
	}
	room := MaxArgs
	for i, f := range d.Inputs {
		if room -= sizeOf(f.Path); room < 0 {
			rest := Input{Path: "…"}
			for _, more := range d.Inputs[i:] {
				rest.Bytes += more.Bytes
			}
			d.Inputs = append(slices.Clone(d.Inputs[:i]), rest)
			return
		}
	}
}
