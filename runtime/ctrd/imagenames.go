package ctrd

import (
	"maps"
	"sync"
	"time"

	ctrimages "github.com/containerd/containerd/v2/core/images"
)

// nameTime is how long a name is taken to mean what it meant. The namespace is
// the Engine's own, so only somebody who reaches around it makes a difference.
const nameTime = 10 * time.Second

// imageNames remembers what names meant, which spares each create a call to the
// server. What the Engine changes is forgotten at once, a lookup that is under
// way then included.
type imageNames struct {
	mu      sync.Mutex
	changes int
	known   map[string]knownName
}

type knownName struct {
	image ctrimages.Image
	until time.Time
}

// get returns what name means, or else the token for put.
func (n *imageNames) get(name string, now time.Time) (img ctrimages.Image, token int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k, ok := n.known[name]
	return k.image, n.changes, ok && now.Before(k.until)
}

// put notes what was looked up after get gave the token.
func (n *imageNames) put(img ctrimages.Image, token int, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if token != n.changes {
		return
	}
	maps.DeleteFunc(n.known, func(_ string, k knownName) bool { return !now.Before(k.until) })
	if n.known == nil {
		n.known = map[string]knownName{}
	}
	n.known[img.Name] = knownName{img, now.Add(nameTime)}
}

// change runs f, which changes images.
func (n *imageNames) change(f func() error) error {
	n.forget()
	defer n.forget() // what was looked up meanwhile
	return f()
}

func (n *imageNames) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes++
	clear(n.known)
}
