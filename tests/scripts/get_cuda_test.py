#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/support/get_cuda on machines whose nvcc, Python and pip are shell scripts: which nvcc it takes, and what it says."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release %s, V%s.1'\n"
# pip, which puts an nvcc where it is asked to; or fails.
PYTHON = """#!/bin/sh
[ "$4" = --version ] || [ "$3" = --version ] && exit 0
echo "$*" >> "$ASKED"
[ -n "$NVCC_LOADED" ] || { echo "ERROR: no such host"; exit 1; }
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/nvidia/cu13/bin" "$2/nvidia/cu13/lib" && cp "$NVCC_LOADED" "$2/nvidia/cu13/bin/nvcc"
"""


class GetCuda(unittest.TestCase):
    def setUp(self):
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        self.folder = pathlib.Path(room.name)
        self.asked = self.folder / "asked"

    def tool(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def get(self, **variables):
        # /usr/bin has what the script itself needs; an nvcc of this machine is not looked for there.
        env = dict(os.environ, PATH=f"{self.folder}/bin:/usr/bin:/bin", CUDA_PATH=str(self.folder / "toolkit"),
                   ASKED=str(self.asked), NVCC_LOADED="", CUDACXX="", **{})
        env.update(variables)
        done = subprocess.run([str(ROOT / "scripts/support/get_cuda"), str(self.folder / "cuda")], env=env,
                              capture_output=True, text=True)
        return done.returncode, done.stdout.strip()

    def test_the_machines_own_is_taken(self):
        self.tool("toolkit/bin/nvcc", NVCC % ("13.0", "13.0"))
        self.tool("bin/python3", PYTHON)
        self.assertEqual(self.get(), (0, str(self.folder / "toolkit/bin")))
        self.assertFalse(self.asked.exists())

    def test_one_that_knows_no_cpp20_is_not(self):
        self.tool("toolkit/bin/nvcc", NVCC % ("11.8", "11.8"))
        self.tool("bin/python3", PYTHON)
        loaded = self.tool("loaded", NVCC % ("13.0", "13.0"))
        at = str(self.folder / "cuda/nvidia/cu13/bin")
        self.assertEqual(self.get(NVCC_LOADED=loaded), (0, at))
        self.assertTrue((self.folder / "cuda/nvidia/cu13/lib64").is_symlink())
        asked = self.asked.read_text()
        for package in ("nvcc", "runtime", "crt", "cccl"):
            self.assertIn(f"nvidia-cuda-{package}==13.0.*", asked)
        self.assertIn("nvidia-nvvm==13.0.*", asked)
        self.assertEqual(self.get(), (0, at)) # once
        self.assertEqual(self.asked.read_text(), asked)

    def test_why_there_is_none(self):
        self.tool("bin/python3", "#!/bin/sh\nexit 1\n")
        code, said = self.get()
        self.assertEqual(code, 77)
        self.assertRegex(said, "^SKIPPED: .*python3-pip")
        self.tool("bin/python3", PYTHON)
        code, said = self.get()
        self.assertEqual(code, 77)
        self.assertRegex(said, "^SKIPPED: .*ERROR: no such host")
        code, said = self.get(NVCC_LOADED=self.tool("broken", "#!/bin/sh\nexit 1\n"))
        self.assertEqual(code, 77)
        self.assertIn("does not run here", said)
        self.assertFalse((self.folder / "cuda").exists())


if __name__ == "__main__":
    unittest.main()
