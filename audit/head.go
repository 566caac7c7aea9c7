package audit

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Head is a place in the log: the number and the hash of a record.
type Head struct {
	Seq  uint64 // 0 is before the first record
	Hash Hash
}

// The first lines of the notes: what a head says of its place.
const (
	latestTitle = "caisson audit head"    // the log goes as far as this, or further
	sealedTitle = "caisson audit segment" // the segment ends with this
	startTitle  = "caisson audit start"   // the records up to this were removed by retention
)

// maxNote bounds a note, in bytes.
const maxNote = 4 << 10

func (h Head) text(title string) string {
	return fmt.Sprintf("%s\n%d\n%s\n", title, h.Seq, h.Hash)
}

// writeNote signs h and puts it at path in one step.
func writeNote(path, title string, h Head, key note.Signer) error {
	signed, err := note.Sign(&note.Note{Text: h.text(title)}, key)
	if err != nil {
		return err
	}
	return replace(path, signed, 0o600)
}

// replace writes a file in one step.
func replace(path string, content []byte, mode fs.FileMode) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return err
	}
	return owndir.Rename(tmp, filepath.Base(path))
}

// readNote reads a note of this title that was signed with the key.
func readNote(path, title string, key note.Verifier) (Head, error) {
	text, err := owndir.ReadFile(path, maxNote)
	if err != nil {
		return Head{}, err
	}
	signed, err := note.Open(text, note.VerifierList(key))
	if err != nil {
		return Head{}, fmt.Errorf("it is not signed with the key %s: %w", key.Name(), err)
	}
	lines := strings.Split(strings.TrimSuffix(signed.Text, "\n"), "\n")
	if len(lines) != 3 || lines[0] != title {
		return Head{}, fmt.Errorf("it is no %q", title)
	}
	var h Head
	seq, seqErr := strconv.ParseUint(lines[1], 10, 64)
	n, hashErr := hex.Decode(h.Hash[:], []byte(lines[2][:min(len(lines[2]), hex.EncodedLen(len(h.Hash)))]))
	if h.Seq = seq; errors.Join(seqErr, hashErr) != nil || n != len(h.Hash) {
		return Head{}, errors.New("it holds no number and hash")
	}
	return h, nil
}

// knownHead reads a head that is not of the log itself: NUMBER:HASH, or a copy of its file.
func knownHead(text string, key note.Verifier) (h Head, err error) {
	const op = "audit.verify"
	if text == "" {
		return h, nil
	}
	number, hash, _ := strings.Cut(text, ":")
	seq, err := strconv.ParseUint(number, 10, 64)
	n, hashErr := hex.Decode(h.Hash[:], []byte(hash[:min(len(hash), hex.EncodedLen(len(h.Hash)))]))
	if err == nil && hashErr == nil && n == len(h.Hash) && len(hash) == hex.EncodedLen(n) {
		h.Seq = seq
		return h, nil
	}
	if h, err = readNote(text, latestTitle, key); err != nil {
		return h, sbxerr.WithRemedy(sbxerr.APIUsage, op, fmt.Errorf("%q is neither NUMBER:HASH nor a copy of a head: %w", sbxerr.Clip(text), err),
			"give what verify printed of the last record, such as 123:9f86d0…, or the path of a copy of the file head")
	}
	return h, nil
}

// loadKey returns the key in dir, which is made if the log has no record yet.
func loadKey(dir, name string, fresh bool) (note.Signer, note.Verifier, error) {
	secret, err := owndir.ReadFile(keyPath(dir), maxNote)
	if errors.Is(err, fs.ErrNotExist) && fresh {
		return makeKey(dir, name)
	}
	if err != nil {
		return nil, nil, sbxerr.WithRemedy(sbxerr.AuditBroken, "audit.key", fmt.Errorf("the log has records, and its key cannot be read: %w", err),
			"restore "+keyPath(dir)+", or move "+dir+" away to begin another log")
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(secret)))
	if err != nil {
		return nil, nil, sbxerr.Wrap(sbxerr.AuditBroken, "audit.key", fmt.Errorf("%s: %w", keyPath(dir), err))
	}
	verifier, err := publicKey(dir, "")
	return signer, verifier, err
}

func makeKey(dir, name string) (note.Signer, note.Verifier, error) {
	secret, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return nil, nil, sbxerr.Wrap(sbxerr.Internal, "audit.key", err)
	}
	// The public part first: a key without it would be no key.
	if err := errors.Join(replace(publicKeyPath(dir), []byte(public+"\n"), 0o644), replace(keyPath(dir), []byte(secret+"\n"), 0o600)); err != nil {
		return nil, nil, sbxerr.Wrap(sbxerr.AuditWrite, "audit.key", err)
	}
	signer, signErr := note.NewSigner(secret)
	verifier, err := note.NewVerifier(public)
	return signer, verifier, sbxerr.Wrap(sbxerr.Internal, "audit.key", errors.Join(signErr, err))
}

// publicKey reads a public key from its text, or from dir for an empty one.
func publicKey(dir, text string) (note.Verifier, error) {
	if text == "" {
		data, err := owndir.ReadFile(publicKeyPath(dir), maxNote)
		if errors.Is(err, fs.ErrPermission) {
			return nil, forbidden(err)
		}
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.AuditBroken, "audit.key", fmt.Errorf("read the public key: %w", err))
		}
		text = string(data)
	}
	v, err := note.NewVerifier(strings.TrimSpace(text))
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.APIUsage, "audit.key", fmt.Errorf("%q is no public key: %w", sbxerr.Clip(text), err), "give the text of key.pub, as the daemon logged it")
	}
	return v, nil
}
