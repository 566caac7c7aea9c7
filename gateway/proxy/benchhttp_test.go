package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"
)

// large answers with a body of this many bytes, and small with two.
const largeBody = 64 << 20

func bodies(c *net.TCPConn) {
	r := bufio.NewReader(c)
	block := make([]byte, 256<<10)
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		if q.URL.Path != "/large" {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			continue
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", largeBody)
		for range largeBody / len(block) {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}
}

// BenchmarkHTTP is a request by plain HTTP on a connection that is there, and one that moves much.
func BenchmarkHTTP(b *testing.B) {
	for _, through := range []bool{false, true} {
		to := func() *net.TCPConn {
			if through {
				return start(b, allow("a.test"), bodies, nil).dial("a.test", 80)
			}
			c, err := net.Dial("tcp", serveEach(b, bodies))
			if err != nil {
				b.Fatal(err)
			}
			return c.(*net.TCPConn)
		}
		for _, path := range []string{"small", "large", "upload"} {
			b.Run(fmt.Sprintf("%s/proxy=%v", path, through), func(b *testing.B) {
				c := to()
				_ = c.SetDeadline(time.Time{})
				r := bufio.NewReaderSize(c, 256<<10)
				block := make([]byte, 256<<10)
				var took []time.Duration
				if path != "small" {
					b.SetBytes(largeBody)
				}
				for b.Loop() {
					begun := time.Now()
					if path == "upload" {
						fmt.Fprintf(c, "PUT /%s HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n", path, largeBody)
						for range largeBody / len(block) {
							if _, err := c.Write(block); err != nil {
								b.Fatal(err)
							}
						}
					} else {
						fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: a.test\r\n\r\n", path)
					}
					answer, err := http.ReadResponse(r, nil)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, answer.Body, block); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begun))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			})
		}
	}
}
