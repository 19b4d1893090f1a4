"""Reruns the commands a new user tried, and prints what came of each: D1 to D27 are the defects that were found then.

Nothing is timed. Every command runs in one temporary folder with data made here: tiny Shakespeare comes with the program,
pairs, a table and chorales are written by this script. A row is `ok` if the exit code and the words are the expected ones;
the program ends with 1 if any is not.

    python3 bench/trial.py target/release/whatwhere [--only TEXT] [--markdown]
"""

import argparse
import json
import lzma
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile

SMALL = "--set model.width=32 --set model.layers=1 --set model.attention.heads=2 --set steps=4 --set length=32 --set batch=4 " \
    "--set evaluate_every=4 --set evaluate_batches=1"
TINY = f"train --preset tiny {SMALL}"
ALIBI = "--set position=alibi"


def attention(name, changes, words=r"loss \d", code=0):
    """A training run with one choice changed."""
    sets = " ".join(f"--set {shlex.quote(change)}" for change in changes)
    return (name, f"{TINY} --out runs/{len(CASES)} {sets}", code, words)


CASES = []


def case(what, words, code, expected):
    """One command."""
    CASES.append((what, f'"$WW" {words}', code, expected))


def script(what, lines, code, expected):
    """Several commands: `"$WW"` is ours."""
    CASES.append((what, lines, code, expected))


# Long enough to be stopped on the way.
LONG = f"{TINY} --data text.txt --set steps=1500 --set checkpoint_every=50 --set evaluate_every=500"


def stopped(out, signal):
    """Starts a long run, and sends it a signal once its hundredth update is written down."""
    return f'"$WW" {LONG} --out {out} & run=$!; until grep -qs \'"step":100,\' {out}/metrics.jsonl; do sleep 0.02; done; ' \
        f"kill -{signal} $run; wait $run"


def spoiled(name, how, words):
    """A copy of a run with a file that was changed."""
    copy = f"runs/{name.replace(' ', '-')}"
    model, config = f"{copy}/model.safetensors", f"{copy}/config.toml"
    script(f"{name}: refused", f"cp -r runs/real {copy}; {how.format(model=model, config=config)}; \"$WW\" evaluate {copy}", 1, words)


def mechanisms():
    for score in ["scaled_dot", "dot", "general", "cosine"]:
        case(*attention(f"score {score}", [f"score={score}"]))
    case(*attention("score additive, alibi", ["score=additive", "position=alibi"]))
    case(*attention("score additive, polar: refused", ["score=additive"], "does not depend on the distance", 1))
    for position in ["none", "sinusoidal", "learned", "shaw", "transformer_xl", "rotary", "polar", "single_angle", "alibi", "t5"]:
        case(*attention(f"position {position}", [f"position={position}"]))
    case(*attention("polar and alibi", ["position=['polar','alibi']"]))
    case(*attention("segment memory", ["position=transformer_xl", "segment_memory=16"]))
    for pattern in ["{kind='window',left=10}", "{kind='strided',stride=8}", "{kind='fixed',stride=8,summary=2}",
                    "{kind='and',of=['causal','random']}", "{kind='and',of=['causal','document']}"]:
        case(*attention(f"pattern {pattern}", [f"pattern={pattern}"]))
    case(*attention("random alone: refused, says how", ["pattern=random"], r'of = \["causal", "random"\]', 1))
    case(*attention("linear, sinusoidal", ["mixing=linear", "position=sinusoidal"]))
    case(*attention("grouped heads", ["heads=4", "kv_heads=2"]))
    case(*attention("7 heads: refused", ["heads=7"], "heads = 7: does not divide", 1))
    case(*attention("encoder fills blanks (D1)", ["family=encoder"]))
    case(*attention("encoder, next token: refused (D1)", ["family=encoder", "objective=next_token"],
                    "sees the token it would have to predict", 1))
    case("show pattern", "show pattern window --set left=10 --set right=10 --length 256 --out window.html", 0, "window-map.svg")
    case("show position", "show position sinusoidal --length 128 --out waves.html", 0, "sinusoidal-waves.svg")
    case(*attention("linear, rotary", ["mixing=linear", "position=rotary"]))
    case(*attention("linear, polar", ["mixing=linear", "position=polar"]))
    for mixing in ["retention", "gated_linear", "delta", "gated_delta"]:
        case(*attention(f"{mixing}, no positions", [f"mixing={mixing}", "position=none"]))
    case(*attention("polar and rotary share the heads", ["position=[{kind='polar',heads=[0,0.5]},{kind='rotary',heads=[0.5,1]}]"]))
    case(*attention("polar and rotary, all heads: refused", ["position=['polar','rotary']"], "same channels", 1))
    case(*attention("Shaw with vectors on queries", ["position={kind='shaw',queries=true}"]))
    case(*attention("soft cap", ["soft_cap=30"]))
    case(*attention("multi-query", ["heads=2", "kv_heads=1"]))
    for cell in ["gru", "lstm"]:
        case(*attention(f"a recurrent {cell}", [f"recurrent={cell}", "model.attention={}"]))
    case("a recurrent translator", f"train --preset recurrent --data pairs {SMALL} --set data.tokenizer=characters "
         "--set model.encoder_layers=1 --out runs/recurrent", 0, r"loss \d")
    case(*attention("prefix language model", ["objective=prefix"]))
    case("reproduce scaling", "reproduce scaling", 0, "agrees")
    case("reproduce order", "reproduce order", 0, "agrees")


