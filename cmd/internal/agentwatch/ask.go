package agentwatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/registry"
)

const (
	// AgentPort is where agents listen unless they are told otherwise.
	AgentPort = 9400

	askTimeout = 3 * time.Second
	askAtOnce  = 16
	// maxStatus bounds an answer in bytes. One history entry takes about 200.
	maxStatus = 1 << 20
	// statusVersion is the format of an answer that is understood: fields may be
	// added to it, but one with another number means something else.
	statusVersion = 1
	maxReason     = 200 // bytes of why an agent could not be asked
)

// Source finds pods and asks their agents. It fails only when nothing can be
// said about any pod; one that does not answer is a Pod with Unknown.
type Source interface {
	Pods(ctx context.Context) ([]Pod, error)
}

// Addresses asks agents at host:port pairs. Make one with ParseAddresses.
type Addresses struct {
	Addrs  []string
	Client *http.Client
	// Ref that the agents should be of; the zero Ref means any.
	Ref registry.Ref
}

// ParseAddresses checks host:port pairs; a missing port is AgentPort.
func ParseAddresses(texts []string) ([]string, error) {
	var out []string
	for _, text := range texts {
		text = strings.TrimSpace(text)
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			host, port = strings.Trim(text, "[]"), fmt.Sprint(AgentPort)
		}
		if host == "" || port == "" || strings.ContainsAny(text, "/ @?#") {
			return nil, fmt.Errorf("%q is not an agent's address: want host:port", text)
		}
		out = append(out, net.JoinHostPort(host, port))
	}
	return out, nil
}

// Pods implements Source.
func (a Addresses) Pods(ctx context.Context) ([]Pod, error) {
	pods := make([]Pod, len(a.Addrs))
	for i, addr := range a.Addrs {
		pods[i].Name = addr
	}
	askAll(ctx, pods, a.Ref, func(ctx context.Context, p Pod) (io.ReadCloser, error) {
		return Get(ctx, a.Client, "http://"+p.Name+"/status")
	})
	for i := range pods {
		if pods[i].Status != nil {
			pods[i].Ref = pods[i].Status.Ref
		}
	}
	return pods, ctx.Err()
}

// Get asks for a page; an answer other than 200 is an error.
func Get(ctx context.Context, client *http.Client, page string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		says, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // good to have only
		text, _, _ := strings.Cut(strings.TrimSpace(string(says)), "\n")
		if text != "" && !strings.HasPrefix(text, "<") {
			text = ": " + text
		} else {
			text = ""
		}
		return nil, errors.Join(fmt.Errorf("it answers %d%s", resp.StatusCode, text), resp.Body.Close())
	}
	return resp.Body, nil
}

// askAll fills in Status or Unknown of every pod that is worth asking. What an
// agent of another model than ref says is not about this one.
func askAll(ctx context.Context, pods []Pod, ref registry.Ref, open func(context.Context, Pod) (io.ReadCloser, error)) {
	var group errgroup.Group
	group.SetLimit(askAtOnce)
	for i := range pods {
		p := &pods[i]
		if p.Terminating || p.Unknown != "" {
			continue
		}
		group.Go(func() error {
			one, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			st, err := ask(one, func(ctx context.Context) (io.ReadCloser, error) { return open(ctx, *p) })
			if err == nil {
				err = checkRef(st, ref)
			}
			switch {
			case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
				p.Unknown = "no answer before the time was up"
				return nil
			case err != nil:
				p.Unknown = reason(err)
				return nil
			}
			p.Status = &st
			return nil
		})
	}
	_ = group.Wait() // what went wrong is in the pods
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func ask(ctx context.Context, open func(context.Context) (io.ReadCloser, error)) (st agent.Status, err error) {
	body, err := open(ctx)
	if err != nil {
		return agent.Status{}, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	data, err := io.ReadAll(io.LimitReader(body, maxStatus+1))
	if err != nil {
		return agent.Status{}, err
	}
	if len(data) > maxStatus {
		return agent.Status{}, fmt.Errorf("its answer is longer than %d bytes", maxStatus)
	}
	if err := json.Unmarshal(data, &st); err != nil || st.V < 1 {
		return agent.Status{}, errors.New("its answer is not an agent's")
	}
	if st.V != statusVersion {
		return agent.Status{}, fmt.Errorf("its answer has version %d, this program understands %d", st.V, statusVersion)
	}
	return st, nil
}

// checkRef refuses the answer of an agent that brings another model, or says of
// none that it does.
func checkRef(st agent.Status, ref registry.Ref) error {
	switch {
	case ref == (registry.Ref{}):
		return nil
	case st.Ref == "":
		return errors.New("its agent does not say which model it brings")
	case !Names(st.Ref, ref):
		return fmt.Errorf("its agent brings another model: %s", st.Ref)
	}
	return nil
}

// reason is an error as one short line.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", askTimeout)
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // the address is said beside it
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	s := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "..."
	}
	return s
}
