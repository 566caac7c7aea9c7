package imageproc_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// asked is what became of some requests.
type asked struct {
	Read    string // of the connection
	Refused map[string]string
	Failure imageproc.Failure // of a refusal
	Timeout bool              // of another
}

func init() {
	handlers["ask"] = func(c *imageproc.Conn, _ json.RawMessage, files []*os.File) error {
		a, got := imageproc.NewAsker(files[0]), asked{Refused: map[string]string{}}
		f, err := a.Ask(context.Background(), "connection")
		if err != nil {
			return err
		}
		buf := make([]byte, 100)
		n, err := f.Read(buf)
		if err != nil {
			return err
		}
		got.Read = string(buf[:n])
		_, err = a.Ask(context.Background(), "refused")
		got.Failure = imageproc.FailureOf(err)
		_, err = a.Ask(context.Background(), "late")
		var of net.Error
		got.Timeout = errors.As(err, &of) && of.Timeout()
		late, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err = a.Ask(late, "never")
		got.Refused["wait"] = told(err)
		got.Refused["disconnect"] = told(disconnect(f))
		got.Refused["connect"] = told(unix.Connect(int(f.Fd()), &unix.SockaddrInet4{Port: 1, Addr: [4]byte{127, 0, 0, 1}}))
		got.Refused["listen"] = told(unix.Listen(int(f.Fd()), 1))
		got.Refused["pass on"] = told(unix.Sendmsg(int(f.Fd()), []byte("x"), unix.UnixRights(0), nil, 0))
		return c.Send("asked", got)
	}
}

// disconnect undoes a connection, after which the socket can be connected to another address.
func disconnect(f *os.File) error {
	none := unix.RawSockaddrAny{Addr: unix.RawSockaddr{Family: unix.AF_UNSPEC}}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, f.Fd(), uintptr(unsafe.Pointer(&none)), unix.SizeofSockaddrInet4)
	if errno != 0 {
		return errno
	}
	return nil
}

// A process gets a connection that the daemon made, and can do no more with it than read and write.
func TestAsker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("hello")) // what is read says whether it came
			defer conn.Close()
		}
	}()
	control, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	if f, err := control.(*net.TCPConn).File(); err != nil || disconnect(f) != nil {
		t.Errorf("the daemon itself cannot connect anew: %v", err)
	}
	gone := make(chan struct{})
	p := start(t, t.Context(), "ask", nil, func(j *imageproc.Job) {
		j.Give = func(ctx context.Context, request json.RawMessage) (*os.File, error) {
			switch string(request) {
			case `"connection"`:
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					return nil, err
				}
				defer conn.Close()
				return conn.(*net.TCPConn).File()
			case `"refused"`:
				return nil, errors.Join(sbxerr.WithRemedy(sbxerr.PullRefused, "test.give", errors.New("not there"), "go elsewhere"))
			case `"late"`:
				return nil, os.ErrDeadlineExceeded
			}
			<-ctx.Done() // of the process
			close(gone)
			return nil, ctx.Err()
		}
	})
	var got asked
	if err := p.Expect("asked", imageproc.MaxMessage, &got); err != nil {
		t.Fatal(err)
	}
	if got.Read != "hello" || !got.Timeout {
		t.Errorf("%+v", got)
	}
	if err := got.Failure.Err(); sbxerr.Of(err) != sbxerr.PullRefused || sbxerr.RemedyOf(err) != "go elsewhere" || err.Error() != "test.give [SBX-224]: not there" {
		t.Errorf("refused: %v", err)
	}
	want := map[string]string{"wait": "context deadline exceeded", "connect": "operation not permitted", "disconnect": "operation not permitted", "listen": "operation not permitted", "pass on": "operation not permitted"}
	for what, became := range want {
		if got.Refused[what] != became {
			t.Errorf("%s: %q", what, got.Refused[what])
		}
	}
	p.Close()
	select {
	case <-gone:
	default:
		t.Error("what it asked for outlives it")
	}
}
