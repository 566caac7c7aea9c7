package proxy

import (
	"errors"
	"strings"
	"testing"
)

const request = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"

// reader returns what reads the requests to a.test, and the places that it holds.
func reader() (q *requests, held *int) {
	held = new(int)
	return &requests{
		check: func(host string, err error) error {
			if err == nil && host != "a.test" {
				err = errors.New("it names " + host)
			}
			return err
		},
		passed:  func(head) {},
		hold:    func() bool { *held++; return *held <= 1 },
		release: func() { *held-- },
	}, held
}

// passed is what passes of text, in pieces of that many bytes.
func passed(q *requests, text string, piece int) (string, error) {
	var out strings.Builder
	for rest := []byte(text); len(rest) > 0; {
		n := min(piece, len(rest))
		_, err := q.pass(rest[:n], func(b []byte) error { out.Write(b); return nil })
		if err != nil {
			return out.String(), err
		}
		rest = rest[n:]
	}
	return out.String(), nil
}

// What every server reads as requests to the one host passes as it is, however it is
// cut into segments.
func TestRequestsPass(t *testing.T) {
	post := func(fields, body string) string {
		return "POST / HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n\r\n" + body
	}
	for name, text := range map[string]string{
		"one":                  request,
		"two":                  request + request,
		"with a port":          "GET / HTTP/1.1\r\nHost: a.test:80\r\n\r\n" + request,
		"absolute":             "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n" + request,
		"absolute with a port": "GET http://a.test:80/ HTTP/1.1\r\nHost: a.test\r\n\r\n" + request,
		"port in the host":     "GET http://a.test/ HTTP/1.1\r\nHost: a.test:80\r\n\r\n" + request,
		"a body":               post("Content-Length: 5", "12345") + request,
		"a body like a head":   post("Content-Length: 34", strings.ReplaceAll(request, "a.test", "b.test")+"x") + request,
		"no body":              post("Content-Length: 0", "") + request,
		"chunks":               post("Transfer-Encoding: chunked", "5\r\n12345\r\nA\r\n0123456789\r\n0\r\n\r\n") + request,
		"CHUNKED":              post("transfer-encoding: Chunked", "00\r\n\r\n") + request,
		"trailers":             post("Transfer-Encoding: chunked", "0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n") + request,
		"expect":               post("Expect: 100-continue\r\nContent-Length: 2", "ab") + request,
		"HTTP/1.0":             "GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n" + request,
		"capitals":             "GET HTTP://A.Test/x HTTP/1.1\r\nHost: a.test\r\n\r\n" + request,
	} {
		for _, piece := range []int{1, 2, 3, 7, 1 << 20} {
			q, held := reader()
			if got, err := passed(q, text, piece); got != text || err != nil || *held != 0 || q.part != inHead {
				t.Errorf("%s in pieces of %d: %q, %v, %d places, part %d", name, piece, got, err, *held, q.part)
			}
		}
	}
}

