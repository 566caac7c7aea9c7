package layering

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// byPath are functions that remove, rename or change the owner, mode or length of
// what a path names. They follow links on the way to it.
var byPath = map[string][]string{
	"os": {"Remove", "RemoveAll", "Rename", "Chown", "Lchown", "Chmod", "Chtimes", "Truncate"},
	"golang.org/x/sys/unix": {
		"Unlink", "Rmdir", "Rename", "Chown", "Lchown", "Chmod", "Truncate", "Utimes", "Lutimes", "UtimesNano", "Mknod", "Unmount",
	},
	"syscall": {"Unlink", "Rmdir", "Rename", "Chown", "Lchown", "Chmod", "Truncate", "Mknod", "Unmount"},
}

// mayByPath are the files and folders that use them all the same, and why.
var mayByPath = map[string]string{
	"owndir/owndir.go":                      "it names a descriptor below /proc/self/fd",
	"cgroups/remove.go":                     "cgroup directories, which are no files of the daemon's: the kernel refuses links there",
	"cmd/caisson-gateway/confine":           "it takes the old root off in a mount namespace of its own",
	"cmd/caisson/internal/contexts":         "the user's own configuration, wherever its links lead",
	"cmd/caissond/listen.go":                "the socket is wherever the operator wants it",
	"cmd/caissond/serve.go":                 "the socket is wherever the operator wants it",
	"rootfs/mount/attach.go":                "it unmounts its working directory, which is a descriptor's",
	"rootfs/mount/hosttree.go":              "it takes mounts off in a namespace of its own, and the old root off in the sandbox's",
	"runtime/ctrd/shimcall/serve.go":        "containerd's shim program, in the bundle that containerd made",
	"runtime/ctrd/shimcall/failpoint_on.go": "only in builds for tests",
	"server/servertest":                     "only for tests",
	"api/apitest":                           "only for tests",
	"tests":                                 "only for tests",
}

// TestOwnDirectoriesAreChangedByDescriptor: package owndir follows no link and crosses
// no mount; these functions do.
func TestOwnDirectoriesAreChangedByDescriptor(t *testing.T) {
	used := map[string]bool{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir() && (name == "build" || name == "bin" || e.Name() == "testdata" || strings.HasPrefix(e.Name(), ".") && name != "."):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		calls, err := callsByPath(path)
		if err != nil || len(calls) == 0 {
			return err
		}
		if excepted := exceptionOf(name); excepted != "" {
			used[excepted] = true
			return nil
		}
		for _, c := range calls {
			t.Errorf("%s:%s: it goes by path: use package owndir", name, c)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range mayByPath {
		if !used[name] {
			t.Errorf("%s needs no exception", name)
		}
	}
}

func exceptionOf(name string) string {
	for room := range mayByPath {
		if under(filepath.ToSlash(name), room) {
			return room
		}
	}
	return ""
}

// callsByPath lists the uses of byPath in a file, as LINE: PACKAGE.FUNCTION.
func callsByPath(path string) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	for _, i := range file.Imports {
		imported := strings.Trim(i.Path.Value, `"`)
		local := imported[strings.LastIndexByte(imported, '/')+1:]
		if i.Name != nil {
			local = i.Name.Name
		}
		names[local] = byPath[imported]
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if ok && slices.Contains(names[x.Name], s.Sel.Name) {
			line := set.Position(s.Pos()).Line
			found = append(found, fmt.Sprintf("%d: %s.%s", line, x.Name, s.Sel.Name))
		}
		return true
	})
	return found, nil
}
