package pointercmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/leader"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

const (
	// scalerPort is where the chart has the scaler serve its pages.
	scalerPort = 8080
	// scalerSelector finds the chart's scalers.
	scalerSelector = "app.kubernetes.io/name=pilotlight,app.kubernetes.io/component=scaler"
	// maxTargets bounds the scaler's answer, in bytes: what the API server's proxy
	// may pass on (agentwatch.Bound), some 500 targets.
	maxTargets = 1 << 20
)

// explainDoc is the result of explain.
type explainDoc struct {
	V       int                   `json:"v"`
	Scaler  string                `json:"scaler"` // who was asked
	Targets []scaler.TargetStatus `json:"targets"`

	now    time.Time
	detail bool // every number, not a line each
}

func explainCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "explain [[NAMESPACE/]SCALEDOBJECT]",
		Short: "Say why a model has the replicas it has",
		Long: `Say why a model has the replicas it has: the scaler's latest decision, the rule
that settled it, every number that led to it, and what is wrong. Without an
argument, one line for each ScaledObject.

The scaler that leads is asked through the API server's pod proxy (list on pods
and get on pods/proxy in its namespace), or at --scaler. Where the proxy may not
reach it: kubectl -n keda port-forward deploy/pilotlight-scaler 8080, and
--scaler http://localhost:8080.

Exit codes: 0 shown, whatever the decision is; 2 usage, no cluster and no
--scaler, no such ScaledObject, or no scaler that answers.`,
		Example: `  pilotlight explain
  pilotlight explain llama -n ml
  pilotlight explain ml/llama --scaler http://localhost:8080 -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usage("want at most one SCALEDOBJECT, got %d arguments (see %s --help)", len(args), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}, a.explain)
	f := cmd.Flags()
	f.StringVar(&a.scaler, "scaler", "", "ask the scaler at this URL instead of finding it in the cluster")
	f.IntVar(&a.scalerPort, "scaler-port", scalerPort, "port of the scaler's pages in the cluster")
	a.scalerFlag(cmd)
	a.clusterFlags(cmd, "namespace of the ScaledObjects (default: all)")
	return cmd
}

func (a *app) explain(ctx context.Context, args []string) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	namespace, name := a.cluster.Namespace, ""
	if len(args) > 0 {
		name = args[0]
		if ns, rest, ok := strings.Cut(name, "/"); ok {
			if namespace != "" && namespace != ns {
				return cli.Usage("%s is not in the namespace of -n, %s", name, namespace)
			}
			namespace, name = ns, rest
		}
		if name == "" {
			return cli.Usage("%q names no ScaledObject: want NAME or NAMESPACE/NAME", args[0])
		}
	}
	who, data, err := a.askScaler(ctx, url.Values{"namespace": {namespace}, "scaledObject": {name}})
	if err != nil {
		return err
	}
	doc := explainDoc{V: documentVersion, Scaler: who, now: a.Now(), detail: name != "", Targets: []scaler.TargetStatus{}}
	if err := json.Unmarshal(data, &doc.Targets); err != nil {
		return cli.Usage("%s: its answer is not that of a pilotlight-scaler: %w", who, err)
	}
	if len(doc.Targets) == 0 && name != "" {
		where := "in any namespace"
		if namespace != "" {
			where = "in namespace " + namespace
		}
		return cli.Usage("%s has not been asked about a ScaledObject %s %s: it knows those with its trigger that KEDA has asked about (see pilotlight explain)", who, name, where)
	}
	return a.print(doc)
}

// askScaler fetches /debug/targets of the scaler that leads.
func (a *app) askScaler(ctx context.Context, query url.Values) (who string, data []byte, err error) {
	for key, v := range query {
		if v[0] == "" {
			query.Del(key)
		}
	}
	open := a.scalerAt(query)
	who = a.scaler
	if who == "" {
		if who, open, err = a.scalerInCluster(ctx, query); err != nil {
			return "", nil, err
		}
	}
	body, err := open(ctx)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(body, maxTargets+1))
		err = errors.Join(err, body.Close())
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return "", nil, cli.Usage("%s does not answer: %w", who, context.Cause(ctx))
	case err != nil:
		return "", nil, cli.Usage("%s does not answer: %w", who, err)
	case len(data) > maxTargets:
		return "", nil, cli.Usage("%s has more targets than fit into an answer of %d bytes: name one, or a namespace with -n", who, maxTargets)
	}
	return who, data, nil
}

type opener func(ctx context.Context) (io.ReadCloser, error)

// scalerAt asks at --scaler.
func (a *app) scalerAt(query url.Values) opener {
	return func(ctx context.Context) (io.ReadCloser, error) {
		base, err := url.Parse(a.scaler)
		if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
			return nil, errors.New("--scaler wants a URL, such as http://localhost:8080")
		}
		at := base.JoinPath("debug", "targets")
		at.RawQuery = query.Encode()
		return agentwatch.Get(ctx, a.HTTP, at.String())
	}
}

// scalerInCluster finds the scaler that leads.
func (a *app) scalerInCluster(ctx context.Context, query url.Values) (who string, open opener, err error) {
	cluster, err := a.Cluster(a.cluster)
	if errors.Is(err, errNoCluster) {
		return "", nil, cli.Usage("no cluster: this is not a pod and there is no kubeconfig: give --kubeconfig FILE, or the scaler with --scaler URL")
	}
	if err != nil {
		return "", nil, err
	}
	namespace := a.scalersNamespace()
	list, err := cluster.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: scalerSelector})
	if err != nil {
		return "", nil, cli.Usage("looking for the scaler: listing the pods in namespace %s with %s: %w", namespace, scalerSelector, errors.Join(err, context.Cause(ctx)))
	}
	pod, err := leading(list.Items)
	if err != nil {
		return "", nil, cli.Usage("namespace %s (see --scaler-namespace): %w", namespace, err)
	}
	params := map[string]string{}
	for key, v := range query {
		params[key] = v[0]
	}
	return namespace + "/" + pod, func(ctx context.Context) (io.ReadCloser, error) {
		answer := cluster.Client.CoreV1().Pods(namespace).ProxyGet("http", pod, strconv.Itoa(a.scalerPort), "debug/targets", params)
		if answer == nil {
			return nil, errors.New("the API server has no pod proxy")
		}
		return answer.Stream(ctx)
	}, nil
}

// leading picks the pod that decides: the one with the leader's label, or the
// only one.
func leading(pods []corev1.Pod) (string, error) {
	var running, leaders []string
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
			continue
		}
		running = append(running, p.Name)
		if p.Labels[leader.Label] == "true" {
			leaders = append(leaders, p.Name)
		}
	}
	switch {
	case len(leaders) == 1:
		return leaders[0], nil
	case len(leaders) > 1:
		return "", fmt.Errorf("several scalers have the label %s: %s: a hand-over is under way, try again", leader.Label, strings.Join(leaders, ", "))
	case len(running) == 1:
		return running[0], nil
	case len(running) == 0:
		return "", fmt.Errorf("no pod with %s runs there", scalerSelector)
	}
	return "", fmt.Errorf("none of %s has the label %s: nobody leads, try again", strings.Join(running, ", "), leader.Label)
}

func (d explainDoc) table(p *page) {
	if len(d.Targets) == 0 {
		p.line("%s has not been asked about any ScaledObject", d.Scaler)
		return
	}
	if d.detail {
		for i, t := range d.Targets {
			if i > 0 {
				p.line("")
			}
			d.describe(p, t)
		}
		return
	}
	var rows [][]cell
	for _, t := range d.Targets {
		rows = append(rows, []cell{
			{t.Namespace + "/" + t.ScaledObject, plain},
			{wanted(t), plain},
			{strconv.Itoa(t.Terms.Ready), plain},
			{strconv.Itoa(t.Terms.Starting), plain},
			{number(t.Terms.Load), plain},
			{number(t.Terms.Held), plain},
			{t.Reason, shadeOf(t)},
			{wrong(t), red},
		})
	}
	p.table([]string{"SCALEDOBJECT", "WANTED", "READY", "STARTING", "LOAD", "HELD", "REASON", "WRONG"}, rows)
}

// describe prints every number of a decision, in the order in which they come
// about.
func (d explainDoc) describe(p *page, t scaler.TargetStatus) {
	terms := t.Terms
	because := t.Reason
	if text := policy.Reason(t.Reason).Text(); text != "" {
		because += ": " + text
	}
	decided := "not yet"
	if !t.DecidedAt.IsZero() {
		decided = d.now.Sub(t.DecidedAt).Round(100*time.Millisecond).String() + " ago, by " + d.Scaler
	}
	demand := cmp.Or(t.Demand.From, "none")
	if t.Demand.Blind != "" {
		demand += ", which cannot see " + t.Demand.Blind
	}
	if t.Demand.Problem != "" {
		demand += "; unknown: " + t.Demand.Problem
	}
	p.fields("scaledobject", t.Namespace+"/"+t.ScaledObject, "model", t.ModelName, "wanted", wanted(t), "because", because, "decided", decided, "demand from", demand, "error", t.Error)
	p.line("")
	p.fields(
		"load", fmt.Sprintf("%s: running %s, waiting %s, held %s, sent on %s; each request once", number(terms.Load), number(terms.Running), number(terms.Waiting), number(terms.Held), number(terms.InFlight)),
		"traffic", fmt.Sprintf("%s requests/s, of %s s each: %s at a time", number(terms.Arrivals), number(terms.Residence), number(terms.Offered)),
		"look-ahead", fmt.Sprintf("%s at a time by the end of a start", number(terms.Projected)),
		"backlog", backlog(terms),
		"need", fmt.Sprintf("%d replicas", terms.Need),
		"pods", pods(terms),
		"scale-in", left(terms.HoldLeft, "the next replica may go in %s"),
		"start", left(terms.LeaseLeft, "has %s left until its lease ends"),
		"next start", left(terms.BackoffLeft, "not before %s from now"),
		"engines", stalled(terms),
	)
	for _, pod := range slices.Sorted(maps.Keys(t.Unread)) {
		p.line("cannot read pod %s: %s", pod, t.Unread[pod])
	}
	if t.Failure != nil {
		p.line("no pod gets ready: %s: %s", t.Failure.Class, t.Failure.Message)
	}
	for _, c := range t.Conditions {
		p.line("%s: %s", c.Reason, c.Message)
	}
}

func wanted(t scaler.TargetStatus) string {
	switch {
	case t.Replicas == nil:
		return "not known"
	case t.Active != nil && !*t.Active:
		return strconv.Itoa(*t.Replicas) + " (inactive)"
	}
	return strconv.Itoa(*t.Replicas)
}

// wrong is the first thing that is wrong with a target.
func wrong(t scaler.TargetStatus) string {
	switch {
	case t.Error != "":
		return clip(t.Error)
	case len(t.Conditions) > 0:
		return t.Conditions[0].Reason
	case t.Failure != nil:
		return string(t.Failure.Class)
	}
	return ""
}

func shadeOf(t scaler.TargetStatus) color {
	switch {
	case !t.Known || t.Reason == string(policy.ReasonUnknown) || t.Reason == string(policy.ReasonStartFailed):
		return red
	case t.Terms.Unread > 0 || t.Demand.Problem != "":
		return yellow
	}
	return plain
}

func backlog(t policy.Terms) string {
	if t.Backlog == 0 {
		return "none"
	}
	return fmt.Sprintf("%s requests, to be worked off within %s s", number(t.Backlog), number(t.Drain))
}

func pods(t policy.Terms) string {
	out := fmt.Sprintf("%d ready, %d starting", t.Ready, t.Starting)
	for _, more := range []struct {
		n    int
		text string
	}{{t.Failing, "failing"}, {t.Expired, "not counted on any more"}, {t.Unread, "that cannot be read, taken for busy"}} {
		if more.n > 0 {
			out += fmt.Sprintf(", %d %s", more.n, more.text)
		}
	}
	return out
}

func left(s policy.Span, format string) string {
	if s <= 0 {
		return ""
	}
	return fmt.Sprintf(format, time.Duration(s).Round(100*time.Millisecond))
}

func stalled(t policy.Terms) string {
	if !t.Stalled {
		return ""
	}
	return fmt.Sprintf("no token for %v under load", policy.StallAfter)
}

// number is a quantity for people: to three digits, and whole from a hundred on.
func number(f float64) string {
	if math.Abs(f) >= 100 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}
