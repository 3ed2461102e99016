"""Does to a registry what its users do, with MLflow's own client, and prints
what the client said as JSON.

    script.py NAME MODEL_DIR RAW_URI

NAME is the registered model to make. MODEL_DIR is a folder as MLflow's
transformers flavor writes it; it is logged, uploaded by the client and
registered as version 1. RAW_URI is a folder that is in the store already,
registered as it is: versions 2 and 3. In the end the alias `champion` names
version 2, `previous` version 1 and `doomed` the deleted version 3.

What differs between two runs of the same steps (ids, times, addresses) is
replaced by a word, so that the output of two servers can be compared whole.
"""

import hashlib
import json
import logging
import os
import pathlib
import sys
import tempfile

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

LONG = 100_001


class Transcript:
    """The answers in order, with what differs between runs replaced."""

    def __init__(self):
        self.steps = []
        self.words = {}

    def replace(self, text, word):
        self.words[text] = word

    def plain(self, value):
        if isinstance(value, dict):
            return {key: self.plain(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(each) for each in value]
        if isinstance(value, str):
            for text in sorted(self.words, key=len, reverse=True):
                value = value.replace(text, self.words[text])
        return value

    def add(self, step, value):
        self.steps.append({"step": step, "answer": self.plain(value)})

    def refused(self, step, call, *args, **kwargs):
        """Records how a call is refused; one that is not is recorded too."""
        try:
            call(*args, **kwargs)
        except MlflowException as e:
            # Some messages go on with the store's own words after a stop.
            message = str(e).split(". ")[0].split("\n")[0][:200]
            self.add(step, {"code": e.error_code, "message": message})
        else:
            self.add(step, "not refused")


def version(mv):
    return {
        "name": mv.name,
        "version": mv.version,
        "type": type(mv.version).__name__,
        "status": mv.status,
        "stage": mv.current_stage,
        "source": mv.source,
        "run_id": mv.run_id or "",
        "run_link": mv.run_link or "",
        "description": mv.description or "",
        "aliases": sorted(mv.aliases),
        "tags": dict(mv.tags),
    }


def model(rm):
    return {
        "name": rm.name,
        "description": rm.description or "",
        "tags": dict(rm.tags),
        "aliases": dict(rm.aliases),
        "latest": sorted((mv.version, mv.current_stage, sorted(mv.aliases)) for mv in rm.latest_versions),
    }


def files(folder):
    root = pathlib.Path(folder)
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "registered_model_meta"
    }


def register(t, client, name, model_dir, raw_uri):
    """Makes the three versions."""
    experiment = client.create_experiment("pilotlight-" + name)
    t.replace(f"/{experiment}/models/", "/<experiment>/models/")
    logged = client.create_logged_model(experiment, name="llm", tags={"kind": "transformers"})
    t.replace(logged.model_id, "<logged model>")
    t.add("logged model", {"status": str(logged.status), "location": logged.artifact_location, "name": logged.name})
    client.log_model_artifacts(logged.model_id, model_dir)
    logged = client.finalize_logged_model(logged.model_id, "READY")
    t.add("finalized", {"status": str(logged.status), "tags": logged.tags.get("kind")})

    t.add("version 1", version(mlflow.register_model(f"models:/{logged.model_id}", name)))
    t.refused("create again", client.create_registered_model, name)
    t.refused("create with a slash", client.create_registered_model, "a/b")
    t.add("version 2", version(client.create_model_version(name, raw_uri, description="raw", tags={"kind": "raw"})))
    t.add("version 3", version(client.create_model_version(name, raw_uri)))
    t.refused("version of nobody", client.create_model_version, "nobody", raw_uri)
    for number in "123":
        t.add("download uri " + number, client.get_model_version_download_uri(name, number))
    t.add("logged model tag", bool(client.get_logged_model(logged.model_id).tags.get("mlflow.modelVersions")))


def move(t, client, name):
    """Sets, moves and deletes aliases."""
    t.refused("no such alias", client.get_model_version_by_alias, name, "champion")
    t.refused("alias of no such model", client.get_model_version_by_alias, "nobody", "champion")
    t.refused("reserved alias", client.set_registered_model_alias, name, "latest", "1")
    t.refused("reserved number", client.set_registered_model_alias, name, "v7", "1")
    t.refused("alias with a space", client.set_registered_model_alias, name, "a b", "1")
    t.refused("alias to no such version", client.set_registered_model_alias, name, "champion", "9")
    client.set_registered_model_alias(name, "champion", "1")
    client.set_registered_model_alias(name, "previous", "1")
    before = client.get_registered_model(name)
    t.add("alias set", version(client.get_model_version_by_alias(name, "champion")))
    client.set_registered_model_alias(name, "champion", "2")
    client.set_registered_model_alias(name, "doomed", "3")
    client.set_registered_model_alias(name, "gone", "3")
    client.delete_registered_model_alias(name, "gone")
    client.delete_registered_model_alias(name, "gone")
    after = client.get_registered_model(name)
    t.add("alias moved", version(client.get_model_version_by_alias(name, "champion")))
    t.add("a move changes the time", before.last_updated_timestamp != after.last_updated_timestamp)
    t.add("latest as an alias", client.get_model_version_by_alias(name, "latest").version)
    t.add("aliases of the model", model(after))
    t.refused("alias that is gone", client.get_model_version_by_alias, name, "gone")


