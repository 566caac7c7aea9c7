package imageproc

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// The kinds of frames.
const (
	frameMessage = 'm' // JSON: an envelope
	frameData    = 'd' // bytes of a stream
	frameEnd     = 'e' // of a stream
)

// Bounds of frames, in bytes. Messages have more room than what is read of them says.
const (
	headerBytes = 5 // the kind and the length
	chunk       = 256 << 10
	maxFrame    = 64 << 20
)

// MaxMessage bounds a message that is no more than some names.
const MaxMessage = 64 << 10

// envelope is a message.
type envelope struct {
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`
}

// Conn carries messages, and streams of bytes between them. One goroutine may read it, and any
// number write messages.
type Conn struct {
	in  *bufio.Reader
	due int        // length of a message of which the frame's head was read in a stream; 0: none
	mu  sync.Mutex // held while a frame is written
	out io.Writer
	buf []byte // of a frame; guarded by mu
}

// NewConn returns a Conn on a connection.
func NewConn(c io.ReadWriter) *Conn {
	return &Conn{in: bufio.NewReaderSize(c, chunk+headerBytes), out: c, buf: make([]byte, headerBytes+chunk)}
}

// Send sends a message.
func (c *Conn) Send(kind string, body any) error {
	data, err := json.Marshal(body)
	if err == nil {
		data, err = json.Marshal(envelope{kind, data})
	}
	if err == nil && len(data) > maxFrame {
		err = fmt.Errorf("the message %q has %d bytes: at most %d", kind, len(data), maxFrame)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write(frameMessage, data)
}

// write writes a frame, in one call where it is small. The caller holds mu.
func (c *Conn) write(kind byte, data []byte) error {
	head := c.buf[:headerBytes]
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(data)))
	if len(data) <= chunk {
		n := copy(c.buf[headerBytes:], data)
		_, err := c.out.Write(c.buf[:headerBytes+n])
		return err
	}
	if _, err := c.out.Write(head); err != nil {
		return err
	}
	_, err := c.out.Write(data)
	return err
}

// errStopped ends a stream that its writer gives up: a message follows, which says why.
var errStopped = errors.New("the stream ends early")

// errBroken marks what is no message where one is due.
var errBroken = errors.New("the message is malformed")

func (c *Conn) head() (kind byte, length int, err error) {
	if n := c.due; n > 0 {
		c.due = 0
		return frameMessage, n, nil
	}
	var head [headerBytes]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, 0, fmt.Errorf("%w: a frame of %d bytes", errBroken, n)
	}
	return head[0], int(n), nil
}

// Receive reads a message of at most so many bytes.
func (c *Conn) Receive(most int) (kind string, body json.RawMessage, err error) {
	frame, n, err := c.head()
	if err != nil {
		return "", nil, err
	}
	if frame != frameMessage || n > most {
		return "", nil, fmt.Errorf("%w: a frame %q of %d bytes, at most %d", errBroken, frame, n, most)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(c.in, data); err != nil {
		return "", nil, unexpected(err)
	}
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return "", nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return e.Kind, e.Body, nil
}

// unexpected is an end of the input where there must be more.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Stream reads a stream to its end. Its reader must do so before the next message is read.
func (c *Conn) Stream() io.Reader { return &stream{c: c} }

type stream struct {
	c     *Conn
	left  int // of the frame
	ended bool
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for s.left == 0 {
		if s.ended {
			return 0, io.EOF
		}
		kind, n, err := s.c.head()
		switch {
		case err != nil:
			return 0, unexpected(err)
		case kind == frameEnd && n == 0:
			s.ended = true
		case kind == frameData && n > 0:
			s.left = n
		case kind == frameMessage && n > 0:
			s.c.due = n
			return 0, errStopped
		default:
			return 0, fmt.Errorf("%w: a frame %q of %d bytes in a stream", errBroken, kind, n)
		}
	}
	n, err := s.c.in.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, unexpected(err)
}

// SendStream sends what write writes, as a stream. Messages that others send come before it or
// between its parts: only the side that reads a stream may be sent none meanwhile.
func (c *Conn) SendStream(write func(io.Writer) error) error {
	out := bufio.NewWriterSize(frames{c}, chunk)
	if err := errors.Join(write(out), out.Flush()); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write(frameEnd, nil)
}

type frames struct{ c *Conn }

// Write implements io.Writer.
func (f frames) Write(p []byte) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	for n := 0; n < len(p); {
		part := p[n:min(len(p), n+chunk)]
		if err := f.c.write(frameData, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(p), nil
}
