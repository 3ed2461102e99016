// Package trace turns recordings of traffic into requests: when each came, how
// many tokens it brought and how many it wanted back. It reads what others have
// published and what one records oneself, and makes simple shapes up.
//
//	Azure LLM inference   TIMESTAMP,ContextTokens,GeneratedTokens
//	ServeGen clients      timestamp_s,rate_rps,cv,pattern,param0,param1
//	Mooncake JSONL        {"timestamp": ms, "input_length": n, "output_length": n}
//	plain CSV             timestamp,input,output   (seconds or RFC 3339)
//
// Read tells the format by the first line. Recorded traces give the same
// requests every time; the two that have to be drawn, ServeGen's windows and
// the made-up shapes, are drawn from a seed. A row that makes no sense, one
// that is older than the row before it, and a trace without requests are
// errors that name file and line: a trace that is wrong silently gives a
// simulation that is.
//
// Times are measured from the first row, so that the first recorded request
// comes at zero. ServeGen counts from the beginning of its first window.
package trace
