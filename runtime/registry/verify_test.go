package registry_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/registry"
	"github.com/caisson-run/caisson/tests/regtest"
)

// signer is a key pair whose public half is in a file.
type signer struct {
	signature.Signer
	file string
}

func newSigner(t *testing.T) signer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := cryptoutils.MarshalPublicKeyToPEM(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	s := signer{file: filepath.Join(t.TempDir(), "cosign.pub")}
	if s.Signer, err = signature.LoadSigner(private, crypto.SHA256); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, pem, 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s signer) sign(t *testing.T, payload []byte) []byte {
	t.Helper()
	sum, err := s.SignMessage(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// signTag puts a signature of about where cosign 2 puts those of at.
func (s signer) signTag(t *testing.T, b *bench, at, about digest.Digest) {
	t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"x"},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, about)
	l := b.Put(t, "app", "application/vnd.dev.cosign.simplesigning.v1+json", payload)
	l.Annotations = map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(s.sign(t, payload))}
	b.PutManifest(t, "app", "sha256-"+at.Encoded()+".sig", ocispec.MediaTypeImageManifest, manifestOf(t, b, l))
}

func manifestOf(t *testing.T, b *bench, layers ...ocispec.Descriptor) ocispec.Manifest {
	return ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: b.Put(t, "app", ocispec.MediaTypeImageConfig, []byte("{}")), Layers: layers}
}

// signBundle puts a bundle where cosign 3 puts those of an image.
func (s signer) signBundle(t *testing.T, b *bench, d digest.Digest, predicate string) {
	t.Helper()
	statement := fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"","digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`, d.Encoded(), predicate)
	envelope := dsse.WrapSigner(s.Signer, "application/vnd.in-toto+json")
	signed, err := envelope.SignMessage(bytes.NewReader(statement))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := json.Marshal(map[string]any{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "dsseEnvelope": json.RawMessage(signed)})
	if err != nil {
		t.Fatal(err)
	}
	m := manifestOf(t, b, b.Put(t, "app", "application/vnd.dev.sigstore.bundle.v0.3+json", bundle))
	m.ArtifactType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	ref := b.PutManifest(t, "app", "", m.MediaType, m)
	ref.ArtifactType = m.ArtifactType
	b.PutManifest(t, "app", "sha256-"+d.Encoded(), ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{ref},
	})
}

// TestVerifySignature: only a signature by the configured key, of this image, counts.
func TestVerifySignature(t *testing.T) {
	b := newBench(t)
	ours, other := newSigner(t), newSigner(t)
	b.config.Verify = []registry.Rule{{Repository: b.host + "/app", Require: registry.RequireSignature, Key: ours.file}}
	const sign = "https://sigstore.dev/cosign/sign/v1"
	n := 0
	for name, c := range map[string]struct {
		sign func(d digest.Digest)
		says string // empty: it is accepted
	}{
		"a tag":                     {func(d digest.Digest) { ours.signTag(t, b, d, d) }, ""},
		"a bundle":                  {func(d digest.Digest) { ours.signBundle(t, b, d, sign) }, ""},
		"a bundle beside a bad tag": {func(d digest.Digest) { other.signTag(t, b, d, d); ours.signBundle(t, b, d, sign) }, ""},
		"none":                      {func(digest.Digest) {}, "has no signature"},
		"another's tag":             {func(d digest.Digest) { other.signTag(t, b, d, d) }, "none of 1 signatures"},
		"another's bundle":          {func(d digest.Digest) { other.signBundle(t, b, d, sign) }, "none of 1 signatures"},
		"of another image":          {func(d digest.Digest) { ours.signTag(t, b, d, digest.FromString("another")) }, "is about sha256:"},
		"an attestation":            {func(d digest.Digest) { ours.signBundle(t, b, d, "https://slsa.dev/provenance/v1") }, "is no signature of an image"},
	} {
		t.Run(name, func(t *testing.T) {
			n++
			tag := fmt.Sprintf("case%d", n)
			d, _ := b.Push(t, "app", tag, regtest.Tar(t, "a", name))
			c.sign(d.Digest)
			_, err := b.pull(t, "app:"+tag)
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (sbxerr.Of(err) != sbxerr.ImageUnverified || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%s: %v", sbxerr.Of(err), err)
			}
			if left := b.spooled(t); len(left) > 0 {
				t.Errorf("left in the spool: %q", left)
			}
		})
	}
}

