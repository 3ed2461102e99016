package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authzv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// chartRender is the chart with two replicas of the scaler, as a check of
// test/deploy keeps it.
const chartRender = "../deploy/testdata/golden/pilotlight/overlay-high-availability.yaml"

// rights are kubeconfigs of the ServiceAccounts that the programs run as.
type rights struct {
	scaler, activator string
	without           string // a resource that was left out
}

// chartRules are the rules of the chart's roles, by the role's name.
func chartRules(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	render, err := os.ReadFile(chartRender)
	require.NoError(t, err)
	rules := map[string][]rbacv1.PolicyRule{}
	for _, doc := range bytes.Split(render, []byte("\n---\n")) {
		var role rbacv1.ClusterRole // a Role has the same fields
		require.NoError(t, yaml.Unmarshal(doc, &role))
		if role.Kind == "ClusterRole" || role.Kind == "Role" {
			rules[role.Name] = role.Rules
		}
	}
	require.Len(t, rules, 3, "roles of the chart")
	return rules
}

// grant gives the scenario's programs the rights that the chart gives when it
// watches one namespace: exactly its rules, for two ServiceAccounts.
func (s *scenario) grant(o options) {
	s.t.Helper()
	s.rights.without = o.without
	roles := s.Client.RbacV1().Roles(s.ns)
	for name, rules := range chartRules(s.t) {
		if o.without != "" {
			rules = slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, o.without) })
		}
		_, err := roles.Create(s.t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		require.NoError(s.t, err)
		_, err = s.Client.RbacV1().RoleBindings(s.ns).Create(s.t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.ns, Name: strings.TrimSuffix(name, "-own")}},
		}, metav1.CreateOptions{})
		require.NoError(s.t, err)
		for _, r := range rules {
			s.awaitRule(strings.TrimSuffix(name, "-own"), r)
		}
	}
	s.rights.scaler, s.rights.activator = s.kubeconfig("pilotlight-scaler", o.apiServer), s.kubeconfig("pilotlight-activator", o.apiServer)
}

// giveBack gives the rights that were left out.
func (s *scenario) giveBack() {
	s.t.Helper()
	s.mark("the rights are given")
	for name, rules := range chartRules(s.t) {
		_, err := s.Client.RbacV1().Roles(s.ns).Update(s.t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.UpdateOptions{})
		require.NoError(s.t, err)
	}
}

// kubeconfig writes one for a ServiceAccount of the scenario.
func (s *scenario) kubeconfig(account, apiServer string) string {
	s.t.Helper()
	token, err := s.ServiceAccountToken(s.t.Context(), s.ns, account)
	require.NoError(s.t, err)
	path := filepath.Join(s.t.TempDir(), account+".kubeconfig")
	require.NoError(s.t, s.Kubeconfig(path, cmp.Or(apiServer, s.Host), token))
	return path
}

// awaitRule waits until the API server has heard of a rule.
func (s *scenario) awaitRule(account string, r rbacv1.PolicyRule) {
	s.t.Helper()
	resource, subresource, _ := strings.Cut(r.Resources[0], "/")
	if resource == "*" {
		resource = "deployments"
	}
	what := authzv1.ResourceAttributes{Namespace: s.ns, Verb: r.Verbs[0], Group: strings.ReplaceAll(r.APIGroups[0], "*", "apps"), Resource: resource, Subresource: subresource}
	if len(r.ResourceNames) > 0 {
		what.Name = r.ResourceNames[0]
	}
	eventually(s.t, 30*time.Second, fmt.Sprintf("%s may %v", account, what), func() (string, bool) {
		review, err := s.Client.AuthorizationV1().SubjectAccessReviews().Create(s.t.Context(), &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + s.ns + ":" + account, ResourceAttributes: &what,
		}}, metav1.CreateOptions{})
		return fmt.Sprint(err), err == nil && review.Status.Allowed
	})
}

// checkRights demands, of every scenario, that the programs have asked for
// nothing that the chart does not let them, and never for a Secret.
func (s *scenario) checkRights() {
	for _, account := range []string{"pilotlight-scaler", "pilotlight-activator"} {
		asked, err := s.AskedBy(s.ns, account)
		if err != nil {
			s.t.Errorf("reading the audit log: %v", err)
			return
		}
		for _, a := range asked {
			resource, _, _ := strings.Cut(a.Resource, "/")
			if resource == "secrets" || a.Denied && (s.rights.without == "" || !s.leftOut(a.Resource)) {
				s.t.Errorf("%s has asked for what is not its business: %v (denied: %v)", account, a, a.Denied)
			}
		}
	}
}

// leftOut reports whether a resource is the one without rights; "*/scale" is the
// scale of anything.
func (s *scenario) leftOut(resource string) bool {
	_, sub, _ := strings.Cut(resource, "/")
	return resource == s.rights.without || sub != "" && "*/"+sub == s.rights.without
}

// now is a context for what is asked at once, also when the test has ended.
func (s *scenario) now() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.t.Context()), 10*time.Second)
}
