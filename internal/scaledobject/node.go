package scaledobject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A node is a place in the file; at is nil where there is nothing, or null.
type node struct {
	file string
	at   *yaml.Node
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (n node) field(key string) node {
	if n.at == nil || n.at.Kind != yaml.MappingNode {
		return node{file: n.file}
	}
	for i := 0; i+1 < len(n.at.Content); i += 2 {
		if value := resolve(n.at.Content[i+1]); n.at.Content[i].Value == key && value.Tag != "!!null" {
			return node{n.file, value}
		}
	}
	return node{file: n.file}
}

func (n node) items() []node {
	if n.at == nil || n.at.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]node, len(n.at.Content))
	for i, c := range n.at.Content {
		out[i] = node{n.file, resolve(c)}
	}
	return out
}

func (n node) text() string {
	if n.at == nil {
		return ""
	}
	return n.at.Value
}

// number reads an integer into dst, if there is one.
func (n node) number(key string, dst *int, least, most int) error {
	if n.at == nil {
		return nil
	}
	v, err := strconv.Atoi(n.at.Value)
	if err != nil || v < least || v > most {
		return n.fault("%s: %q must be a whole number from %d to %d", key, n.at.Value, least, most)
	}
	*dst = v
	return nil
}

// only refuses what is no mapping, keys other than the known ones, and keys
// given twice. The place is how errors call the mapping.
func (n node) only(place string, known ...string) (errs []error) {
	if n.at == nil {
		return nil
	}
	if n.at.Kind != yaml.MappingNode {
		return []error{n.fault("%s: must hold keys and values", place)}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.at.Content); i += 2 {
		key := node{n.file, n.at.Content[i]}
		switch name := key.text(); {
		case !slices.Contains(known, name):
			errs = append(errs, key.fault("%s.%s: is not a key of a ScaledObject; known keys: %s", place, name, strings.Join(known, ", ")))
		case seen[name]:
			errs = append(errs, key.fault("%s.%s: is given twice", place, name))
		}
		seen[key.text()] = true
	}
	return errs
}

func (n node) fault(format string, args ...any) error {
	line := 1
	if n.at != nil {
		line = n.at.Line
	}
	return &Fault{n.file, line, fmt.Errorf(format, args...)}
}
