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
	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

const (
	// scalerPort is where the chart has the scaler serve its pages.
	scalerPort = 8080
	// scalerSelector finds the chart's scalers.
	scalerSelector = "app.kubernetes.io/name=pilotlight,app.kubernetes.io/component=scaler"
	// maxProxied bounds the scaler's answer by the API server's proxy, in bytes
	// (agentwatch.Bound): some 1,000 targets. maxDirect is for --scaler.
	maxProxied = 1 << 20
	maxDirect  = 64 << 20
)

// explainDoc is the result of explain.
type explainDoc struct {
	V       int                   `json:"v"`
	Scaler  string                `json:"scaler"` // who was asked
	Targets []scaler.TargetStatus `json:"targets"`

	now    time.Time
	where  string // of the ScaledObjects that were asked about
	detail bool   // every number, not a line each
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
reach it, forward the leader's port, and give --scaler http://localhost:8080:

  kubectl -n keda port-forward \
    "$(kubectl -n keda get pod -l pilotlight.dev/leader=true -o name)" 8080

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
			if namespace, name = ns, rest; ns == "" {
				name = ""
			}
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
	if doc.Targets == nil || slices.ContainsFunc(doc.Targets, func(t scaler.TargetStatus) bool { return t.ScaledObject == "" }) {
		return cli.Usage("%s: its answer is not that of a pilotlight-scaler: want a list of targets", who)
	}
	doc.Targets = slices.DeleteFunc(doc.Targets, func(t scaler.TargetStatus) bool { // whoever does not know the query
		return namespace != "" && t.Namespace != namespace || name != "" && t.ScaledObject != name
	})
	doc.where = "in any namespace"
	if namespace != "" {
		doc.where = "in namespace " + namespace
	}
	if len(doc.Targets) == 0 && name != "" {
		return cli.Usage("%s has not been asked about a ScaledObject %s %s: it knows those with its trigger that KEDA has asked about (see pilotlight explain)", who, name, doc.where)
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
	var open opener
	most, hint := maxDirect, ""
	if a.scaler != "" {
		who, open, err = a.scalerAt(query)
	} else {
		who, open, err = a.scalerInCluster(ctx, query)
		most, hint = maxProxied, "; where the API server may not reach it, forward its port and give --scaler (see pilotlight explain --help)"
	}
	if err != nil {
		return "", nil, err
	}
	body, err := open(ctx)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(body, int64(most)+1))
		err = errors.Join(err, body.Close())
	}
	switch {
	case err != nil:
		return "", nil, cli.Usage("%s does not answer: %w%s", who, timely(ctx, err), hint)
	case len(data) > most:
		return "", nil, cli.Usage("%s has more targets than fit into an answer of %d bytes: name one, or a namespace with -n, or ask it at --scaler", who, most)
	}
	return who, data, nil
}

// timely says of an error that it is only that the command's time was up.
func timely(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return errors.Join(err, cause)
	}
	return err
}

type opener func(ctx context.Context) (io.ReadCloser, error)

// scalerAt asks at --scaler.
func (a *app) scalerAt(query url.Values) (who string, open opener, err error) {
	base, err := url.Parse(a.scaler)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return "", nil, cli.Usage("--scaler wants a URL, such as http://localhost:8080")
	}
	at := base.JoinPath("debug", "targets")
	at.RawQuery = query.Encode()
	return base.Redacted(), func(ctx context.Context) (io.ReadCloser, error) {
		return agentwatch.Get(ctx, a.HTTP, at.String())
	}, nil
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
		return "", nil, cli.Usage("looking for the scaler: listing the pods in namespace %s with %s: %w", namespace, scalerSelector, timely(ctx, err))
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
		p.line("%s has not been asked about any ScaledObject %s", d.Scaler, d.where)
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
	several := map[string]int{}
	for _, t := range d.Targets {
		several[t.Namespace+"/"+t.ScaledObject]++
	}
	var rows [][]cell
	for _, t := range d.Targets {
		name := t.Namespace + "/" + t.ScaledObject
		if several[name] > 1 {
			name += " (" + t.Trigger + ")"
		}
		load, held := "", ""
		if looked(t) {
			load = number(t.Terms.Load)
			if t.Demand.Problem == "" {
				held = number(t.Terms.Held)
			}
		}
		rows = append(rows, []cell{
			{name, plain},
			{wanted(t), plain},
			{counted(t, t.Terms.Ready), plain},
			{counted(t, t.Terms.Starting), plain},
			{load, plain},
			{held, plain},
			{t.Reason, shadeOf(t)},
			{wrong(t), red},
		})
	}
	p.table([]string{"SCALEDOBJECT", "WANTED", "READY", "STARTING", "LOAD", "HELD", "REASON", "WRONG"}, rows)
}

