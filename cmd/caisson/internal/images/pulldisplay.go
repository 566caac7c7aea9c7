package images

import (
	"os"
	"strings"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// pullDisplay shows a pull on standard error: bars on a terminal, lines elsewhere, and
// with -o json an event on each line.
type pullDisplay struct {
	app  *cli.App
	bars *mpb.Progress // nil: no terminal
	of   map[string]*layerBar
}

// layerBar is the bar of a layer. It ends when the image is there, which is later than the last
// byte of the layer comes.
type layerBar struct {
	*mpb.Bar
	size  int64
	state atomic.Value // the layer's
}

// The states of a layer whose bytes are all here, as the API names them.
const (
	layerFetched = "fetched"
	layerStored  = "stored"
	layerPresent = "present"
)

func newPullDisplay(a *cli.App) *pullDisplay {
	d := &pullDisplay{app: a, of: map[string]*layerBar{}}
	if f, ok := a.Stderr.(*os.File); ok && cli.IsTerminal(f) && a.Output != cli.FormatJSON {
		d.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(40), mpb.WithAutoRefresh())
	}
	return d
}

func (d *pullDisplay) progress(p *caissonv1.ImageProgress) {
	if d.app.Output == cli.FormatJSON {
		d.event(p)
		return
	}
	if d.bars == nil {
		if p.Message != "" {
			d.line(p.Message)
		}
		return
	}
	for _, l := range p.Layers {
		bar := d.of[l.Digest]
		if bar == nil {
			bar = d.add(l)
		}
		bar.show(l)
	}
	if p.Image != nil {
		for _, bar := range d.of {
			bar.finish()
		}
	}
}

// event prints p as one line of JSON.
func (d *pullDisplay) event(p *caissonv1.ImageProgress) {
	if p.Message != "" || len(p.Layers) > 0 {
		_ = cli.NewJSONL(d.app.Shown(d.app.Stderr)).Line(d.app.Message(p)) // as with progress
	}
}

// show has the bar show l.
func (b *layerBar) show(l *caissonv1.LayerProgress) {
	b.state.Store(l.State)
	b.SetCurrent(l.ReceivedBytes)
	if l.State == layerPresent {
		b.finish()
	}
}

// finish fills the bar: the layer is unpacked.
func (b *layerBar) finish() {
	b.state.Store(layerPresent)
	b.SetTotal(b.size, true)
}

// note stands behind the counters.
func (b *layerBar) note(decor.Statistics) string {
	if state := b.state.Load(); state == layerFetched || state == layerStored {
		return " unpacking"
	}
	return ""
}

// add adds a bar for a layer.
func (d *pullDisplay) add(l *caissonv1.LayerProgress) *layerBar {
	name := strings.TrimPrefix(cli.Printable(l.Digest), "sha256:")
	bar := &layerBar{size: l.SizeBytes}
	bar.Bar = d.bars.AddBar(0, // it does not end at its last byte
		mpb.PrependDecorators(decor.Name(name[:min(12, len(name))])),
		mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f"), decor.Any(bar.note)),
	)
	bar.SetTotal(l.SizeBytes, false)
	d.of[l.Digest] = bar
	return bar
}

// line prints a line; on a terminal above the bars.
func (d *pullDisplay) line(s string) {
	switch {
	case d.app.Output == cli.FormatJSON:
		d.event(&caissonv1.ImageProgress{Message: s})
	case d.bars != nil:
		_, _ = d.bars.Write([]byte(cli.Printable(s) + "\n")) // as with progress
	default:
		d.app.Progress(s)
	}
}

// end leaves the bars as they are.
func (d *pullDisplay) end() {
	if d.bars == nil {
		return
	}
	for _, bar := range d.of {
		bar.Abort(false) // nothing, where it is complete
	}
	d.bars.Wait()
}
