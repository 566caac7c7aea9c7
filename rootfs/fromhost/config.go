package fromhost

import (
	"crypto/md5" // it is what dpkg records; it finds changes, it protects nothing
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// maxConfig bounds one configuration file of a package.
const maxConfig = 4 << 20

// config adds a configuration file as its package brought it. One that was
// changed on this host belongs to the host: it may hold passwords, addresses
// or names. The content is kept from here on, so what was compared is what is
// copied.
func (c *collector) config(f packageFile, sum string, o origin) error {
	r, err := c.tree.place(f.source)
	if err == nil && !r.info.isRegular() {
		return c.place(f.source, o)
	}
	if err != nil {
		if !skippable(err) {
			return err
		}
		c.leave("", f.path, err)
		return nil
	}
	if c.stays(r.path) || c.set[r.path] != nil {
		return nil
	}
	content, err := c.tree.readFile(r.path, maxConfig)
	if err != nil && !skippable(err) && !errors.Is(err, errTooBig) {
		return err
	}
	if err != nil {
		c.leave(LeftConfig, f.path, err)
		return nil
	}
	if !strings.EqualFold(digestLike(sum, content), sum) {
		c.leave(LeftConfig, f.path, nil)
		return nil
	}
	if err := c.passed(r.links, o); err != nil {
		return err
	}
	return c.put(&Entry{
		Path: r.path, Kind: File, Mode: permissions(r.info.mode), Size: int64(len(content)),
		ModTime: r.info.mtime.Sec, Content: content, For: o.why,
	})
}

// digestLike returns content's digest of the kind that sum is.
func digestLike(sum string, content []byte) string {
	switch len(sum) {
	case hex.EncodedLen(md5.Size):
		return fmt.Sprintf("%x", md5.Sum(content))
	case hex.EncodedLen(sha256.Size):
		return fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return ""
}
