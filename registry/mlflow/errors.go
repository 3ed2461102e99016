package mlflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// apiError is MLflow's JSON error, or the beginning of another body.
type apiError struct {
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

// MLflow's error codes that mean something here.
const (
	codeNotExist = "RESOURCE_DOES_NOT_EXIST"
	codeInvalid  = "INVALID_PARAMETER_VALUE"
	codeDisabled = "FEATURE_DISABLED"
	codeConflict = "RESOURCE_CONFLICT"
	codeBad      = "BAD_REQUEST"
)

// errInvalid marks a request that MLflow calls invalid (400).
var errInvalid = errors.New("it calls the request invalid")

// errLogin is a page for a browser where an answer should be.
var errLogin = fmt.Errorf("%w: it answers with a web page, most likely a login: give MLFLOW_TRACKING_TOKEN, or the address behind the login", registry.ErrDenied)

const hostHint = `start the server with --allowed-hosts (or MLFLOW_SERVER_ALLOWED_HOSTS) naming this host and port`

// classify turns an answer that is not a success into an error of package
// registry. body is what was read of it; retryable says that the same request
// may succeed later.
func classify(status int, contentType string, body []byte) (err error, retryable bool) {
	var api apiError
	isJSON := json.Unmarshal(body, &api) == nil && api.Code != ""
	text := excerpt(api.Message)
	if !isJSON {
		text = excerpt(string(body))
	}
	switch {
	case !isJSON && status == http.StatusForbidden && strings.Contains(text, "Invalid Host header"):
		return fmt.Errorf("%w: it rejects this Host header: %s", registry.ErrDenied, hostHint), false
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w (401): set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN%s", registry.ErrDenied, said(text, contentType)), false
	case status == http.StatusForbidden:
		return fmt.Errorf("%w (403): the user may not do this with the model%s", registry.ErrDenied, said(text, contentType)), false
	case !isJSON && status == http.StatusServiceUnavailable && strings.Contains(text, "serve-artifacts"):
		return fmt.Errorf("%w: the server keeps no artifacts of its own (--no-serve-artifacts): register versions with their s3:// source", registry.ErrUnsupported), false
	case isJSON && (status == http.StatusConflict || api.Code == codeConflict):
		return fmt.Errorf("%w: %s", registry.ErrConflict, text), false
	case isJSON && api.Code == codeDisabled:
		return fmt.Errorf("%w: %s: unset MLFLOW_WORKSPACE for a server without workspaces", registry.ErrDenied, text), false
	case isJSON && status == http.StatusNotFound && api.Code == codeNotExist:
		return fmt.Errorf("%w: %s", registry.ErrNotFound, text), false
	case isJSON && status == http.StatusBadRequest && api.Code == codeInvalid && isMissingAlias(api.Message):
		return fmt.Errorf("%w: %s", registry.ErrNotFound, text), false
	case isJSON && status == http.StatusBadRequest && isRace(api):
		return fmt.Errorf("%w: another writer was there first: %s", registry.ErrConflict, text), true
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: it answers 404 but not as an MLflow server: check the path of MLFLOW_TRACKING_URI%s", registry.ErrUnreachable, said(text, contentType)), false
	case isJSON && status == http.StatusBadRequest:
		return fmt.Errorf("%w: %w: %s", registry.ErrBroken, errInvalid, text), false
	default:
		return fmt.Errorf("%w: it answers %d%s", registry.ErrUnreachable, status, said(text, contentType)), passing(status)
	}
}

// isMissingAlias recognises MLflow's 400 "Registered model alias X not found."
func isMissingAlias(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "alias") && strings.Contains(m, "not found")
}

// isRace recognises two writers that made the same row at once, the first tag or
// alias of a model: MLflow looks, inserts, and passes on its database's refusal.
// The same write, repeated, finds the row and changes it.
func isRace(api apiError) bool {
	return api.Code == codeBad && (strings.Contains(api.Message, "IntegrityError") || strings.Contains(api.Message, "UniqueViolation"))
}

// passing lists the statuses that MLflow's own client repeats.
func passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// said quotes what a server wrote, unless it is a page for a browser.
func said(text, contentType string) string {
	if text == "" || isHTML(contentType, text) {
		return ""
	}
	return fmt.Sprintf(" (it says: %s)", text)
}

func isHTML(contentType, text string) bool {
	return strings.Contains(contentType, "html") || strings.HasPrefix(strings.TrimSpace(text), "<")
}

// excerpt makes foreign text fit for one log line.
func excerpt(s string) string {
	const limit = 240
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.TrimSpace(s)
}

// errRedirect marks a redirect that would carry the request to another origin,
// or make another one of it.
var errRedirect = errors.New("redirect")

// sameOriginOnly follows redirects that stay on the host, at most five, and
// never from https to http. A login in front of the server redirects to its
// own host: following it would hand it our credentials or get us an HTML page.
func sameOriginOnly(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	switch {
	case len(via) > 5:
		return fmt.Errorf("%w, the sixth in a row", errRedirect)
	case req.URL.Host != from.Host, from.Scheme == "https" && req.URL.Scheme != "https":
		return fmt.Errorf("%w to another host: %s", errRedirect, req.URL.Scheme+"://"+req.URL.Host)
	case req.Method != via[0].Method:
		return fmt.Errorf("%w to %s, which turns a write into a read", errRedirect, req.URL.Scheme+"://"+req.URL.Host+req.URL.Path)
	}
	return nil
}

// transportError describes a request that got no answer. The URL is left out:
// its place is named by the caller, without the query.
func transportError(err error) error {
	if errors.Is(err, errRedirect) {
		return fmt.Errorf("%w: it answers with a %w; credentials go to the tracking server only: set MLFLOW_TRACKING_URI to the final address, or give a token that the login accepts", registry.ErrDenied, unwrapURL(err))
	}
	return fmt.Errorf("%w: %w", registry.ErrUnreachable, unwrapURL(err))
}

func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
