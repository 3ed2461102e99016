package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCount(t *testing.T) {
	cases := map[string]struct {
		events []string
		want   string
		prints []string // parts of the lines
		hides  string   // must not be printed
	}{
		"Passing": {
			events: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`, `{"Action":"pass","Package":"p","Elapsed":0.25}`,
			},
			want: "1 passed, 0 failed", prints: []string{"ok    p  1 in 0.2s"}, hides: "chatter",
		},
		"LeavesOnly": {
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Test":"TestA/x/y"}`, `{"Action":"pass","Package":"p","Test":"TestA/x"}`,
				`{"Action":"pass","Package":"p","Test":"TestA/z"}`, `{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"skip","Package":"p","Test":"TestB"}`, `{"Action":"pass","Package":"p"}`,
			},
			want: "2 passed, 0 failed, 1 skipped",
		},
		"FailingSubtest": {
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA/x","Output":"why it failed\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA/x"}`, `{"Action":"pass","Package":"p","Test":"TestA/y"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`,
			},
			want: "1 passed, 1 failed", prints: []string{"FAIL  p", "why it failed"},
		},
		"ParentFailsByItself": {
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`, `{"Action":"pass","Package":"p","Test":"TestA/x"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`,
			},
			want: "1 passed, 1 failed",
		},
		"DoesNotBuild": {
			events: []string{
				`{"ImportPath":"p [p.test]","Action":"build-output","Output":"p.go:1: undefined: x\n"}`,
				`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
			},
			want: "0 passed, 1 failed", prints: []string{"undefined: x"},
		},
		"DiesOutsideOfATest": {
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"exit status 3\n"}`, `{"Action":"fail","Package":"p"}`,
			},
			want: "1 passed, 1 failed", prints: []string{"exit status 3"},
		},
		"NeverEnds": {
			events: []string{`{"Action":"run","Package":"p","Test":"TestA"}`},
			want:   "0 passed, 1 failed",
		},
		"PanicsInATest": {
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: boom\n"}`, `{"Action":"fail","Package":"p"}`,
			},
			want: "0 passed, 1 failed", prints: []string{"panic: boom"},
		},
		"NoTests": {
			events: []string{`{"Action":"skip","Package":"p"}`},
			want:   "0 passed, 0 failed", prints: []string{"p  no tests"},
		},
		"NoEvent": {
			events: []string{"go: cannot find main module"},
			want:   "0 passed, 0 failed", prints: []string{"cannot find main module"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			s := newSummary(&out)
			require.NoError(t, s.read(strings.NewReader(strings.Join(tc.events, "\n"))))
			require.Equal(t, tc.want, s.total().String())
			for _, p := range tc.prints {
				require.Contains(t, out.String(), p)
			}
			if tc.hides != "" {
				require.NotContains(t, out.String(), tc.hides)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	require.NoError(t, verdict(total{passed: 1, packages: 1}, nil))
	require.ErrorContains(t, verdict(total{failed: 2, packages: 1}, nil), "2 failed")
	require.Error(t, verdict(total{passed: 1, packages: 1}, bytes.ErrTooLarge), "go test failed although no test did")
	require.ErrorContains(t, verdict(total{}, nil), "no package", "nothing ran: not a success")
}

// The real thing, on a package of the standard library.
func TestRunsGoTest(t *testing.T) {
	file := t.TempDir() + "/deep/count.txt"
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-out", file, "--", "-run", "^TestIs$", "errors"}, &out))
	require.Regexp(t, `\n\d+ passed, 0 failed\n$`, out.String())
	require.FileExists(t, file)
	require.Error(t, run(t.Context(), []string{"--", "./there-is-no-such-folder"}, &out))
}
