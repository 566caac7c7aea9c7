package cli

import (
	"os"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// markers are files at the top of a workspace that tell its language. The first that is
// there counts. A name that begins with a dot is the end of one.
var markers = []struct{ name, language string }{
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
	{".sln", "dotnet"},
	{".csproj", "dotnet"},
	{"CMakeLists.txt", "cpp"},
}

// maxNames bounds what is read of a workspace's directory. Sources have few files there.
const maxNames = 1024

// languageOf finds the language of a directory, as this user sees it, and the file that
// tells it. Both are empty where nothing does.
func languageOf(dir string) (language, marker string) {
	f, err := os.Open(dir)
	if err != nil {
		return "", ""
	}
	defer f.Close() // it was only read
	names, _ := f.Readdirnames(maxNames)
	for _, m := range markers {
		for _, name := range names {
			if name == m.name || m.name[0] == '.' && strings.HasSuffix(name, m.name) {
				return m.language, name
			}
		}
	}
	return "", ""
}

// SetLanguage says which language the workspace of s has, if s names no image.
func SetLanguage(s *caissonv1.SandboxSpec) {
	if s.Image == "" && s.GetWorkspace().GetDir() != "" {
		s.Language, s.LanguageReason = languageOf(s.Workspace.Dir)
	}
}
