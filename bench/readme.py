"""Follows README.md from top to bottom: its fenced commands in their order, as they are printed.

    python3 bench/readme.py target/release/whatwhere [README.md]

Everything happens in a temporary folder that has the repository's fixtures in it and nothing else. Training takes a few
updates instead of the printed hundreds, comparisons and recoveries too, because `whatwhere` is a small script there that says
so to the command. Lines of cargo are left out. Ends with 1 if any command fails.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# What stands between the printed commands and the program.
WRAPPER = """#!/usr/bin/env bash
few="--set training.steps=6 --set training.evaluate_every=3 --set training.evaluate_batches=1"
arguments=("${{@//steps=300/steps=6}}")
case "$1" in
  train) exec {command} "${{arguments[@]}}" $few ;;
  convert) exec {command} "${{arguments[@]/#200/3}}" ;;
  serve) exec timeout --signal INT 3 {command} "$@" ;;
  *) exec {command} "${{arguments[@]}}" ;;
esac
"""


def commands(text):
    """Lines of fences without a language, with what they continue on."""
    fence, lines = None, []
    for line in text.splitlines():
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
        elif fence == "":
            lines.append(line)
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip() and not re.match(r"(cargo|export|crates/)", line):
            yield line.strip()


def main():
    """Runs every command and says which fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path, nargs="?", default=pathlib.Path(__file__).parents[1] / "README.md")
    options = parser.parse_args()
    wrong = count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "whatwhere"
        wrapper.write_text(WRAPPER.format(command=options.command.resolve()))
        wrapper.chmod(0o755)
        (folder / "fixtures").symlink_to(pathlib.Path(__file__).resolve().parents[1] / "fixtures")
        environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "NO_COLOR": "1"}

        def run(line):
            done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=environment, timeout=600,
                                  capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
            return done.returncode, done.stdout + done.stderr

        for line in commands(options.page.read_text()):
            code, said = run(line)
            if " serve " in line and "built without its server" in said:
                print(f"SKIPPED: built without the feature serve: {line}", flush=True)
                continue
            # A server goes on until it is told to stop.
            right = code == 0 or " serve " in line and code in (124, 130)
            count, wrong = count + 1, wrong + (not right)
            print(f"{'ok' if right else 'WRONG':5} {code:3} {line}", flush=True)
            if not right:
                print("\n".join(f"          {part}" for part in said.strip().splitlines()[-4:]), flush=True)
    print(f"{wrong} of {count} commands fail", file=sys.stderr)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
