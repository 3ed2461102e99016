package pointercmd_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/pointercmd"
	"github.com/pilotlight-dev/pilotlight/internal/leader"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// decided is a target of which everything is known.
func decided(namespace, name string) scaler.TargetStatus {
	return scaler.TargetStatus{
		Namespace: namespace, ScaledObject: name, Trigger: "3f2a", ModelName: "llama-3-8b", Mode: "enforce", Known: true,
		Replicas: new(3), Value: new(48.0), Active: new(true), Reason: string(policy.ReasonBacklog), DecidedAt: start.Add(-2 * time.Second),
		Demand: scaler.DemandStatus{From: "activator"},
		Terms: policy.Terms{
			Running: 4, Held: 8, InFlight: 4, Load: 12, Arrivals: 1.2, Residence: 6.5, Offered: 7.8, Projected: 9.13, Backlog: 31, Drain: 5.5, Need: 3,
			Ready: 1, Starting: 2, HoldLeft: policy.Span(187 * time.Second),
		},
	}
}

// troubled is one with which much is wrong.
func troubled(namespace, name string) scaler.TargetStatus {
	return scaler.TargetStatus{
		Namespace: namespace, ScaledObject: name, ModelName: "mistral", Reason: string(policy.ReasonUnknown), Error: "no pod could be read for 1m0s",
		DecidedAt: start.Add(-time.Second), Unread: map[string]string{"mistral-1": "it answers 404\x1b[2J", "mistral-0": "connection refused"},
		Demand:     scaler.DemandStatus{From: "activator", Blind: "sees what waits, not what runs", Problem: "no activator has reported"},
		Conditions: []scaler.ConditionStatus{{Reason: "StartFailing", Message: "the image cannot be pulled"}},
		Failure:    &scaler.FailureStatus{Class: workload.FailureImage, Message: "ErrImagePull"},
		Terms:      policy.Terms{Ready: 2, Unread: 2, Starting: 1, Failing: 1, Expired: 1, BackoffLeft: policy.Span(30 * time.Second), LeaseLeft: policy.Span(time.Minute), Stalled: true},
	}
}

// debugPage serves /debug/targets as the scaler does.
type debugPage struct {
	targets []scaler.TargetStatus
	raw     string
	code    int
	says    string // with code
	asked   []url.Values
}

func (d *debugPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.asked = append(d.asked, r.URL.Query())
	if d.code != 0 || r.URL.Path != "/debug/targets" {
		http.Error(w, cmp.Or(d.says, "no"), cmp.Or(d.code, http.StatusNotFound))
		return
	}
	if d.raw != "" {
		_, _ = w.Write([]byte(d.raw))
		return
	}
	q := r.URL.Query()
	out := []scaler.TargetStatus{}
	for _, t := range d.targets {
		if (q.Get("namespace") == "" || q.Get("namespace") == t.Namespace) && (q.Get("scaledObject") == "" || q.Get("scaledObject") == t.ScaledObject) {
			out = append(out, t)
		}
	}
	answerJSON(w, out)
}

func explainWorld(t *testing.T) (*world, *debugPage) {
	t.Helper()
	w := newWorld(t)
	page := &debugPage{targets: []scaler.TargetStatus{decided("ml", "llama"), decided("prod", "llama"), troubled("ml", "mistral")}}
	w.hosts["scaler:8080"] = page
	w.deps.Now = func() time.Time { return start }
	return w, page
}

func TestExplainSaysEveryNumberInWords(t *testing.T) {
	w, _ := explainWorld(t)
	out := w.requireCode(0, "explain", "ml/llama", "--scaler", "http://scaler:8080/")
	require.Empty(t, out.stderr)
	docs, err := os.ReadFile("../../../docs/reference/cli.md")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(docs), "```\n"+out.stdout+"```\n"), "the reference should show it as it is:\n%s", out.stdout) //nolint:testifylint // the page is too long for a message

	out = w.requireCode(0, "explain", "mistral", "--scaler", "http://scaler:8080")
	for _, want := range []string{
		"not known", "unknown: nothing could be read for staleAfter", "no pod could be read for 1m0s", "activator (sees what waits, not what runs); unknown: no activator has reported", "load        not known",
		"2 ready (of them 2 cannot be read and counts as busy), 1 starting (of them 1 failing) (of them 1 not counted on any more)", "not before 30s from now", "one replica stays for 1m0s at least",
		"no token for 5m0s under load", "cannot read pod mistral-0: connection refused\ncannot read pod mistral-1: it answers 404?[2J\n", "image: ErrImagePull", "StartFailing: the image cannot be pulled",
	} {
		require.Contains(t, out.stdout, want)
	}
}

