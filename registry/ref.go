package registry

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind says what a Ref names.
type Kind string

// The kinds of reference.
const (
	KindAlias       Kind = "alias"        // models:/name@alias: a pointer that moves
	KindVersion     Kind = "version"      // models:/name/7
	KindLatest      Kind = "latest"       // models:/name/latest: the highest version
	KindStage       Kind = "stage"        // models:/name/Production (deprecated in MLflow)
	KindLoggedModel Kind = "logged-model" // models:/m-<32 hex>
	KindObject      Kind = "object"       // s3://bucket/prefix, r2://...: a fixed place
	KindPointer     Kind = "pointer"      // pointer+s3://bucket/key: a pointer object
)

// Ref is a reference to a model as a user writes it. It is comparable; build
// one with ParseRef.
type Ref struct {
	Kind Kind
	// Name is the registered model, or the id of a logged model.
	Name string
	// Selector is the alias, the version number or the stage.
	Selector string
	// Location is the place of KindObject, and of KindPointer the object that
	// holds the pointer.
	Location Location
}

const (
	modelsScheme  = "models:/"
	pointerPrefix = "pointer+"
	maxRefLength  = 2048 // bytes; S3 keys end at 1024, MLflow names at 256
)

// ParseRef reads a reference with MLflow's own rules: the alias follows the
// last @, a suffix of digits is a version, "latest" in any case is the highest
// version, any other suffix is a stage, and nothing is percent-decoded. Errors
// wrap ErrSyntax, or ErrUnsupported for the forms that are understood but
// cannot be followed (Databricks profiles, Unity Catalog names).
func ParseRef(text string) (Ref, error) {
	if len(text) > maxRefLength {
		return Ref{}, fmt.Errorf("%w: longer than %d bytes", ErrSyntax, maxRefLength)
	}
	if err := checkText(text); err != nil {
		return Ref{}, err
	}
	switch {
	case strings.HasPrefix(text, "models://"):
		return Ref{}, fmt.Errorf("%w: %q names a registry in the reference (as Databricks profiles do): set MLFLOW_REGISTRY_URI and use models:/name@alias", ErrUnsupported, short(text))
	case strings.HasPrefix(text, modelsScheme):
		return parseModels(text)
	case strings.HasPrefix(text, pointerPrefix):
		return parsePointer(text)
	case strings.Contains(text, "://"):
		loc, err := ParseStored(text)
		if err != nil {
			return Ref{}, err
		}
		return Ref{Kind: KindObject, Location: loc}, nil
	default:
		return Ref{}, fmt.Errorf("%w: %q: want models:/name@alias, models:/name/7, s3://bucket/prefix or r2://bucket@account%s/prefix", ErrSyntax, short(text), r2HostSuffix)
	}
}

// ParseModel is ParseRef for command lines: it also accepts the short forms
// llama@champion and llama/7, without the scheme.
func ParseModel(text string) (Ref, error) {
	if !strings.Contains(text, ":") && strings.ContainsAny(text, "@/") && !strings.HasPrefix(text, "/") {
		return ParseRef(modelsScheme + text)
	}
	return ParseRef(text)
}

func parsePointer(text string) (Ref, error) {
	loc, err := ParseStored(strings.TrimPrefix(text, pointerPrefix))
	if err != nil {
		return Ref{}, err
	}
	if loc.Scheme != SchemeS3 || loc.Prefix == "" || strings.HasSuffix(text, "/") {
		return Ref{}, fmt.Errorf("%w: %q: want pointer+s3://bucket/key", ErrSyntax, short(text))
	}
	return Ref{Kind: KindPointer, Location: loc}, nil
}

