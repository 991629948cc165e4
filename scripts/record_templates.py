#!/usr/bin/env python3
"""Records what Python's jinja2 renders, as the expected texts of EMEL's chat template tests.

    python3 scripts/record_templates.py [--models DIR] [--check]

Reads the templates in DIR/templates (DIR is EMEL_MODELS_DIR, else ./models; fetched by
scripts/fetch_models.sh) and the snippets in benchdata/golden/templates/dialect.jinja.txt
(separated by lines of four equal signs), renders them in the environment that Hugging Face's
transformers builds for chat templates, and writes into benchdata/golden/templates/:

    conversations.json   the inputs: conversations, rendering options, tokens, the pinned time
    dialect.json         snippets, each with the text (or the error) jinja2 gives
    NAME.json            per template: its sha256, the distinct outcomes, and for each
                         conversation, prompt flag and thinking flag the outcome's number

    builtin.json         with --llama-cpp SRC (a source tree of llama.cpp; needs g++): what its
                         own renderer makes of conversations, for each of its template names

An outcome is {"text": ...}, {"raise": message} for a template's own raise_exception, or
{"error": "Type: message"} for anything else that stops the template. --check renders again and
fails when a file on disk differs. Needs only jinja2 (recorded with 3.1.6).
"""

import argparse
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "benchdata" / "golden" / "templates"

# One-digit day, hour, minute and second, so that padding shows.
NOW = datetime.datetime(2026, 7, 4, 9, 5, 3)
TOKENS = {"bos_token": "<|bos|>", "eos_token": "<|eos|>"}


