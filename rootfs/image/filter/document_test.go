package filter

import (
	"strings"
	"testing"
)

func TestDecodeJSON(t *testing.T) {
	cases := map[string]struct {
		doc string
		ok  bool
	}{
		"object":                  {`{"a":1,"b":{"a":2},"c":[{"a":1},{"a":2}]}`, true},
		"labels differ in case":   {`{"Labels":{"a":"1","A":"2"},"annotations":{"x":"","X":""}}`, true},
		"trailing space":          {"{}\n\t ", true},
		"key twice":               {`{"a":1,"a":1}`, false},
		"nested key twice":        {`{"x":[{"a":1,"a":2}]}`, false},
		"keys differ in case":     {`{"layers":[],"Layers":[]}`, false},
		"keys fold":               {`{"hooks":1,"hoo` + "\u212a" + `s":2}`, false},
		"long s":                  {`{"os":1,"o` + "\u017f" + `":2}`, false},
		"escaped key":             {`{"a":1,"\u0061":2}`, false},
		"label twice":             {`{"Labels":{"a":"1","a":"2"}}`, false},
		"under a label":           {`{"Labels":{"x":{"a":1,"A":2}}}`, false},
		"something after":         {`{} {}`, false},
		"comma":                   {`{"a":1,}`, false},
		"cut off":                 {`{"a":[1`, false},
		"empty":                   {``, false},
		"not UTF-8":               {"{\"a\":\"\xff\"}", false},
		"not JSON":                {`a: 1`, false},
		"deep":                    {strings.Repeat("[", 60) + strings.Repeat("]", 60), true},
		"too deep":                {strings.Repeat("[", 70) + strings.Repeat("]", 70), false},
		"too deep, never closed":  {strings.Repeat(`{"a":`, 100000), false},
		"number of a wrong shape": {`{"a":01}`, false},
	}
	for name, tc := range cases {
		var v any
		if err := decodeJSON([]byte(tc.doc), &v); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
