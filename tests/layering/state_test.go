package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// One function moves a sandbox from one state to another: moveLocked, by the table of those
// that may follow.
func TestOneWriterOfState(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("..", "..", "runtime", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	files := token.NewFileSet()
	var writes []string
	for _, name := range names {
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for n := range ast.Preorder(file) {
			if a, ok := n.(*ast.AssignStmt); ok && slices.ContainsFunc(a.Lhs, isStateOfSandbox) {
				writes = append(writes, files.Position(a.Pos()).String())
			}
		}
	}
	if len(writes) != 1 || !strings.Contains(writes[0], "state.go") {
		t.Errorf("the state of a sandbox is written at %v", writes)
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
