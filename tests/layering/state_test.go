package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// One function moves a sandbox from one state to another: moveLocked, by the table of those
// that may follow.
func TestOneWriterOfState(t *testing.T) {
	files := token.NewFileSet()
	runtime, err := parser.ParseDir(files, filepath.Join("..", "..", "runtime"), func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0)
	if err != nil {
		t.Fatal(err)
	}
	var writes []string
	ast.Inspect(runtime["runtime"], func(n ast.Node) bool {
		assignment, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for _, to := range assignment.Lhs {
			field, ok := to.(*ast.SelectorExpr)
			if !ok || field.Sel.Name != "state" {
				continue
			}
			if of, ok := field.X.(*ast.Ident); ok && of.Name == "s" { // a command's is e.state
				writes = append(writes, files.Position(n.Pos()).String())
			}
		}
		return true
	})
	if len(writes) != 1 || !strings.Contains(writes[0], "state.go") {
		t.Errorf("the state of a sandbox is written at %v", writes)
	}
}
