package kube

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// crowd is a namespace with two pods of each of many models.
func crowd(tb testing.TB, models int) cache.Indexer {
	tb.Helper()
	all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byLabel: labelKeys})
	for i := range 2 * models {
		require.NoError(tb, all.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: fmt.Sprintf("pod-%05d", i), Labels: map[string]string{
			"app.kubernetes.io/instance": fmt.Sprintf("model-%d", i/2), "app.kubernetes.io/name": "vllm", "tier": "gpu", "odd": fmt.Sprint(i%2 == 1),
		}}}))
	}
	return all
}

// The index finds what going through all pods finds.
func TestSelectedFindsWhatTheSelectorMatches(t *testing.T) {
	all := crowd(t, 100)
	cases := map[string]int{
		"app.kubernetes.io/instance=model-7":                             2,
		"app.kubernetes.io/name=vllm,app.kubernetes.io/instance=model-7": 2,
		"odd=true,app.kubernetes.io/instance=model-7":                    1,
		"app.kubernetes.io/instance in (model-7)":                        2,
		"app.kubernetes.io/instance in (model-7,model-8)":                4,
		"app.kubernetes.io/instance in (model-7,model-8),odd=true":       2,
		"app.kubernetes.io/instance=model-7,odd!=true":                   1,
		"app.kubernetes.io/instance=model-7,gone":                        0,
		"app.kubernetes.io/instance=model-700":                           0,
		"tier=gpu":                                                       200,
		"odd!=true":                                                      100,
		"tier":                                                           200,
		"!tier":                                                          0,
		"":                                                               200,
		"tier=gpu,!odd":                                                  0,
	}
	for text, want := range cases {
		t.Run(text, func(t *testing.T) {
			sel, err := labels.Parse(text)
			require.NoError(t, err)
			got, err := selected(all, sel)
			require.NoError(t, err)
			require.Len(t, got, want)
			require.False(t, slices.ContainsFunc(got, func(p *corev1.Pod) bool { return !sel.Matches(labels.Set(p.Labels)) }))
		})
	}
	none, err := selected(all, labels.Nothing())
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestAPodWhoseLabelsChangeIsFoundByTheNewOnes(t *testing.T) {
	all := crowd(t, 1)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: "pod-00000", Labels: map[string]string{"app": "other"}}}
	require.NoError(t, all.Update(p))
	for text, want := range map[string]int{"app.kubernetes.io/instance=model-0": 1, "app=other": 1} {
		sel, err := labels.Parse(text)
		require.NoError(t, err)
		got, err := selected(all, sel)
		require.NoError(t, err)
		require.Len(t, got, want, text)
	}
}

// BenchmarkSelected is one look at a model among 2,000 in its namespace.
func BenchmarkSelected(b *testing.B) {
	all := crowd(b, 2000)
	for name, text := range map[string]string{
		"OneLabel": "app.kubernetes.io/instance=model-7", "TwoLabels": "app.kubernetes.io/name=vllm,app.kubernetes.io/instance=model-7", "NoValue": "!gone,app.kubernetes.io/instance in (model-7,model-8)",
	} {
		sel, err := labels.Parse(text)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				got, err := selected(all, sel)
				if err != nil || len(got) == 0 {
					b.Fatal(got, err)
				}
			}
		})
	}
}
