package agentwatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Nudger is a Source that can tell its agents that the pointer has moved, so
// that they ask it now and not at their next poll. Who must not or cannot be told
// loses nothing but that time.
type Nudger interface {
	// Nudge tells every agent that may be there, within ctx. Told counts those
	// who took note; err says of the others why not, or that none was found out.
	Nudge(ctx context.Context) (told int, err error)
}

var (
	_ Nudger = Addresses{}
	_ Nudger = Cluster{}
)

// Nudge implements Nudger.
func (a Addresses) Nudge(ctx context.Context) (told int, err error) {
	pods := make([]Pod, len(a.Addrs))
	for i, addr := range a.Addrs {
		pods[i].Name = addr
	}
	return nudgeAll(ctx, pods, func(ctx context.Context, p Pod) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Name+"/nudge", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := a.Client.Do(req)
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusAccepted {
			return errors.Join(fmt.Errorf("it answers %d", resp.StatusCode), err)
		}
		return nil
	})
}

// Nudge implements Nudger. It needs list on pods and create on pods/proxy.
func (c Cluster) Nudge(ctx context.Context) (told int, err error) {
	if c.Proxy == nil {
		return 0, errors.New("the API server has no pod proxy")
	}
	pods, err := c.list(ctx)
	if err != nil {
		return 0, err
	}
	return nudgeAll(ctx, pods, func(ctx context.Context, p Pod) error {
		return c.Proxy.Post().Namespace(p.Namespace).Resource("pods").SubResource("proxy").
			Name(utilnet.JoinSchemeNamePort("http", p.Name, strconv.Itoa(c.port()))).Suffix("nudge").Do(ctx).Error()
	})
}

// nudgeAll posts to the agents of pods that have begun and do not end.
func nudgeAll(ctx context.Context, pods []Pod, post func(context.Context, Pod) error) (told int, err error) {
	var mu sync.Mutex
	var failed []string
	var group errgroup.Group
	group.SetLimit(askAtOnce)
	for _, p := range pods {
		if p.Terminating || p.Unknown != "" {
			continue
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			err := post(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, p.ID()+": "+reason(err))
			} else {
				told++
			}
			return nil
		})
	}
	_ = group.Wait() // what went wrong is in failed
	if len(failed) == 0 {
		return told, nil
	}
	const shown = 3
	all, more := told+len(failed), ""
	if n := len(failed) - shown; n > 0 {
		failed, more = failed[:shown], fmt.Sprintf("; and %d more", n)
	}
	return told, fmt.Errorf("%w: %d of %d agents (%s%s)", errNotTold, all-told, all, strings.Join(failed, "; "), more)
}

var errNotTold = errors.New("could not be told")
