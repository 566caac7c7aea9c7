package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
)

// maxFiles is the most descriptors that come with a frame.
const maxFiles = max(MaxPorts, MaxSecrets, attempt.Batch)

// Send writes frame to c, and copies of files with it. The mode of files, which
// the receiver shares, is not touched.
func Send(c *net.UnixConn, frame []byte, files ...*os.File) error {
	if len(files) == 0 {
		_, err := c.Write(frame)
		return err
	}
	return withFDs(files, nil, func(fds []int) error {
		n, _, err := c.WriteMsgUnix(frame, unix.UnixRights(fds...), nil)
		if err == nil && n < len(frame) {
			_, err = c.Write(frame[n:])
		}
		return err
	})
}

// withFDs calls fn with the descriptors of files, none of which is closed
// meanwhile. os.File.Fd would make them blocking for everybody who shares them.
func withFDs(files []*os.File, fds []int, fn func([]int) error) error {
	if len(files) == 0 {
		return fn(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = withFDs(files[1:], append(fds, int(fd)), fn) })
	return errors.Join(err, inner)
}

// Receiver reads requests and their descriptors.
type Receiver struct {
	conn  *net.UnixConn
	files []*os.File // of the frame that is being read
	lost  bool       // this process could not take all of them
}

// NewReceiver reads from c.
func NewReceiver(c *net.UnixConn) *Receiver { return &Receiver{conn: c} }

// ErrDescriptors says that this process has too many descriptors open to take those of
// a request.
var ErrDescriptors = sbxerr.New(sbxerr.Gateway, "control.receive", "the gateway has too many descriptors open")

// Next returns the next request, and its files, which the caller closes. A process
// that has too many open gets fewer of Supply's; others come without theirs, with
// ErrDescriptors, and the next one may fit. The error is io.EOF when the daemon is gone.
func (r *Receiver) Next() (Request, []*os.File, error) {
	body, err := ReadFrame(r, MaxRequest)
	files, lost := r.files, r.lost
	r.files, r.lost = nil, false
	var q Request
	if err == nil {
		q, err = DecodeRequest(body)
	}
	if err == nil && lost && q.Op == Supply {
		return q, files, nil // fewer sockets are no reason to end the traffic of all sandboxes
	}
	if err == nil && lost {
		return q, nil, errors.Join(ErrDescriptors, closeAll(files))
	}
	if err == nil && len(files) != q.Files() {
		err = fmt.Errorf("the operation %q comes with %d descriptors, not %d", q.Op, q.Files(), len(files))
	}
	if err != nil {
		return Request{}, nil, errors.Join(err, closeAll(files))
	}
	return q, files, nil
}

// Read makes r an io.Reader that puts descriptors aside. A read never reaches
// past the bytes that a frame's descriptors came with: the kernel stops there.
func (r *Receiver) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := r.conn.ReadMsgUnix(p, oob)
	if oobn > 0 {
		err = errors.Join(err, r.keep(oob[:oobn]))
	}
	r.lost = r.lost || flags&unix.MSG_CTRUNC != 0
	if errors.Is(err, io.EOF) {
		err = io.EOF // as io.Reader has it
	}
	return n, err
}

// keep takes over the descriptors in oob.
func (r *Receiver) keep(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		for _, fd := range fds {
			r.files = append(r.files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return nil
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
