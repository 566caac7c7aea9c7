package filter

import (
	"path"
	"strings"
)

// tree is the image so far: all layers merged, as a sandbox would see it. It
// remembers about a hundred bytes for each name and no content.
type tree struct {
	root  *node
	layer int16 // the one being read, from 1

	nameBytes int64 // ever stored
}

type node struct {
	layer int16
	kind  kind // kindDir, kindFile, kindSymlink, or kindWhiteout for the rest of its layer
	below bool // a directory that lower layers have, too, and that this layer does not hide
	meta  meta
	kids  map[string]*node
}

// impliedDir is a parent that no layer mentions.
var impliedDir = meta{mode: 0o755}

func newTree() tree { return tree{root: &node{kind: kindDir, meta: impliedDir}} }

// child returns n's child, nil when there is none. A whiteout counts only in
// the layer that holds it: there it may clash with another entry.
func (t *tree) child(n *node, name string) *node {
	k := n.kids[name]
	if k != nil && k.kind == kindWhiteout && k.layer != t.layer {
		return nil
	}
	return k
}

// lookup returns the node of a clean name, nil when there is none.
func (t *tree) lookup(name string) *node {
	n := t.root
	for _, c := range components(name) {
		if n = t.child(n, c); n == nil {
			return nil
		}
	}
	return n
}

// put makes name a k of the current layer. What a directory holds stays when
// it is put again as a directory; everything else is replaced.
func (t *tree) put(parent *node, name string, k kind, m meta) *node {
	if old := t.child(parent, name); old != nil && old.kind == kindDir && k == kindDir {
		t.touch(old)
		old.meta = m
		return old
	}
	n := &node{kind: k, layer: t.layer, meta: m}
	if parent.kids == nil {
		parent.kids = map[string]*node{}
	}
	// The name is a part of a longer one, which must not be kept alive.
	parent.kids[strings.Clone(name)] = n
	t.nameBytes += int64(len(name))
	return n
}

// begin starts the next layer.
func (t *tree) begin() {
	t.layer++
	t.touch(t.root)
	t.root.below = t.layer > 1
}

// touch makes a directory of a lower layer one of this layer, too.
func (t *tree) touch(n *node) {
	if n.layer != t.layer {
		n.layer, n.below = t.layer, true
	}
}

// hides reports whether an opaque whiteout in n would hide a directory of a
// lower layer.
func (t *tree) hides(n *node) bool {
	return n != nil && (n.below || n.layer != t.layer)
}

// removes reports whether this layer has a whiteout somewhere inside n. Only
// directories that lower layers have, too, can hold one.
func (t *tree) removes(n *node) bool {
	if !n.below || n.layer != t.layer {
		return false
	}
	for _, k := range n.kids {
		if k.layer == t.layer && (k.kind == kindWhiteout || t.removes(k)) {
			return true
		}
	}
	return false
}

// prune forgets what lower layers have inside n. Each directory is walked at
// most once in a layer, however often and wherever it is asked for.
func (t *tree) prune(n *node) {
	if !n.below {
		return
	}
	n.below = false
	for name, k := range n.kids {
		if k.layer != t.layer {
			delete(n.kids, name)
			continue
		}
		t.prune(k)
	}
}

// parents returns the components that must be directories before e can be.
func (e *entry) parents() []string {
	if e.kind == kindOpaque {
		return components(e.name)
	}
	dir, _ := path.Split(e.name)
	return components(strings.TrimSuffix(dir, "/"))
}

func components(name string) []string {
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}
