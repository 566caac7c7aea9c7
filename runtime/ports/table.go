package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Table holds the listeners of all sandboxes. The zero Table is empty. Its methods
// may be called at the same time.
type Table struct {
	mu   sync.Mutex
	open map[string][]listener // by sandbox
}

type listener struct {
	port Port
	file *os.File
}

// Taken says that a port is not free.
type Taken struct {
	Port   Port
	Holder string // the sandbox that publishes it; empty: somebody else has it
}

func (t *Taken) Error() string { return fmt.Sprintf("port %s is taken", t.Port.listener()) }

// Open listens on each of ports for a sandbox that has none open, and returns them
// with the numbers that were picked. On an error none is open; one that is taken is
// a *Taken with code sbxerr.PortTaken.
func (t *Table) Open(sandbox string, ports []Port) ([]Port, error) {
	const op = "ports.open"
	if len(ports) == 0 {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open[sandbox]) > 0 {
		return nil, sbxerr.New(sbxerr.Internal, op, "sandbox %s has ports already", sandbox)
	}
	var opened []listener
	for _, p := range ports {
		l, err := listen(p)
		if err != nil {
			return nil, errors.Join(t.failure(p, err), closeAll(opened))
		}
		opened = append(opened, l)
	}
	t.keep(sandbox, opened)
	return portsOf(opened), nil
}

// Reopen listens again on ports that a sandbox had before. It opens those that it
// can; one that is taken is waited for as long as patience, together with the others.
func (t *Table) Reopen(sandbox string, ports []Port, patience time.Duration) ([]Port, error) {
	var opened []listener
	var errs []error
	end := time.Now().Add(patience)
	for _, p := range ports {
		l, err := listen(p)
		for errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end) {
			time.Sleep(reopenPause)
			l, err = listen(p)
		}
		if err != nil {
			errs = append(errs, t.lockedFailure(p, err))
			continue
		}
		opened = append(opened, l)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(sandbox, opened)
	return portsOf(opened), errors.Join(errs...)
}

const reopenPause = 20 * time.Millisecond

func (t *Table) lockedFailure(p Port, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure(p, err)
}

// keep notes what is open. The caller holds the lock.
func (t *Table) keep(sandbox string, opened []listener) {
	if t.open == nil {
		t.open = map[string][]listener{}
	}
	if len(opened) > 0 {
		t.open[sandbox] = opened
	}
}

// failure says why p could not be opened, and who has it. The caller holds the lock.
func (t *Table) failure(p Port, err error) error {
	const op = "ports.open"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return sbxerr.Wrap(sbxerr.PortTaken, op, &Taken{Port: p, Holder: t.holder(p)})
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return sbxerr.New(sbxerr.Config, op, "publish on %s: the host has no such address", p.Address)
	}
	return sbxerr.Wrap(sbxerr.Network, op, fmt.Errorf("publish on %s: %w", p.listener(), err))
}

// holder is the sandbox that has p.
func (t *Table) holder(p Port) string {
	for sandbox, list := range t.open {
		for _, l := range list {
			if l.port.meets(p) {
				return sandbox
			}
		}
	}
	return ""
}

// Ports returns what is open for a sandbox.
func (t *Table) Ports(sandbox string) []Port {
	t.mu.Lock()
	defer t.mu.Unlock()
	return portsOf(t.open[sandbox])
}

// Files returns the listeners of a sandbox, in the order of Ports. They stay the
// Table's.
func (t *Table) Files(sandbox string) []*os.File {
	t.mu.Lock()
	defer t.mu.Unlock()
	var files []*os.File
	for _, l := range t.open[sandbox] {
		files = append(files, l.file)
	}
	return files
}

// Close closes the ports of a sandbox. Absent is success.
func (t *Table) Close(sandbox string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.open[sandbox]
	delete(t.open, sandbox)
	return sbxerr.Wrap(sbxerr.Network, "ports.close", closeAll(list))
}

// listen opens p, which gets its number if it has none. Plain TCP: what is accepted
// is spliced, and asked when it was last used, neither of which MPTCP does.
func listen(p Port) (listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	network := "tcp4"
	if p.Address.Is6() {
		network = "tcp6"
	}
	l, err := config.Listen(context.Background(), network, p.listener())
	if err != nil {
		return listener{}, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return listener{}, errors.Join(fmt.Errorf("a listener is a %T", l), l.Close())
	}
	file, err := tcp.File()
	if err := errors.Join(err, l.Close()); err != nil {
		return listener{}, err
	}
	if at, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
		p.Host = at.Port()
	}
	return listener{p, file}, nil
}

func portsOf(list []listener) []Port {
	var all []Port
	for _, l := range list {
		all = append(all, l.port)
	}
	return all
}

func closeAll(list []listener) error {
	var errs []error
	for _, l := range list {
		errs = append(errs, l.file.Close())
	}
	return errors.Join(errs...)
}
