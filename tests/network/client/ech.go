package main

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"strings"

	"golang.org/x/crypto/cryptobyte"
)

// hiddenName asks for one name in a handshake that shows another (encrypted_client_hello).
// The server has no key for it, and so answers under the name that is shown: it is said
// whether it did.
func hiddenName(args []string) (string, error) {
	list, err := echList(args[1])
	if err != nil {
		return "", err
	}
	c, err := tls.DialWithDialer(dialer, "tcp", args[0], &tls.Config{
		ServerName: args[2], MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list,
		InsecureSkipVerify:                  true,
		EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil }, // a sandbox knows no authorities
	})
	var rejected *tls.ECHRejectionError
	switch {
	case errors.As(err, &rejected):
		return "the server answered without ECH", nil
	case err != nil:
		return "", err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// echList is a list of one configuration (RFC 9849, 4) whose hellos show the name public.
func echList(public string) ([]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint16(0xfe0d)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			b.AddUint8(1)       // id
			b.AddUint16(0x0020) // X25519 with HKDF-SHA256
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(key.PublicKey().Bytes()) })
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint16(1); b.AddUint16(1) }) // HKDF-SHA256, AES-128-GCM
			b.AddUint8(32)                                                                            // longest name
			b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(public)) })
			b.AddUint16(0) // extensions
		})
	})
	return b.Bytes()
}