def data():
    case("masked, fill (D21)", f"train --preset masked {SMALL} --out runs/masked", 0, r"loss \d")
    case("fill", 'fill runs/masked "She [MASK] it." --json', 0, r'^(?!.*<mask>)(?!.*<padding>).*"probability"')
    case("pairs from a folder (D7)", f"train --preset translation --data pairs {SMALL} --set feed_forward=64 "
         "--set data.tokenizer=characters --set model.encoder_layers=1 --out runs/pairs", 0, r"loss \d")
    script("translate, a line for each (D18)", 'echo $("$WW" translate runs/pairs < lines.txt | wc -l) lines', 0, "^3 lines$")
    case("chorales (D9)", f"train --preset music --data chorales.json {SMALL} --out runs/jsb", 0, r"loss \d")
    case("chorales without a prompt (D9)", "generate runs/jsb --tokens 8", 0, r"\d+ \d+")
    case("column of a table by number (D12)", f"train --preset tiny --data table.tsv --set data.source.field=2 {SMALL} "
         "--out runs/table", 0, r"loss \d")
    case(".csv (D24)", f"train --preset tiny --data table.csv --set data.source.field=2 {SMALL} --out runs/csv", 0, r"loss \d")
    for kind in ["text.txt.xz", "texts.zip"]:
        case(f"{kind} (D24)", f"train --preset tiny --data {kind} {SMALL} --out runs/{kind}", 0, r"loss \d")
    script("an .xz that is cut: refused (D24)", f'head -c 60 text.txt.xz > cut.txt.xz; "$WW" train --preset tiny --data cut.txt.xz {SMALL} '
           "--out runs/cut-xz", 1, "cut.txt.xz")
    case("MIDI: refused in words", f"train --preset tiny --data song.mid {SMALL} --out runs/mid", 1, "UTF-8")
    case("listops", f"train --preset tasks {SMALL} --set 'data.source={{kind=\"listops\",shortest=5,longest=100,depth=4}}' "
         "--set length=128 --out runs/listops", 0, "done after 4 updates")
    classify = f"train --preset classify {SMALL} --set data.tokenizer=characters"
    case("classes from folders, a note beside them", f"{classify} --data classes --out runs/classes", 0, r"accuracy \d.*left out: classes/README.md")
    case("classes from columns that are not there", f"{classify} --data labels.csv --out runs/labels", 1, r"by data.source.field = \"4\"; found text, label")
    case("classes from columns by name", f"{classify} --data labels.csv --set data.source.field=text --set data.source.label_field=label "
         "--out runs/labels", 0, r"accuracy \d")
    script("classify, a line for each", r"printf 'good\n\n\377\nbad' | " + '"$WW" classify runs/labels; code=$?; exit $code', 1,
           r"^(good|bad)\t0\.\d+\n\n\n(good|bad)\t.*text 3: is not UTF-8")
    case("evaluate on several documents", "evaluate runs/real --data folder", 0, "bits per byte")
    case("from another run, on several documents", f"{TINY} --from runs/real --data folder --out runs/several", 0, "drawn for <end>")
    case("a text and a note beside it (D26)", f"train --preset tiny --data folder {SMALL} --out runs/folder", 0,
         "held out for validation")


