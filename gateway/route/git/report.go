package git

import "strings"

// ReportType is the content type of a Report.
const ReportType = "application/x-git-receive-pack-result"

// maxBand is how much of a report a pkt-line of a band holds.
const maxBand = 60000

// Report is the answer to a push of which nothing was done. The text is shown to the user,
// and refused says why a ref was not updated, after the code. With none, the text is why the
// push failed as a whole. It reports false if the client takes no such answer.
func (u Updates) Report(code, text string, refused map[string]string) (string, bool) {
	if !u.can("report-status") && !u.can("report-status-v2") {
		return "", false
	}
	unpack := "ok"
	if len(refused) == 0 {
		unpack = text
	}
	var report strings.Builder
	report.WriteString(pkt("unpack " + unpack + "\n"))
	for _, update := range u.List {
		why := code + ": another ref of this push was refused"
		if own := refused[update.Ref]; own != "" {
			why = code + ": " + own
		}
		report.WriteString(pkt("ng " + update.Ref + " " + why + "\n"))
	}
	report.WriteString(flush)
	if !u.can("side-band-64k") {
		return report.String(), true
	}
	const status, progress = "\x01", "\x02"
	var out strings.Builder
	out.WriteString(pkt(progress + text + "\n"))
	for rest := report.String(); rest != ""; {
		n := min(len(rest), maxBand)
		out.WriteString(pkt(status + rest[:n]))
		rest = rest[n:]
	}
	out.WriteString(flush)
	return out.String(), true
}
