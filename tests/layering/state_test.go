package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// One function moves a sandbox from one state to another: moveLocked, by the table of those
// that may follow.
func TestOneWriterOfState(t *testing.T) {
	var writes []string
	for n, at := range runtimeNodes(t, false) {
		if a, ok := n.(*ast.AssignStmt); ok && slices.ContainsFunc(a.Lhs, isStateOfSandbox) {
			writes = append(writes, at.String())
		}
	}
	if len(writes) != 1 || !strings.Contains(writes[0], "state.go") {
		t.Errorf("the state of a sandbox is written at %v", writes)
	}
}

// One function puts a Manager together, for the daemon and for tests: assemble.
func TestOnePlaceMakesAManager(t *testing.T) {
	var made []string
	for n, at := range runtimeNodes(t, true) {
		if l, ok := n.(*ast.CompositeLit); ok {
			if of, ok := l.Type.(*ast.Ident); ok && of.Name == "Manager" {
				made = append(made, at.String())
			}
		}
	}
	if len(made) != 1 || !strings.Contains(made[0], "manager.go") {
		t.Errorf("a Manager is made at %v", made)
	}
}

// mostManagerMethods may only fall: what does not need to know all sandboxes is a method of
// host.
const mostManagerMethods = 164

func TestManagerKnowsTheFleetAlone(t *testing.T) {
	methods := 0
	for n := range runtimeNodes(t, false) {
		f, ok := n.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		if of, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok && of.X.(*ast.Ident).Name == "Manager" {
			methods++
		}
	}
	if methods == 0 || methods > mostManagerMethods {
		t.Errorf("Manager has %d methods, at most %d", methods, mostManagerMethods)
	}
}

// runtimeNodes are those of package runtime, with its tests or without, and where each is.
func runtimeNodes(t *testing.T, tests bool) iter.Seq2[ast.Node, token.Position] {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", "runtime", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(ast.Node, token.Position) bool) {
		for _, name := range names {
			if !tests && strings.HasSuffix(name, "_test.go") {
				continue
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for n := range ast.Preorder(file) {
				if !yield(n, files.Position(n.Pos())) {
					return
				}
			}
		}
	}
}

// isStateOfSandbox reports whether to is s.state. A command's is e.state.
func isStateOfSandbox(to ast.Expr) bool {
	field, ok := to.(*ast.SelectorExpr)
	if !ok || field.Sel.Name != "state" {
		return false
	}
	of, ok := field.X.(*ast.Ident)
	return ok && of.Name == "s"
}
