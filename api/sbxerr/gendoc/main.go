// Command gendoc prints docs/reference/errors.md from the table of error codes.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const head = `# Error codes

Every refusal and failure carries one of these codes. They are stable: a code is never renumbered
or used again, and new ones are only added.

- ` + "`caisson explain CODE`" + ` prints one row of this page.
- Programs find the code in ` + "`error.code`" + ` of the JSON envelope, and in the error details of
  the API.
- *Class* says who can act.
- *Retry* says whether the same call may succeed later without a change.

This page is made from the table in ` + "`api/sbxerr/table.go`" + ` by ` + "`make generate`" + `.

| Code | Meaning | Class | HTTP | Retry | What to do |
|---|---|---|---|---|---|
`

func main() {
	var b strings.Builder
	b.WriteString(head)
	for _, d := range sbxerr.All() {
		retry := "no"
		if d.Retryable {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %s | %s |\n", d.Code, d.Summary, d.Class, d.HTTP, retry, d.Remedy)
	}
	if _, err := os.Stdout.WriteString(b.String()); err != nil {
		os.Exit(1)
	}
}
