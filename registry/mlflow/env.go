package mlflow

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// ConfigFromEnv reads the variables that MLflow's own client reads, and means
// the same by them:
//
//	MLFLOW_TRACKING_URI, MLFLOW_REGISTRY_URI
//	MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, else ~/.mlflow/credentials
//	MLFLOW_TRACKING_TOKEN (Basic beats it)
//	MLFLOW_TRACKING_AWS_SIGV4 (beats both), AWS_REGION, AWS_DEFAULT_REGION
//	MLFLOW_TRACKING_INSECURE_TLS, MLFLOW_TRACKING_SERVER_CERT_PATH,
//	MLFLOW_TRACKING_CLIENT_CERT_PATH
//	MLFLOW_WORKSPACE
//	MLFLOW_HTTP_REQUEST_TIMEOUT (seconds), MLFLOW_HTTP_REQUEST_MAX_RETRIES
//	AWS_CA_BUNDLE, MLFLOW_S3_IGNORE_TLS (of the stores that presigned URLs name)
//
// and one of ours, PILOTLIGHT_ARTIFACT_MAP: Config.ArtifactMap, separated by
// commas. MLFLOW_TRACKING_AUTH names a Python plugin, which cannot be run here:
// it is refused where nothing else authenticates. Errors wrap ErrConfig; a
// missing TrackingURI is found by New.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	cfg := Config{
		TrackingURI:    getenv("MLFLOW_TRACKING_URI"),
		RegistryURI:    getenv("MLFLOW_REGISTRY_URI"),
		Username:       getenv("MLFLOW_TRACKING_USERNAME"),
		Password:       Secret(getenv("MLFLOW_TRACKING_PASSWORD")),
		Token:          Secret(getenv("MLFLOW_TRACKING_TOKEN")),
		ServerCertPath: getenv("MLFLOW_TRACKING_SERVER_CERT_PATH"),
		ClientCertPath: getenv("MLFLOW_TRACKING_CLIENT_CERT_PATH"),
		Workspace:      getenv("MLFLOW_WORKSPACE"),
		AWSRegion:      getenv("AWS_REGION"),
		StoreCertPath:  getenv("AWS_CA_BUNDLE"),
	}
	if cfg.AWSRegion == "" {
		cfg.AWSRegion = getenv("AWS_DEFAULT_REGION")
	}
	if home := getenv("HOME"); home != "" {
		cfg.CredentialsFile = filepath.Join(home, ".mlflow", "credentials")
	}
	for one := range strings.SplitSeq(getenv("PILOTLIGHT_ARTIFACT_MAP"), ",") {
		if one = strings.TrimSpace(one); one != "" {
			cfg.ArtifactMap = append(cfg.ArtifactMap, one)
		}
	}
	if err := cfg.readSwitches(getenv); err != nil {
		return Config{}, err
	}
	if cfg.SigV4 { // the chain that signs reads them itself
		for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
			if err := sendable(name, getenv(name)); err != nil {
				return Config{}, err
			}
		}
	}
	if plugin := getenv("MLFLOW_TRACKING_AUTH"); plugin != "" && cfg.Username == "" && cfg.Token == "" && !cfg.SigV4 {
		return Config{}, fmt.Errorf("%w: MLFLOW_TRACKING_AUTH=%q names a Python plugin, which cannot be run here: give MLFLOW_TRACKING_TOKEN, a user and password, or MLFLOW_TRACKING_AWS_SIGV4=true", ErrConfig, excerpt(plugin))
	}
	return cfg, nil
}

// checkSendable refuses credentials that no header can carry: the transport
// would, and it would look like a server that cannot be reached.
func (cfg *Config) checkSendable() error {
	for _, v := range []struct{ name, value string }{
		{"MLFLOW_TRACKING_USERNAME", cfg.Username},
		{"MLFLOW_TRACKING_PASSWORD", string(cfg.Password)},
		{"MLFLOW_TRACKING_TOKEN", string(cfg.Token)},
		{"MLFLOW_WORKSPACE", cfg.Workspace},
	} {
		if err := sendable(v.name, v.value); err != nil {
			return err
		}
	}
	return nil
}

// sendable refuses a value with a control character, without showing it.
func sendable(variable, value string) error {
	at := strings.IndexFunc(value, unicode.IsControl)
	if at < 0 {
		return nil
	}
	where := "in it"
	if strings.TrimRightFunc(value, unicode.IsControl) == value[:at] {
		where = "at its end: was it made from a file with a newline?"
	}
	return fmt.Errorf("%w: %s has a control character %s (its value is not shown)", ErrConfig, variable, where)
}

// readSwitches reads the variables that are not text.
func (cfg *Config) readSwitches(getenv func(string) string) error {
	for name, into := range map[string]*bool{
		"MLFLOW_TRACKING_INSECURE_TLS": &cfg.InsecureTLS, "MLFLOW_TRACKING_AWS_SIGV4": &cfg.SigV4,
		"MLFLOW_S3_IGNORE_TLS": &cfg.StoreInsecureTLS,
	} {
		v := getenv(name)
		if v == "" {
			continue
		}
		on, err := strconv.ParseBool(strings.ToLower(v))
		if err != nil {
			return fmt.Errorf("%w: %s=%q: want true or false", ErrConfig, name, v)
		}
		*into = on
	}
	if v := getenv("MLFLOW_HTTP_REQUEST_TIMEOUT"); v != "" {
		seconds, err := strconv.Atoi(v)
		if err != nil || seconds <= 0 || seconds > 3600 {
			return fmt.Errorf("%w: MLFLOW_HTTP_REQUEST_TIMEOUT=%q: want 1 to 3600 seconds", ErrConfig, v)
		}
		cfg.Timeout = time.Duration(seconds) * time.Second
	}
	if v := getenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES"); v != "" {
		retries, err := strconv.Atoi(v)
		if err != nil || retries < 0 || retries > 20 {
			return fmt.Errorf("%w: MLFLOW_HTTP_REQUEST_MAX_RETRIES=%q: want 0 to 20", ErrConfig, v)
		}
		cfg.Attempts = retries + 1
	}
	return nil
}
