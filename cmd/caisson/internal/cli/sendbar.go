package cli

import (
	"io"
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Sending shows on a terminal how much of r was read, of size bytes where that is not 0. The
// caller calls done at the end; elsewhere nothing is shown.
func (a *App) Sending(name string, r io.Reader, size int64) (shown io.Reader, done func()) {
	f, ok := a.Stderr.(*os.File)
	if !ok || !IsTerminal(f) || a.Output == FormatJSON {
		return r, func() {}
	}
	bars := mpb.New(mpb.WithOutput(f), mpb.WithWidth(40), mpb.WithAutoRefresh())
	amount := decor.CountersKibiByte("% .1f / % .1f")
	if size == 0 {
		amount = decor.CurrentKibiByte("% .1f")
	}
	bar := bars.AddBar(size, mpb.PrependDecorators(decor.Name(Printable(name))), mpb.AppendDecorators(amount))
	proxy, err := bar.ProxyReader(r)
	if err != nil { // the bar has ended
		return r, func() {}
	}
	return proxy, func() {
		bar.Abort(false) // nothing, where it is complete
		bars.Wait()
	}
}
