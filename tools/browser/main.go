// Command browser drives a headless Chromium for tests of the page. It reads one JSON
// object on each line of its input, and answers each with one on its output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/sys/unix"
)

// request is what to do, and answer how that went.
type request struct {
	Do       string `json:"do"` // "open", "click", "keys", "eval", "look", "shot" or "seen"
	URL      string `json:"url"`
	Selector string `json:"selector"` // CSS, text or XPath, of one visible element
	Keys     string `json:"keys"`
	Script   string `json:"script"` // of which the value is returned
	File     string `json:"file"`
	Width    int64  `json:"width"`
	Height   int64  `json:"height"`
	Scheme   string `json:"scheme"` // "light" or "dark"
}

type answer struct {
	Value    json.RawMessage `json:"value,omitempty"`
	Errors   []string        `json:"errors,omitempty"`   // of the console, of scripts and of the content policy
	Requests []sent          `json:"requests,omitempty"` // that the browser sent
	Error    string          `json:"error,omitempty"`
}

// sent is one request.
type sent struct {
	URL      string `json:"url"`
	Referrer string `json:"referrer"`
}

// patience is how long an element may take to appear.
const patience = 15 * time.Second

// record is what a test asks for at the end.
type record struct {
	mu       sync.Mutex
	errors   []string
	requests []sent
}

func (r *record) note(event any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		r.errors = append(r.errors, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError {
			r.errors = append(r.errors, fmt.Sprintf("console: %s", e.Args[0].Value))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Source == log.SourceSecurity {
			r.errors = append(r.errors, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		referrer, _ := e.Request.Headers["Referer"].(string)
		r.requests = append(r.requests, sent{e.Request.URL, referrer})
	}
}

func main() {
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err == nil {
		err = run()
		reap()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

// reap collects what the browser's processes left: not every init of a container does.
func reap() {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); errors.Is(err, unix.ECHILD) {
			return
		}
	}
}

func run() error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.IgnoreCertErrors)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, end := chromedp.NewContext(ctx)
	defer end()
	seen := &record{}
	chromedp.ListenTarget(ctx, seen.note)
	if err := chromedp.Run(ctx, log.Enable(), network.Enable(), runtime.Enable()); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return err
		}
		if err := out.Encode(do(ctx, r, seen)); err != nil {
			return err
		}
	}
	return in.Err()
}

func do(ctx context.Context, r request, seen *record) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	switch r.Do {
	case "open":
		err = chromedp.Run(ctx, chromedp.Navigate(r.URL))
	case "click":
		err = chromedp.Run(ctx, chromedp.Click(r.Selector, chromedp.BySearch, chromedp.NodeVisible))
	case "keys":
		err = chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error { return press(ctx, r.Keys) }))
	case "eval":
		err = chromedp.Run(ctx, chromedp.Evaluate(r.Script, &a.Value, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	case "look":
		err = chromedp.Run(ctx,
			emulation.SetDeviceMetricsOverride(r.Width, r.Height, 1, false),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: r.Scheme}}))
	case "shot":
		err = shoot(ctx, r.File)
	case "seen":
		seen.mu.Lock()
		defer seen.mu.Unlock()
		a.Errors, a.Requests = seen.errors, seen.requests
	default:
		err = fmt.Errorf("nothing is called %q", r.Do)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// press presses keys as a keyboard does: what a page prevents on the way down is not typed.
func press(ctx context.Context, keys string) error {
	for _, key := range keys {
		if key == 3 { // Ctrl-C
			down := input.DispatchKeyEvent(input.KeyRawDown).WithKey("c").WithCode("KeyC").WithWindowsVirtualKeyCode('C').WithModifiers(input.ModifierCtrl)
			if err := down.Do(ctx); err != nil {
				return err
			}
			continue
		}
		down, text := (*input.DispatchKeyEventParams)(nil), ""
		for _, event := range kb.Encode(key) {
			switch event.Type {
			case input.KeyChar:
				text = event.Text
			case input.KeyUp:
				if text != "" {
					down.Type, down.Text = input.KeyDown, text
				}
				if err := down.Do(ctx); err != nil {
					return err
				}
				if err := event.Do(ctx); err != nil {
					return err
				}
			default:
				down = event
			}
		}
	}
	return nil
}

func shoot(ctx context.Context, file string) error {
	return chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
		png, err := page.CaptureScreenshot().Do(ctx)
		if err != nil {
			return err
		}
		return os.WriteFile(file, png, 0o644)
	}))
}
