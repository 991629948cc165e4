//! llama.cpp's flags that emel-run does not have. They are known so that the refusal names
//! the flag and says what to do, instead of taking `-hf` for `-h -f`.

use super::flag::Act::Refused;
use super::flag::{Chapter, Flag};

/// An item; those with a reason to appear in a chapter stand in the other files.
const fn refused(
    long: &'static str,
    also: &'static [&'static str],
    dash: &'static [&'static str],
    value: bool,
    why: &'static str,
) -> Flag {
    let act = Refused { value, why };
    Flag {
        long,
        also,
        dash,
        env: &[],
        chapter: Chapter::Engine,
        help: "",
        more: "",
        act,
    }
}

const HUB: &str = "it loads no models from a hub; download the file and name it with -m";
const PIN: &str = "it does not pin threads; start it under taskset";
const CONSTRAIN: &str = "output cannot be constrained yet";
const CACHE: &str = "prompt state is not saved yet";
const DRAFT: &str = "it drafts without a second model; use --spec-type ngram-simple";
const GPU: &str = "it computes on the CPU alone";
const ROPE: &str = "rope follows the model's metadata; change it with --override-kv";
const ADAPTER: &str = "adapters and control vectors are not supported";
const INTERACTIVE: &str = "use chat mode (-cnv), with --chat-template if the model has none";
const LOG: &str = "messages go to standard error; redirect it (2> FILE)";

pub(super) const FLAGS: &[Flag] = &[
    refused("hf-repo", &[], &["hf", "hfr"], true, HUB),
    refused("hf-file", &[], &["hff"], true, HUB),
    refused("hf-token", &[], &["hft"], true, HUB),
    refused("model-url", &[], &["mu"], true, HUB),
    refused("docker-repo", &[], &["dr"], true, HUB),
    refused("offline", &[], &[], false, HUB),
    refused("cpu-mask", &[], &["C"], true, PIN),
    refused("cpu-range", &[], &["Cr"], true, PIN),
    refused("cpu-strict", &[], &[], true, PIN),
    refused("cpu-mask-batch", &[], &["Cb"], true, PIN),
    refused("cpu-range-batch", &[], &["Crb"], true, PIN),
    refused("cpu-strict-batch", &[], &[], true, PIN),
    refused("prio", &[], &[], true, "start it under nice"),
    refused(
        "poll",
        &[],
        &[],
        true,
        "its worker threads decide when to sleep",
    ),
    refused("numa", &[], &[], true, "start it under numactl"),
    refused(
        "no-mmap",
        &[],
        &[],
        false,
        "the model file is always mapped",
    ),
    refused("mlock", &[], &[], false, "memory is not locked"),
    refused(
        "check-tensors",
        &[],
        &[],
        false,
        "tensor data is not checked yet",
    ),
    refused(
        "no-repack",
        &[],
        &["nr"],
        false,
        "weights are always packed; results do not differ",
    ),
    refused(
        "context-shift",
        &[],
        &[],
        false,
        "generation stops when the context is full; -c N makes it larger",
    ),
    refused(
        "swa-full",
        &[],
        &[],
        false,
        "the cache always keeps every position",
    ),
    refused("device", &[], &["dev"], true, GPU),
    refused("split-mode", &[], &["sm"], true, GPU),
    refused("tensor-split", &[], &["ts"], true, GPU),
    refused("main-gpu", &[], &["mg"], true, GPU),
    refused("override-tensor", &[], &["ot"], true, GPU),
    refused("fit", &[], &["fit"], true, GPU),
    refused("rope-scaling", &[], &[], true, ROPE),
    refused("rope-scale", &[], &[], true, ROPE),
    refused("rope-freq-base", &[], &[], true, ROPE),
    refused("rope-freq-scale", &[], &[], true, ROPE),
    refused("lora", &[], &[], true, ADAPTER),
    refused("lora-scaled", &[], &[], true, ADAPTER),
    refused("control-vector", &[], &[], true, ADAPTER),
    refused("interactive", &[], &["i"], false, INTERACTIVE),
    refused("interactive-first", &[], &["if"], false, INTERACTIVE),
    refused("in-prefix", &[], &[], true, INTERACTIVE),
    refused("in-prefix-bos", &[], &[], false, INTERACTIVE),
    refused("in-suffix", &[], &[], true, INTERACTIVE),
    refused(
        "no-jinja",
        &[],
        &[],
        false,
        "templates are always rendered as Jinja",
    ),
    refused(
        "reasoning-format",
        &[],
        &[],
        true,
        "thinking is shown as the model writes it",
    ),
    refused("grammar", &[], &[], true, CONSTRAIN),
    refused("grammar-file", &[], &[], true, CONSTRAIN),
    refused("json-schema", &[], &["j"], true, CONSTRAIN),
    refused("json-schema-file", &[], &["jf"], true, CONSTRAIN),
    refused(
        "adaptive-target",
        &[],
        &[],
        true,
        "there is no adaptive-p sampler",
    ),
    refused(
        "adaptive-decay",
        &[],
        &[],
        true,
        "there is no adaptive-p sampler",
    ),
    refused("backend-sampling", &[], &["bs"], false, GPU),
    refused("prompt-cache", &[], &[], true, CACHE),
    refused("prompt-cache-all", &[], &[], false, CACHE),
    refused("prompt-cache-ro", &[], &[], false, CACHE),
    refused("model-draft", &[], &["md"], true, DRAFT),
    refused("log-file", &[], &[], true, LOG),
    refused("log-jsonl", &[], &[], false, LOG),
    refused(
        "print-token-count",
        &[],
        &["ptc"],
        true,
        "the timings block counts the tokens",
    ),
];
