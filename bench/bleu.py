"""sacreBLEU's figures for texts of our own: the truth for crates/training/src/bleu.rs and chrf.rs.

pip install sacrebleu==2.6.0
python bench/bleu.py > crates/training/tests/sacrebleu.json   # the fixture, with the same bytes each time
python bench/bleu.py --random 3000 --seed 1 > some.json       # lines of random pieces, for a wider check

Not called sacrebleu.py: Python looks for modules beside the script first, and would import the script itself.
"""

import argparse
import json
import logging
import random

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

# A segment is a hypothesis and its references.
ENGLISH = [
    ("The cat sat on the mat.", ["The cat sat on a mat."]),
    ("The cat sat on the mat.", ["The cat sat on the mat."]),
    ("A quick brown fox jumps over the lazy dog!", ["The quick brown fox jumped over the lazy dogs."]),
    ("the the the the the the the", ["The cat is on the mat", "There is a cat on the mat"]),
    ("It is a guide to action which ensures that the military always obeys the commands of the party.", [
        "It is a guide to action that ensures that the military will forever heed Party commands.",
        "It is the guiding principle which guarantees the military forces always being under the command of the Party.",
        "It is the practical guide for the army always to heed the directions of the party.",
    ]),
    ("He said: \"I can't, won't and shouldn't go.\"", ["He said, \"I cannot, will not and should not go.\""]),
    ("Well-known state-of-the-art methods (2017-2024) were compared.", ["Well known, state of the art methods (2017–2024) were compared."]),
    ("Hello", ["Hello"]),
    ("Hello", ["Goodbye"]),
    ("two words", ["two words"]),
    ("two words more", ["two words less"]),
    ("Stop.", ["Stop!"]),
]
GERMAN = [
    ("Der schnelle braune Fuchs springt über den faulen Hund.", ["Der flinke braune Fuchs springt über den trägen Hund."]),
    ("Größe und Maße: 3,5 m × 2,10 m.", ["Grösse und Masse: 3,5 m x 2,10 m."]),
    ("„Straße“ schreibt man mit ß, nicht mit ss.", ["»Straße« schreibt man mit ß, nicht mit „ss“."]),
    ("Am 3. Mai 2024 um 14:30 Uhr trafen sich ca. 1.500 Leute.", ["Am 3. Mai 2024 trafen sich um 14.30 Uhr etwa 1500 Menschen."]),
    ("Das kostet 1.234,56 € (inkl. MwSt.).", ["Das kostet 1.234,56 EUR inkl. MwSt."]),
    ("DIE ÄRZTE ÜBERQUEREN DIE ÖDE STRASSE", ["Die Ärzte überqueren die öde Straße"]),
    ("Donaudampfschifffahrtsgesellschaftskapitän", ["Donau-Dampfschifffahrts-Gesellschafts-Kapitän"]),
]
OTHERS = [
    ("나는 어제 학교에 갔습니다.", ["저는 어제 학교에 갔어요."]),
    ("안녕하세요, 세계!", ["안녕하세요 세계!"]),
    ("오늘 날씨가 아주 좋습니다. 산책을 갑시다!", ["오늘은 날씨가 참 좋네요. 산책하러 갑시다!", "날씨가 아주 좋습니다. 걸읍시다!"]),
    ("서울의 인구는 약 9,400,000명이다.", ["서울 인구는 약 940만 명이다."]),
    ("私は昨日学校へ行きました。", ["昨日、私は学校に行った。"]),
    ("我们昨天去了学校。", ["昨天我们去学校了。"]),
    ("Où est la bibliothèque ? Elle est là-bas, à côté de l’école.", ["Où se trouve la bibliothèque? Elle est là, à côté de l'école."]),
    ("¿Cuánto cuesta? ¡Cuesta 5,99 $!", ["¿Cuánto vale? ¡Vale 5.99 dólares!"]),
    ("Привет, мир! Как дела?", ["Привет мир. Как твои дела?"]),
    ("ΟΔΥΣΣΕΥΣ ΚΑΙ ΣΟΦΟΣ", ["Οδυσσεύς και σοφός"]),
    ("İstanbul ve IĞDIR", ["istanbul ve ığdır"]),
    ("👩‍🚀 goes to the 🌙!", ["👨‍🚀 went to the 🌙."]),
    ("cafe\u0301 au lait", ["café au lait"]),
]
MARKS = [
    ("Tom &amp; Jerry &lt;3 &quot;cheese&quot; &gt; milk", ["Tom & Jerry <3 \"cheese\" > milk"]),
    ("&amp;lt;b&amp;gt; and &apos;quotes&apos; &#39;", ["&lt;b&gt; and 'quotes' '"]),
    ("<skipped> text with <skipped>markers", ["text with markers"]),
    ("a hyphen-\nated word over\ntwo lines-\n", ["a hyphenated word over two lines"]),
    ("wait...what?! no,no.no", ["wait ... what ?! no, no. no"]),
    (".,.,.,", [",.,.,."]),
    ("1.2.3,4,5.", ["1.2.3,4,5 ."]),
    ("-5 - 5-5 5--5 a-5 5-a", ["-5 -5 5 - 5 a - 5 5 - a"]),
    ("v1.2.3-rc.1, 10.0.0.1:8080/path?q=a&b=c#d", ["v1.2.3-rc.1 at 10.0.0.1:8080/path?q=a&b=c#d"]),
    ("mail@example.org, http://example.org/~me_and_you", ["mail@example.org or http://example.org/~me_and_you"]),
    ("[x]{y}(z)<w>|v|\\u\\`t`^s^_r_~q~", ["[x] {y} (z) <w> |v| \\u\\ `t` ^s^ _r_ ~q~"]),
    ("100% of $1,000.00 = £800 + €5.5 * ¥3; #1 @home", ["100 % of $1,000.00 is £800 + €5.50 * ¥3 ; #1 at home"]),
    ("'single' 'quotes', don't 'tis rock'n'roll's", ["‘single’ ‘quotes’, don’t ’tis rock’n’roll’s"]),
    ("٣٫١٤, 3.14 and ３．１４", ["3.14, ٣٫١٤ and ３．１４"]),
]
SPACES = [
    ("", [""]),
    ("", ["Something was here."]),
    ("Something was here.", [""]),
    ("   ", ["\t\n"]),
    ("  leading and trailing \t ", ["leading and trailing"]),
    ("no\u00a0break\u2003wide\u3000space\u200bzero", ["no break wide space zero"]),
    ("file\x1cgroup\x1drecord\x1eunit\x1fnext\x85line", ["file group record unit next line"]),
    ("tab\tseparated\tvalues\r", ["tab separated values"]),
    (".", ["."]),
    ("a", ["b", "a", "c"]),
    ("a b c d e f", ["a b c d", "a b c d e f g h"]),
    ("short", ["a much longer reference than the hypothesis", "short one", ""]),
    ("UPPER lower MiXeD", ["upper LOWER mixed"]),
    ("one two three four five six seven eight", ["eight seven six five four three two one"]),
]
GROUPS = {"english": ENGLISH, "german": GERMAN, "others": OTHERS, "marks": MARKS, "spaces": SPACES}
PIECES = list("aAbB019.,,..--''\"&;:/<>()[]$%é한 ßΣ   \n\t") + ["&amp;", "&lt;", "&quot;", "<skipped>", "-\n", "the ", "cat ", "3.5", "well-"]


