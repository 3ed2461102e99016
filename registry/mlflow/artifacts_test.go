package mlflow_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestArtifactMap(t *testing.T) {
	tests := map[string]struct {
		uri, artifactMap, workspace string
		want                        string
		reason                      string
	}{
		"Root":             {"mlflow-artifacts:/1/m/artifacts", "mlflow-artifacts:/=s3://bucket/mlflow", "", "s3://bucket/mlflow/1/m/artifacts", ""},
		"RootWithSlashes":  {"mlflow-artifacts:///1/m/artifacts/", "mlflow-artifacts:/=s3://bucket/mlflow/", "", "s3://bucket/mlflow/1/m/artifacts", ""},
		"WholeBucket":      {"mlflow-artifacts:/1/m", " mlflow-artifacts:/ = s3://bucket ", "", "s3://bucket/1/m", "spaces are no harm"},
		"R2":               {"mlflow-artifacts:/1/m", "mlflow-artifacts:/=r2://bucket@acc.r2.cloudflarestorage.com/x", "", "r2://bucket@acc.r2.cloudflarestorage.com/x/1/m", ""},
		"LongestWins":      {"mlflow-artifacts:/1/m", "mlflow-artifacts:/=s3://bucket/a,mlflow-artifacts:/1=s3://bucket/b,,", "", "s3://bucket/b/m", ""},
		"WholeSegments":    {"mlflow-artifacts:/10/m", "mlflow-artifacts:/=s3://bucket/a,mlflow-artifacts:/1=s3://bucket/b", "", "s3://bucket/a/10/m", "10 is not below 1"},
		"Workspace":        {"mlflow-artifacts:/1/m", "mlflow-artifacts:/=s3://bucket/a", "team", "s3://bucket/a/workspaces/team/1/m", "a folder of its own"},
		"WorkspaceThere":   {"mlflow-artifacts:/workspaces/team/1/m", "mlflow-artifacts:/=s3://bucket/a", "team", "s3://bucket/a/workspaces/team/1/m", "not twice"},
		"WorkspaceDefault": {"mlflow-artifacts:/1/m", "mlflow-artifacts:/=s3://bucket/a", "default", "s3://bucket/a/1/m", "has none"},
		"WorkspaceMapped":  {"mlflow-artifacts:/1/m", "mlflow-artifacts:/workspaces/team=s3://team/x", "team", "s3://team/x/1/m", ""},
		"OwnAuthority":     {"mlflow-artifacts://HOST/1/m", "mlflow-artifacts:/=s3://bucket/a", "", "s3://bucket/a/1/m", "names the server itself"},
		"MappedAuthority":  {"mlflow-artifacts://elsewhere:5000/1/m", "mlflow-artifacts:/=s3://bucket/a,mlflow-artifacts://elsewhere:5000/=s3://other/b", "", "s3://other/b/1/m", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server, url := newRegistry(t, fake.Options{})
			_, err := server.CreateVersion("proxied", strings.ReplaceAll(tc.uri, "HOST", strings.TrimPrefix(url, "http://")))
			require.NoError(t, err)
			c := fromEnv(t, map[string]string{"MLFLOW_TRACKING_URI": url, "PILOTLIGHT_ARTIFACT_MAP": tc.artifactMap, "MLFLOW_WORKSPACE": tc.workspace})
			res, err := resolve(t, c, "models:/proxied/1")
			require.NoError(t, err)
			require.Equal(t, tc.want, res.Location.String(), tc.reason)
		})
	}
}

