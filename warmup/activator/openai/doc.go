// Package openai reads of OpenAI-shaped requests and answers what a proxy has
// to know, and nothing else. It is pure: bytes in, values out.
//
// Of a request it reads the model, whether the answer shall be streamed, and
// what makes two requests belong to one conversation ([Read], [Session]). A
// JSON body is walked once, without building values: its strings are skipped
// by searching for the closing quote, so that two megabytes of an image cost
// next to nothing. The walk checks that the body is one whole object; what is
// inside nested values is for the engine to judge.
//
// Of an answer it reads whether it is one that an engine gives while it goes
// down: status 200, finish_reason "abort" and no text ([Event], [Aborted]).
package openai