def comparing():
    compare = f"compare --preset tiny {SMALL} --lengths 0"
    case("family over (D1)", f"{compare} --over family=decoder,encoder --out c/family", 0, "not ranked: they predict different things")
    case("vocabularies (D2)", f"{compare} --set data.tokenizer.kind=bpe --over data.tokenizer.vocabulary=300,400 --out c/bpe",
         0, "bits per byte")
    case("short names in a search (D3)", f"{compare} --over position=rotary --search 2 --range lr=1e-4..1e-2 --range width=16,32 "
         "--out c/search", 0, "rotary")
    case("ambiguous name (D3)", f"{compare} --over dropout=0,0.5 --out c/dropout", 2, "several settings are called dropout")
    case("kv_heads (D3)", f"{compare} --over kv_heads=1,2 --out c/kv", 0, "kv_heads")
    case("two comparisons keep their reports (D4)", f"{compare} --over position=rotary,polar --out c/one", 0, "rotary")
    case("another in the same folder: refused (D4)", f"{compare} --over pattern=causal,window --out c/one", 2, "holds another comparison")
    case("`none` is marked (D5)", f"{compare} --over position=none,rotary --out c/none", 0, "`none`")
    case("baseline that cannot be trained (D8)", f"{compare} --over score=additive,scaled_dot --over position=rotary,alibi "
         "--out c/base", 0, "instead|held against")
    case("what each encoding was given (D27)", f"{compare} --over position=rotary,sinusoidal --out c/scale", 0,
         "multiplied by √width, as published, for sinusoidal")
    case("a setting twice: refused", f"{compare} --over lr=1e-3 --over lr=1e-4 --out c/twice", 2, "stands twice")
    case("the same cell twice: refused", f"{compare} --over lr=1e-3,0.001 --out c/same", 2, "have the same settings")
    case("a search of what cells differ in: refused", f"{compare} --over lr=1e-3,1e-4 --search 3 --out c/both", 2, "would take its place")
    case("updates under a budget: refused", f"{compare} --over steps=2,4 --budget steps=3 --out c/steps", 2, "leave one of both out")
    case("batches of other sizes are said", f"{compare} --over batch=2,4 --out c/batch", 0, "did not learn from as much")
    case("path without a kind", f"{compare} --over data.source.path=text.txt,other.txt --out c/path", 0, "different held-out data")
    case("a cell that fails (D23)", f"{compare} --over lr=1e-3,1e9 --out c/fail", 1, "a cell failed; the same command tries it again")
    script("the report has the command and the version (D20)", f'"$WW" {compare} --over position=rotary,alibi --out c/report >/dev/null 2>&1; '
           "grep -o 'whatwhere compare[^<]*--out c/report' c/report/report.html; grep -o 'whatwhere [0-9.]*[0-9]' c/report/report.html", 0,
           r"whatwhere compare --preset tiny .*--over position=rotary,alibi.*\nwhatwhere \d+\.\d+\.\d+")
    script("a comparison that fails keeps the report (D4)", f'cp c/report/report.html before.html; "$WW" {compare} --over lr=1e9 --out c/report; '
           "echo ended with $?; cmp c/report/report.html before.html && echo as it was", 0, "ended with [12]\\n.*as it was")
    case("extrapolate", "extrapolate runs/real --lengths 32,64 --tokens 256", 0, "64")
    case("extrapolate, no tokens (D23)", "extrapolate runs/real --tokens 0", 1, "nothing would be read")
    case("seeds 0 (D24)", f"{compare} --over position=rotary,polar --seeds 0", 2, "0")


