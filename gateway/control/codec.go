package control

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const header = 4 // bytes

// EncodeRequest makes a frame of r.
func EncodeRequest(r Request) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return encode(r, MaxRequest)
}

// EncodeReport makes a frame of r, whose texts are shortened to what a report
// may hold.
func EncodeReport(r Report) ([]byte, error) {
	r.shorten()
	if err := r.check(); err != nil {
		return nil, err
	}
	return encode(r, MaxReport)
}

func encode(message any, most int) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, header))
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(message); err != nil {
		return nil, err
	}
	frame := b.Bytes()
	if n := len(frame) - header; n > most {
		return nil, fmt.Errorf("a message of %d bytes is longer than %d", n, most)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-header))
	return frame, nil
}

// ReadFrame reads the message of one frame of at most so many bytes. The error
// is io.EOF if r ends before it begins.
func ReadFrame(r io.Reader, most int) ([]byte, error) {
	var head [header]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || uint64(n) > uint64(most) {
		return nil, fmt.Errorf("a frame says that it has %d bytes, not 1 to %d", n, most)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, noEOF(err)
	}
	return body, nil
}

// noEOF tells a frame that was cut off from an end between frames.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// DecodeRequest reads the message of a frame of the daemon.
func DecodeRequest(body []byte) (Request, error) {
	var r Request
	if err := decode(body, &r); err != nil {
		return Request{}, err
	}
	return r, r.check()
}

// DecodeReport reads the message of a frame of the gateway. Whatever it returns
// without an error is within the bounds of this package, and its texts are
// printable; whether it is true, nobody knows.
func DecodeReport(body []byte) (Report, error) {
	var r Report
	if err := decode(body, &r); err != nil {
		return Report{}, err
	}
	if err := r.check(); err != nil {
		return Report{}, err
	}
	r.shorten()
	return r, nil
}

// decode is strict: no unknown fields, nothing after the message.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the message")
	}
	return nil
}
