package cli

// What the tests of the whole CLI look at.
var (
	MakeRaw        = makeRaw
	VerbsElsewhere = verbsElsewhere
	Needed         = needed
	IsControl      = isControl
	Control        = control
)

// The constants that they need.
const (
	StartTimeout = startTimeout
	HelpWidth    = helpWidth
	UnitName     = unitName
)

// ShownPatch is a patch as a terminal gets it.
func ShownPatch(patch []byte) string { return string(shownPatch(patch)) }
