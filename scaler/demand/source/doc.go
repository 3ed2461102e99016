// Package source asks others than our activators what waits for a model that
// has no pod: an inference gateway's endpoint picker, a router, KEDA's HTTP
// add-on, a Prometheus server.
//
// The scaler's operator names each source in a file ([Parse]); a trigger only
// says the name (demandFrom), so that no tenant can make the scaler call an
// address of its choosing. A [Set] holds the sources and polls each one at most
// once an interval, however many targets ask: the answers are shared.
//
// # What each can see
//
// No source sees all that an activator does, and each says so ([Type.Sees]):
//
//	epp         what waits in the flow control queue. Not what the engines
//	            compute: their own gauges tell that.
//	router      arrivals. Neither what waits (it turns requests away at zero)
//	            nor what runs.
//	http-addon  waiting and running together; it cannot tell one from the
//	            other. With no Ready pod all of it waits, else the add-on has
//	            sent all of it on.
//	prometheus  what its query counts: waiting requests, or (counts: all) both
//	            together as above.
//
// # Unknown is never zero
//
// A failed poll, a page without the series, an empty query result, NaN: all of
// them are errors ([ErrUnknown]), and the last number stands for three
// intervals and a timeout, no longer. Then the demand is unknown, by which
// nothing shrinks and nothing wakes. Zero is only what a source says itself: a
// series that reads 0, or none for this model on a page that has the family.
//
// # Layout
//
// config.go reads the file, query.go fills in a query, parse.go turns bodies
// into numbers (pure), fetch.go makes one request, poll.go keeps the numbers
// up to date, set.go is what the scaler holds.
package source