func TestExplainListsALineEach(t *testing.T) {
	w, page := explainWorld(t)
	out := w.requireCode(0, "explain", "--scaler", "http://scaler:8080")
	lines := strings.Split(strings.TrimSpace(out.stdout), "\n")
	require.Len(t, lines, 4)
	require.Equal(t, []string{"ml/llama", "3", "1", "2", "12", "8", "backlog", "-"}, strings.Fields(lines[1]))
	require.Equal(t, "ml/mistral not known 2 1 - - unknown no pod could be read for 1m0s", strings.Join(strings.Fields(lines[3]), " "))

	out = w.requireCode(0, "explain", "--scaler", "http://scaler:8080", "-n", "prod", "-o", "json")
	doc := decode(t, out.stdout)
	require.Len(t, doc["targets"], 1)
	require.InDelta(t, 1, doc["v"], 0)
	require.Equal(t, url.Values{"namespace": {"prod"}}, page.asked[1], "the scaler leaves out the rest")

	page.targets = []scaler.TargetStatus{}
	out = w.requireCode(0, "explain", "--scaler", "http://scaler:8080")
	require.Equal(t, "http://scaler:8080 has not been asked about any ScaledObject in any namespace\n", out.stdout)
	out = w.requireCode(0, "explain", "--scaler", "http://scaler:8080", "-o", "json")
	require.Equal(t, []any{}, decode(t, out.stdout)["targets"])
}

// A name that stands in two namespaces is shown twice: nobody guesses.
func TestExplainShowsANameInEveryNamespace(t *testing.T) {
	w, _ := explainWorld(t)
	out := w.requireCode(0, "explain", "llama", "--scaler", "http://scaler:8080")
	require.Contains(t, out.stdout, "ml/llama")
	require.Contains(t, out.stdout, "prod/llama")
}

func TestExplainRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*debugPage)
		args   []string
		says   string
	}{
		"NoSuchObject":   {nil, []string{"ml/gemma"}, "a ScaledObject gemma in namespace ml"},
		"NoSuchAnywhere": {nil, []string{"gemma"}, "a ScaledObject gemma in any namespace"},
		"TwoNamespaces":  {nil, []string{"ml/llama", "-n", "prod"}, "ml/llama is not in the namespace of -n, prod"},
		"NoNamespace":    {nil, []string{"/llama"}, "want NAME or NAMESPACE/NAME"},
		"Null":           {func(d *debugPage) { d.raw = "null" }, nil, "want a list of targets"},
		"OtherObjects":   {func(d *debugPage) { d.raw = `[{"foo":1},{}]` }, nil, "want a list of targets"},
		"Standby":        {func(d *debugPage) { d.code, d.says = 503, "this replica stands by: another one is active" }, nil, "it answers 503: this replica stands by"},
		"NoName":         {nil, []string{"ml/"}, "want NAME or NAMESPACE/NAME"},
		"TwoNames":       {nil, []string{"a", "b"}, "want at most one SCALEDOBJECT"},
		"Denied":         {func(d *debugPage) { d.code = http.StatusForbidden }, nil, "http://scaler:8080 does not answer: it answers 403"},
		"NoScaler":       {func(d *debugPage) { d.raw = "<html>" }, nil, "its answer is not that of a pilotlight-scaler"},
		"TooMuch":        {func(d *debugPage) { d.raw = strings.Repeat(" ", 64<<20+1) }, nil, "name one, or a namespace with -n"},
		"NoURL":          {nil, []string{"--scaler", "scaler:8080"}, "--scaler wants a URL, such as http://localhost:8080"},
		"NothingThere":   {nil, []string{"--scaler", "http://elsewhere"}, "http://elsewhere does not answer"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, page := explainWorld(t)
			if tc.change != nil {
				tc.change(page)
			}
			out := w.requireCode(2, append([]string{"explain", "--scaler", "http://scaler:8080"}, tc.args...)...)
			require.Contains(t, out.stderr, tc.says)
			require.Empty(t, out.stdout)
		})
	}
}

// scalerPod is a scaler of the chart.
func scalerPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "keda", Name: name, Labels: map[string]string{"app.kubernetes.io/name": "pilotlight", "app.kubernetes.io/component": "scaler"}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func leads(p *corev1.Pod)   { p.Labels[leader.Label] = "true" }
func pending(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
func other(p *corev1.Pod)   { p.Labels["app.kubernetes.io/component"] = "activator" }

// fromPage is the scaler's answer by the API server's pod proxy.
type fromPage struct {
	page *debugPage
	get  clienttesting.ProxyGetAction
}

func (f fromPage) DoRaw(context.Context) ([]byte, error) { return nil, errors.New("unbounded") }

func (f fromPage) Stream(ctx context.Context) (io.ReadCloser, error) {
	query := url.Values{}
	for key, v := range f.get.GetParams() {
		query.Set(key, v)
	}
	rec := httptest.NewRecorder()
	f.page.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+f.get.GetPath()+"?"+query.Encode(), nil))
	return rec.Result().Body, nil
}

