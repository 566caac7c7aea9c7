"""The options of the calls: how values are read, and that no field of a request lacks one."""

import json
import pathlib
import unittest
from datetime import timedelta

from caisson import Input, Mount, _forms, _options, _spec
from caisson._forms import request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
SCHEMAS = json.loads((ROOT / "api/openapi/openapi.json").read_text())["components"]["schemas"]

MOUNTS = [Mount("bind", "/d", "/s", True), Mount("tmpfs", "/t", size_bytes=4), Mount("volume", "/c", "v", cow=True)]
SAMPLES = {  # a value of each form with all that it can say
    "text": "t", "flag": True, "count": 1, "size": "1K", "cpus": 1.5, "time": "1s", "texts": ["a"], "counts": [1],
    "map": {"a": "b"}, "secrets": {"a": "b"}, "rules": ["a"], "workspace": "/w:/in:ro", "mounts": MOUNTS,
    "nested": {"sandboxes": 1, "memory": 1, "cpus": 1}, "inputs": [Input("p", "d", 0o400)], "rlimits": {"core": 1},
    "terminal": True,
}


def every_option(table):
    return {name: SAMPLES[form] for name, (_, form) in table.items()}


def fields_of(schema, path=""):
    """Returns the paths of all fields of a message."""
    schema = SCHEMAS[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema
    if schema.get("type") == "array":
        return fields_of(schema["items"], path)
    if "properties" not in schema:
        return {path}
    return set().union(*(fields_of(s, f"{path}.{name}") for name, s in schema["properties"].items()))


def paths_of(value, path=""):
    """Returns the paths of all values of a request."""
    if isinstance(value, list):
        return set().union(*(paths_of(v, path) for v in value))
    if not isinstance(value, dict) or path.rsplit(".", 1)[-1] in ("env", "labels", "args", "secrets"):
        return {path}
    return set().union(*(paths_of(v, f"{path}.{name}") for name, v in value.items()))


class OptionsTest(unittest.TestCase):
    def walk(self, message, body, made_here):
        """Fails where a field of the message is in no request, but for those that other code makes."""
        want = {p for p in fields_of({"$ref": f"/{message}"}) if not any(p == m or p.startswith(m + ".") for m in made_here)}
        self.assertGreater(len(want), 4)
        self.assertEqual(want - paths_of(body), set(), f"no option of the SDK sets these fields of {message}")
        self.assertEqual(paths_of(body) - fields_of({"$ref": f"/{message}"}), set(), f"not fields of {message}")

    def test_every_field_has_an_option(self):
        self.walk("CreateRequest", request(_options.CREATE, every_option(_options.CREATE)), {".idempotency_key"})
        alone = _spec.alone("x", every_option(_options.ALONE), stdin=True)
        own = {".detach", ".stdin", ".exec.args", ".exec.tty", ".exec.env", ".exec.user", ".exec.limits"}  # the last three: the sandbox's
        self.walk("RunRequest", alone, own)
        command = {".args"}  # else shell
        self.walk("ExecSpec", _spec.command(_options.START, "x", every_option(_options.START)), command)
        self.walk("UpdateRequest", request(_options.UPDATE, every_option(_options.UPDATE)), {".ref"})
        self.assertEqual(_spec.command(_options.EXEC, ["x"], {})["args"], ["x"])

    def test_run_has_the_options_of_create(self):
        missing = set(_options.SANDBOX) | set(_options.EXEC)
        self.assertEqual(missing - set(_options.ALONE), set())

    def test_types_and_tables_have_the_same_names(self):
        for name in ("Nested", "Sandbox", "Create", "Exec", "Start", "Alone", "Update", "List", "Build"):
            kind = getattr(_options, name + "Options")
            self.assertEqual(kind.__optional_keys__, set(getattr(_options, name.upper())), name)

    def test_unknown(self):
        with self.assertRaisesRegex(TypeError, "there is no option 'memroy'; there are: .*memory"):
            request(_options.CREATE, {"memroy": 1})
        self.assertEqual(request(_options.CREATE, {"memory": None, "nested": False}), {})

    def test_durations(self):
        for value, want in [
            (1.5, "1.5s"), (90, "90s"), (timedelta(minutes=2), "120s"), (1e-7, "0.0000001s"), (0, "0s"), (1200, "1200s"),
            ("1s", "1s"), ("90s", "90s"), ("1h30m", "5400s"), ("500ms", "0.5s"), ("1.5s", "1.5s"), (".5s", "0.5s"), ("2us", "0.000002s"),
        ]:
            self.assertEqual(request(_options.EXEC, {"timeout": value}), {"timeout": want})
        for value in ["", "5", "1d", "s", "-1s", "1 s", "1s ", "1.2.3s", "1h-1m", -1, float("nan"), float("inf"), timedelta(-1)]:
            said = value.total_seconds() if isinstance(value, timedelta) else value
            with self.assertRaises(ValueError) as caught:
                request(_options.EXEC, {"timeout": value})
            want = f"timeout: {said!r} is no duration: give seconds, or text such as '90s', '1.5s' or '1h30m'"
            self.assertEqual(str(caught.exception), want)
        for value in [True, b"1s", [1]]:
            with self.assertRaises(TypeError):
                _forms.duration(value)

    def test_sizes(self):
        for value, want in [(7, 7), ("512M", 512 << 20), ("1.5g", 3 << 29), ("10", 10)]:
            self.assertEqual(_forms.size(value), want, value)
        for value in ["", "M", "-1", "1KB", "1 2"]:
            with self.assertRaisesRegex(ValueError, "is no size: give bytes, or text such as '512M'"):
                _forms.size(value)
        with self.assertRaises(TypeError):
            _forms.size(1.5)

    def test_wrong_values_name_their_option(self):
        for option, value, want in [
            ("allow", "github.com", "allow: 'github.com' is no list"),  # each letter would be a rule
            ("pids", "4", "pids: '4' is no whole number"),
            ("allow_ech", 1, "allow_ech: 1 is neither True nor False"),
            ("image", 3, "image: 3 is no text"),
            ("cpus", "2", "cpus: '2' is no number of CPUs"),
            ("mounts", ["/x"], "mounts: '/x' is no Mount"),
        ]:
            with self.assertRaises(TypeError) as caught:
                request(_options.CREATE, {option: value})
            self.assertEqual(str(caught.exception), want)

    def test_requests(self):
        self.assertEqual(
            request(_options.CREATE, {"name": None, "ttl": 1, "allow": ("a",), "memory": "1K", "ensure": True}),
            {"ttl": "1s", "allow": ["a"], "limits": {"memory_bytes": 1024}, "ensure": True},
        )
        self.assertEqual(request(_options.UPDATE, {"allow": [], "ttl": 0}), {"ttl": "0s", "allow": {"rules": []}})
        self.assertEqual(_forms.workspace("/x:ro"), {"dir": "/x", "mode": "ro"})
        self.assertEqual(_forms.workspace("/x:cow"), {"dir": "/x", "mode": "cow"})
        self.assertEqual(_forms.workspace("/x:/y/z:ro"), {"dir": "/x", "mode": "ro", "path": "/y/z"})
        mounts = request(_options.SANDBOX, {"mounts": [*MOUNTS, Mount("volume", "/v", "deps")]})["mounts"]
        self.assertEqual(mounts[0], {"type": "bind", "source": "/s", "target": "/d", "read_only": True})
        self.assertEqual(mounts[1], {"type": "tmpfs", "target": "/t", "size_bytes": 4})
        self.assertEqual(mounts[2], {"type": "volume", "source": "v", "target": "/c", "cow": True})
        self.assertEqual(mounts[3], {"type": "volume", "source": "deps", "target": "/v"})
        self.assertEqual(request(_options.SANDBOX, {"nested": True}), {"nested": {}})
        self.assertEqual(request(_options.CREATE, {"from_": "one"}), {"from": "one"})
        private = request(_options.EXEC, {"inputs": {"token": "s"}, "rlimits": {"core": (0, "unlimited")}})
        self.assertEqual(private["inputs"], [{"path": "token", "data": "cw=="}])
        self.assertEqual(private["rlimits"], [{"name": "core", "soft": 0, "hard": str(2**64 - 1)}])
        spec = _spec.command(_options.START, ["a"], {"tty": (3, 4), "output_limit": "1K"})
        self.assertEqual(spec, {"args": ["a"], "stdin": True, "tty": {"rows": 3, "cols": 4}, "output_limit_bytes": 1024})
        self.assertEqual(_spec.output_limit(_spec.command(_options.EXEC, "a", {})), 10 << 20)


if __name__ == "__main__":
    unittest.main()
