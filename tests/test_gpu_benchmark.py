"""benchmarks/gpu.py runs to its end on a CPU."""

import json
import sys

import pytest
from scripts import ROOT, run_fresh

sys.path.append(str(ROOT / "benchmarks"))
import gpu_steps  # noqa: E402


def run_gpu(directory, *flags):
    """Runs benchmarks/gpu.py, with its results in a directory. Returns (`Finished`, result, page)."""
    script = directory / "gpu_here.py"
    script.write_text(f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "benchmarks")!r}]
import results
results.DIRECTORY = {str(directory)!r}
import gpu
sys.exit(gpu.main())
""")
    done = run_fresh(script, *flags, "--results=try", cwd=directory)
    return done, json.loads((directory / "try.json").read_text()), (directory / "try.md").read_text()


@pytest.mark.slow(reason="runs six parts of the benchmark")
def test_most_parts_run_on_a_cpu(tmp_path):
    peer = tmp_path / "python"  # a program that prints its versions, or the seconds of a step
    peer.write_text("""#!/bin/sh
case $1 in -c) echo '{"torch": "2.9"}' ;; *) echo '{"wall": 0.5}' ;; esac
""")
    peer.chmod(0o700)
    done, result, page = run_gpu(tmp_path, "--parts=losses,memory,commands,speed,ops,answers", "--steps=2",
                                 "--precisions=bf16", "--tokens=128", f"--peer_python={peer}")
    assert done.code == 0, done.out
    assert done.out.startswith("No GPU was found: all parts measure a tiny model on the CPU.")
    assert result["versions"]["torch"] == "2.9"
    speeds = {(row["program"], row.get("use_xla"), row["precision"]): row["examples_per_second"]
              for row in result["rounds"] if row["part"] == "speed"}
    assert len(speeds) == 4 and speeds["PyTorch", None, "bf16"] == 8
    assert {row["head"] for row in result["rounds"] if row["part"] == "losses"} == set(gpu_steps.HEADS)
    for title in ("Losses", "Memory", "Whole commands", "Speed", "Ops", "Predictions"):
        assert f"\n## {title}\n" in page
