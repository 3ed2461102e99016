// Package mlflow keeps model pointers in an MLflow tracking server's registry: it
// asks what a reference means, and reads and moves aliases.
//
// It speaks the small part of MLflow's REST API that this takes, with plain
// structs and encoding/json:
//
//	alias            GET, POST registered-models/alias
//	version          GET model-versions/get
//	versions         GET model-versions/search
//	latest, stage    GET registered-models/get-latest-versions
//	where it lies    GET model-versions/get-download-uri
//	record of moves  GET registered-models/get, POST registered-models/set-tag
//	logged model     GET logged-models/{id}
//	run              GET runs/get, artifacts/list
//	proxied files    GET mlflow-artifacts/artifacts, mlflow-artifacts/presigned/{path}
//
// [Client.Resolve] follows a reference through versions, logged models and runs
// until it arrives at an object store, at most four steps deep. The field
// "source" of a version is never used: it is what the registrar typed, while
// get-download-uri says where the files are. Files behind the server's artifact
// proxy (mlflow-artifacts:) are found in their store by Config.ArtifactMap, since
// no server says in which bucket they lie; without, they are read through the
// server ([Client.ListArtifacts] and those after it): by URLs that it has signed,
// which need no credentials and get none, else by its proxy.
//
// [Client.Move] moves an alias with a record of who, when and why, in the tag
// pilotlight.history.<alias> of the registered model: a JSON array of
// registry.Entry, newest first, in at most 5000 bytes. MLflow has neither a
// compare-and-set nor a history of its own; Move says how far that is made up
// for.
//
// MLflow's answers have habits that the package knows: a missing alias is 400
// with a text and not 404; an alias whose version was deleted is 404; searches
// leave aliases out; moving an alias touches no timestamp; int64 values come as
// numbers or as strings; two clients that write the first tag at once are answered
// with the database's words; refused credentials, a refused Host header and logins
// in front of the server come as text or HTML. docs/reference/registry.md lists all of them,
// each with its test.
//
// Credentials go to the configured origin only. A redirect to another host is
// refused, a location that names another server gets no request, and no error,
// log line or String method shows a credential.
package mlflow
