package agent

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Handler serves what the agent knows:
//
//	GET  /readyz    200 once a version is published in the root, else 503
//	GET  /healthz   200 while the process lives
//	GET  /status    Status, as JSON
//	POST /nudge     202: the pointer will be asked soon
//
// It holds no secret and changes nothing that a caller could choose, so that
// whoever reaches the port may call it.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if a.published() == nil {
			answer(w, http.StatusServiceUnavailable, "nothing is published yet")
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		body, err := json.Marshal(a.Status(r.Context()))
		if err != nil {
			answer(w, http.StatusInternalServerError, "encoding the status failed")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n')) // the client has gone if this fails
	})
	mux.HandleFunc("POST /nudge", func(w http.ResponseWriter, _ *http.Request) {
		a.Nudge()
		answer(w, http.StatusAccepted, "the pointer will be asked soon")
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // as above
}

// oneLine makes an error's text fit for a JSON field and a log line.
func oneLine(s string) string {
	const limit = 1000
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}
