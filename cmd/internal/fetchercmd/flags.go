package fetchercmd

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

// Variables by which a pod tells what concerns itself (the downward API).
const (
	pinVariable = "PILOTLIGHT_MODEL_VERSION" // metadata.annotations['pilotlight.dev/model-version']
	uidVariable = "POD_UID"                  // metadata.uid
)

// runFlags are the flags that both commands have.
type runFlags struct {
	model, root, endpoint, subPath string
	addressing, customerKeyFile    string
	requesterPays                  bool
	include, exclude               []string
	verify                         string
	allow                          []string
	transfer                       transferFlags
	deadline                       time.Duration
	anyLayout, offline, adopt      bool
	pin                            string
	keep                           int
	keepFor                        time.Duration
	link, reader                   string
	readOnly                       bool
	logFormat, termination         string
}

const refHelp = `REF is models:/name@alias (or name@alias), models:/name/7, models:/name/latest,
models:/m-<id>, pointer+s3://bucket/key (made by pilotlight pointer init),
s3://bucket/prefix or r2://bucket@account.r2.cloudflarestorage.com/prefix.

The registry is named by MLFLOW_TRACKING_URI (and MLFLOW_REGISTRY_URI), its
credentials by MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN. The store's
credentials come from the AWS default chain, its endpoint from --s3-endpoint,
MLFLOW_S3_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.`

const pathHelp = `Whatever the layout of the version (a Hugging Face folder, or what MLflow writes
with its transformers or pyfunc flavor), an engine is started with a constant path:

  vllm serve DIR/current/` + fetcher.ModelLink + ` --tokenizer DIR/current/` + fetcher.TokenizerLink + `

or, in pods that share DIR or whose agent follows the pointer, below --link, which
one pod's engine loads from and which no publication moves.`

func (a *app) addRunFlags(cmd *cobra.Command, deadlineHelp string) {
	f := cmd.Flags()
	f.StringVar(&a.flags.model, "model", "", "reference of the model (required)")
	f.StringVar(&a.flags.root, "root", "", "folder to publish in (required); it serves one reference")
	f.BoolVar(&a.flags.adopt, "adopt-root", false, "let a root that served another reference serve this one from now on")
	f.StringVar(&a.flags.endpoint, "s3-endpoint", "", "URL of the object store, without a bucket")
	f.StringVar(&a.flags.addressing, "s3-addressing", "", "where the bucket is named: path, virtual (in the host's name) or auto, path for an endpoint that is given (default $MLFLOW_BOTO_CLIENT_ADDRESSING_STYLE, else auto)")
	f.BoolVar(&a.flags.requesterPays, "s3-requester-pays", false, "agree to pay for requests and transfer; so does $PILOTLIGHT_S3_REQUESTER_PAYS=true")
	f.StringVar(&a.flags.customerKeyFile, "sse-c-key-file", "", "file with the key of objects encrypted with a customer's key, 32 bytes or their base64 (default the base64 in $PILOTLIGHT_SSE_C_KEY)")
	f.StringVar(&a.flags.subPath, "sub-path", "", "fetch only this folder of the version, begin paths there, and take it for the model")
	f.StringArrayVar(&a.flags.include, "include", nil, "glob of files to fetch, such as *.safetensors or original/**; may be repeated (default all)")
	f.StringArrayVar(&a.flags.exclude, "exclude", nil, "glob of files to leave out; may be repeated, and beats --include")
	f.StringVar(&a.flags.verify, "verify", string(fetcher.VerifyAuto), "what a version on disk must prove before it is used again: size, full (read everything), or auto (read what was written to since)")
	f.BoolVar(&a.flags.anyLayout, "any-layout", false, "publish a version in which no model is found (an adapter, a data set)")
	f.StringArrayVar(&a.flags.allow, "allow-location", nil, "s3://bucket/prefix that the reference may resolve to, or mlflow-artifacts:/path behind the tracking server; may be repeated (default any)")
	a.flags.transfer.add(cmd)
	f.DurationVar(&a.flags.deadline, "deadline", fetcher.DefaultDeadline, deadlineHelp)
	f.StringVar(&a.flags.pin, "version-pin", a.getenv(pinVariable), "version that this pod serves whatever the reference means: a number, or a place for an s3:// reference (default $"+pinVariable+")")
	f.BoolVar(&a.flags.offline, "offline", false, "take a version that is on disk without listing the store; one that is not is exit 7")
	f.IntVar(&a.flags.keep, "keep", fetcher.DefaultKeep, "latest versions to keep, the current one included")
	f.DurationVar(&a.flags.keepFor, "keep-for", fetcher.DefaultKeepFor, "how long a version is kept after another took its place")
	f.StringVar(&a.flags.link, "link", "", "the pod's own link to the version that its engine loads, on a volume of the pod; set once, never moved")
	f.StringVar(&a.flags.reader, "reader", a.getenv(uidVariable), "name under which this pod holds its version in the root (default $"+uidVariable+", else the host's name)")
	f.BoolVar(&a.flags.readOnly, "read-only", false, "publish nothing: wait for a writer, then set --link")
	f.StringVar(&a.flags.logFormat, "log-format", "auto", "auto, text or json; auto is text on a terminal")
	f.StringVar(&a.flags.termination, "termination-message", "", `file for {"code","reason","ref"} of a failure (default /dev/termination-log if it exists)`)
	// The value of a variable is no default to show: it may be another pod's.
	for _, name := range []string{"version-pin", "reader"} {
		f.Lookup(name).DefValue = ""
	}
}

func (a *app) setLogger(tty bool, bar *progress) error {
	level := &slog.HandlerOptions{Level: slog.LevelInfo}
	format := a.flags.logFormat
	if format == "auto" {
		format = map[bool]string{true: "text", false: "json"}[tty]
	}
	switch format {
	case "text":
		a.log = slog.New(slog.NewTextHandler(bar, level))
	case "json":
		a.log, a.json = slog.New(slog.NewJSONHandler(bar, level)), true
	default:
		return fmt.Errorf("%w: --log-format %q: want auto, text or json", fetcher.ErrUsage, a.flags.logFormat)
	}
	return nil
}
