package ctrd

import (
	"errors"
	"testing"
	"time"

	ctrimages "github.com/containerd/containerd/v2/core/images"
)

func TestImageNames(t *testing.T) {
	var n imageNames
	now := time.Now()
	base := ctrimages.Image{Name: "base", Labels: map[string]string{"n": "1"}}
	_, token, ok := n.get("base", now)
	if ok {
		t.Error("known before it was looked up")
	}
	n.put(base, token, now)
	if img, _, ok := n.get("base", now.Add(nameTime-1)); !ok || img.Labels["n"] != "1" {
		t.Errorf("got %v, %v", img, ok)
	}
	if _, _, ok := n.get("base", now.Add(nameTime)); ok {
		t.Error("known for too long")
	}
	n.put(ctrimages.Image{Name: "other"}, token, now.Add(nameTime))
	if len(n.known) != 1 {
		t.Errorf("%d names are kept, of which one is of use", len(n.known))
	}
}

// A lookup that began before a change, or during one, says nothing afterwards.
func TestImageNamesChange(t *testing.T) {
	var n imageNames
	now := time.Now()
	_, before, _ := n.get("base", now)
	failed := errors.New("failed")
	err := n.change(func() error {
		_, during, _ := n.get("base", now)
		n.put(ctrimages.Image{Name: "base"}, during, now)
		return failed
	})
	n.put(ctrimages.Image{Name: "base"}, before, now)
	if _, _, ok := n.get("base", now); ok || !errors.Is(err, failed) {
		t.Errorf("known: %v, %v", ok, err)
	}
}
