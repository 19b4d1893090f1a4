"""Do transformers and llama.cpp give our logits for every family, as if it had been trained here?

    python bench/families_check.py WHATWHERE fixtures/families OUT

Each tiny model is imported into `OUT`, then its run forgets the config it came with, so that the exporter has to find a
family for its settings, and goes out for transformers and, in F32, for llama.cpp. Logits must agree to 1e-4 of the largest,
with llama.cpp to 1e-2 (GELU by a table of 16 bits). Prints a line for each; exits with 1 if one differs.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import export_check

# transformers reads both halves of these from other places than a config and tensors can say.
NOT_ASKED = {
    "xlnet": "transformers' logits of XLNet are those of a permutation, asked for by masks",
}


def told(command, *arguments):
    done = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode == 0, (done.stdout if done.returncode == 0 else done.stderr).strip()


def as_trained(run):
    """Forgets the config a run came with."""
    path = run / "import.json"
    said = json.loads(path.read_text())
    said["config"] = {}
    path.write_text(json.dumps(said))


def check_transformers(given, run, name):
    out = given.out / f"{name}-huggingface"
    good, said = told(given.whatwhere, "export", run, "--to", "huggingface", "--out", out)
    if not good:
        return None, said
    config = json.loads((out / "config.json").read_text())
    both = config.get("is_encoder_decoder", False)
    far, _ = export_check.apart(given.whatwhere, run, lambda s: export_check.transformers_logits(out, s), both, 20)
    return bool(far <= export_check.CLOSE), f"transformers as {config['model_type']}: {far:.1e}"


def check_llama_cpp(given, run, name):
    out = given.out / f"{name}.gguf"
    good, said = told(given.whatwhere, "export", run, "--to", "gguf", "--out", out)
    if not good:
        return None, said
    if json.loads((run / "import.json").read_text())["family"] == "bert":
        return None, "llama.cpp: an encoder, of which it tells no logits"
    far, _ = export_check.apart(given.whatwhere, run, lambda s: export_check.llama_cpp_logits(out, s), False, 20)
    return bool(far <= export_check.ROUNDED), f"llama.cpp: {far:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("whatwhere")
    parser.add_argument("families", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", help="one of the families")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    checks = [check_transformers]
    try:
        import llama_cpp  # noqa: F401

        checks.append(check_llama_cpp)
    except ImportError:
        print("SKIPPED: llama.cpp on what we export: there is no llama-cpp-python", file=sys.stderr)
    wrong = done = 0
    for folder in sorted(given.families.iterdir()):
        name = folder.name
        if not (folder / "config.json").is_file() or given.only not in (None, name):
            continue
        run = given.out / f"{name}-run"
        good, said = told(given.whatwhere, "import", folder, "--out", run)
        if not good:
            print(f"{name}: not imported: {said}")
            continue
        as_trained(run)
        for check in checks:
            if check is check_transformers and name in NOT_ASKED:
                print(f"{name}: not asked: {NOT_ASKED[name]}")
                continue
            try:
                good, said = check(given, run, name)
            except Exception as error:  # noqa: BLE001: what the others refuse is wrong, too
                good, said = False, f"{check.__name__}: {str(error).strip()[:300]}"
            wrong, done = wrong + (good is False), done + (good is True)
            print(f"{name}: {'WRONG: ' if good is False else ''}{said}")
    print(f"{done} agree, {wrong} do not")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
