// Package budget counts what requests by routes cost, and refuses those past a budget before the
// upstream is asked.
package budget