func TestUnmappedArtifactsLieBehindTheServer(t *testing.T) {
	server, url := newRegistry(t, fake.Options{})
	for _, uri := range []string{
		"mlflow-artifacts:/2/m", "mlflow-artifacts:/1/../../m", "mlflow-artifacts:relative", "mlflow-artifacts:/1/m?sig=hunter2",
		"mlflow-artifacts://ann:hunter2@elsewhere/1/m", "mlflow-artifacts:/2/../m", "mlflow-artifacts:/2/a//m",
		"mlflow-artifacts://" + strings.TrimPrefix(url, "http://") + "/2/m/", "mlflow-artifacts:///2/100% of it",
	} {
		_, err := server.CreateVersion("proxied", uri)
		require.NoError(t, err)
	}
	c := newClient(t, mlflow.Config{TrackingURI: url, ArtifactMap: []string{"mlflow-artifacts:/1=s3://bucket/a"}})
	for version, want := range map[string]struct {
		class error
		words string // of the error, or the location
	}{
		"1": {nil, "mlflow-artifacts:/2/m"},
		"2": {registry.ErrBroken, "segment"},
		"3": {registry.ErrBroken, "mlflow-artifacts:relative"},
		"4": {registry.ErrBroken, "mlflow-artifacts:/1/m"},
		"5": {registry.ErrUnsupported, "PILOTLIGHT_ARTIFACT_MAP=mlflow-artifacts://elsewhere/=s3://"},
		"6": {registry.ErrBroken, "segment"},
		"7": {registry.ErrBroken, "segment"},
		"8": {nil, "mlflow-artifacts:/2/m"},
		"9": {nil, "mlflow-artifacts:/2/100% of it"},
	} {
		res, err := resolve(t, c, "models:/proxied/"+version)
		if want.class == nil {
			require.NoError(t, err)
			require.Equal(t, want.words, res.Location.String())
			again, err := registry.ParseLocation(res.Location.String())
			require.NoError(t, err)
			require.Equal(t, res.Location, again)
			continue
		}
		require.ErrorIs(t, err, want.class)
		require.ErrorContains(t, err, want.words)
		require.NotContains(t, err.Error(), "hunter2")
	}
	res, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: url, Workspace: "team"}), "models:/proxied/1")
	require.NoError(t, err)
	require.Equal(t, "mlflow-artifacts:/workspaces/team/2/m", res.Location.String(), "workspaces are told apart")
}

// A location may name any host: it is not asked, with credentials or without.
func TestArtifactAuthorityGetsNoRequest(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	host := strings.TrimPrefix(elsewhere.URL, "http://")
	server, url := newRegistry(t, fake.Options{})
	_, err := server.CreateVersion("proxied", "mlflow-artifacts://"+host+"/1/m")
	require.NoError(t, err)
	for _, artifactMap := range [][]string{nil, {"mlflow-artifacts:/=s3://bucket/a"}} {
		_, err = resolve(t, newClient(t, mlflow.Config{TrackingURI: url, Token: "tok", ArtifactMap: artifactMap}), "models:/proxied/1")
		require.ErrorIs(t, err, registry.ErrUnsupported, "a map of our server is none of another")
	}
	require.Zero(t, asked.Load())
}

// Nor does a redirect carry a write, or its credentials, to another host.
func TestRedirectOfAWriteStaysAtItsOrigin(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		_, url := newRegistry(t, fake.Options{Token: "tok", Intercept: func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				http.Redirect(w, r, other.URL+r.URL.Path, status)
				return true
			}
			return false
		}})
		_, err := newClient(t, mlflow.Config{TrackingURI: url, Token: "tok"}).Move(t.Context(), championRef(t), promote("2", "1"))
		require.ErrorIs(t, err, registry.ErrDenied)
		require.ErrorContains(t, err, "redirect to another host")
	}
	require.Zero(t, asked.Load())
}

// A 302 within the origin would turn the write into a read, which succeeds.
func TestRedirectThatTurnsAWriteIntoAReadIsRefused(t *testing.T) {
	for status, ok := range map[int]bool{http.StatusFound: false, http.StatusTemporaryRedirect: true} {
		_, url := newRegistry(t, fake.Options{PathPrefix: "/new", Intercept: func(w http.ResponseWriter, r *http.Request) bool {
			rest, old := strings.CutPrefix(r.URL.RequestURI(), "/old")
			if old {
				http.Redirect(w, r, "/new"+rest, status) //nolint:gosec // the redirect of this test
			}
			return old
		}})
		_, err := newClient(t, mlflow.Config{TrackingURI: strings.TrimSuffix(url, "/new") + "/old"}).Move(t.Context(), championRef(t), promote("2", "1"))
		if ok {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, registry.ErrDenied)
		require.ErrorContains(t, err, "turns a write into a read")
	}
}
