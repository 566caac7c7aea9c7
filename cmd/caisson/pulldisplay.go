package main

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// pullDisplay shows a pull on standard error: bars on a terminal, lines elsewhere, and
// with -o json an event on each line.
type pullDisplay struct {
	app  *app
	bars *mpb.Progress // nil: no terminal
	of   map[string]*mpb.Bar
}

func (a *app) pullDisplay() *pullDisplay {
	d := &pullDisplay{app: a, of: map[string]*mpb.Bar{}}
	if f, ok := a.stderr.(*os.File); ok && isTerminal(f) && a.output != formatJSON {
		d.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(40), mpb.WithAutoRefresh())
	}
	return d
}

// layerView is the JSON form of a layer's progress.
type layerView struct {
	Digest   string `json:"digest"`
	Size     int64  `json:"size_bytes"`
	Received int64  `json:"received_bytes"`
	State    string `json:"state"`
}

type pullEventView struct {
	Message string      `json:"message,omitempty"`
	Layers  []layerView `json:"layers,omitempty"`
}

func (d *pullDisplay) progress(p *caissonv1.ImageProgress) {
	if d.app.output == formatJSON {
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
		bar.SetCurrent(l.ReceivedBytes)
	}
}

// event prints p as one line of JSON.
func (d *pullDisplay) event(p *caissonv1.ImageProgress) {
	v := pullEventView{Message: p.Message}
	for _, l := range p.Layers {
		v.Layers = append(v.Layers, layerView{l.Digest, l.SizeBytes, l.ReceivedBytes, l.State})
	}
	if v.Message == "" && v.Layers == nil {
		return
	}
	_ = json.NewEncoder(d.app.shown(d.app.stderr)).Encode(v) // as with progress
}

// add adds a bar for a layer.
func (d *pullDisplay) add(l *caissonv1.LayerProgress) *mpb.Bar {
	name := strings.TrimPrefix(printable(l.Digest), "sha256:")
	bar := d.bars.AddBar(l.SizeBytes,
		mpb.PrependDecorators(decor.Name(name[:min(12, len(name))])),
		mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f")),
	)
	d.of[l.Digest] = bar
	return bar
}

// line prints a line; on a terminal above the bars.
func (d *pullDisplay) line(s string) {
	switch {
	case d.app.output == formatJSON:
		d.event(&caissonv1.ImageProgress{Message: s})
	case d.bars != nil:
		_, _ = d.bars.Write([]byte(printable(s) + "\n")) // as with progress
	default:
		d.app.progress(s)
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
