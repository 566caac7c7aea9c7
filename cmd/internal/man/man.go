// Package man writes the manual pages of a program. Only programs that are built with the tag
// man link it.
package man

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Write writes the pages of a section of the manual for all commands below root into the
// directory that is the program's first argument, and ends the program. Their date is
// SOURCE_DATE_EPOCH in the environment.
func Write(root *cobra.Command, section string) {
	root.DisableAutoGenTag = true
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // without one: the epoch
	date := time.Unix(seconds, 0).UTC()
	page := &doc.GenManHeader{Section: section, Source: "caisson", Manual: "caisson", Date: &date}
	if err := doc.GenManTree(root, page, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
