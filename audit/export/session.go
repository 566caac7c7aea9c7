package export

import (
	"errors"
	"time"
)

// session is what is known of one connection.
type session struct {
	e      *Exporter
	conn   conn
	began  time.Time
	window window
	last   uint64 // record that was sent
}

// sendAll sends the records that the log has by now.
func (s *session) sendAll() error {
	if s.last == 0 {
		s.last = s.e.sent
	}
	for s.e.o.Newest() > s.last {
		r, found, err := s.e.cursor.Next()
		if err != nil {
			return err
		}
		if !found {
			return nil
		}
		if r.Seq > s.last+1 {
			s.e.gap(s.last+1, r.Seq)
		}
		select {
		case <-s.conn.broken():
			return errors.Join(errors.New("the receiver ended the connection"), s.conn.cause())
		default:
		}
		size, err := s.conn.send(r)
		if err != nil {
			return err
		}
		s.last = r.Seq
		s.window.add(r.Seq, int64(size))
		s.e.note(s.last, s.window.received)
		s.settle()
	}
	return nil
}

// observe notes what a local receiver has read.
func (s *session) observe() {
	if s.window.received < s.last && s.conn.hasRead() {
		s.window.confirm(s.last)
		s.e.note(s.last, s.last)
	}
	s.settle()
}

// settle notes that the receiver is back once it has kept the connection for a while.
func (s *session) settle() {
	if time.Since(s.began) > settled {
		s.e.back()
	}
}

// window follows which records are out of all buffers between sender and receiver.
type window struct {
	limit    int64  // bytes that these may hold
	received uint64 // last record that is out of them
	sent     int64  // bytes
	marks    []mark // of records that may be in them, in order
}

type mark struct {
	seq uint64
	end int64 // of what was sent with it
}

// markEvery is how many bytes are told by one mark at least.
const markEvery = 64 << 10

func (w *window) add(seq uint64, size int64) {
	w.sent += size
	if n := len(w.marks); n == 0 || w.sent-w.marks[n-1].end >= markEvery {
		w.marks = append(w.marks, mark{seq, w.sent})
	}
	for len(w.marks) > 0 && w.sent-w.marks[0].end > w.limit {
		w.received, w.marks = w.marks[0].seq, w.marks[1:]
	}
}

// confirm says that the receiver has read the records up to seq.
func (w *window) confirm(seq uint64) {
	w.received = max(w.received, seq)
	for len(w.marks) > 0 && w.marks[0].seq <= seq {
		w.marks = w.marks[1:]
	}
}
