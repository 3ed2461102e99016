package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// syncWithin bounds the wait for a namespace's pods to be listed.
const syncWithin = time.Second

// pods are those of a namespace.
type pods struct {
	indexer cache.Indexer
	synced  cache.InformerSynced
}

// pods lists the pods that sel selects, starting the namespace's watch if it
// is the first question about it. Pods that were read before the right to was
// taken away are not what runs now.
func (s *Source) pods(ctx context.Context, namespace string, sel labels.Selector) ([]*corev1.Pod, error) {
	p := s.watch(namespace)
	if err := s.troubles.lost(podsDenial(namespace), time.Now()); err != nil {
		return nil, classify(fmt.Errorf("pods in %s are no longer known: %w", namespace, err))
	}
	if err := s.troubles.of(podsDenial(namespace), time.Now()); err != nil && !p.synced() {
		return nil, classify(fmt.Errorf("%w: pods in %s: %w", workload.ErrNotReady, namespace, err))
	}
	bounded, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	if !cache.WaitForCacheSync(bounded.Done(), p.synced) {
		return nil, fmt.Errorf("%w: pods in %s", workload.ErrNotReady, namespace)
	}
	return selected(p.indexer, sel)
}

func (s *Source) watch(namespace string) *pods {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.namespaces[namespace]; ok {
		return p
	}
	informer := s.podInformer(namespace)
	p := &pods{indexer: informer.GetIndexer(), synced: informer.HasSynced}
	go informer.RunWithContext(s.ctx)
	s.namespaces[namespace] = p
	return p
}

// podInformer keeps the pods of a namespace. A watch that works is the end of
// what went wrong with them: a namespace where nothing happens has no new
// resourceVersion to tell it by.
func (s *Source) podInformer(namespace string) cache.SharedIndexInformer {
	of, client := podsDenial(namespace), s.opts.Client.CoreV1().Pods(namespace)
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, opts)
			if err == nil {
				s.troubles.fresh(of)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			events, err := client.Watch(ctx, opts)
			if err == nil {
				s.troubles.clear(of)
			}
			return events, err
		},
	}, s.opts.Client), &corev1.Pod{}, cache.SharedIndexInformerOptions{Indexers: cache.Indexers{byLabel: labelKeys}})
	// Neither call fails on an informer that has not been started.
	_ = informer.SetTransform(trimPod)
	_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		s.troubles.watch(of, err, time.Now(), nil)
	})
	return informer
}

func podsDenial(namespace string) workload.Denial {
	return workload.Denial{Resource: "pods", Namespace: namespace}
}