// TestVerifyDigest: a request names a digest, or the configuration does.
func TestVerifyDigest(t *testing.T) {
	b := newBench(t)
	d, _ := b.Push(t, "app", "2", regtest.Tar(t, "a", "two"))
	other := digest.FromString("another").String()
	for name, c := range map[string]struct {
		digests []string
		ref     string
		code    sbxerr.Code
	}{
		"by tag":             {nil, "app:2", sbxerr.ImageUnverified},
		"by digest":          {nil, "app@" + d.Digest.String(), ""},
		"allowed":            {[]string{other, d.Digest.String()}, "app:2", ""},
		"allowed is another": {[]string{other}, "app:2", sbxerr.ImageUnverified},
	} {
		b.config.Verify = []registry.Rule{{Repository: b.host + "/*", Require: registry.RequireDigest, Digests: c.digests}}
		if _, err := b.pull(t, c.ref); sbxerr.Of(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestVerifyRules: the first rule counts, and a repository without one is refused.
func TestVerifyRules(t *testing.T) {
	b := newBench(t)
	nothing := func(repository string) registry.Rule {
		return registry.Rule{Repository: repository, Require: registry.RequireNothing}
	}
	digests := registry.Rule{Repository: "*", Require: registry.RequireDigest}
	for name, c := range map[string]struct {
		rules []registry.Rule
		code  sbxerr.Code
	}{
		"none":          {nil, ""},
		"its own":       {[]registry.Rule{nothing(b.host + "/app"), digests}, ""},
		"the first":     {[]registry.Rule{digests, nothing(b.host + "/app")}, sbxerr.ImageUnverified},
		"above":         {[]registry.Rule{nothing(b.host + "/*")}, ""},
		"another":       {[]registry.Rule{nothing(b.host + "/apple")}, sbxerr.ImageUnverified},
		"below another": {[]registry.Rule{nothing(b.host + "/app/*")}, sbxerr.ImageUnverified},
	} {
		b.config.Verify = c.rules
		if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	key := newSigner(t).file
	if err := os.Chmod(key, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{key, "/absent", b.spool} {
		b.config.Verify = []registry.Rule{{Repository: "*", Require: registry.RequireSignature, Key: file}}
		if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != sbxerr.DaemonConf {
			t.Errorf("key %s: %v", file, err)
		}
	}
}

// TestCheckVerified: an image stays usable while its rule stays the same.
func TestCheckVerified(t *testing.T) {
	b := newBench(t)
	ours, other := newSigner(t), newSigner(t)
	with := func(rules ...registry.Rule) *registry.Client {
		b.config.Verify = rules
		c, err := registry.New(b.config)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	d, _ := b.Push(t, "app", "2", regtest.Tar(t, "a", "two"))
	ours.signTag(t, b, d.Digest, d.Digest)
	rule := registry.Rule{Repository: "*", Require: registry.RequireSignature, Key: ours.file}
	name := verifiedBy(t, with(rule), b.host+"/app:2")
	if !strings.Contains(name, ours.file) || !strings.Contains(name, "sha256:") {
		t.Errorf("verified by %q", name)
	}
	repository := b.host + "/app"
	for what, c := range map[string]struct {
		client               *registry.Client
		repository, verified string
		ok                   bool
	}{
		"the same rule":  {with(rule), repository, name, true},
		"another key":    {with(registry.Rule{Repository: "*", Require: registry.RequireSignature, Key: other.file}), repository, name, false},
		"a digest":       {with(registry.Rule{Repository: "*", Require: registry.RequireDigest}), repository, name, false},
		"unverified":     {with(rule), repository, "", false},
		"no rule for it": {with(registry.Rule{Repository: "a.example/*", Require: registry.RequireNothing}), repository, name, false},
		"no rules":       {with(), repository, "", true},
		"imported":       {with(rule), "", "", true},
	} {
		if err := c.client.CheckVerified(c.repository, c.verified); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestVerifyReadsFewSignatures: an image with more signatures than are read is refused, after
// as many requests as documents may be read.
func TestVerifyReadsFewSignatures(t *testing.T) {
	b := newBench(t)
	ours, other := newSigner(t), newSigner(t)
	b.config.Verify = []registry.Rule{{Repository: b.host + "/app", Require: registry.RequireSignature, Key: ours.file}}
	const kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
	for _, c := range []struct {
		others int
		says   string // empty: it is accepted
	}{{5, ""}, {200, "more than 64 documents"}} {
		d, _ := b.Push(t, "app", fmt.Sprint("many", c.others), regtest.Tar(t, "a", fmt.Sprint(c.others)))
		var layers []ocispec.Descriptor
		for n := range c.others {
			l := b.Put(t, "app", "application/vnd.dev.cosign.simplesigning.v1+json", fmt.Appendf(nil, "%d %d", c.others, n))
			l.Annotations = map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(other.sign(t, []byte("x")))}
			layers = append(layers, l)
		}
		m := manifestOf(t, b, layers...)
		m.ArtifactType = kind
		ref := b.PutManifest(t, "app", "", m.MediaType, m)
		ref.ArtifactType = kind
		b.PutManifest(t, "app", "sha256-"+d.Digest.Encoded(), ocispec.MediaTypeImageIndex, ocispec.Index{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{ref},
		})
		ours.signTag(t, b, d.Digest, d.Digest)
		before := len(b.requests("/blobs/"))
		_, err := b.pull(t, "app:"+fmt.Sprint("many", c.others))
		if c.says == "" && err != nil || c.says != "" && (sbxerr.Of(err) != sbxerr.ImageUnverified || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("beside %d: %v", c.others, err)
		}
		if asked := len(b.requests("/blobs/")) - before; asked > 70 {
			t.Errorf("beside %d: %d blobs were read", c.others, asked)
		}
	}
}