// looked reports whether a target's numbers are readings: unknown is not zero.
func looked(t scaler.TargetStatus) bool {
	return !t.DecidedAt.IsZero() && t.Reason != string(policy.ReasonUnknown)
}

// counted is a number of pods, empty before there was a look at them.
func counted(t scaler.TargetStatus, n int) string {
	if t.DecidedAt.IsZero() {
		return ""
	}
	return strconv.Itoa(n)
}

// describe prints every number of a decision, in the order in which they come
// about.
func (d explainDoc) describe(p *page, t scaler.TargetStatus) {
	because := t.Reason
	if text := policy.Reason(t.Reason).Text(); text != "" {
		because += ": " + text
	}
	decided := "not yet"
	if !t.DecidedAt.IsZero() {
		decided = max(d.now.Sub(t.DecidedAt), 0).Round(100*time.Millisecond).String() + " ago, by " + d.Scaler
	}
	demand := cmp.Or(t.Demand.From, "none")
	if t.Demand.Blind != "" {
		demand += " (" + t.Demand.Blind + ")"
	}
	if t.Demand.Problem != "" {
		demand += "; unknown: " + t.Demand.Problem
	}
	p.fields("scaledobject", t.Namespace+"/"+t.ScaledObject, "trigger", t.Trigger, "model", t.ModelName, "wanted", wanted(t), "because", because, "decided", decided, "demand from", demand, "error", t.Error)
	p.line("")
	if t.DecidedAt.IsZero() {
		p.line("what it needs is not known")
	} else {
		numbers(p, t)
	}
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

func numbers(p *page, t scaler.TargetStatus) {
	terms := t.Terms
	held := number(terms.Held)
	if t.Demand.Problem != "" {
		held = "not known"
	}
	load := fmt.Sprintf("%s: running %s, waiting %s, held %s, sent on %s; each request once", number(terms.Load), number(terms.Running), number(terms.Waiting), held, number(terms.InFlight))
	need := fmt.Sprintf("%d replicas", terms.Need)
	if !looked(t) {
		load, need = "not known", ""
	}
	p.fields(
		"load", load,
		"traffic", fmt.Sprintf("%s requests/s, of %s s each: %s at a time", number(terms.Arrivals), number(terms.Residence), number(terms.Offered)),
		"look-ahead", fmt.Sprintf("%s at a time by the end of a start", number(terms.Projected)),
		"backlog", backlog(terms),
		"need", need,
		"pods", pods(terms),
		"scale-in", left(terms.HoldLeft, "the next replica may go in %s"),
		"lease", left(terms.LeaseLeft, "one replica stays for %s at least"),
		"next start", left(terms.BackoffLeft, "not before %s from now"),
		"engines", stalled(terms),
	)
}

func wanted(t scaler.TargetStatus) string {
	if t.Replicas == nil {
		return "not known"
	}
	out := strconv.Itoa(*t.Replicas)
	switch {
	case t.Mode == trigger.ModeShadow:
		out += " (shadow: KEDA is told 0 and inactive)"
	case t.Active != nil && !*t.Active:
		out += " (inactive)"
	}
	return out
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
	case t.Demand.Problem != "":
		return "demand is not known"
	case len(t.Unread) > 0:
		return fmt.Sprintf("pods that cannot be read: %d", len(t.Unread))
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
	return fmt.Sprintf("%d ready%s, %d starting%s",
		t.Ready, ofThem(t.Unread, "cannot be read and counts as busy"), t.Starting, ofThem(t.Lost, "not ready any more")+ofThem(t.Failing, "failing")+ofThem(t.Expired, "not counted on any more"))
}

func ofThem(n int, text string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (of them %d %s)", n, text)
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
	if abs := math.Abs(f); abs >= 100 && abs < 1e9 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}
