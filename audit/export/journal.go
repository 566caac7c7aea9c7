package export

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/audit"
)

// journal is a connection with systemd's journal, in its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/): each record is a datagram of lines
// FIELD=VALUE. A record is one line, so it needs no other form.
type journal struct{ c *net.UnixConn }

func entry(rec audit.Record) []byte {
	return fmt.Appendf(nil, "PRIORITY=%d\nSYSLOG_IDENTIFIER=%s\nCAISSON_AUDIT_SEQ=%d\nCAISSON_AUDIT_TYPE=%s\nMESSAGE=%s\n",
		severityInfo, appName, rec.Seq, look(rec.Line).eventType(), rec.Line)
}

func (j *journal) send(rec audit.Record) (int, error) {
	data := entry(rec)
	if err := j.c.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	_, err := j.c.Write(data)
	if errors.Is(err, unix.EMSGSIZE) {
		err = j.sendFile(data)
	}
	return len(data), errStalled(err)
}

// sendFile sends what is too long for a datagram: a sealed file in memory.
func (j *journal) sendFile(data []byte) error {
	fd, err := unix.MemfdCreate("caisson-audit", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for rest := data; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return err
	}
	raw, err := j.c.SyscallConn()
	if err != nil {
		return err
	}
	rights := unix.UnixRights(fd)
	waitErr := raw.Write(func(to uintptr) bool { // WriteMsgUnix refuses connected sockets
		err = unix.Sendmsg(int(to), nil, rights, nil, 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(err, waitErr)
}

// hasRead sends an empty datagram, which the journal ignores: it fails if the journal has
// ended.
func (j *journal) hasRead() bool {
	if !hasRead(j.c) || j.c.SetWriteDeadline(time.Now().Add(finishWait)) != nil {
		return false
	}
	_, err := j.c.Write(nil)
	return err == nil
}

// broken is never: the next record finds out.
func (j *journal) broken() <-chan struct{} { return nil }

func (j *journal) cause() error { return nil }

func (j *journal) finish() error {
	for end := time.Now().Add(finishWait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if j.hasRead() {
			return nil
		}
	}
	return errors.New("the journal has not read everything")
}

func (j *journal) abort() { _ = j.c.SetDeadline(time.Unix(1, 0)) }

func (j *journal) close() { _ = j.c.Close() }
