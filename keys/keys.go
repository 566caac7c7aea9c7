// Package keys keeps by which keys and certificates callers from the network act for users of
// the daemon. The file in the daemon's root holds no key, only what tells whether one is right.
package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

const (
	prefix   = "csn_" // of a key, so that scanners for secrets find one
	size     = 32     // bytes of chance
	maxKeys  = 1024
	maxBytes = 1 << 20 // of the file

	// noID is what the kernel shows for users without an id here.
	noID = 65534
)

// Key is a key, or a client's certificate, that acts for a user.
type Key struct {
	Name string `json:"name"`
	// Certificate says that there is no key: a client shows a certificate with this name.
	Certificate bool      `json:"certificate,omitempty"`
	Hash        string    `json:"sha256,omitempty"` // of the key, in hex
	UID         uint32    `json:"uid"`
	GID         uint32    `json:"gid"`
	Admin       bool      `json:"admin,omitempty"` // it acts for root, and says so
	Created     time.Time `json:"created"`
	Expires     time.Time `json:"expires,omitzero"` // zero: never
}

// Expired reports whether k no longer counts.
func (k Key) Expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// form is also what names of certificates look like: of hosts, or addresses of mail.
var form = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$`) })

func (k Key) validate() error {
	hash, err := hex.DecodeString(k.Hash)
	switch {
	case !form().MatchString(k.Name):
		return fmt.Errorf("%q is no name of a key: give letters, digits, and . _ @ - between them", sbxerr.Clip(k.Name))
	case k.UID == 0 && !k.Admin:
		return fmt.Errorf("the key %q acts for root, which is for --admin alone", k.Name)
	case k.Admin && k.UID != 0:
		return fmt.Errorf("the key %q of an administrator acts for uid %d", k.Name, k.UID)
	case k.UID == noID || k.UID == 1<<32-1:
		return fmt.Errorf("the key %q acts for uid %d, which stands for nobody", k.Name, k.UID)
	case !k.Certificate && (err != nil || len(hash) != sha256.Size), k.Certificate && k.Hash != "":
		return fmt.Errorf("the key %q has no SHA-256", k.Name)
	}
	return nil
}

// File is where the keys of a daemon with this root are.
func File(root string) string { return filepath.Join(root, "keys.json") }

// Read returns all keys, by name. A file that cannot be read, or that others wrote, has none.
func Read(root string) ([]Key, error) {
	data, err := owndir.ReadFile(File(root), maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []Key
	if err == nil {
		err = checkOwn(File(root))
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	for _, k := range list {
		err = errors.Join(err, k.validate())
	}
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.StateDir, "keys.read", fmt.Errorf("the keys in %q: %w", File(root), err), "move the file away, then make the keys again: caisson key create")
	}
	return list, nil
}

// checkOwn refuses a file that others may have written. Nobody else can replace it: the directory
// is root's.
func checkOwn(file string) error {
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		return err
	}
	if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return errors.New("others than root may write it")
	}
	return nil
}

// Create adds k, and returns its secret, which is kept nowhere. It is empty for a certificate.
func Create(root string, k Key) (secret string, err error) {
	if !k.Certificate {
		secret = newSecret()
		k.Hash = hashOf(secret)
	}
	if err := k.validate(); err != nil {
		return "", sbxerr.Wrap(sbxerr.APIUsage, "keys.create", err)
	}
	return secret, change(root, func(list []Key) ([]Key, error) {
		if slices.ContainsFunc(list, func(have Key) bool { return have.Name == k.Name }) {
			return nil, sbxerr.WithRemedy(sbxerr.Exists, "keys.create", fmt.Errorf("there is a key %q", k.Name), "choose another name, or remove that one: caisson key rm "+k.Name)
		}
		if len(list) >= maxKeys {
			return nil, sbxerr.WithRemedy(sbxerr.Busy, "keys.create", fmt.Errorf("there are %d keys", maxKeys), "remove keys that are not used: caisson key rm")
		}
		return append(list, k), nil
	})
}

// Remove removes the key with this name.
func Remove(root, name string) error {
	return change(root, func(list []Key) ([]Key, error) {
		left := slices.DeleteFunc(slices.Clone(list), func(k Key) bool { return k.Name == name })
		if len(left) == len(list) {
			return nil, sbxerr.New(sbxerr.KeyNotFound, "keys.remove", "there is no key %q", sbxerr.Clip(name))
		}
		return left, nil
	})
}

// change replaces the keys by what to makes of them, one process after the other.
func change(root string, to func([]Key) ([]Key, error)) (err error) {
	lock, err := os.OpenFile(File(root)+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "keys.lock", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "keys.lock", err)
	}
	list, err := Read(root)
	if err != nil {
		return err
	}
	if list, err = to(list); err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b Key) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	data, err := json.MarshalIndent(list, "", "  ")
	if err == nil {
		err = owndir.WriteFile(File(root), append(data, '\n'))
	}
	return sbxerr.Wrap(sbxerr.StateDir, "keys.write", err)
}

func newSecret() string {
	var b [size]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// hashOf needs no salt and no stretching: the secret is 256 bits of chance.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// is reports whether secret is that of k, in a time that tells nothing.
func (k Key) is(hash string) bool {
	return !k.Certificate && subtle.ConstantTimeCompare([]byte(k.Hash), []byte(hash)) == 1
}