def browse(t, client, name):
    """Searches, page by page."""
    t.add("found versions", [version(mv) for mv in client.search_model_versions(f"name='{name}'")])
    page = client.search_model_versions(f"name='{name}'", max_results=2, order_by=["version_number ASC"])
    t.add("first page", [mv.version for mv in page])
    t.add("has a token", bool(page.token))
    rest = client.search_model_versions(f"name='{name}'", max_results=2, order_by=["version_number ASC"], page_token=page.token)
    t.add("second page", [[mv.version for mv in rest], rest.token or ""])
    t.add("from version 2 on", [mv.version for mv in client.search_model_versions(f"name='{name}' and version_number >= 2")])
    t.add("by tag", [mv.version for mv in client.search_model_versions(f"name = '{name}' AND tags.kind LIKE 'r%'")])
    t.add("found models", [model(rm) for rm in client.search_registered_models(f"name = '{name}'")])
    t.refused("bad filter", client.search_model_versions, "colour = 'red'")
    t.refused("bad token", client.search_model_versions, f"name='{name}'", page_token="aGVsbG8=")
    t.refused("too many", client.search_registered_models, max_results=1001)


def mark(t, client, name):
    """Tags, descriptions and stages."""
    client.set_registered_model_tag(name, "pilotlight.history.champion", '[{"to":"2"}]')
    client.set_registered_model_tag(name, "short", "lived")
    client.delete_registered_model_tag(name, "short")
    client.set_model_version_tag(name, "1", "eval", "0.9")
    client.set_model_version_tag(name, "1", "tmp", "x")
    client.delete_model_version_tag(name, "1", "tmp")
    t.refused("long tag", client.set_registered_model_tag, name, "long", "x" * LONG)
    t.refused("tag of no such version", client.set_model_version_tag, name, "9", "k", "v")
    t.refused("version that is no number", client.get_model_version, name, "two")
    t.add("described", version(client.update_model_version(name, "1", "the first")))
    t.add("model described", model(client.update_registered_model(name, "a model")))
    client.transition_model_version_stage(name, "1", "Staging")
    t.add("staged", version(client.transition_model_version_stage(name, "2", "staging", archive_existing_versions=True)))
    t.add("latest of each stage", sorted((mv.version, mv.current_stage) for mv in client.get_latest_versions(name)))
    t.add("latest in production", [mv.version for mv in client.get_latest_versions(name, ["Production"])])
    t.refused("no such stage", client.transition_model_version_stage, name, "1", "Nirvana")


def remove(t, client, name):
    """Deletes a version that an alias names, and another model as a whole."""
    client.delete_model_version(name, "3")
    t.refused("deleted version", client.get_model_version, name, "3")
    t.refused("alias of a deleted version", client.get_model_version_by_alias, name, "doomed")
    t.refused("delete it again", client.delete_model_version, name, "3")
    t.add("number after a deletion", client.create_model_version(name, "s3://nowhere/x").version)
    client.delete_model_version(name, "4")
    client.create_registered_model(name + "-old")
    client.rename_registered_model(name + "-old", name + "-new")
    t.add("renamed", model(client.get_registered_model(name + "-new")))
    client.delete_registered_model(name + "-new")
    t.refused("deleted model", client.get_registered_model, name + "-new")
    t.add("in the end", model(client.get_registered_model(name)))


def load(t, name):
    """Downloads what the aliases name."""
    for alias in ("champion", "previous"):
        with tempfile.TemporaryDirectory() as into:
            got = mlflow.artifacts.download_artifacts(f"models:/{name}@{alias}", dst_path=into)
            t.add("downloaded " + alias, files(got))


def webhooks(t, client):
    """Administers a webhook that never fires."""
    hook = client.create_webhook(
        "watch", "https://example.com/hook", ["model_version_alias.created", "model_version_alias.deleted"], secret="s"
    )
    t.replace(hook.webhook_id, "<webhook>")
    show = lambda h: {"id": h.webhook_id, "name": h.name, "url": h.url, "events": sorted(map(str, h.events)), "status": str(h.status), "secret": h.secret or ""}
    t.add("webhook", show(hook))
    t.add("webhooks", [show(h) for h in client.list_webhooks()])
    t.add("disabled", show(client.update_webhook(hook.webhook_id, status="DISABLED")))
    t.refused("bad name", client.create_webhook, "-", "https://example.com/", ["model_version_alias.created"])
    t.refused("bad scheme", client.create_webhook, "ftp", "ftp://example.com/", ["model_version_alias.created"])
    client.delete_webhook(hook.webhook_id)
    t.refused("deleted webhook", client.get_webhook, hook.webhook_id)


def main():
    name, model_dir, raw_uri = sys.argv[1:]
    logging.disable(logging.WARNING)
    t, client = Transcript(), MlflowClient()
    t.replace(os.environ["MLFLOW_TRACKING_URI"], "<server>")
    for steps in (register, move, browse, mark, remove):
        args = (model_dir, raw_uri) if steps is register else ()
        steps(t, client, name, *args)
    load(t, name)
    webhooks(t, client)
    json.dump(t.steps, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
