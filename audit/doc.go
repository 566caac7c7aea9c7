// Package audit keeps an append-only log of records in which every change shows.
//
// A record is one line of JSON. It begins with its sequence number and the SHA-256 of the
// line before it. The lines are in segments, files that are named by the number of their
// first record. A head is the number and the hash of a record, signed with the key of the
// log (golang.org/x/mod/sumdb/note). That of the newest record is signed each second and
// when the log is closed, that of a full segment once.
//
//	00000000000000000001.jsonl   segment
//	00000000000000000001.head    head of a full segment: its last record
//	head                         head of the log: its newest record
//	start                        signed number and hash of the last record that retention removed
//	key, key.pub                 private and public key
//	export-ID                    number of the last record that a receiver has (package export)
//	reserve                      room for the records of running work when the disk is full
//
// [Log.Record] returns when write(2) has the record, so that a killed daemon loses none.
// The disk has it a second later at most.
//
// Whoever can read the key can sign another history. Copies of the heads elsewhere, such
// as in the daemon's log, show that too.
package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
)

// Hash is the SHA-256 of a record, without its newline.
type Hash [sha256.Size]byte

// String is the hash as records and heads have it.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// What a record begins with.
const (
	seqPrefix  = `{"seq":`
	prevPrefix = `,"prev":"`
	prevEnd    = `",`
)

// MaxRecord bounds a record with its newline, in bytes.
const MaxRecord = 1 << 20

// appendRecord appends the record of a JSON object to buf, with its newline.
func appendRecord(buf []byte, seq uint64, prev Hash, object []byte) []byte {
	buf = append(buf, seqPrefix...)
	buf = strconv.AppendUint(buf, seq, 10)
	buf = append(buf, prevPrefix...)
	buf = hex.AppendEncode(buf, prev[:])
	buf = append(buf, prevEnd...)
	buf = append(buf, object[1:]...)
	return append(buf, '\n')
}

// splitRecord reads the begin of a record, and nothing else of it.
func splitRecord(line []byte) (seq uint64, prev Hash, ok bool) {
	rest, found := bytes.CutPrefix(line, []byte(seqPrefix))
	if !found {
		return 0, Hash{}, false
	}
	digits := 0
	for digits < len(rest) && digits < 20 && '0' <= rest[digits] && rest[digits] <= '9' {
		seq = seq*10 + uint64(rest[digits]-'0')
		digits++
	}
	rest, found = bytes.CutPrefix(rest[digits:], []byte(prevPrefix))
	if !found || digits == 0 || len(rest) < hex.EncodedLen(len(prev))+len(prevEnd) {
		return 0, Hash{}, false
	}
	text, rest := rest[:hex.EncodedLen(len(prev))], rest[hex.EncodedLen(len(prev)):]
	if _, err := hex.Decode(prev[:], text); err != nil {
		return 0, Hash{}, false
	}
	return seq, prev, bytes.HasPrefix(rest, []byte(prevEnd)) && line[len(line)-1] == '}'
}

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.jsonl", first))
}

func headPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.head", first))
}

func latestPath(dir string) string    { return filepath.Join(dir, "head") }
func startPath(dir string) string     { return filepath.Join(dir, "start") }
func keyPath(dir string) string       { return filepath.Join(dir, "key") }
func publicKeyPath(dir string) string { return filepath.Join(dir, "key.pub") }
func reservePath(dir string) string   { return filepath.Join(dir, "reserve") }
