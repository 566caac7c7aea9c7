package bundle

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The PEM blocks of keys, as openssl writes them.
const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

func badKey(format string, args ...any) error {
	return sbxerr.New(sbxerr.Config, "bundle.key", format, args...)
}

// NewKey makes a pair of keys in PEM.
func NewKey() (private, public []byte, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, sbxerr.Wrap(sbxerr.Internal, "bundle.key", err)
	}
	p8, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return nil, nil, sbxerr.Wrap(sbxerr.Internal, "bundle.key", err)
	}
	pkix, err := x509.MarshalPKIXPublicKey(pub)
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: p8}), pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: pkix}),
		sbxerr.Wrap(sbxerr.Internal, "bundle.key", err)
}

// PrivateKey reads an ed25519 key of PKCS #8 in PEM.
func PrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateBlock {
		return nil, badKey("it is no private key in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, badKey("read the private key: %w", err)
	}
	if k, ok := key.(ed25519.PrivateKey); ok {
		return k, nil
	}
	return nil, badKey("it is no ed25519 key")
}

// PublicKey reads an ed25519 key in PEM.
func PublicKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != publicBlock {
		return nil, badKey("it is no public key in PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, badKey("read the public key: %w", err)
	}
	if k, ok := key.(ed25519.PublicKey); ok {
		return k, nil
	}
	return nil, badKey("it is no ed25519 key")
}
