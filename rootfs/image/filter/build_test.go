package filter

import (
	"archive/tar"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func buildOptions() BuildOptions {
	return BuildOptions{Name: "built", Kind: KindFromHost, Config: ocispec.ImageConfig{Cmd: []string{"/bin/sh"}, Labels: map[string]string{"a": "b"}}, Limits: smallLimits()}
}

func writing(entries ...ent) func(*Writer) error {
	return func(w *Writer) error {
		for _, e := range entries {
			e.Size = int64(len(e.text))
			if err := w.Entry(&e.Header, strings.NewReader(e.text)); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestBuild(t *testing.T) {
	sink := newMemSink()
	r, err := Build(t.Context(), buildOptions(), sink, writing(file("usr/bin/tool", "code").with(moded(0o4755)), symlink("bin", "usr/bin")))
	if err != nil {
		t.Fatal(err)
	}
	_, c, layers := sink.image(t, "built")
	if got := names(list(t, layers[0])); !slices.Equal(got, []string{"usr/", "usr/bin/", "usr/bin/tool", "bin"}) {
		t.Errorf("layer %q", got)
	}
	if c.Config.Labels != nil || !slices.Equal(c.Config.Cmd, []string{"/bin/sh"}) || r.Report.Stripped[StripSetuid] != 1 || r.Kind != KindFromHost {
		t.Errorf("config %+v, result %+v", c, r)
	}
	again, err := Build(t.Context(), buildOptions(), Discard, writing(file("usr/bin/tool", "code").with(moded(0o4755)), symlink("bin", "usr/bin")))
	if err != nil || again.Manifest.Digest != r.Manifest.Digest {
		t.Errorf("again: %+v, err %v", again, err)
	}
	other, err := Build(t.Context(), buildOptions(), Discard, writing(file("usr/bin/tool", "Code"), symlink("bin", "usr/bin")))
	if err != nil || other.Manifest.Digest == r.Manifest.Digest {
		t.Errorf("other content: %+v, err %v", other, err)
	}
}

func TestBuildRefuses(t *testing.T) {
	o := BuildOptions{Name: "A", Kind: "magic", Config: ocispec.ImageConfig{WorkingDir: "x"}}
	_, err := Build(t.Context(), o, newMemSink(), writing())
	for _, want := range []string{`name "A"`, `kind "magic"`, "entries is 0", `"x" is not absolute`} {
		if sbxerr.Of(err) != sbxerr.Config || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	sink := newMemSink()
	_, err = Build(t.Context(), buildOptions(), sink, writing(symlink("a", "/"), file("a/x", "")))
	if sbxerr.Of(err) != sbxerr.ImageContent || len(sink.names) > 0 {
		t.Errorf("content: %v", err)
	}
	own := errors.New("the collector gave up")
	if _, err = Build(t.Context(), buildOptions(), sink, func(*Writer) error { return own }); !errors.Is(err, own) || len(sink.names) > 0 {
		t.Errorf("own error: %v", err)
	}
}

func TestBuildCanBeEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var own error
	_, err := Build(ctx, buildOptions(), Discard, func(w *Writer) error {
		cancel()
		own = w.Entry(&tar.Header{Typeflag: tar.TypeDir, Name: "a"}, nil)
		return own
	})
	if sbxerr.Of(err) != sbxerr.Canceled || sbxerr.Of(own) != sbxerr.Canceled {
		t.Errorf("%v, for the collector %v", err, own)
	}
}
