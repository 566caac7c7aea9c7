"""Every field of every answer is in what the calls return."""

import base64
import dataclasses
import json
import pathlib
import unittest
from datetime import datetime, timezone

from caisson import _wire, host, types

MESSAGES = pathlib.Path(__file__).resolve().parents[3] / "api/testdata/messages.json"

# Names of messages that have another one here.
NAMES = {
    "SandboxInfo": "Sandbox", "SandboxDetail": "InspectResponse", "ProcessInfo": "Exec", "Verdict": "CheckPolicyResponse",
    "Attempt": "TrafficResponse", "Check": "DoctorCheck", "Doctor": "DoctorResponse", "History": "HistoryResponse",
    "HostInfo": "InfoResponse", "HostEvent": "Event", "Stats": "StatsResponse", "Pruned": "PruneImagesResponse",
    "ImageUsage": "ImageUsageResponse", "PullProgress": "ImageProgress", "BuildStep": "BuildProgress", "Version": "VersionResponse",
    "Ping": "PingResponse", "Reloaded": "ReloadConfigResponse", "Spec": "SpecResponse", "Cleaned": "CleanResponse",
}

# Messages without a type: their parts are returned alone.
PARTED = {"ErrorDetail", "ExecEvent", "Finished", "Forked", "ImportReport", "ImageProgress", "BuildProgress", "TemplateProgress", "BuildNeeds", "Started", "Output"}


def types_of(*modules):
    """Returns the types of messages, by the names of these."""
    kinds = [c for m in modules for c in vars(m).values() if dataclasses.is_dataclass(c) and c.__module__ == m.__name__]
    return {NAMES.get(c.__name__, c.__name__): c for c in kinds}


class MessagesTest(unittest.TestCase):
    def check(self, at, told, value):
        """Checks that value has all of what was told."""
        if isinstance(told, dict) and dataclasses.is_dataclass(value):
            for name, inner in told.items():
                self.assertTrue(hasattr(value, name), f"{at} has no {name}")
                self.check(f"{at}.{name}", inner, getattr(value, name))
        elif isinstance(told, dict):
            self.assertEqual(told.keys(), value.keys(), at)
            for name, inner in told.items():
                self.check(at, inner, value[name])
        elif isinstance(told, list):
            self.assertEqual(len(told), len(value), at)
            for inner, each in zip(told, value):
                self.check(at, inner, each)
        elif isinstance(value, float) and isinstance(told, str):
            self.assertEqual(float(told[:-1]), value, at)
        elif isinstance(value, bytes):
            self.assertEqual(base64.b64decode(told), value, at)
        elif isinstance(value, datetime):
            self.assertEqual(datetime.strptime(told, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc), value, at)
        else:
            self.assertEqual(told, value, at)

    def test_fields(self):
        messages = json.loads(MESSAGES.read_text())
        kinds = types_of(types, host)
        self.assertGreater(len(messages), 60)
        for name, forms in messages.items():
            if name in PARTED or name.endswith("Response") and name not in kinds:
                continue
            with self.subTest(name):
                self.assertIn(name, kinds.keys())
                self.check(name, forms[0], _wire.decode(kinds[name], forms[0]))


if __name__ == "__main__":
    unittest.main()
