"""Changes of a workspace, with a daemon of prepared answers."""

import base64
import json
import unittest

from caisson import Client

from .fake import Fake, plain


class DiffTest(unittest.TestCase):
    def test_diff(self):
        changes = [
            {"kind": "modified", "path": "run.sh", "old": {"type": "file", "mode": 420, "size_bytes": "4"}, "new": {"type": "file", "mode": 493, "size_bytes": "8"}},
            {"kind": "deleted", "path": "gone", "old": {"type": "directory", "mode": 493}},
        ]
        answers = [{"sandbox": {"id": "box"}}, {"changes": changes, "truncated": True}, {}]
        fake = Fake([plain(json.dumps(each).encode(), "200 OK") for each in answers])
        self.addCleanup(fake.close)
        with Client(fake.path) as client:
            box = client.get("box")
            found = box.diff()
            self.assertEqual([(c.kind, c.path) for c in found], [("modified", "run.sh"), ("deleted", "gone")])
            self.assertEqual((found[0].old.size_bytes, found[0].new.mode, found[1].new, found.truncated), (4, 0o755, None, True))
            self.assertEqual(box.diff(), [])

    def test_patch(self):
        text = b"diff --git a/x b/x\nnew file mode 100644\n"
        left = [{"path": "big", "reason": "too large to show"}]
        answers = [{"sandbox": {"id": "box"}}, {"changes": [], "patch": base64.b64encode(text).decode(), "left": left}, {}]
        fake = Fake([plain(json.dumps(each).encode(), "200 OK") for each in answers])
        self.addCleanup(fake.close)
        with Client(fake.path) as client:
            found = client.get("box").diff(patch=True)
            self.assertEqual((found.patch, found.left[0].path, found.left[0].reason), (text, "big", "too large to show"))
            self.assertEqual(client.changesets.diff("box", patch=True, include_control=True).patch, b"")
        asked = [each.split(b" ")[1].decode() for each in fake.requests[1:]]
        self.assertEqual(asked, ["/v1/sandboxes/box/diff?patch=true", "/v1/sandboxes/box/diff?patch=true&include_control=true"])

    def test_apply(self):
        answers = [
            {"sandbox": {"id": "box"}},
            {
                "changes": [{"kind": "added", "path": "new", "new": {"type": "file"}}],
                "control": [{"kind": "modified", "path": ".git/config", "control": True}],
                "conflicts": [{"path": "both", "reason": "the host changed it"}],
            },
        ]
        fake = Fake([plain(json.dumps(each).encode(), "200 OK") for each in answers])
        self.addCleanup(fake.close)
        with Client(fake.path) as client:
            done = client.get("box").apply(["new", "both"], conflicts="ours", dry_run=True)
            self.assertEqual((done.changes[0].path, done.control[0].control, done.conflicts[0].reason, done.left), ("new", True, "the host changed it", []))
        self.assertIn('"conflicts":"ours"', fake.requests[-1].decode().replace(' ', ''))
