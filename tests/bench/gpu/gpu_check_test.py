"""What scripts/gpu_check makes of steps and measurements: run by CTest."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/gpu_check"
loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
sys.dont_write_bytecode = True
loader.exec_module(gpu_check)

COPY = {"kind": "kernel", "name": "copy", "shape": "1024 MiB", "us": 1000.0, "bytes": 4_000_000_000}  # 4000 GB/s
MATMUL = {"kind": "kernel", "name": "matmul", "shape": "8 x 8 x 8", "us": 10.0, "flops": 1024}


def norm(us, name="rms_norm"):
    return {"kind": "kernel", "name": name, "shape": "8 x 8", "us": us, "bytes": 400_000_000}


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.json_file = pathlib.Path(folder.name) / "result.json"

    def check(self, limit_s=60):
        check = gpu_check.Check(limit_s, self.json_file, {"emulated": False})
        self.addCleanup(check.log.close)
        return check

    def verdicts(self, lines, torch_us=(), emulated=False):
        check = self.check()
        with contextlib.redirect_stdout(io.StringIO()):
            gpu_check.judge_kernels(check, lines, dict(torch_us), emulated)
        return [row["verdict"] for row in check.rows], check.exit_code()

    def test_floor_of_copy(self):
        self.assertEqual(self.verdicts([COPY, norm(160)]), (["DONE", "PASS"], 0))  # 62.5 %
        self.assertEqual(self.verdicts([COPY, norm(170)]), (["DONE", "BELOW"], 1))  # 58.8 %
        self.assertEqual(self.verdicts([COPY, norm(1000, "decode_attention")]), (["DONE", "BELOW"], 1))
        self.assertEqual(self.verdicts([COPY, norm(1000, "embed")]), (["DONE", "DONE"], 0))  # has no floor
        self.assertEqual(self.verdicts([COPY, norm(math.nan)]), (["DONE", "BELOW"], 1))

    def test_floor_of_torch(self):
        key = ("matmul", "8 x 8 x 8")
        self.assertEqual(self.verdicts([MATMUL]), (["DONE"], 0))
        self.assertEqual(self.verdicts([MATMUL], {key: 9.5}.items()), (["PASS"], 0))
        self.assertEqual(self.verdicts([MATMUL], {key: 8.5}.items()), (["BELOW"], 1))

    def test_no_floor_when_emulated(self):
        self.assertEqual(self.verdicts([COPY, norm(1000)], emulated=True), (["DONE", "DONE"], 0))

    def step(self, check, *arguments, **options):
        with contextlib.redirect_stdout(io.StringIO()):
            return check.step(*arguments, **options)

    def test_steps(self):
        check = self.check()
        self.assertTrue(self.step(check, "good", [["true"]], 10))
        self.assertFalse(self.step(check, "bad", [["true"], ["false"]], 10))
        self.assertFalse(self.step(check, "long", [["sleep", "60"]], 0.1))
        self.assertFalse(self.step(check, "unexpected", [["echo", "no"]], 10, lambda output: None))
        self.assertFalse(self.step(check, "absent", [["/no/such/program"]], 10))
        self.assertEqual([row["verdict"] for row in check.rows], ["PASS"] + 4 * ["FAIL"])
        self.assertIn("ran too long", check.rows[2]["text"])
        written = json.loads(self.json_file.read_text())
        self.assertEqual((written["exit_code"], written["rows"]), (1, check.rows))

    def test_time_runs_out(self):
        check = self.check(limit_s=0)
        self.assertFalse(self.step(check, "late", [["true"]], 10))
        self.assertEqual((check.rows[0]["verdict"], check.exit_code()), ("SKIP", 1))

    def test_output_that_is_cut_off(self):
        self.assertEqual(gpu_check.measured('noise\n{"kind": "gpu"}\n[1]\n{"kind": "ker'), [{"kind": "gpu"}])

    def test_without_a_gpu(self):
        with tempfile.TemporaryDirectory() as empty:
            ran = subprocess.run([sys.executable, SCRIPT], env={"PATH": empty}, capture_output=True, text=True)
        self.assertEqual((ran.returncode, ran.stdout), (77, ""))
        self.assertRegex(ran.stderr, "^gpu_check: no (GPU|nvcc)")


if __name__ == "__main__":
    unittest.main()
