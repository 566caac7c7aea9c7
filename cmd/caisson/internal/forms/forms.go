// Package forms prints objects as YAML and by Go templates, with the names that JSON has.
// Both need packages that take time to load: the program for every day links none of them.
package forms

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// Template reads text as a Go template. What it returns prints an object, or each of a list
// of them, on a line.
func Template(text string) (func(v any) (string, error), error) {
	t, err := template.New("--format").Option("missingkey=error").Funcs(template.FuncMap{"json": templateJSON}).Parse(text)
	if err != nil {
		return nil, err
	}
	return func(v any) (string, error) {
		list, err := objects(v)
		if err != nil {
			return "", err
		}
		var lines strings.Builder
		for _, one := range list {
			if err := t.Execute(&lines, one); err != nil {
				return "", fmt.Errorf("%s; -o json shows the fields", strings.TrimPrefix(err.Error(), "template: "))
			}
			lines.WriteByte('\n')
		}
		return lines.String(), nil
	}, nil
}

// objects are v, or its elements, as a template sees them.
func objects(v any) ([]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var object any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber() // 12345678 and not 1.2345678e+07
	if err := d.Decode(&object); err != nil {
		return nil, err
	}
	if list, ok := object.([]any); ok {
		return list, nil
	}
	return []any{object}, nil
}

func templateJSON(v any) (string, error) {
	data, err := json.Marshal(present(v))
	return string(data), err
}

// present is v without what is null so that templates can name it.
func present(v any) any {
	switch of := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, value := range of {
			if value != nil {
				kept[name] = present(value)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(of))
		for i, value := range of {
			kept[i] = present(value)
		}
		return kept
	}
	return v
}

// YAML is v as a document, in the order of JSON.
func YAML(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil { // JSON is YAML
		return "", err
	}
	blocks(&node)
	text := strings.Builder{}
	text.WriteString("---\n")
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	err = e.Encode(&node)
	return text.String(), err
}

// blocks drops the style of JSON, which is that of one line with quotes.
func blocks(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blocks(c)
	}
}
