"""Images, against a real daemon."""

import unittest

from caisson import CaissonError, Client, Sandbox


class ImagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = Client()
        cls.addClassCleanup(cls.client.close)

    def test_build(self):
        steps = []
        image = self.client.images.build(
            "py-built",
            "FROM base\nARG WHO\nCOPY greet /opt/greet\nUSER root\nRUN echo made for $WHO; cp /opt/greet/text /greeting\n",
            files={"greet/text": "hello\n", "greet/more": b"\x00"},
            args={"WHO": "you"},
            on_progress=steps.append,
        )
        self.addCleanup(self.client.images.remove, "py-built")
        self.assertEqual(image.name, "py-built")
        self.assertTrue(image.digest.startswith("sha256:"))
        instructions = [step.instruction.split()[0] for step in steps if step.instruction]
        self.assertEqual(instructions, ["FROM", "COPY", "RUN"])
        self.assertIn(b"made for you\n", [step.stdout for step in steps])
        with Sandbox.create(image="py-built", client=self.client) as box:
            self.assertEqual(box.run("cat /greeting; wc -c < /opt/greet/more").stdout, "hello\n1\n")
        self.assertEqual([i.name for i in self.client.images.list() if i.name.startswith("build-context/")], [])

    def test_refused_build(self):
        for files in (None, {"a": "b"}):
            with self.assertRaises(CaissonError) as caught:
                self.client.images.build("py-refused", "FROM base\nNONSENSE x\n", files=files)
            self.assertIn("line 2", str(caught.exception))
        names = [i.name for i in self.client.images.list()]
        self.assertNotIn("py-refused", names)

    def test_refused_pull(self):
        with self.assertRaises(CaissonError) as caught:
            self.client.images.pull("registry.invalid/tools:1")
        self.assertEqual(caught.exception.code, "SBX-224")
