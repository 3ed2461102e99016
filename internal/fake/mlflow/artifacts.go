package mlflow

import (
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
)

// artifactsPath is where the artifact proxy is.
const artifactsPath = "/api/2.0/mlflow-artifacts/"

// fileJSON is an entry of a folder. An empty file has no size in it, as MLflow
// writes it.
type fileJSON struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size int    `json:"file_size,omitempty"`
}

// serveArtifacts lists folders, sends files and gives presigned URLs.
func (s *Server) serveArtifacts(w http.ResponseWriter, r *http.Request, call string) {
	file, isFile := strings.CutPrefix(call, "artifacts/")
	signed, isSigned := strings.CutPrefix(call, "presigned/")
	name := file
	if isSigned {
		name = signed
	}
	data, there := s.opts.Artifacts[name]
	s.countArtifacts(r.Method, isFile, isSigned)
	switch {
	case r.Method != http.MethodGet || !isFile && !isSigned && call != "artifacts":
		writePage(w, http.StatusNotFound)
	case s.opts.Artifacts == nil:
		writeText(w, http.StatusServiceUnavailable, "Endpoint: "+artifactsPath+" disabled due to the mlflow server running with `--no-serve-artifacts`. To enable artifacts server functionality, run `mlflow server` with `--serve-artifacts`")
	case isSigned && s.opts.Presign == nil:
		writeError(w, apiError{http.StatusNotImplemented, "NOT_IMPLEMENTED", "Multipart download is not supported for the current artifact repository"})
	case (isSigned || isFile) && !there:
		writeError(w, notFound("Not Found"))
	case isSigned:
		writeJSON(w, http.StatusOK, map[string]any{"url": s.opts.Presign(signed), "headers": map[string]string{}, "file_size": len(data)})
	case isFile:
		sendFile(w, path.Base(file), data)
	default:
		writeJSON(w, http.StatusOK, s.folder(strings.Trim(r.URL.Query().Get("path"), "/")))
	}
}

// countArtifacts counts calls as Calls names them.
func (s *Server) countArtifacts(method string, file, signed bool) {
	call := "artifacts"
	switch {
	case file:
		call = "artifacts/{path}"
	case signed:
		call = "presigned/{path}"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[method+" mlflow-artifacts/"+call]++
}

// sendFile sends content as MLflow does: in pieces, without its length.
func sendFile(w http.ResponseWriter, name string, data []byte) {
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", "attachment; filename="+name)
	w.WriteHeader(http.StatusOK)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	_, _ = w.Write(data) // the client has gone if this fails
}

// folder lists what is directly in a folder; nothing where there is none.
func (s *Server) folder(dir string) any {
	entries := map[string]fileJSON{}
	for name, data := range s.opts.Artifacts {
		rest, ok := name, true
		if dir != "" {
			rest, ok = strings.CutPrefix(name, dir+"/")
		}
		first, _, isDir := strings.Cut(rest, "/")
		switch {
		case !ok:
		case isDir:
			entries[first] = fileJSON{Path: first, Dir: true}
		default:
			entries[first] = fileJSON{Path: first, Size: len(data)}
		}
	}
	out := make([]fileJSON, 0, len(entries))
	for _, e := range entries {
		out = append(out, e)
	}
	if len(out) == 0 {
		return empty
	}
	slices.SortFunc(out, func(a, b fileJSON) int { return strings.Compare(a.Path, b.Path) })
	return map[string]any{"files": out}
}
