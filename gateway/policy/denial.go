package policy

import (
	"errors"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Denial is the part of a refusal that a command in a sandbox may read: code, reason and
// remedy, and no fact about the host.
type Denial struct {
	Code   sbxerr.Code
	Reason string
	Remedy string
}

// hidden are codes whose causes name resolvers, internal addresses or files of the host.
// Commands only see their summary.
var hidden = map[sbxerr.Code]bool{
	sbxerr.EgressResolve: true, sbxerr.EgressDial: true, sbxerr.EgressProxyDown: true, sbxerr.Gateway: true, sbxerr.Internal: true, sbxerr.Unknown: true,
}

// DenialOf returns the denial of err, which must not be nil.
func DenialOf(err error) Denial {
	code := sbxerr.Of(err)
	d, _ := sbxerr.Describe(code)
	if hidden[code] {
		return Denial{code, d.Summary, d.Remedy}
	}
	return Denial{code, Cause(err), sbxerr.RemedyOf(err)}
}

// String returns d on one line.
func (d Denial) String() string { return string(d.Code) + ": " + d.Reason + "; " + d.Remedy }

// Cause returns the message of err without the operations around it.
func Cause(err error) string {
	for {
		var e *sbxerr.Error
		if !errors.As(err, &e) {
			return err.Error()
		}
		err = e.Err
	}
}
