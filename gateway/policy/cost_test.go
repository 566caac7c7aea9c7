package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/cost/bound"
)

// worstRules are the most rules of a form that a policy and a request take.
func worstRules(format string) (texts []string) {
	size := 0
	for i := range maxRules {
		text := fmt.Sprintf(format, i>>8, i&255)
		if size += len(text); size > bound.Size {
			break
		}
		texts = append(texts, text)
	}
	return texts
}

// TestCost: no policy costs more than a request may, whatever is asked of it.
func TestCost(t *testing.T) {
	var ports strings.Builder
	for i := range maxPorts {
		fmt.Fprintf(&ports, "+%d", 1000+i)
	}
	every := ":" + ports.String()[1:]
	long := strings.TrimSuffix(strings.Repeat(strings.Repeat("a", 60)+".", 3), ".")
	forms := map[string]string{
		"names":      "*." + long + ".x%d.y%d.com" + every,
		"short":      "*.a%d.b%d.c",
		"addresses":  "9.%d.%d.0/24" + every,
		"one inside": "9.%d.%d.7:22",
		"wrong":      strings.Repeat("%%", 500) + "%d%d",
		"homographs": strings.Repeat("\u0430", 100) + "%d.x%d.com",
	}
	for name, form := range forms {
		texts := worstRules(form)
		size := len(strings.Join(texts, ","))
		t.Run("compile/"+name, func(t *testing.T) {
			bound.Check(t, size, func() {
				p, err := Compile(Spec{Mode: Allow, Allow: texts})
				if err != nil {
					_ = err.Error()
					return
				}
				_ = p.Explain()
				_ = p.Decide("x.y.z", 443)
				_ = p.DecideAddress(netip.MustParseAddr("10.200.1.1"), 443)
			})
		})
		for parent, of := range map[string]string{"names": "*.a%d.b%d.c", "addresses": "9.%d.%d.0/24", "inside": "9.%d.%d.7:22"} {
			t.Run("child/"+name+" of "+parent, func(t *testing.T) {
				s := Spec{Mode: Allow, Allow: worstRules(of)}
				bound.Check(t, size, func() {
					if _, err := s.ForChild(texts, texts, nil); err != nil {
						_ = err.Error()
					}
				})
			})
		}
	}
	t.Run("learn", func(t *testing.T) {
		var seen []Seen
		for i := range maxRules {
			seen = append(seen, Seen{Name: Name(fmt.Sprintf("a%d.b.c%d.com", i, i/64)), Port: uint16(1 + i)})
		}
		bound.Check(t, 32*len(seen), func() {
			if _, err := Learn(seen); err != nil {
				t.Error(err)
			}
		})
	})
}