def resilience():
    case("a run to ask", f"{TINY} --out runs/real", 0, r"loss \d")
    case("the folder again: refused", f"{TINY} --out runs/real", 2, "--resume")
    case("evaluate", "evaluate runs/real --json", 0, '"loss"')
    case("generate", "generate runs/real 'It was' --tokens 8", 0, "It was")
    case("generate, closed pipe (D11)", "generate runs/real 'It was' --tokens 100000 | head -c 20", 0, "^It was(?!.*error)")
    case("generate, top-p 0: refused", "generate runs/real 'It was' --top-p 0", 1, "top_p = 0")
    case("temperature -1 (D24)", "generate runs/real 'It was' --temperature -1", 1, "temperature = -1: expected 0 or more")
    case("show attention (D15)", 'show attention runs/real --text "The animal did not cross the street because it was tired." '
         "--out attention.html", 0, "decoder-layer0-head0.svg")
    case("show split", "show split runs/real --text 'It was the best of times' --out split.html", 0, "split.html/index.html")
    case("show split of a megabyte: refused (D25)", "show split runs/real --file megabyte.txt --out large.html", 1, "expected at most 512")
    case("a foreign tokenizer (D17)", "evaluate runs/foreign", 1, "tokenizer.json")
    for change, words in [("steps=0", "steps = 0"), ("steps=-5", "steps=-5"), ("length=0", "length = 0"), ("lr=-1", "lr = -1"),
                          ("lr=nan", "lr = "), ("model.dropout=1", "dropout = 1"), ("heads=0", "heads = 0"),
                          ("valid_share=1", "valid_share = 1"), ("pattern={kind='strided',stride=0}", "stride is 0"),
                          ("training.stepz=3", "--set training.stepz=3: unknown field")]:
        case(*attention(f"{change}: refused", [change], re.escape(words), 1))
    case(*attention("lr 1e9", ["lr=1e9"], "lower training.lr", 1))
    case(*attention("width 100000 (D14)", ["width=100000"], "training needs about .* GB", 1))
    case("config --resources (D14)", "config --preset tiny --resources", 0, "total")
    case("general says its scale (D16)", "config --choices score", 0, "√head_dim")
    case("an empty file", f"train --preset tiny --data empty.txt {SMALL} --out runs/empty", 1, "is empty, expected text")
    case("not UTF-8", f"train --preset tiny --data bytes.bin {SMALL} --out runs/bytes", 1, "UTF-8")
    case("paths with spaces and 한글", f"{TINY} --out 'runs/a b 한글'", 0, r"loss \d")
    case("from another run", f"{TINY} --from runs/real --out runs/tuned", 0, "11 of 11 parameters taken")
    case("adapters", f"{TINY} --from runs/real --set lora.rank=2 --out runs/adapted", 0, r"loss \d")
    case("other settings on resume: refused (D22)", "train --resume --out runs/real --set position=rotary", 1,
         'began with `model.attention.position = "polar"`, found `model.attention.position = "rotary"`')
    case("a long run, to compare with", f"{LONG} --out runs/whole", 0, "done after 1500 updates")
    same = "cmp runs/{0}/model.safetensors runs/whole/model.safetensors && echo the same bits"
    for name, signal, code in [("Ctrl-C", "INT", 130), ("TERM", "TERM", 130), ("kill", "KILL", 137)]:
        script(f"{name} in train (D13)", stopped(f"runs/{name}", signal), code, None if signal == "KILL" else "interrupted after")
        script(f"resumed after {name}, on one thread", f'RAYON_NUM_THREADS=1 "$WW" train --resume --out runs/{name} && {same.format(name)}', 0,
               "the same bits")
    script("two processes on one folder", f'"$WW" {LONG} --out runs/two & run=$!; until [ -s runs/two/metrics.jsonl ]; do sleep 0.02; done; '
           '"$WW" train --resume --out runs/two; code=$?; kill -9 $run; exit $code', 1, "in use by process")
    spoiled("weights that are cut", "truncate -s 1000 {model}", "cut short")
    spoiled("no weights", "rm {model}", "model.safetensors could not be read")
    spoiled("empty weights", ": > {model}", "0 bytes that are cut short")
    spoiled("a header of 2^62 bytes", r"printf '\0\0\0\0\0\0\0\100' | dd of={model} conv=notrunc bs=1 2>/dev/null", "a header of 4611686018427387904")
    spoiled("a byte of the weights", r"printf '\1' | dd of={model} conv=notrunc bs=1 seek=20000 2>/dev/null", "SHA-256")
    spoiled("another width", "sed -i 's/^width = 32/width = 64/' {config}", r"has shape \[256, 32\], the settings ask for \[256, 64\]")
    spoiled("an unknown setting", "echo 'stepz = 3' >> {config}", "unknown field `stepz`")
    spoiled("settings that are no text", r"printf '\377\376' > {config}", "config.toml")