def corpora(groups):
    """Name, segments by number, and references per segment (None: as many as each has; else the first, again if need be)."""
    first = 0
    for name, group in groups.items():
        yield name, range(first, first + len(group)), None
        first += len(group)
    yield "all", range(first), None
    yield "one reference", range(first), 1
    yield "two references", range(first), 2


def with_references(segment, count):
    hypothesis, references = segment
    return hypothesis, references if count is None else (references * count)[:count]


def random_groups(count, seed):
    draw = random.Random(seed)

    def line():
        return "".join(draw.choices(PIECES, k=draw.randrange(40)))

    def near(text):
        at = draw.randrange(len(text) + 1)
        return text[:at] + draw.choice(PIECES) + text[at + draw.randrange(4) :]

    segments = []
    for _ in range(count):
        hypothesis = line()
        segments.append((hypothesis, [near(near(hypothesis)) for _ in range(draw.randrange(1, 4))]))
    return {"random": segments}


def columns(segments):
    """References as sacreBLEU takes them: one list per reference, None where a segment has fewer."""
    most = max(len(references) for _, references in segments)
    return [[r[i] if i < len(r) else None for _, r in segments] for i in range(most)]


def bleu(segments, tokenizer, lowercase, smoothing, sentence):
    metric = BLEU(tokenize=tokenizer, lowercase=lowercase, smooth_method=smoothing, effective_order=sentence)
    score = metric.corpus_score([h for h, _ in segments], columns(segments))
    return {
        "tokenizer": tokenizer,
        "lowercase": lowercase,
        "smoothing": smoothing,
        "score": score.score,
        "precisions": list(score.precisions),
        "matches": list(score.counts),
        "totals": list(score.totals),
        "brevity_penalty": score.bp,
        "length": score.sys_len,
        "reference_length": score.ref_len,
        "signature": str(metric.get_signature()),
        "line": str(score),
    }


