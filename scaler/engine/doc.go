// Package engine turns the /metrics page of an inference engine into one
// [Reading]: how many requests run, how many wait, and the counters from which
// the policy derives arrivals and residence.
//
// It has two halves. [Parse] is pure: bytes in, Reading or error out. A
// [Scraper] fetches the page of one pod and hands it to the same code. Both are
// on the hot path (every pod, every second), so the parser is a single pass
// over the lines that looks closely only at the dozen series it wants, and it
// allocates nothing when it succeeds.
//
// # Unknown is never zero
//
// A pod that cannot be read is not an idle pod. Every error of this package
// matches [ErrUnknown] and means "the load of this pod is unknown"; the Reading
// beside an error holds NaN throughout. In a Reading without an error Running
// and Waiting are finite and at least 0, and each optional counter is either
// such a number or NaN ("the engine does not say").
//
// # Which series count
//
// Names are matched whole: vllm:num_requests_waiting_by_reason or anything
// ending in _created is another series. For each name:
//
//   - series that differ only in the label pid are copies of one value written
//     by several processes: the largest is taken;
//   - everything else is summed: engines of a data-parallel vLLM (label
//     engine), dp_rank of SGLang, finished_reason of a counter;
//   - SGLang repeats a value per tensor- and pipeline-parallel rank when
//     --enable-metrics-for-all-schedulers is set: only tp_rank and pp_rank 0
//     count, and a series without these labels counts too;
//   - with a model name, only series whose label model_name equals it count;
//     without one the page must export a single model. A missing label is the
//     empty name. TGI does not name its model and serves exactly one, so for
//     TGI the name is not checked.
//
// Both load gauges must be there, for the same number of engines. TGI registers
// them on first use: on a page with any other tgi_ series an absent gauge is a
// known 0, while a page without tgi_ series is unknown.
//
// # What a page may look like
//
// The Prometheus text format and OpenMetrics (exemplars, # EOF) are both read,
// whatever the Content-Type says: vLLM's Python server always answers text, its
// Rust server OpenMetrics. The final newline is optional and CRLF is accepted.
// Lines that do not concern us are skipped without being checked in full; a
// line of ours that breaks the grammar, a line that starts like nothing in the
// format, text after # EOF, and a last line that is not complete all make the
// page unknown. A cut that falls inside the digits of a last line without
// newline cannot be told from a whole page here; the Scraper tells it, because
// HTTP says how long the page was.
package engine
