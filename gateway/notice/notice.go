// Package notice says what a command in a sandbox may read of a refusal: the
// code, the reason and the remedy, and nothing of the host.
package notice

import (
	"errors"

	"github.com/caisson-run/caisson/sbxerr"
)

// Notice is a refusal as the sandbox may see it.
type Notice struct {
	Code   sbxerr.Code
	Reason string
	Remedy string
}

// hidden are codes whose causes name resolvers, internal addresses or files of
// the host. Only their summary is told.
var hidden = map[sbxerr.Code]bool{
	sbxerr.EgressResolve: true, sbxerr.EgressDial: true, sbxerr.EgressProxyDown: true, sbxerr.Gateway: true, sbxerr.Internal: true, sbxerr.Unknown: true,
}

// Of makes a notice of err, which must not be nil.
func Of(err error) Notice {
	code := sbxerr.Of(err)
	d, _ := sbxerr.Describe(code)
	if hidden[code] {
		return Notice{code, d.Summary, d.Remedy}
	}
	return Notice{code, Cause(err), sbxerr.RemedyOf(err)}
}

// String is n in one line.
func (n Notice) String() string { return string(n.Code) + ": " + n.Reason + "; " + n.Remedy }

// Cause is the message of err without the operations around it.
func Cause(err error) string {
	for {
		var e *sbxerr.Error
		if !errors.As(err, &e) {
			return err.Error()
		}
		err = e.Err
	}
}
