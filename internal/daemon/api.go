package daemon

import (
	"net/http"
	"os"

	"sluicegate/audit"
	"sluicegate/internal/control"
	"sluicegate/policy"

	"github.com/google/uuid"
)

// Routes of the control API.
const (
	RouteStatus  = "/v1/status"
	RouteExplain = "/v1/explain"
	RouteReload  = "/v1/policy/reload"
)

func pid() int { return os.Getpid() }

// routes is the handler behind the control socket, which lets only the user
// who runs the gate through.
func (d *Daemon) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+RouteStatus, func(w http.ResponseWriter, _ *http.Request) {
		control.WriteJSON(w, d.Status())
	})
	mux.HandleFunc("GET "+RouteExplain, d.explain)
	mux.HandleFunc("POST "+RouteReload, d.reload)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		control.WriteError(w, http.StatusNotFound, "there is no such route", "client and daemon may be of different versions")
	})
	return mux
}

func (d *Daemon) reload(w http.ResponseWriter, r *http.Request) {
	result, err := d.Reload(r.Context(), TriggerCLI)
	if err != nil {
		control.WriteError(w, http.StatusUnprocessableEntity, "the policy was rejected and the last good one stays in force:\n"+err.Error(), "")
		return
	}
	control.WriteJSON(w, result)
}

func (d *Daemon) explain(w http.ResponseWriter, r *http.Request) {
	id, err := uuid.Parse(r.URL.Query().Get("id"))
	if err != nil {
		control.WriteError(w, http.StatusBadRequest, "this is not an event id",
			"it stands in the refusal and in the X-Sluicegate-Event header, like 01890a5d-ac96-774b-bcce-b302099a8057")
		return
	}
	file := d.opts.Settings.AuditFile
	line, ok, err := audit.Find(r.Context(), file, id.String())
	switch {
	case err != nil:
		control.WriteError(w, http.StatusInternalServerError, "reading the audit log: "+err.Error(), "look at "+file)
		return
	case !ok:
		control.WriteError(w, http.StatusNotFound, "the audit log has no event "+id.String(),
			"it may belong to another gate, or to a file that was moved away")
		return
	}
	e, err := audit.Parse(line)
	if err != nil {
		control.WriteError(w, http.StatusInternalServerError, "the record can not be read: "+err.Error(), "look at "+file)
		return
	}
	control.WriteJSON(w, d.explanation(e))
}

func (d *Daemon) explanation(e audit.Event) Explanation {
	x := Explanation{Event: e}
	reason := policy.Reason(e.Reason)
	if e.Would != "" {
		reason = policy.Reason(e.Would)
	}
	if reason != "" {
		info := reason.Info()
		x.Meaning, x.Cause, x.Mend = info.Meaning, info.Cause, info.Mend
	}
	x.Current = e.Policy != nil && e.Policy.Digest == d.store.snapshot().Digest()
	if x.Current && e.Rule != nil {
		x.Why = d.store.snapshot().Why(e.Profile, e.Rule.ID)
	}
	return x
}
