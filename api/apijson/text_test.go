package apijson_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/apijson"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// TestControl: text that is mostly control characters, as zeros are, goes as bytes.
func TestControl(t *testing.T) {
	for data, text := range map[string]bool{
		"a\tb\r\n": true, "\x1b[31mred\x1b[0m\n": true, strings.Repeat("\n", 100): true,
		strings.Repeat("\x00", 512): false, "a\x00b\x00\x00": false,
	} {
		list := apijson.Readable(stdout(&caissonv1.Output{Data: []byte(data)}))
		o := list[0].(*caissonv1.ExecEvent).GetStdout()
		if len(list) != 1 || (o.Text != nil) != text || string(o.Data)+o.GetText() != data {
			t.Errorf("%q: %v", data, list)
		}
	}
}
