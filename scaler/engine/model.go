package engine

import (
	"slices"
	"strings"
)

const (
	maxModelNames = 16  // names listed in a ModelError
	maxModelBytes = 128 // bytes kept of each
)

// modelSet keeps the alphabetically first distinct names, sorted.
type modelSet struct{ names []string }

func (m *modelSet) add(name string) {
	if len(name) > maxModelBytes {
		name = strings.ToValidUTF8(name[:maxModelBytes], "")
	}
	i, found := slices.BinarySearch(m.names, name)
	if found || i >= maxModelNames {
		return
	}
	m.names = slices.Insert(m.names, i, name)
	m.names = m.names[:min(len(m.names), maxModelNames)]
}

// modelError walks over the page once more, to name the models on it. Only a
// page that parsed comes here, so the walk cannot fail.
func (s *scan) modelError() error {
	again := scan{kind: s.kind, want: s.want, body: s.body, names: &modelSet{}}
	if err := again.lines(); err != nil {
		return err
	}
	return &ModelError{Want: s.want, Seen: again.names.names}
}
