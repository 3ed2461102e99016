package deptest

// Pilotlight returns the import rules of this project, those of
// docs/architecture.md.
func Pilotlight() []Rule {
	all := []string{"./..."}
	parts := []string{"./scaler/...", "./fetcher/...", "./registry/...", "./warmup/..."}
	testing := []string{"testing/...", "github.com/stretchr/testify/...", "github.com/google/go-cmp/..."}
	return []Rule{
		{
			Why:  "nothing but cmd imports cmd: what two programs share is a part or a leaf under internal",
			From: all, Except: []string{"./cmd/..."}, Scope: Everything, Deny: []string{"./cmd/..."},
		},
		{
			Why:  "the policy is pure: it computes with values and nothing else",
			From: []string{"./scaler/policy"}, Only: []string{"errors", "fmt", "math", "slices", "sort", "time"},
		},
		{
			Why:  "the scaler knows of the other parts only the learned time to ready",
			From: parts[:1], Scope: Everything, Deny: parts[1:], Unless: []string{"./warmup/coldstart"},
		},
		{
			Why:  "the fetcher knows of the other parts only the registry's types",
			From: parts[1:2], Scope: Everything, Deny: []string{parts[0], parts[2], parts[3]}, Unless: []string{"./registry"},
		},
		{
			Why:  "the registry stands alone",
			From: parts[2:3], Scope: Everything, Deny: []string{parts[0], parts[1], parts[3]},
		},
		{
			Why:  "what happens between zero and warm stands alone",
			From: parts[3:], Scope: Everything, Deny: parts[:3],
		},
		{
			Why:  "internal packages are leaves: no part is below them",
			From: []string{"./internal/..."}, Scope: Everything, Deny: parts,
		},
		{
			Why:  "production code does not import what serves tests",
			From: all, Except: []string{"./test/..."}, Deny: append([]string{"./test/...", "./internal/deptest"}, testing...),
		},
		{
			Why:  "what runs in a pod is not linked with fakes",
			From: []string{"./cmd/pilotlight-scaler", "./cmd/pilotlight-activator", "./cmd/pilotlight-fetcher"},
			// Named one by one: a library that imports testing by itself is
			// none of our doing.
			Scope: Linked, Deny: []string{"./internal/fake/...", "./test/...", "./hack/..."},
		},
		{
			Why:  "it holds no registry client and cannot be downloaded: package registry/mlflow speaks the REST API",
			From: all, Scope: Everything, Deny: []string{"github.com/mlflow/mlflow-go/..."},
		},
	}
}
