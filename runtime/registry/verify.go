package registry

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/image"
)

// What a Rule may require.
const (
	RequireDigest    = "digest"
	RequireSignature = "signature"
	RequireNothing   = "nothing"
)

// Rule says what an image of some repositories must have.
type Rule struct {
	Repository string   // HOST/PATH, HOST/PATH/*, or *
	Require    string   // RequireDigest, RequireSignature or RequireNothing
	Digests    []string // of RequireDigest: the allowed ones; empty: the request must name one
	Key        string   // of RequireSignature: file of a PEM public key
}

// rule is a Rule that is ready to judge.
type rule struct {
	Rule
	key  []byte // PEM
	name string // that is recorded with the image; it changes with what the rule requires
}

// matches reports whether the rule is for a repository.
func (r rule) matches(repository string) bool {
	prefix, open := strings.CutSuffix(r.Repository, "*")
	return repository == r.Repository || open && strings.HasPrefix(repository, prefix)
}

// compile reads the keys of rules.
func compile(rules []Rule) ([]rule, error) {
	var list []rule
	var errs []error
	for i, r := range rules {
		c := rule{Rule: r, name: r.Require}
		if len(r.Digests) > 0 {
			sum := digest.FromString(strings.Join(slices.Sorted(slices.Values(r.Digests)), ","))
			c.name = fmt.Sprintf("%s, one of %d (%s)", r.Require, len(r.Digests), sum.Encoded()[:16])
		}
		if r.Require == RequireSignature {
			var err error
			if c.key, c.name, err = loadKey(r.Key); err != nil {
				errs = append(errs, fmt.Errorf("registries.verify[%d].key: %w", i, err))
			}
		}
		list = append(list, c)
	}
	return list, sbxerr.WithRemedy(sbxerr.DaemonConf, "registry.verify", errors.Join(errs...), "give a public key as cosign generate-key-pair writes it, which only root may change")
}

// maxKey bounds the file of a public key, in bytes.
const maxKey = 64 << 10

// loadKey reads the PEM of a key, and what its rule is called.
func loadKey(path string) ([]byte, string, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("file %q has the mode %04o, by which others than its owner may change it: %w", path, info.Mode().Perm(), fs.ErrPermission)
	}
	if err != nil {
		return nil, "", err
	}
	data, err := owndir.ReadFile(path, maxKey)
	if err != nil {
		return nil, "", err
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(data)
	switch key.(type) {
	case *ecdsa.PublicKey, *rsa.PublicKey, ed25519.PublicKey, nil:
	default:
		err = errors.New("unsupported public key type")
	}
	if err != nil {
		return nil, "", fmt.Errorf("file %q: %w", path, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, "", fmt.Errorf("file %q: %w", path, err)
	}
	sum := sha256.Sum256(der)
	return data, fmt.Sprintf("%s by the key %s (sha256:%s)", RequireSignature, path, hex.EncodeToString(sum[:8])), nil
}

// ruleFor returns the first rule for a repository. Without any rule nothing is required.
// With rules, an image that none is for is refused.
func (c *Client) ruleFor(repository string) (rule, error) {
	if len(c.rules) == 0 {
		return rule{Rule: Rule{Require: RequireNothing}}, nil
	}
	i := slices.IndexFunc(c.rules, func(r rule) bool { return r.matches(repository) })
	if i < 0 {
		return rule{}, sbxerr.WithRemedy(sbxerr.ImageUnverified, "registry.verify", fmt.Errorf("no rule of registries.verify is for %s, so its images are refused", repository),
			"have the operator add a rule for the repository to registries.verify in the daemon's configuration")
	}
	return c.rules[i], nil
}

// Verify applies the rule for the repository to an image that was found there: where that demands
// a signature, none is found without one. It returns the name of the rule that the image
// satisfies, empty if nothing is configured.
func (s *Session) Verify(found image.Remote) (string, error) {
	if s.rule.Require == RequireDigest {
		return s.rule.name, s.rule.pinned(s.ref, found)
	}
	return s.rule.name, nil
}

// pinned takes an image by its own digest or that of its index.
func (r rule) pinned(ref Reference, found image.Remote) error {
	have := []string{found.Target.Digest.String(), found.Source.Digest.String()}
	if len(r.Digests) == 0 && ref.Digest == "" {
		return sbxerr.WithRemedy(sbxerr.ImageUnverified, "registry.verify", fmt.Errorf("images of %s must be pulled by their digest", ref.repo),
			fmt.Sprintf("after you have made sure that it is the right one, pull %s@%s", ref.Name, have[0]))
	}
	if len(r.Digests) > 0 && !slices.Contains(r.Digests, have[0]) && !slices.Contains(r.Digests, have[1]) {
		return sbxerr.New(sbxerr.ImageUnverified, "registry.verify", "%s has the digest %s, which is none of those that registries.verify allows", ref.Name, have[0])
	}
	return nil
}

// CheckVerified refuses an image that was pulled from a repository under another rule than
// the present one.
func (c *Client) CheckVerified(repository, verified string) error {
	if repository == "" || len(c.rules) == 0 { // it came from no registry, or nothing is required
		return nil
	}
	r, err := c.ruleFor(repository)
	if err == nil && r.name != verified {
		err = sbxerr.WithRemedy(sbxerr.ImageUnverified, "registry.verify", fmt.Errorf("an image of %s needs: %s; when it was pulled, what was verified was: %q", repository, r.name, verified),
			"pull it again: caisson image pull")
	}
	return err
}
