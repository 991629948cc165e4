#!/usr/bin/env python3
"""Record what llama.cpp's llama-tokenize makes of a few texts, as golden vectors.

    python3 scripts/record_tokenizer.py LLAMA_TOKENIZE MODELS_DIR

writes benchdata/golden/tokenizer/llama-tokenize.jsonl: a first line that says where the ids come
from, then one object a line: the vocabulary file (below MODELS_DIR), the pre-tokenizer that
replaced the file's own in a copy (or null), whether special tokens were parsed, the text, and the
ids, without BOS. (llama-tokenize does not pass --override-kv on, hence the copies.) Needs the models of scripts/fetch_models.sh and nothing but Python.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

TEXTS = [
    # Prose, contractions, numbers, code.
    "It's what they'd've said: WE'LL see, I'M sure. 'tis 1999, 3.14159, 1,000,000 and 12345678!\n"
    "fn main() {\n\tlet x_1 = vec![0u8; 1 << 20];   // HTTPServer::parseXML\n    if a&&b||!c {}\n}\n"
    "http://x.y/z?q=1&r=2#t  <b>bold</b>   $100 + €5 = ???...\r\n\r\n  end ",
    # Scripts, marks, spaces, symbols.
    "Ünïcödé naïve ÉCOLE éABC straße ǅ Привет МИР 你好，世界。こんにちは カタカナ 한국어 العربية हिन्दी "
    "ไทย ελληνικά 𝔘𝔫𝔦 e\u0301\u0301 ½ Ⅷ ①② १२३ 🙂🙃 👨\u200d👩\u200d👧 ▁▁x Ġx ﬁ "
    "\u00a0nbsp\u3000wide\u2028line\u0085next\u200bzero \x01\x02 \t\t\n \n\n\n tail \u3000",
    # Texts of special tokens of several vocabularies.
    "<s> <|im_start|>system\nHi<|im_end|>\n<bos><start_of_turn>user\n<unused12><0x0A>"
    "<|begin_of_text|><|eot_id|> a</s>\n<|endoftext|> <|end|>  \n x<unk>[INST]<h1>\t\t</h1>",
]

# (vocabulary, pre-tokenizer that replaces its own)
CASES = [
    ("SmolLM2-135M-Instruct.Q4_1.gguf", None),
    ("gemma-3-270m-Q4_K_M.gguf", None),
    *((f"vocab/ggml-vocab-{name}.gguf", None)
      for name in ("aquila", "baichuan", "gpt-neox", "phi-3", "gemma-4", "llama-bpe")),
    *(("vocab/ggml-vocab-gpt-2.gguf", pre)
      for pre in ("default", "tekken", "gpt-4o", "deepseek-v3", "lfm2", "qwen35", "falcon")),
]


def with_pre(model, pre, directory):
    """A copy of a vocabulary-only file that names another pre-tokenizer."""
    data = model.read_bytes()
    key = b"tokenizer.ggml.pre"
    start = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
    kind, length = struct.unpack_from("<IQ", data, start)
    assert kind == 8, "the name is a string"
    name = pre.encode()
    head = data[:start] + struct.pack("<IQ", 8, len(name)) + name
    copy = pathlib.Path(directory) / f"{model.stem}-{pre}.gguf"
    copy.write_bytes(head + data[start + 12 + length:])
    return copy


def tokenize(program, model, parse_special, path):
    command = [program, "-m", str(model), "--ids", "--no-bos", "--no-escape", "--log-disable",
               "-f", path]
    if not parse_special:
        command.append("--no-parse-special")
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(shown.strip().splitlines()[-1])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, models = sys.argv[1], pathlib.Path(sys.argv[2])
    root = pathlib.Path(__file__).resolve().parent.parent
    out = root / "benchdata/golden/tokenizer/llama-tokenize.jsonl"
    origin = ("llama-tokenize of llama.cpp as in llama-cpp-python 0.3.36: -m MODEL --ids --no-bos "
              "--no-escape -f TEXT [--no-parse-special], tokenizer.ggml.pre replaced where `pre` is given")
    lines = [json.dumps({"origin": origin, "recorded_by": "scripts/record_tokenizer.py"})]
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "text"
        for model, pre in CASES:
            file = models / model if pre is None else with_pre(models / model, pre, directory)
            for text in TEXTS:
                path.write_text(text, encoding="utf-8", newline="")
                for parse_special in (True, False) if text is TEXTS[-1] else (False,):
                    ids = tokenize(program, file, parse_special, str(path))
                    lines.append(json.dumps(
                        {"model": model, "pre": pre, "parse_special": parse_special,
                         "text": text, "ids": ids}, ensure_ascii=False))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{out}: {len(lines) - 1} vectors")


if __name__ == "__main__":
    main()