def chrf(segments, word_order, lowercase):
    metric = CHRF(word_order=word_order, lowercase=lowercase)
    score = metric.corpus_score([h for h, _ in segments], columns(segments))
    return {
        "word_order": word_order,
        "lowercase": lowercase,
        "score": score.score,
        "signature": str(metric.get_signature()),
        "line": str(score),
    }


def fixture(groups):
    every = [segment for group in groups.values() for segment in group]
    sentences = []
    for hypothesis, references in every:
        one = [(hypothesis, references)]
        sentences.append({
            "hypothesis": hypothesis,
            "references": references,
            "bleu": [bleu(one, "13a", False, "exp", True)["score"], bleu(one, "13a", True, "exp", True)["score"]],
            "tokenizers": {name: bleu(one, name, False, "exp", True)["score"] for name in ("none", "char")},
            "chrf": [chrf(one, 0, False)["score"], chrf(one, 2, False)["score"]],
        })
    whole = []
    for name, numbers, count in corpora(groups):
        segments = [with_references(every[number], count) for number in numbers]
        whole.append({
            "name": name,
            "first": numbers.start,
            "end": numbers.stop,
            "references": count,
            "bleu": [
                bleu(segments, tokenizer, lowercase, smoothing, False)
                for tokenizer in ("13a", "none", "char")
                for lowercase in (False, True)
                for smoothing in ("exp", "none")
            ],
            "chrf": [chrf(segments, order, lowercase) for order in (0, 2) for lowercase in (False, True)],
        })
    return {"sacrebleu": sacrebleu.__version__, "sentences": sentences, "corpora": whole}


def write(figures):
    """One line per sentence and corpus, so that a difference can be read."""
    sentences, corpora = (
        ",\n".join(json.dumps(line, ensure_ascii=False) for line in figures[key]) for key in ("sentences", "corpora")
    )
    version = json.dumps(figures["sacrebleu"])
    print(f'{{"sacrebleu": {version},\n"sentences": [\n{sentences}\n],\n"corpora": [\n{corpora}\n]}}')


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="sacreBLEU's figures as JSON")
    arguments.add_argument("--random", type=int, help="segments of random pieces instead of ours")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    logging.disable(logging.WARNING)
    groups = random_groups(options.random, options.seed) if options.random else GROUPS
    write(fixture(groups))
