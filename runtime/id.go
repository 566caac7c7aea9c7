package runtime

import (
	"crypto/rand"
	"encoding/base32"
	"regexp"
	"strings"
)

// idEncoding has no padding and no dash: an ID is a plain word everywhere.
var idEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// newID makes a sandbox ID: 26 lower-case letters and digits, 128 random bits.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand, Go 1.24)
	return strings.ToLower(idEncoding.EncodeToString(b[:]))
}

var idForm = regexp.MustCompile(`^[a-z2-7]{26}$`)
