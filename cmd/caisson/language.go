package main

import (
	"os"
	"path/filepath"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// markers are files at the top of a workspace that tell its language. The first that is
// there counts.
var markers = []struct{ pattern, language string }{
	{"go.mod", "go"},
	{"Cargo.toml", "rust"},
	{"pyproject.toml", "python"},
	{"requirements.txt", "python"},
	{"setup.py", "python"},
	{"Pipfile", "python"},
	{"package.json", "node"},
	{"deno.json", "deno"},
	{"pom.xml", "java"},
	{"build.gradle", "java"},
	{"build.gradle.kts", "java"},
	{"Gemfile", "ruby"},
	{"composer.json", "php"},
	{"mix.exs", "elixir"},
	{"*.sln", "dotnet"},
	{"*.csproj", "dotnet"},
	{"CMakeLists.txt", "cpp"},
}

// languageOf finds the language of a directory, as this user sees it, and the file that
// tells it. Both are empty where nothing does.
func languageOf(dir string) (language, marker string) {
	for _, m := range markers {
		if found, err := filepath.Glob(filepath.Join(escapeGlob(dir), m.pattern)); err == nil && len(found) > 0 {
			if info, err := os.Lstat(found[0]); err == nil && info.Mode().IsRegular() {
				return m.language, filepath.Base(found[0])
			}
		}
	}
	return "", ""
}

var globEscapes = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

func escapeGlob(dir string) string { return globEscapes.Replace(dir) }

// setLanguage says which language the workspace of s has, if s names no image.
func setLanguage(s *caissonv1.SandboxSpec) {
	if s.Image == "" && s.GetWorkspace().GetDir() != "" {
		s.Language, s.LanguageReason = languageOf(s.Workspace.Dir)
	}
}
