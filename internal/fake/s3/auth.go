package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	sigAlgorithm = "AWS4-HMAC-SHA256"
	sigTime      = "20060102T150405Z"
	maxSkew      = 15 * time.Minute // AWS's own limit
)

// authenticate verifies an Authorization header of AWS Signature Version 4.
func (s *Server) authenticate(r *http.Request) *apiError {
	if len(s.opts.Credentials) == 0 {
		return nil
	}
	sig, ok := parseAuthorization(r.Header.Get("Authorization"))
	if !ok {
		return errorf(http.StatusForbidden, "AccessDenied", "Access Denied: the request is not signed in its Authorization header")
	}
	secret, ok := s.opts.Credentials[sig.keyID]
	if !ok {
		return errorf(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
	}
	date := r.Header.Get("X-Amz-Date")
	at, err := time.Parse(sigTime, date)
	if err != nil {
		return errorf(http.StatusForbidden, "AccessDenied", "AWS authentication requires a valid x-amz-date header")
	}
	if skew := s.opts.Now().Sub(at); skew > maxSkew || skew < -maxSkew {
		return errorf(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	}
	if !slices.Contains(sig.signedHeaders, "host") || !strings.HasPrefix(date, sig.day) {
		return errorf(http.StatusBadRequest, "AuthorizationHeaderMalformed", "The authorization header is malformed")
	}
	if s.opts.Google && slices.Contains(sig.signedHeaders, "accept-encoding") {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "Access denied.")
	}
	hashed := sha256.Sum256([]byte(canonicalRequest(r, sig.signedHeaders)))
	toSign := strings.Join([]string{sigAlgorithm, date, sig.scope(), hex.EncodeToString(hashed[:])}, "\n")
	want := hex.EncodeToString(mac(signingKey(secret, sig), toSign))
	if !hmac.Equal([]byte(want), []byte(sig.signature)) {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	return nil
}

type signature struct {
	keyID, day, region, service string
	signedHeaders               []string
	signature                   string
}

func (s signature) scope() string {
	return strings.Join([]string{s.day, s.region, s.service, "aws4_request"}, "/")
}

func parseAuthorization(header string) (signature, bool) {
	rest, ok := strings.CutPrefix(header, sigAlgorithm)
	if !ok {
		return signature{}, false
	}
	var sig signature
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential":
			parts := strings.Split(value, "/")
			if len(parts) < 5 {
				return signature{}, false
			}
			n := len(parts) // a key id may itself contain slashes
			sig.keyID = strings.Join(parts[:n-4], "/")
			sig.day, sig.region, sig.service = parts[n-4], parts[n-3], parts[n-2]
		case "SignedHeaders":
			sig.signedHeaders = strings.Split(value, ";")
		case "Signature":
			sig.signature = value
		}
	}
	return sig, sig.keyID != "" && sig.service == "s3" && len(sig.signedHeaders) > 0 && sig.signature != ""
}

func signingKey(secret string, sig signature) []byte {
	key := mac([]byte("AWS4"+secret), sig.day)
	for _, part := range []string{sig.region, sig.service, "aws4_request"} {
		key = mac(key, part)
	}
	return key
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // a hash never fails
	return h.Sum(nil)
}

// canonicalRequest is the text that was signed. The path is the decoded one,
// encoded once by AWS's rules, so that "a%2Bb" and "a+b" are what they say.
func canonicalRequest(r *http.Request, signed []string) string {
	var headers strings.Builder
	for _, name := range signed {
		headers.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	return strings.Join([]string{
		r.Method,
		awsEscape(r.URL.Path, true),
		canonicalQuery(r.URL.RawQuery),
		headers.String(),
		strings.Join(signed, ";"),
		r.Header.Get("X-Amz-Content-Sha256"),
	}, "\n")
}

func headerValue(r *http.Request, name string) string {
	switch {
	case name == "host":
		return r.Host
	case name == "content-length" && r.Header.Get("Content-Length") == "":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	var values []string
	for _, v := range r.Header.Values(name) {
		values = append(values, strings.Join(strings.Fields(v), " "))
	}
	return strings.Join(values, ",")
}

func canonicalQuery(raw string) string {
	if raw == "" {
		return ""
	}
	var pairs [][2]string
	for part := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(part, "=")
		pairs = append(pairs, [2]string{reescape(name), reescape(value)})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int {
		if c := strings.Compare(a[0], b[0]); c != 0 {
			return c
		}
		return strings.Compare(a[1], b[1])
	})
	out := make([]string, len(pairs))
	for i, p := range pairs {
		out[i] = p[0] + "=" + p[1]
	}
	return strings.Join(out, "&")
}

func reescape(s string) string {
	plain, err := url.QueryUnescape(s)
	if err != nil {
		return s
	}
	return awsEscape(plain, false)
}

// awsEscape percent-encodes everything but the unreserved characters of
// RFC 3986, byte by byte; a path keeps its slashes.
func awsEscape(s string, isPath bool) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if alnum || c == '-' || c == '.' || c == '_' || c == '~' || isPath && c == '/' {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
	}
	return b.String()
}
