// Package deptest checks which packages of a module import which. A test
// loads the packages with the go command and asks for what breaks a rule:
//
//	pkgs, err := deptest.Load(ctx, "../..")
//	problems := deptest.Check(pkgs, rules)
//
// Rules are values, so that they can be tried on a module that breaks them.
// The linter checks the same rules file by file while one types; this package
// also sees what an import brings along.
package deptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// A Package is what the go command says of one package of the module.
type Package struct {
	ImportPath   string
	Imports      []string
	TestImports  []string // of the test files inside the package
	XTestImports []string // of the test files beside it (package x_test)
	Deps         []string // everything that Imports bring along, themselves included
}

// Load lists the packages of the module at dir. Imports that cannot be found
// are listed all the same.
func Load(ctx context.Context, dir string) ([]Package, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of %s: %w: %s", dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var pkgs []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pkgs, nil
		case err != nil:
			return nil, fmt.Errorf("listing the packages of %s: %w", dir, err)
		}
		pkgs = append(pkgs, p)
	}
}

// A Scope says which imports of a package a rule looks at.
type Scope int

// The scopes.
const (
	Production Scope = iota // what its files import, tests left out
	Everything              // what its files and its tests import
	Linked                  // what a program that uses it is linked with
)

// A Rule restricts the imports of some packages. Paths are import paths; one
// that ends in /... stands for itself and all below it. A path that begins
// with ./ is relative to the module.
type Rule struct {
	Why    string   // ends the message
	From   []string // the packages it binds
	Except []string // those of From that it does not
	Scope  Scope
	Deny   []string // must not be imported
	Unless []string // those of Deny that may
	Only   []string // when set, nothing else may be imported
}

// Check returns a line for each import that breaks a rule, sorted.
func Check(module string, pkgs []Package, rules []Rule) []string {
	var problems []string
	for _, r := range rules {
		m := matcher{module}
		for _, p := range pkgs {
			if !m.any(r.From, p.ImportPath) || m.any(r.Except, p.ImportPath) {
				continue
			}
			for _, path := range p.imports(r.Scope) {
				denied := m.any(r.Deny, path) && !m.any(r.Unless, path)
				if denied || r.Only != nil && !m.any(r.Only, path) {
					problems = append(problems, fmt.Sprintf("%s imports %s: %s", p.ImportPath, path, r.Why))
				}
			}
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

func (p Package) imports(s Scope) []string {
	switch s {
	case Everything:
		return slices.Concat(p.Imports, p.TestImports, p.XTestImports)
	case Linked:
		return p.Deps
	default:
		return p.Imports
	}
}

type matcher struct{ module string }

func (m matcher) any(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return m.match(p, path) })
}

func (m matcher) match(pattern, path string) bool {
	if rest, ok := strings.CutPrefix(pattern, "./"); ok {
		pattern = m.module + "/" + rest
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == tree || strings.HasPrefix(path, tree+"/")
	}
	return path == pattern
}