class Generation(Extension):
    """{% generation %} ... {% endgeneration %}: transformers marks the assistant's text with it.

    The body is a call block there, so it has a scope of its own; the text is unchanged."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class Raised(Exception):
    """A template called raise_exception."""


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)
    return env


ENVIRONMENT = environment()


@functools.cache
def compiled(source):
    return ENVIRONMENT.from_string(source)


def outcome(source, variables):
    try:
        return {"text": compiled(source).render(**variables)}
    except Raised as raised:
        return {"raise": str(raised)}
    except RecursionError:
        return {"error": "RecursionError"}
    except Exception as error:  # whatever jinja2 or a Python method throws
        return {"error": f"{type(error).__name__}: {error}"}


def msg(role, content, **extra):
    return {"role": role, "content": content, **extra}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Look up today's \"weather\" <now> & here\nin a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Città, 都市"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "default": 1},
                "hours": {"type": "array", "items": {"type": "number"}},
                "exact": {"type": ["boolean", "null"], "nullable": True},
                "place": {
                    "type": "object",
                    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                    "required": ["lat"],
                },
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "The time.",
        "parameters": {"type": "object", "properties": {}},
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "First"},
                "b": {"type": "number", "description": "Second"},
            },
            "required": ["a", "b"],
        },
    },
}
CALL = {
    "id": "call12345",
    "type": "function",
    "function": {
        "name": "get_weather",
        "arguments": {"city": "Łódź", "days": 2, "exact": True, "hours": [1, 2.5], "unit": None},
    },
}

CONVERSATIONS = {
    "system_user_assistant_user": {
        "messages": [
            msg("system", "You are terse."),
            msg("user", "What is 2+2?"),
            msg("assistant", "4"),
            msg("user", "And 3*3?"),
        ]
    },
    "user": {"messages": [msg("user", "Hello there")]},
    "system_user": {"messages": [msg("system", "Be kind."), msg("user", "Hi!")]},
    "user_assistant_user": {
        "messages": [
            msg("user", "  Leading, trailing \n"),
            msg("assistant", "\n\nYes: \"quoted\" & 'it's' <b>bold</b> \\n {{ x }} \n"),
            msg("user", "Zażółć 你好 🦀\ttab"),
        ]
    },
    "thinking": {
        "messages": [
            msg("system", "Think first."),
            msg("user", "One?"),
            msg("assistant", "<think>\nLet me see.\n</think>\n\nOne."),
            msg("user", "Two?"),
            msg("assistant", "<think>\n\n</think>\n\nTwo.", reasoning_content="Hm, two."),
            msg("user", "Three?"),
        ]
    },
    "ends_with_assistant": {
        "messages": [msg("user", "Finish: roses are"), msg("assistant", "red, violets")]
    },
    "two_users": {"messages": [msg("user", "One"), msg("user", "Two")]},
    "assistant_first": {"messages": [msg("assistant", "I begin."), msg("user", "So?")]},
    "late_system": {
        "messages": [msg("user", "Hi"), msg("system", "Now be formal."), msg("user", "Well?")]
    },
    "unknown_role": {"messages": [msg("narrator", "Once upon a time"), msg("user", "Go on")]},
    "empty_texts": {"messages": [msg("system", ""), msg("user", "")]},
    "no_messages": {"messages": []},
    "tools_offered": {
        "messages": [msg("system", "Use tools."), msg("user", "Weather in Łódź?")],
        "kwargs": {"tools": [WEATHER, CLOCK]},
    },
    "tool_call": {
        "messages": [
            msg("system", "Use tools."),
            msg("user", "Weather in Łódź?"),
            {"role": "assistant", "content": "Looking.", "tool_calls": [CALL]},
            msg("tool", "{\"temp\": 21}", tool_call_id="call12345", name="get_weather"),
            msg("assistant", "21 degrees."),
            msg("user", "Thanks"),
        ],
        "kwargs": {"tools": [WEATHER, CLOCK]},
    },
    "simple_tools": {
        "messages": [
            msg("system", "Use tools."),
            msg("user", "What is 2+3?"),
            msg("assistant", "5"),
            msg("user", "And 4+4?"),
        ],
        # firefunction names its tools `functions` and its date `datetime`
        "kwargs": {"tools": [ADD], "functions": [ADD], "datetime": "2026-07-04"},
    },
    # What a host other than transformers does: the names are not there at all.
    "undefined_tools": {
        "messages": [
            msg("system", "You are terse."),
            msg("user", "What is 2+2?"),
            msg("assistant", "4"),
            msg("user", "And 3*3?"),
        ],
        "undefined": ["tools", "documents"],
    },
    "null_content": {
        "messages": [
            msg("user", "Weather?"),
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            msg("tool", "rain", tool_call_id="call12345", name="get_weather"),
        ],
        "kwargs": {"tools": [WEATHER]},
    },
    "typed_content": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Part one. "},
                                         {"type": "text", "text": "Part two."}]},
        ]
    },
}
THINKING = {"absent": {}, "true": {"enable_thinking": True}, "false": {"enable_thinking": False}}


def cases():
    """Yields (key, variables) for every rendering of one template."""
    for name, conversation in CONVERSATIONS.items():
        for prompt in (True, False):
            for flag, extra in THINKING.items():
                variables = {
                    # transformers always passes these two, None when not given
                    "tools": None,
                    "documents": None,
                    "messages": conversation["messages"],
                    "add_generation_prompt": prompt,
                    **TOKENS,
                    **extra,
                    **conversation.get("kwargs", {}),
                }
                for absent in conversation.get("undefined", []):
                    del variables[absent]
                yield f"{name}/{'prompt' if prompt else 'bare'}/{flag}", variables


def record_template(path):
    raw = path.read_bytes()
    source = raw.decode()
    seen, outcomes, table = {}, [], {}
    for key, variables in cases():
        result = outcome(source, json.loads(json.dumps(variables)))
        index = seen.setdefault(json.dumps(result, sort_keys=True), len(outcomes))
        if index == len(outcomes):
            outcomes.append(result)
        table[key] = index
    return {"sha256": hashlib.sha256(raw).hexdigest(), "outcomes": outcomes, "cases": table}


# Variables every snippet of the dialect sees.
DIALECT_VARIABLES = {
    "s": "Hello, World",
    "pad": " \t x y \n",
    "uni": "Straße ŁÓDŹ ß",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "big": 1e22,
    "tiny": 1e-7,
    "whole": 3.0,
    "t": True,
    "no": None,
    "empty": "",
    "xs": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": {"items": [1, 2], "x": None}, "items": "key", "C": "</b>'\""},
    "rows": [
        {"name": "x", "n": 2, "tags": []},
        {"name": "y", "n": 1},
        {"name": "Z", "n": 2, "tags": ["q"]},
    ],
    "nested": [[1, "it's"], {"k": "say \"hi\""}, [], {}, [None, True, 1.0]],
}


def snippets():
    text = (OUT / "dialect.jinja.txt").read_text()
    return text.removesuffix("\n").split("\n====\n")


def record_dialect():
    return {
        "variables": DIALECT_VARIABLES,
        "snippets": [
            {"source": source, **outcome(source, json.loads(json.dumps(DIALECT_VARIABLES)))}
            for source in snippets()
        ],
    }


def record_inputs():
    return {
        "now": NOW.isoformat(),
        "tokens": TOKENS,
        "thinking": list(THINKING),
        "conversations": CONVERSATIONS,
    }


# Conversations for the built-in templates: (role, text) pairs.
PLAIN = [
    [("system", " Be terse.\n"), ("user", "  2+2? "), ("assistant", " 4\n"), ("user", "3*3?")],
    [("user", "Hello there")],
    [("user", "Hi"), ("assistant", "Hello!")],
    [("system", "One."), ("system", "Two."), ("user", "a"), ("user", "b"), ("assistant", "c")],
    [("assistant", "I begin."), ("user", "So?")],
    [("system", "Alone")],
    [("user", "x"), ("tool", "y"), ("user", "z"), ("system", "late"), ("assistant", "")],
    [("user", "x"), ("assistant_tool_call", "f()"), ("function", "8"), ("assistant", "8")],
    [],
]

RENDERER = r"""
#include "llama.h"
#include "llama-chat.h"
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>
static std::string word() { std::string s; std::getline(std::cin, s, '\0'); return s; }
int main() {
    // name, prompt flag, count, then role and text of each message, all ended by a NUL
    while (std::cin.peek() != EOF) {
        std::string name = word();
        bool prompt = word() == "1";
        size_t count = std::stoul(word());
        std::vector<std::string> words;
        for (size_t i = 0; i < 2 * count; i++) words.push_back(word());
        std::vector<llama_chat_message> messages;
        for (size_t i = 0; i < count; i++)
            messages.push_back({words[2 * i].c_str(), words[2 * i + 1].c_str()});
        std::vector<const llama_chat_message *> chat;
        for (auto & m : messages) chat.push_back(&m);
        std::string out;
        llm_chat_apply_template(llm_chat_template_from_str(name), chat, out, prompt);
        std::cout << out << '\0';
    }
}
"""


def record_builtin(tree):
    """Renders PLAIN with llama.cpp's own templates."""
    source = (tree / "src" / "llama-chat.cpp").read_text()
    table = source.split("LLM_CHAT_TEMPLATES = {")[1].split("};")[0]
    names = sorted(re.findall(r'\{ "([^"]+)"', table))
    jobs = [(n, p, c) for n in names for p in (True, False) for c in range(len(PLAIN))]
    words = []
    for name, prompt, index in jobs:
        words += [name, "1" if prompt else "0", str(len(PLAIN[index]))]
        words += [word for message in PLAIN[index] for word in message]
    with tempfile.TemporaryDirectory() as folder:
        main = pathlib.Path(folder, "main.cpp")
        main.write_text(RENDERER)
        binary = pathlib.Path(folder, "main")
        includes = [f"-I{tree / part}" for part in ("src", "include", "ggml/include")]
        command = ["g++", "-std=c++17", *includes, main, tree / "src" / "llama-chat.cpp"]
        subprocess.run([*command, "-o", binary], check=True)
        feed = "".join(word + "\0" for word in words).encode()
        out = subprocess.run([binary], input=feed, stdout=subprocess.PIPE, check=True).stdout
    texts = out.decode().split("\0")[:-1]
    result = {name: {"prompt": [], "bare": []} for name in names}
    for (name, prompt, _), text in zip(jobs, texts, strict=True):
        result[name]["prompt" if prompt else "bare"].append(text)
    return {"conversations": PLAIN, "templates": result}


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("EMEL_MODELS_DIR") or str(ROOT / "models")
    args.add_argument("--models", default=default, help="directory that holds templates/")
    args.add_argument("--check", action="store_true", help="compare instead of writing")
    args.add_argument("--llama-cpp", type=pathlib.Path, help="source tree, for builtin.json")
    args = args.parse_args()

    templates = sorted(pathlib.Path(args.models, "templates").glob("*.jinja"))
    if not templates:
        sys.exit(f"no templates in {args.models}/templates: run scripts/fetch_models.sh")
    files = {"conversations.json": record_inputs(), "dialect.json": record_dialect()}
    if args.llama_cpp:
        files["builtin.json"] = record_builtin(args.llama_cpp)
    for path in templates:
        files[path.stem + ".json"] = record_template(path)

    OUT.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, content in files.items():
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"
        target = OUT / name
        if args.check:
            if not target.exists() or target.read_text() != text:
                stale.append(name)
        else:
            target.write_text(text)
    if stale:
        sys.exit("stale: " + ", ".join(stale))
    print(f"{len(templates)} templates, {len(files['dialect.json']['snippets'])} snippets")


if __name__ == "__main__":
    main()