def prepare(folder):
    """Data of every kind, small."""
    line = "The cat sees the dog, and the dog sees the cat.\n"
    (folder / "text.txt").write_text(line * 400)
    (folder / "other.txt").write_text("Another text, in other words.\n" * 600)
    (folder / "empty.txt").write_text("")
    (folder / "bytes.bin").write_bytes(bytes([0xFF, 0xFE, 0x00]) * 500)
    (folder / "song.mid").write_bytes(b"MThd\x00\x00\x00\x06\x00\x01\x00\x02\x01\xe0MTrk" + bytes([0x90, 0xFF]) * 100)
    rows = [(str(i), line.strip(), str(i % 2)) for i in range(400)]
    (folder / "table.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    (folder / "table.csv").write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows))
    (folder / "text.txt.xz").write_bytes(lzma.compress((line * 400).encode()))
    with zipfile.ZipFile(folder / "texts.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one.txt", line * 400)
    (folder / "megabyte.txt").write_text("It was the best of times. " * 40000)
    (folder / "folder").mkdir()
    (folder / "folder" / "text.txt").write_text(line * 2000)
    (folder / "folder" / "SOURCE.md").write_text("Written for a test.\n" * 10)
    (folder / "pairs").mkdir()
    for side, text in [("en", "the dog sees the cat\n"), ("de", "der Hund sieht die Katze\n")]:
        for part, count in [("train", 200), ("val", 20), ("valid", 20), ("test", 20)]:
            (folder / "pairs" / f"{part}.{side}").write_text(text * count)
    (folder / "lines.txt").write_text("the dog sees the cat\n\nthe cat\n")
    for label, words in [("kind", "good"), ("unkind", "bad")]:
        (folder / "classes" / label).mkdir(parents=True)
        for i in range(20):
            (folder / "classes" / label / f"{i}.txt").write_text(f"{words} {i}")
    (folder / "classes" / "README.md").write_text("Made for a test.\n")
    (folder / "labels.csv").write_text("text,label\n" + "".join(f"so {word} {i},{word}\n" for i in range(20) for word in ["good", "bad"]))
    piece = [[60, 55, 52, 48]] * 64
    (folder / "chorales.json").write_text(json.dumps({part: [piece] * 8 for part in ["train", "valid", "test"]}))


def spoil(folder):
    """A copy of the run with another tokenizer."""
    real, foreign = folder / "runs" / "real", folder / "runs" / "foreign"
    if foreign.exists() or not real.exists():
        return
    foreign.mkdir()
    for file in real.iterdir():
        if file.is_file():
            (foreign / file.name).write_bytes(file.read_bytes())
    (foreign / "tokenizer.json").write_text((real / "tokenizer.json").read_text() + "\n")


def main():
    """Runs every case and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", type=pathlib.Path)
    parser.add_argument("--only", default="", help="cases whose name or command has this")
    parser.add_argument("--markdown", action="store_true", help="a table for a page")
    options = parser.parse_args()
    command = options.command.resolve()
    for group in [resilience, mechanisms, data, comparing]:
        group()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder)
        if options.markdown:
            print("| what | exit | last words | |\n|---|---|---|---|")
        for what, words, code, expected in CASES:
            if options.only not in what and options.only not in words and what != "a run to ask":
                continue
            spoil(folder)
            line = f"set -o pipefail; {words}"
            try:
                done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300,
                                      stdin=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1", "WW": str(command)}, errors="replace")
                said, rc = done.stdout + done.stderr, done.returncode
            except subprocess.TimeoutExpired:
                said, rc = "did not end within five minutes", 124
            right = (code is None or rc == code) and (expected is None or re.search(expected, said, re.S)) \
                and "panicked" not in said
            wrong += not right
            last = next((part for part in reversed((done.stderr or done.stdout).strip().splitlines()) if part.strip()), "") \
                if rc != 124 else said
            mark = "ok" if right else "WRONG"
            if options.markdown:
                print(f"| {what} | {rc} | {last[:110].replace('|', '/')} | {mark} |", flush=True)
            else:
                print(f"{mark:5} {rc:3} {what}: {last[:150]}", flush=True)
            if not right:
                print(f"      expected exit {code} and {expected!r}: {words}\n{said[-600:]}", file=sys.stderr, flush=True)
    print(f"{wrong} of {len(CASES)} are not as expected", file=sys.stderr)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
