package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ErrNoModel says that a request names no model where it can be seen.
var ErrNoModel = errors.New("the request does not name its model in the first 4 MiB: write the member model first")

// ModelOf reads from the body of a request until that names its model, and returns what it read.
// The model is empty if the body is no JSON object, or names none. The error is ErrNoModel, or
// that of the body.
func ModelOf(body io.Reader) (model string, read []byte, err error) {
	found := false
	scan := scanner{
		parts: []string{"model"},
		want:  func(path string) bool { return path == "model" && !found },
		found: func(_ string, value []byte) { found = json.Unmarshal(value, &model) == nil },
	}
	var buf [32 << 10]byte
	for !found {
		n, err := body.Read(buf[:])
		scan.write(buf[:n])
		read = append(read, buf[:n]...)
		switch {
		case found:
		case errors.Is(err, io.EOF) || !begins(read):
			return "", read, nil
		case err != nil:
			return "", read, err
		case len(read) >= MaxAsked:
			return "", read, ErrNoModel
		}
	}
	return model, read, nil
}

// begins reports whether read may be the beginning of a JSON object.
func begins(read []byte) bool {
	text := bytes.TrimLeft(read, " \t\r\n")
	return len(text) == 0 || text[0] == '{'
}
