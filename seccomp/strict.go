package seccomp

import "slices"

// commonRules are in every profile.
var commonRules = slices.Concat(
	fileRules, processRules, confinementRules, memoryRules, ipcRules, timeRules,
	socketRules, networkRules, optionRules, newerRules,
)

// strictRules make strict of the common ones; debug has them too.
var strictRules = slices.Concat(setIDRules, prctlRules, noFilterRules, strictNewerRules)
