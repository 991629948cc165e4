"""Writes the tables of docs/parity.md from the reports that scripts/parity.sh made.

usage: parity_table.py FOLDER, which holds MODEL.PROMPT.json, one report of `emel-compare run` each.
"""

import json
import statistics
import sys
from pathlib import Path

INTRODUCTION = """# Parity

Written by `scripts/parity.sh`: greedy generation of 128 tokens after each prompt of
`benchdata/prompts/parity`, by EMEL and by llama.cpp in each of the configurations that change its
bits, on two threads (docs/compare.md says how each figure comes about). The chat prompt is given
as a user's turn would be without a template: as plain text.

"First split" is the first generated token in which a configuration and EMEL differ, with its
cause; "same" means that all tokens agree. Divergences are means in nats over positions of EMEL's
stream, fed to everybody: KL to the oracle (exact arithmetic) at some sixteen positions and the
splits of each prompt, KL(EMEL ‖ configuration) and KL(first configuration ‖ configuration) at all.
"""

CAUSES = {
    "near_tie": "near tie",
    "reference_spread": "its own spread",
    "numeric_defect": "**defect**",
    "stop_rule": "stop rule",
    "unknown": "**unknown**",
}


def load(folder):
    """Reports by model, then by prompt."""
    models = {}
    for path in sorted(Path(folder).glob("*.json")):
        model, prompt = path.stem.rsplit(".", 1)
        models.setdefault(model, {})[prompt] = json.loads(path.read_text())
    return models


def engines(report):
    return {engine["label"]: engine for engine in report["replay"]["engines"]}


def split(engine):
    if engine["error"]:
        return "failed"
    if engine["first_split"] is None:
        return "same" if engine["cause"] is None else CAUSES[engine["cause"]]
    return f'{engine["first_split"]}, {CAUSES.get(engine["cause"], engine["cause"])}'


def weighted(reports, label, key):
    """Mean divergence over all positions of all prompts; none where nobody was asked."""
    total = positions = 0
    for report in reports.values():
        agreement = engines(report)[label][key]
        if agreement:
            total += agreement["kl"]["mean"] * agreement["positions"]
            positions += agreement["positions"]
    return total / positions if positions else None


def disagreements(reports, label, key):
    counted = [engines(report)[label][key] for report in reports.values()]
    counted = [agreement for agreement in counted if agreement]
    if not counted:
        return ""
    wrong = sum(agreement["disagreements"] for agreement in counted)
    return f'{wrong} of {sum(agreement["positions"] for agreement in counted)}'


def number(value):
    return "" if value is None else f"{value:.2e}"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(head, rows, left=1):
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join([row(head), row(rule)] + [row(cells) for cells in rows]) + "\n"


def main():
    print(INTRODUCTION)
    for model, reports in load(sys.argv[1]).items():
        prompts = list(reports)
        labels = list(engines(reports[prompts[0]]))
        print(f"## {model}\n\nFirst split from EMEL, by prompt:\n")
        rows = [
            [label] + [split(engines(reports[prompt])[label]) for prompt in prompts]
            for label in labels[1:]
        ]
        print(table(["configuration"] + prompts, rows, left=1 + len(prompts)))
        print("How far everybody lies from exact arithmetic, from EMEL, and from the first:\n")
        rows = [
            [
                label,
                number(weighted(reports, label, "to_oracle")),
                disagreements(reports, label, "to_oracle"),
                number(weighted(reports, label, "to_emel")),
                disagreements(reports, label, "to_emel"),
                number(weighted(reports, label, "to_reference")),
                disagreements(reports, label, "to_reference"),
            ]
            for label in labels
        ]
        head = ["engine", "KL to oracle", "other tokens", "KL to EMEL", "other tokens"]
        print(table(head + ["KL to the first", "other tokens"], rows))
        oracle = {label: weighted(reports, label, "to_oracle") for label in labels}
        others = [value for label, value in oracle.items() if label != labels[0] and value]
        if oracle[labels[0]] and others:
            ratio = min(others) / oracle[labels[0]]
            print(
                f"EMEL's distance to the oracle is {oracle[labels[0]]:.2e}, the closest "
                f"configuration's {min(others):.2e} ({ratio:.2f} times), the median "
                f"configuration's {statistics.median(others):.2e}.\n"
            )


if __name__ == "__main__":
    main()