func parseModels(text string) (Ref, error) {
	body := strings.TrimPrefix(text, modelsScheme)
	if strings.ContainsAny(body, "?#") {
		return Ref{}, fmt.Errorf("%w: %q: a model reference has no query", ErrSyntax, short(text))
	}
	name, suffix, hasSuffix := strings.Cut(body, "/")
	if strings.Contains(suffix, "/") {
		return Ref{}, fmt.Errorf("%w: %q names a folder inside the version: use --sub-path for it", ErrUnsupported, short(text))
	}
	if hasSuffix {
		return modelWithSuffix(text, name, suffix)
	}
	if at := strings.LastIndexByte(body, '@'); at >= 0 {
		name, alias := body[:at], body[at+1:]
		if err := checkName(text, name); err != nil {
			return Ref{}, err
		}
		if !validAlias(alias) {
			return Ref{}, fmt.Errorf("%w: %q: an alias is 1 to 255 letters, digits, _ or -", ErrSyntax, short(text))
		}
		return Ref{Kind: KindAlias, Name: name, Selector: alias}, nil
	}
	if isLoggedModelID(body) {
		return Ref{Kind: KindLoggedModel, Name: body}, nil
	}
	return Ref{}, fmt.Errorf("%w: %q names no version: add @alias or /version", ErrSyntax, short(text))
}

func modelWithSuffix(text, name, suffix string) (Ref, error) {
	if err := checkName(text, name); err != nil {
		return Ref{}, err
	}
	switch {
	case suffix == "":
		return Ref{}, fmt.Errorf("%w: %q ends with a slash: add a version", ErrSyntax, short(text))
	case strings.Contains(suffix, "@"):
		return Ref{}, fmt.Errorf("%w: %q gives both a version and an alias", ErrSyntax, short(text))
	case isDigits(suffix):
		return Ref{Kind: KindVersion, Name: name, Selector: suffix}, nil
	case strings.EqualFold(suffix, "latest"):
		return Ref{Kind: KindLatest, Name: name}, nil
	case strings.Contains(name, "@"): // models:/name@alias/folder, in MLflow's downloads
		return Ref{}, fmt.Errorf("%w: %q names a folder inside the version: use --sub-path for it", ErrUnsupported, short(text))
	default:
		return Ref{Kind: KindStage, Name: name, Selector: suffix}, nil
	}
}

// checkName applies MLflow's rule (no slash, no colon) and recognises the
// three-part names of Unity Catalog. A dot alone is legal: llama-3.1.
func checkName(text, name string) error {
	switch {
	case name == "" || strings.TrimSpace(name) != name || utf8.RuneCountInString(name) > 256 || strings.Contains(name, ":"):
		return fmt.Errorf("%w: %q: a model name has 1 to 256 characters, without slash and colon", ErrSyntax, short(text))
	case isCatalogName(name):
		return fmt.Errorf("%w: %q is a Unity Catalog name (catalog.schema.model), which needs Databricks' own API", ErrUnsupported, short(text))
	}
	return nil
}

// isCatalogName recognises catalog.schema.model. Parts that begin with a digit
// are version numbers of ordinary names (qwen-2.5.1) rather than schemas.
func isCatalogName(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return false
	}
	for _, p := range parts {
		if p == "" || p[0] >= '0' && p[0] <= '9' {
			return false
		}
	}
	return true
}

// String writes the reference as ParseRef reads it.
func (r Ref) String() string {
	switch r.Kind {
	case KindAlias:
		return modelsScheme + r.Name + "@" + r.Selector
	case KindVersion, KindStage:
		return modelsScheme + r.Name + "/" + r.Selector
	case KindLatest:
		return modelsScheme + r.Name + "/latest"
	case KindLoggedModel:
		return modelsScheme + r.Name
	case KindPointer:
		return pointerPrefix + r.Location.String()
	default:
		return r.Location.String()
	}
}

// validAlias applies MLflow's pattern [\w-]+, whose \w is Unicode's: all
// letters, and all that counts as a number. MLflow counts characters, not bytes.
func validAlias(s string) bool {
	if s == "" || utf8.RuneCountInString(s) > 255 {
		return false
	}
	for _, c := range s {
		if !unicode.IsLetter(c) && !unicode.IsNumber(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// isLoggedModelID recognises m- and 32 hexadecimal digits.
func isLoggedModelID(s string) bool {
	id, ok := strings.CutPrefix(s, "m-")
	if !ok || len(id) != 32 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}
