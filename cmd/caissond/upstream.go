package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/upstream"
)

// upstreamProxy is the proxy through which sandboxes leave, nil for none.
func upstreamProxy(u config.UpstreamProxy) (*upstream.Proxy, error) {
	if u.URL == "" {
		return nil, nil
	}
	spec := upstream.Spec{URL: u.URL, Except: u.Except}
	var err error
	if path := u.CredentialsFile(); path != "" {
		spec.Credentials, err = readSecret(path)
		err = sbxerr.WithRemedy(sbxerr.DaemonConf, "caissond.upstream", wrapKey("network.upstream_proxy.credentials", err),
			"give a file of root's that nobody else may read, with one line USER:PASSWORD")
	}
	proxy, compileErr := upstream.Compile(spec)
	return proxy, errors.Join(err, compileErr)
}

func wrapKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// maxSecret bounds the file of a secret, in bytes.
const maxSecret = 1024

// readSecret reads the one line of a file that nobody but root can read or change. Its
// errors say nothing of what is in it.
func readSecret(path string) (upstream.Secret, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold the daemon
	if err != nil {
		return upstream.Secret{}, err
	}
	defer func() { _ = f.Close() }() // it was read only
	if err := checkOwn(f); err != nil {
		return upstream.Secret{}, fmt.Errorf("file %q %w", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return upstream.Secret{}, err
	case len(data) > maxSecret:
		return upstream.Secret{}, fmt.Errorf("file %q is longer than %d bytes", path, maxSecret)
	case len(strings.TrimSpace(string(data))) == 0:
		return upstream.Secret{}, fmt.Errorf("file %q is empty", path)
	}
	return upstream.NewSecret(strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")), nil
}

// checkOwn refuses a file that others than root and the daemon's user may know.
func checkOwn(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("is no regular file")
	case !known || owner.Uid != 0 && owner.Uid != uint32(os.Geteuid()):
		return errors.New("belongs to somebody else than root")
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("has the mode %04o, by which others than its owner may use it", info.Mode().Perm())
	}
	return nil
}
