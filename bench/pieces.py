"""Small models of SentencePiece and what they make of texts, for the importer's tests.

    python bench/pieces.py fixtures/pieces

`unigram.model` has T5's special tokens; `unigram.json` has lists of texts and the numbers of their pieces.
"""

import json
import sys
from pathlib import Path

import sentencepiece

TEXT = """A house stands on the hill, and the hill stands over the town.
The town has a river, two bridges and a market in the morning.
Nobody in the market knows who built the house, or when.
The house has nine windows; seven of them look over the river.
When it rains, the river comes up to the first of the bridges.
""".splitlines()

ASKED = ["The house", "a river over the hill", "  two   bridges ", "xylophone, née 7", "", "rains.", "the\tmarket"]


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=str(folder / "unigram"), vocab_size=60, model_type="unigram",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    (folder / "unigram.vocab").unlink()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "unigram.model"))
    asked = [{"text": text, "ids": pieces.encode(text)} for text in ASKED]
    (folder / "unigram.json").write_text(json.dumps(asked, ensure_ascii=False, indent=1) + "\n")


main()