// Of what servers read differently, or to another host, nothing passes, and of what came
// before everything.
func TestRequestsRefused(t *testing.T) {
	chunked := "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, tc := range map[string]struct{ before, bad, says string }{
		"another host":              {request, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", "names b.test"},
		"no host":                   {request, "GET / HTTP/1.1\r\n\r\n", "0 Host headers"},
		"two hosts":                 {request, "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", "2 Host headers"},
		"absolute":                  {request, "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "two hosts"},
		"absolute with a port":      {request, "GET http://a.test:81/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "two hosts"},
		"CONNECT":                   {request, "CONNECT b.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "two hosts"},
		"HTTP/2":                    {"", "PRI * HTTP/2.0\r\n\r\n", "HTTP/2.0"},
		"length and chunks":         {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "Content-Length and a Transfer-Encoding"},
		"chunks and length":         {request, "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "Content-Length and a Transfer-Encoding"},
		"two lengths":               {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "2 Content-Length"},
		"the same length twice":     {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "2 Content-Length"},
		"lengths in one":            {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 5\r\n\r\n", "Content-Length \"5, 5\""},
		"signed length":             {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +5\r\n\r\n", "Content-Length"},
		"negative length":           {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: -5\r\n\r\n", "Content-Length"},
		"hexadecimal length":        {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0x5\r\n\r\n", "Content-Length"},
		"large length":              {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 99999999999999999999\r\n\r\n", "Content-Length"},
		"empty length":              {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length:\r\n\r\n", "Content-Length"},
		"another encoding":          {request, "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "gzip, chunked"},
		"identity":                  {request, "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: identity\r\n\r\n", "identity"},
		"two encodings":             {request, "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", "chunked, x"},
		"chunks of HTTP/1.0":        {request, "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"},
		"a name with a space":       {request, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length : 5\r\n\r\n", "white space"},
		"a folded header":           {request, "GET / HTTP/1.1\r\nHost: a.test\r\nX: y\r\n Host: b.test\r\n\r\n", "folded"},
		"line feeds alone":          {request, "GET / HTTP/1.1\nHost: b.test\n\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "CR LF"},
		"a line feed first":         {request, "\n" + request, "CR LF"},
		"a carriage return first":   {request, "\r" + request, "CR LF"},
		"capitals of another host":  {request, "GET HTTP://B.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "two hosts"},
		"prefixed size":             {chunked, "0x5\r\n", "size"},
		"signed size":               {chunked, "+5\r\n", "size"},
		"size with an extension":    {chunked, "5;x=y\r\n", "size"},
		"size with a space":         {chunked, "5 \r\n", "size"},
		"size with an underscore":   {chunked, "1_0\r\n", "size"},
		"no size":                   {chunked, "\r\n", "size"},
		"size with a line feed":     {chunked, "5\n12345\r\n", "size"},
		"long size":                 {chunked, "0000000000000000000005\r\n", "longer"},
		"data that goes on":         {chunked + "5\r\n12345", "6\r\n", "longer"},
		"data without an end":       {chunked + "5\r\n12345", "\nx", "longer"},
		"host in a trailer":         {chunked + "0\r\n", "Host: b.test\r\n", "trailer"},
		"length in a trailer":       {chunked + "0\r\n", "Content-Length: 7\r\n", "trailer"},
		"a broken trailer":          {chunked + "0\r\n", "X : y\r\n", "white space"},
		"after a request in a body": {"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab", "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", "names b.test"},
	} {
		for _, piece := range []int{1, 5, 1 << 20} {
			q, _ := reader()
			got, err := passed(q, tc.before+tc.bad, piece)
			if got != tc.before || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s in pieces of %d: passed %q, %v; want %q", name, piece, got, err, tc.says)
			}
		}
	}
}

// What is for the gateway alone does not pass, however it is cut into segments.
func TestRequestsAreShortened(t *testing.T) {
	head := func(fields string) string { return "GET / HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n" }
	for name, tc := range map[string]struct{ text, want string }{
		"empty lines": {"\r\n" + request + "\r\n\r\n" + request, request + request},
		"an empty line after a body": {
			"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab\r\n" + request,
			"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab" + request,
		},
		"the offer of Java": {
			head("Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\nUser-Agent: Java\r\n") + request,
			head("User-Agent: Java\r\n") + request,
		},
		"an offer in a list":   {head("Upgrade: websocket, H2C\r\nconnection: upgrade , x,http2-settings\r\n"), head("Upgrade: websocket\r\nconnection: upgrade, x\r\n")},
		"what is kept alive":   {head("Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n") + request, head("Connection: keep-alive\r\n") + request},
		"settings alone":       {head("HTTP2-Settings: x\r\nX: h2c\r\n") + request, head("X: h2c\r\n") + request},
		"a later offer":        {request + head("Upgrade: h2c\r\n") + request, request + head("") + request},
		"the only other field": {"GET / HTTP/1.1\r\nUpgrade: h2c\r\nHost: a.test\r\n\r\n" + request, request + request},
	} {
		for _, piece := range []int{1, 2, 3, 7, 1 << 20} {
			q, held := reader()
			got, err := passed(q, tc.text, piece)
			if got != tc.want || err != nil || *held != 0 {
				t.Errorf("%s in pieces of %d: %q, %v, %d places", name, piece, got, err, *held)
			}
		}
	}
}

// A later request for another protocol waits for a connection of its own, with what follows.
func TestRequestsWaitForAConnection(t *testing.T) {
	upgrade := "GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\n"
	q, held := reader()
	var out strings.Builder
	rest, err := q.pass([]byte(request+upgrade+"frames"), func(b []byte) error { out.Write(b); return nil })
	if err != nil || out.String() != request || string(rest) != upgrade+"frames" || q.part != atNew || *held != 0 {
		t.Errorf("%q, %q, %v, part %d, %d places", out.String(), rest, err, q.part, *held)
	}
}

// What is held of heads is bounded: of each, and of all that have begun.
func TestRequestsAreBounded(t *testing.T) {
	q, held := reader()
	if _, err := passed(q, request+"GET / HTTP/1.1\r\nX: "+strings.Repeat("x", maxPeek), 1000); err == nil || !strings.Contains(err.Error(), "longer than 32768") {
		t.Errorf("a long head: %v", err)
	}
	if q.end(); *held != 0 {
		t.Errorf("%d places are held", *held)
	}
	q, held = reader()
	*held = 1 // by another
	if _, err := passed(q, "G", 1); !errors.Is(err, errTooMany) {
		t.Errorf("one head too many: %v", err)
	}
	q, held = reader()
	*held = 1
	if got, err := passed(q, request, 1<<20); got != request || err != nil {
		t.Errorf("a head that is whole needs no place: %q, %v", got, err)
	}
	q, _ = reader()
	trailers := "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: y\r\n", maxPeek/6+1)
	if _, err := passed(q, trailers, 1<<20); err == nil || !strings.Contains(err.Error(), "long trailers") {
		t.Errorf("long trailers: %v", err)
	}
}

// What follows a first request for another protocol waits for the answer.
func TestRequestsWaitForTheAnswer(t *testing.T) {
	upgrade := "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	connect := "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"
	for name, tc := range map[string]struct {
		asks, answer string
		changed      bool
	}{
		"accepted":         {upgrade, "HTTP/1.1 101", true},
		"not accepted":     {upgrade, "HTTP/1.1 200", false},
		"no answer":        {upgrade, "", false},
		"no HTTP":          {upgrade, "SSH-2.0 101x", false},
		"CONNECT accepted": {connect, "HTTP/1.1 200", true},
		"CONNECT refused":  {connect, "HTTP/1.1 403", false},
	} {
		q, _ := reader()
		var out strings.Builder
		rest, err := q.pass([]byte(tc.asks+"frames"), func(b []byte) error { out.Write(b); return nil })
		if err != nil || out.String() != tc.asks || string(rest) != "frames" || q.part != atChange {
			t.Fatalf("%s: %q, %q, %v", name, out.String(), rest, err)
		}
		if changed := q.answered([]byte(tc.answer)); changed != tc.changed || q.part != inHead {
			t.Errorf("%s: changed %v, part %d", name, changed, q.part)
		}
	}
}

// FuzzRequests: what passes is the beginning of what was said, but for empty lines and offers
// of HTTP/2, and does not depend on how it is cut.
func FuzzRequests(f *testing.F) {
	f.Add(request+request, 3)
	f.Add("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\nX: y\r\n\r\n"+request, 1)
	f.Add("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc"+request, 2)
	f.Fuzz(func(t *testing.T, text string, piece int) {
		q, _ := reader()
		whole, _ := passed(q, text, 1<<20)
		q, held := reader()
		parts, _ := passed(q, text, max(1, piece))
		lines := func(s string) string { return strings.ReplaceAll(s, lineEnd, "") }
		lower := strings.ToLower(text)
		offered := strings.Contains(lower, "h2c") || strings.Contains(lower, "http2-settings")
		if q.end(); *held > 1 || !offered && (!strings.HasPrefix(lines(text), lines(whole)) || !strings.HasPrefix(lines(text), lines(parts))) {
			t.Fatalf("%q became %q and %q, %d places", text, whole, parts, *held)
		}
		if q.part != atChange && q.part != atNew && whole != parts {
			t.Fatalf("%q passed whole, %q in parts", whole, parts)
		}
	})
}