func TestExplainAsksTheScalerThatLeads(t *testing.T) {
	tests := map[string]struct {
		pods []*corev1.Pod
		asks string
		says string
	}{
		"Leader":      {[]*corev1.Pod{scalerPod("a"), scalerPod("b", leads), scalerPod("c", other)}, "b", ""},
		"OnlyOne":     {[]*corev1.Pod{scalerPod("a"), scalerPod("b", terminating, leads), scalerPod("c", pending)}, "a", ""},
		"HandOver":    {[]*corev1.Pod{scalerPod("a", leads), scalerPod("b", leads)}, "", "a hand-over is under way, try again"},
		"NobodyLeads": {[]*corev1.Pod{scalerPod("a"), scalerPod("b")}, "", "nobody leads, try again"},
		"None":        {[]*corev1.Pod{scalerPod("a", other)}, "", "namespace keda (see --scaler-namespace): no pod with app.kubernetes.io/name=pilotlight"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, page := explainWorld(t)
			w.cluster = newCluster(t)
			asked := ""
			w.cluster.client.PrependProxyReactor("pods", func(action clienttesting.Action) (bool, rest.ResponseWrapper, error) {
				get := action.(clienttesting.ProxyGetAction)
				asked = get.GetNamespace() + "/" + get.GetName() + " " + get.GetScheme() + " " + get.GetPort() + " " + get.GetPath()
				require.Equal(t, map[string]string{"scaledObject": "mistral"}, get.GetParams())
				return true, fromPage{page, get}, nil
			})
			for _, p := range tc.pods {
				_, err := w.cluster.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			if tc.says != "" {
				out := w.requireCode(2, "explain", "mistral")
				require.Contains(t, out.stderr, tc.says)
				return
			}
			out := w.requireCode(0, "explain", "mistral")
			require.Equal(t, "keda/"+tc.asks+" http 8080 debug/targets", asked)
			require.Contains(t, out.stdout, "ago, by keda/"+tc.asks)
		})
	}
	w, _ := explainWorld(t)
	out := w.requireCode(2, "explain")
	require.Contains(t, out.stderr, "or the scaler with --scaler URL")
	w.deps.Cluster = func(pointercmd.ClusterFlags) (*pointercmd.Cluster, error) { return nil, os.ErrPermission }
	require.NotZero(t, w.run("explain").code)
}

// What is not known is not printed as zero, and what is not in force not as if it
// were.
func TestExplainTellsWhatIsFromWhatIsNot(t *testing.T) {
	w, page := explainWorld(t)
	shadow, held, young := decided("ml", "shadow"), decided("ml", "silent"), scaler.TargetStatus{Namespace: "ml", ScaledObject: "young", Error: "claimed by ml/llama too"}
	shadow.Mode = "shadow"
	held.Demand.Problem = "no activator has reported"
	other := decided("ml", "llama")
	other.Trigger, other.Unread = "77aa", map[string]string{"a": "refused"}
	page.targets = []scaler.TargetStatus{decided("ml", "llama"), other, shadow, held, young}
	out := w.requireCode(0, "explain", "--scaler", "http://user:s3cret@scaler:8080", "-n", "ml")
	var rows []string
	for _, line := range strings.Split(strings.TrimSpace(out.stdout), "\n")[1:] {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	require.Equal(t, []string{
		"ml/llama (3f2a) 3 1 2 12 8 backlog -", "ml/llama (77aa) 3 1 2 12 8 backlog pods that cannot be read: 1",
		"ml/shadow 3 (shadow: KEDA is told 0 and inactive) 1 2 12 8 backlog -", "ml/silent 3 1 2 12 - backlog demand is not known",
		"ml/young not known - - - - - claimed by ml/llama too",
	}, rows)
	require.NotContains(t, w.requireCode(0, "explain", "--scaler", "http://user:s3cret@scaler:8080", "-o", "json").stdout, "s3cret")
	detail := w.requireCode(0, "explain", "young", "--scaler", "http://scaler:8080").stdout
	require.Contains(t, detail, "what it needs is not known")
	require.NotContains(t, detail, "0")
	require.Contains(t, w.requireCode(0, "explain", "silent", "--scaler", "http://scaler:8080").stdout, "held not known")
	out = w.requireCode(0, "explain", "-n", "nowhere", "--scaler", "http://scaler:8080")
	require.Contains(t, out.stdout, "any ScaledObject in namespace nowhere")
}
