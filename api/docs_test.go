package api_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api"
)

// methodRow is a row of the table of methods in docs/reference/api.md.
var methodRow = regexp.MustCompile("(?m)^\\| [A-Z][a-z ]* \\| (`.*`) \\|$")

// TestDocumentedMethods: the table has each method of Client once, and no other.
func TestDocumentedMethods(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]int{}
	for _, row := range methodRow.FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(strings.Trim(row[1], "`"), "`, `") {
			there[name]++
		}
	}
	client := reflect.TypeFor[*api.Client]()
	for i := range client.NumMethod() {
		name := client.Method(i).Name
		if there[name] != 1 {
			t.Errorf("%s is documented %d times", name, there[name])
		}
		delete(there, name)
	}
	for name := range there {
		t.Errorf("%s is documented, and no method", name)
	}
}
