"""Plays one scenario with OpenAI's library and prints what came of it as JSON.

    script.py SCENARIO BASE_URL MODEL

The key is in OPENAI_API_KEY, as users have it.
"""

import json
import sys
import time

import openai

MESSAGES = [{"role": "user", "content": "What keeps a model warm?"}]


class Scenarios:
    def __init__(self, url, model):
        self.url = url
        self.model = model

    def client(self, timeout=60.0, retries=0):
        return openai.OpenAI(base_url=self.url, timeout=timeout, max_retries=retries)

    def ask(self, client, tokens=8, **more):
        return client.chat.completions.create(
            model=self.model, messages=MESSAGES, max_tokens=tokens, **more
        )

    def stream(self):
        """A stream, read to its end."""
        began = time.monotonic()
        usage = None
        finish = None
        texts = []
        first = None
        options = {"include_usage": True}
        for chunk in self.ask(self.client(), tokens=40, stream=True, stream_options=options):
            if chunk.usage is not None:
                usage = chunk.usage.completion_tokens
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                if choice.delta.content:
                    texts.append(choice.delta.content)
                    if first is None:
                        first = time.monotonic() - began
        took = time.monotonic() - began
        return {
            "text": "".join(texts), "pieces": len(texts), "finish": finish, "usage": usage,
            "first_seconds": first, "seconds": took,
        }

    def cancel(self):
        """A stream that the user ends after three pieces."""
        client = self.client()
        seen = 0
        with self.ask(client, tokens=2000, stream=True) as stream:
            for chunk in stream:
                seen += bool(chunk.choices and chunk.choices[0].delta.content)
                if seen == 3:
                    break
        # The connection was given up with the stream, not the client.
        return {"pieces": seen, "after": self.ask(client).choices[0].message.content}

    def whole(self):
        """One answer; the library comes again by itself when it is told to."""
        began = time.monotonic()
        with_raw = self.client(retries=6).chat.completions.with_raw_response
        raw = with_raw.create(model=self.model, messages=MESSAGES, max_tokens=8)
        return {
            "text": raw.parse().choices[0].message.content,
            "retries": raw.retries_taken, "seconds": time.monotonic() - began,
        }

    def models(self):
        """What is listed, and one of it."""
        client = self.client()
        return {
            "ids": [m.id for m in client.models.list()],
            "one": client.models.retrieve(self.model).id,
        }

    def error(self, timeout=60.0):
        """The exception that a request ends in."""
        try:
            self.ask(self.client(timeout=timeout))
        except openai.APIStatusError as e:
            return {
                "class": type(e).__name__, "status": e.status_code, "code": e.code, "type": e.type,
                "message": e.body.get("message"), "reason": e.response.headers.get("x-pilotlight-reason"),
                "retry_after": e.response.headers.get("retry-after"),
            }
        except openai.APIConnectionError as e:
            return {"class": type(e).__name__}
        return {"class": ""}

    def impatient(self):
        """The exception of a client that waits for half a second."""
        return self.error(timeout=0.5)


if __name__ == "__main__":
    name, url, model = sys.argv[1:]
    print(json.dumps(getattr(Scenarios(url, model), name)()))
