package registry

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Schemes of a Location.
const (
	SchemeS3 = "s3"
	SchemeR2 = "r2"
	// SchemeArtifacts is that of places behind a tracking server's artifact
	// proxy. The server is not named: it is the one that is configured.
	SchemeArtifacts = "mlflow-artifacts"
)

// r2HostSuffix ends every R2 endpoint; another host could be anybody's and
// would be sent signed requests.
const r2HostSuffix = ".r2.cloudflarestorage.com"

// Location is a prefix in a bucket, or a folder behind an artifact proxy. It is
// comparable.
type Location struct {
	Scheme string // SchemeS3, SchemeR2 or SchemeArtifacts
	Bucket string // empty behind a proxy
	// Prefix has no trailing slash; empty means the whole bucket, or all that is
	// behind the proxy.
	Prefix string
	// Endpoint is the URL that the location itself names (R2), else empty.
	Endpoint string
}

// ParseLocation reads s3://bucket/prefix,
// r2://bucket@account.r2.cloudflarestorage.com/prefix or mlflow-artifacts:/path.
// The text is taken literally: nothing is percent-decoded. Errors wrap ErrSyntax
// or ErrUnsupported.
func ParseLocation(uri string) (Location, error) {
	if scheme, path, ok := strings.Cut(uri, ":"); ok && strings.EqualFold(scheme, SchemeArtifacts) {
		return parseArtifacts(uri, path)
	}
	return ParseStored(uri)
}

// parseArtifacts reads what follows mlflow-artifacts:. A path that begins with
// three slashes is one whose server is left out.
func parseArtifacts(uri, path string) (Location, error) {
	if err := checkText(uri); err != nil {
		return Location{}, err
	}
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///") {
		return Location{}, fmt.Errorf("%w: want %s:/path, without a server", ErrSyntax, SchemeArtifacts)
	}
	loc := Location{Scheme: SchemeArtifacts, Prefix: strings.Trim(path, "/")}
	for segment := range strings.SplitSeq(loc.Prefix, "/") {
		if segment == "." || segment == ".." || segment == "" && loc.Prefix != "" {
			return Location{}, fmt.Errorf("%w: the path of %q contains the segment %q", ErrSyntax, short(uri), segment)
		}
	}
	return loc, nil
}

// ParseStored is ParseLocation for places in an object store only, s3:// and
// r2://.
func ParseStored(uri string) (Location, error) {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return Location{}, fmt.Errorf("%w: location %q has no scheme: want s3://bucket/prefix", ErrUnsupported, short(uri))
	}
	if err := checkText(uri); err != nil {
		return Location{}, err
	}
	authority, prefix, _ := strings.Cut(rest, "/")
	loc := Location{Scheme: strings.ToLower(scheme), Bucket: authority, Prefix: strings.TrimRight(prefix, "/")}
	switch loc.Scheme {
	case SchemeS3:
		if strings.Contains(authority, "@") { // not quoted: it may be a password
			return Location{}, fmt.Errorf("%w: an s3:// location holds no user or password: want s3://bucket/prefix", ErrSyntax)
		}
	case SchemeR2:
		bucket, host, ok := strings.Cut(authority, "@")
		if !ok || !validR2Host(host) {
			return Location{}, fmt.Errorf("%w: want r2://bucket@account%s/prefix", ErrSyntax, r2HostSuffix)
		}
		loc.Bucket, loc.Endpoint = bucket, "https://"+strings.ToLower(host)
	default:
		return Location{}, fmt.Errorf("%w: locations of scheme %q cannot be read, only s3:// and r2://", ErrUnsupported, short(scheme))
	}
	if !validBucket(loc.Bucket) {
		return Location{}, fmt.Errorf("%w: %q is not a bucket name", ErrSyntax, short(loc.Bucket))
	}
	for segment := range strings.SplitSeq(loc.Prefix, "/") {
		if segment == "." || segment == ".." {
			return Location{}, fmt.Errorf("%w: the prefix of %q contains the segment %q", ErrSyntax, short(uri), segment)
		}
	}
	return loc, nil
}

// String writes the location as ParseLocation reads it.
func (l Location) String() string {
	if l == (Location{}) {
		return ""
	}
	if l.Scheme == SchemeArtifacts {
		return SchemeArtifacts + ":/" + l.Prefix
	}
	authority := l.Bucket
	if l.Scheme == SchemeR2 {
		authority += "@" + strings.TrimPrefix(l.Endpoint, "https://")
	}
	s := l.Scheme + "://" + authority
	if l.Prefix != "" {
		s += "/" + l.Prefix
	}
	return s
}

// Within reports whether the location is the given one or below it. Names are
// compared in whole segments: s3://b/models holds s3://b/models/x, but not
// s3://b/models-of-others.
func (l Location) Within(outer Location) bool {
	if l.Scheme != outer.Scheme || l.Bucket != outer.Bucket || l.Endpoint != outer.Endpoint {
		return false
	}
	return outer.Prefix == "" || l.Prefix == outer.Prefix || strings.HasPrefix(l.Prefix, outer.Prefix+"/")
}

// validBucket accepts what S3 or one of its many servers may call a bucket.
func validBucket(name string) bool {
	if len(name) < 3 || len(name) > 255 || strings.Contains(name, "..") {
		return false
	}
	for i, c := range []byte(name) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		inner := c == '.' || c == '-' || c == '_'
		if !alnum && (!inner || i == 0 || i == len(name)-1) {
			return false
		}
	}
	return true
}

// validR2Host accepts <account>[.<jurisdiction>].r2.cloudflarestorage.com and
// nothing else: no port, no user, no other domain.
func validR2Host(host string) bool {
	account, ok := strings.CutSuffix(strings.ToLower(host), r2HostSuffix)
	if !ok || account == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(account, ".") {
		if label == "" {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

// checkText refuses text that no reference contains and that would garble a
// log line or a path: control characters and invalid UTF-8.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w: it is not valid UTF-8", ErrSyntax)
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return fmt.Errorf("%w: it contains a control character", ErrSyntax)
		}
	}
	return nil
}

// short bounds text of others that goes into an error.
func short(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
