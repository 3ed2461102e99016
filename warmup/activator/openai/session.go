package openai

import "hash/fnv"

// Session hashes what is the same in every request of one conversation, so
// that its requests can be sent to the pod whose prefix cache knows it: the
// field prompt_cache_key if there is one, else the messages up to and
// including the first of the user, else the beginning of the prompt or input.
// No more than most bytes are hashed, by FNV-1a: every
// replica of the proxy gets the same. It is false where a body has nothing of
// the kind.
func Session(body []byte, most int) (uint64, bool) {
	var key, start []byte
	_ = fields(body, func(name, value []byte) error { // a broken body has no session
		switch {
		case is(name, "prompt_cache_key"):
			if s, ok := text(value); ok && s != "" {
				key = value
			}
		case is(name, "messages"):
			start = opening(value)
		case is(name, "prompt"), is(name, "input"):
			if start == nil {
				start = value
			}
		}
		return nil
	})
	if key == nil {
		key = start
	}
	if len(key) == 0 {
		return 0, false
	}
	h := fnv.New64a()
	_, _ = h.Write(key[:min(len(key), most)]) // a hash takes everything
	return h.Sum64(), true
}

// opening is a conversation up to the end of the user's first message.
func opening(messages []byte) []byte {
	end := 0
	elements(messages, func(message []byte) bool {
		// The slice of a slice tells where it ends in the whole.
		end = cap(messages) - cap(message) + len(message)
		user := false
		_ = fields(message, func(name, value []byte) error { // what is no object has no role
			user = user || is(name, "role") && is0(value, "user")
			return nil
		})
		return !user
	})
	return messages[:end]
}

// is0 is is for values that may not be strings.
func is0(raw []byte, name string) bool { return len(raw) > 1 && raw[0] == '"' && is(raw, name) }
