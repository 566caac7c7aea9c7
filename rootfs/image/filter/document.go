package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// maxJSONDepth bounds the nesting of documents. A manifest needs 4 levels.
const maxJSONDepth = 64

// maxJSONValues bounds the values of a document. One with as many layers and labels as may be
// has a third.
const maxJSONValues = 32 << 10

// freeKeys are the objects whose keys are data. Elsewhere keys that differ
// only in case are the same to some parsers, encoding/json among them.
var freeKeys = map[string]bool{
	"annotations": true, "labels": true, "exposedports": true, "volumes": true, "layersources": true,
}

// decodeJSON decodes the one document that data must be. Whatever two parsers
// could read in two ways is refused: a key that is there twice, text that is
// not UTF-8, something after the end.
func decodeJSON(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("it is not UTF-8")
	}
	d := &scanner{Decoder: json.NewDecoder(bytes.NewReader(data))}
	d.UseNumber()
	if err := d.scanValue(0, false); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return json.Unmarshal(data, v)
}

// scanner reads a document for what is refused.
type scanner struct {
	*json.Decoder
	values int // so far
}

func (d *scanner) scanValue(depth int, free bool) error {
	if d.values++; d.values > maxJSONValues {
		return fmt.Errorf("it has more than %d values", maxJSONValues)
	}
	if depth > maxJSONDepth {
		return fmt.Errorf("it is nested more than %d levels deep", maxJSONDepth)
	}
	tok, err := d.Token()
	if err != nil {
		return err
	}
	switch tok {
	case json.Delim('{'):
		err = d.scanObject(depth, free)
	case json.Delim('['):
		for err == nil && d.More() {
			err = d.scanValue(depth+1, false)
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	_, err = d.Token() // the closing delimiter
	return err
}

func (d *scanner) scanObject(depth int, free bool) error {
	seen := map[string]bool{}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return err
		}
		key, ok := tok.(string)
		if !ok {
			return fmt.Errorf("%v is no key", tok)
		}
		folded := fold(key)
		same := folded
		if free {
			same = key
		}
		if seen[same] {
			return fmt.Errorf("it has the key %s twice", flow.Quote(key))
		}
		seen[same] = true
		if err := d.scanValue(depth+1, freeKeys[folded]); err != nil {
			return err
		}
	}
	return nil
}

// fold maps keys that encoding/json takes for equal to one spelling.
func fold(key string) string { return strings.ToLower(strings.ToUpper(key)) }
