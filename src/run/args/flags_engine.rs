//! Flags about the model, the engine and what it computes.

use emel_kernels::{CacheType, Level};

use super::config::Predict;
use super::flag::Act::{Set, Toggle, Value};
use super::flag::{Chapter, Flag};
use crate::engine::Route;
use crate::gguf::parse_overrides;

/// More threads than any machine has cores is a slip of the finger.
const MAX_THREADS: i64 = emel_kernels::MAX_LANES as i64;

/// The types of a cache by their names.
const CACHE_TYPES: [(&str, CacheType); CacheType::ALL.len()] = {
    let mut named = [("", CacheType::F16); CacheType::ALL.len()];
    let mut i = 0;
    while i < named.len() {
        named[i] = (CacheType::ALL[i].name(), CacheType::ALL[i]);
        i += 1;
    }
    named
};

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        long: "model",
        also: &[],
        dash: &["m"],
        env: &["EMEL_MODEL", "LLAMA_ARG_MODEL"],
        chapter: Chapter::Model,
        help: "GGUF model file [default: the quickstart model]",
        more: "A split model is named by its first file (...-00001-of-0000N.gguf).",
        act: Value("FILE", |c, v| {
            c.model = Some(v.path()?);
            Ok(())
        }),
    },
    Flag {
        long: "override-kv",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Model,
        help: "Replace a metadata value of the model",
        more: "TYPE is int, float, bool or str; several are separated by commas (a part \
               in double quotes may hold some), and the flag may be repeated. Example: tokenizer.ggml.add_bos_token=bool:false",
        act: Value("KEY=TYPE:VALUE", |c, v| {
            let overrides = parse_overrides(v.str()?).map_err(|error| error.to_string())?;
            c.overrides.extend(overrides);
            Ok(())
        }),
    },
    Flag {
        long: "threads",
        also: &[],
        dash: &["t"],
        env: &["LLAMA_ARG_THREADS"],
        chapter: Chapter::Engine,
        help: "Threads for generation [default: every core this process may use]",
        more: "Results do not depend on it. -1 is the default.",
        act: Value("N", |c, v| {
            c.threads = threads(v.int(-1..=MAX_THREADS)?)?;
            Ok(())
        }),
    },
    Flag {
        long: "threads-batch",
        also: &[],
        dash: &["tb"],
        env: &["LLAMA_ARG_THREADS_BATCH"],
        chapter: Chapter::Engine,
        help: "Threads for the prompt [default: as --threads]",
        more: "",
        act: Value("N", |c, v| {
            c.threads_batch = threads(v.int(-1..=MAX_THREADS)?)?;
            Ok(())
        }),
    },
    Flag {
        long: "isa",
        also: &[],
        dash: &[],
        env: &["EMEL_ISA"],
        chapter: Chapter::Engine,
        help: "Instruction set: auto, scalar, avx2, avxvnni, avx512, amx [default: auto]",
        more: "auto takes the best that the processor has. Results are the same bits on all; \
               this is for measuring and for checking that.",
        act: Value("NAME", |c, v| {
            c.isa = v.auto_or(&Level::ALL, Level::name)?;
            Ok(())
        }),
    },
    Flag {
        long: "route",
        also: &[],
        dash: &[],
        env: &["EMEL_ROUTE"],
        chapter: Chapter::Engine,
        help: "Prompt route: auto, scalar, chunk4, chunk8, wide [default: auto]",
        more: "How many prompt tokens pass through the weights together. Results are the same \
               bits on all.",
        act: Value("NAME", |c, v| {
            c.route = v.auto_or(&Route::ALL, Route::name)?;
            Ok(())
        }),
    },
    Flag {
        long: "batch-size",
        also: &[],
        dash: &["b"],
        env: &["LLAMA_ARG_BATCH"],
        chapter: Chapter::Engine,
        help: "Logical batch: the physical batch is never larger [default: 2048]",
        more: "",
        act: Value("N", |c, v| {
            c.n_batch = v.count(1)?;
            Ok(())
        }),
    },
    Flag {
        long: "ubatch-size",
        also: &[],
        dash: &["ub"],
        env: &["LLAMA_ARG_UBATCH"],
        chapter: Chapter::Engine,
        help: "Physical batch: prompt tokens computed together [default: 512]",
        more: "At most the logical batch; 0 means the same as it.",
        act: Value("N", |c, v| {
            c.n_ubatch = v.count(0)?;
            Ok(())
        }),
    },
    Flag {
        long: "ctx-size",
        also: &[],
        dash: &["c"],
        env: &["LLAMA_ARG_CTX_SIZE"],
        chapter: Chapter::Engine,
        help: "Context length in tokens [default: 0 = the model's]",
        more: "",
        act: Value("N", |c, v| {
            c.n_ctx = v.count(0)?;
            Ok(())
        }),
    },
    Flag {
        long: "spec-type",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_SPEC_TYPE"],
        chapter: Chapter::Engine,
        help: "Draft ahead: none, ngram-simple [default: none]",
        more: "ngram-simple expects what followed the same tokens earlier in the text, and computes \
               several tokens in one pass where that pays. Results are the same bits.",
        act: Value("NAME", |c, v| {
            c.speculate = v.one_of(&[("none", false), ("ngram-simple", true)])?;
            Ok(())
        }),
    },
    Flag {
        long: "draft-max",
        also: &["draft", "draft-n"],
        dash: &[],
        env: &["LLAMA_ARG_DRAFT_MAX"],
        chapter: Chapter::Engine,
        help: "Most tokens drafted at once [default: 16]",
        more: "Needs --spec-type. Never more than fit in a physical batch.",
        act: Value("N", |c, v| {
            c.draft_max = Some(v.count(0)?);
            Ok(())
        }),
    },
    Flag {
        long: "draft-min",
        also: &["draft-n-min"],
        dash: &[],
        env: &["LLAMA_ARG_DRAFT_MIN"],
        chapter: Chapter::Engine,
        help: "Fewest tokens drafted at once [default: 0]",
        more: "Needs --spec-type.",
        act: Value("N", |c, v| {
            c.draft_min = Some(v.count(0)?);
            Ok(())
        }),
    },
    Flag {
        long: "flash-attn",
        also: &[],
        dash: &["fa"],
        env: &["LLAMA_ARG_FLASH_ATTN"],
        chapter: Chapter::Engine,
        help: "on, off or auto; accepted, since there is one attention arithmetic",
        more: "",
        act: Value("MODE", |_, v| v.switch().map(drop)),
    },
    Flag {
        long: "cache-type-k",
        also: &[],
        dash: &["ctk"],
        env: &["LLAMA_ARG_CACHE_TYPE_K"],
        chapter: Chapter::Engine,
        help: "Type of the K cache: f16, q8_0 or f32 [default: f16]",
        more: "q8_0 takes about half the memory of f16 and wants heads of whole blocks of 32; \
               f32 keeps what was computed.",
        act: Value("TYPE", |c, v| {
            c.cache_k = v.one_of(&CACHE_TYPES)?;
            Ok(())
        }),
    },
    Flag {
        long: "cache-type-v",
        also: &[],
        dash: &["ctv"],
        env: &["LLAMA_ARG_CACHE_TYPE_V"],
        chapter: Chapter::Engine,
        help: "Type of the V cache: f16, q8_0 or f32 [default: f16]",
        more: "q8_0 takes about half the memory of f16 and wants heads of whole blocks of 32; \
               f32 keeps what was computed.",
        act: Value("TYPE", |c, v| {
            c.cache_v = v.one_of(&CACHE_TYPES)?;
            Ok(())
        }),
    },
    Flag {
        long: "load-mode",
        also: &[],
        dash: &["lm"],
        env: &["LLAMA_ARG_LOAD_MODE"],
        chapter: Chapter::Engine,
        help: "How the file is read; auto and mmap are the ones there are",
        more: "",
        act: Value("MODE", |_, v| v.one_of(&[("auto", ()), ("mmap", ())])),
    },
    Flag {
        long: "mmap",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Engine,
        help: "Map the model file into memory; always so",
        more: "",
        act: Set(|_| ()),
    },
    Flag {
        long: "packed-cache",
        also: &[],
        dash: &[],
        env: &["EMEL_PACKED_CACHE"],
        chapter: Chapter::Engine,
        help: "Start from a packed copy beside the model, made if need be",
        more: "The copy, MODEL.emel-packed, is as large as the model. It is made at the first start \
               and mapped by later ones, which then need not pack; it is not used, but made anew, when \
               the model has changed. Results are the same bits.",
        act: Set(|c| c.packed_cache = true),
    },
    Flag {
        long: "warmup",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Engine,
        help: "Accepted: packing the weights at load leaves nothing to warm up",
        more: "",
        act: Toggle {
            off: "no-warmup",
            off_dash: &[],
            set: |_, _| (),
        },
    },
    Flag {
        long: "gpu-layers",
        also: &["n-gpu-layers"],
        dash: &["ngl"],
        env: &[],
        chapter: Chapter::Engine,
        help: "Accepted without effect: EMEL computes on the processor",
        more: "",
        act: Value("N", |c, v| {
            v.str()?;
            c.notes
                .push("-ngl, --gpu-layers has no effect: EMEL computes on the CPU".to_owned());
            Ok(())
        }),
    },
    Flag {
        long: "predict",
        also: &["n-predict"],
        dash: &["n"],
        env: &["LLAMA_ARG_N_PREDICT"],
        chapter: Chapter::Prompt,
        help: "Tokens to generate [default: -1]",
        more: "-1 = until the model ends, -2 = until the context is full, 0 = only read the \
               prompt.",
        act: Value("N", |c, v| {
            c.n_predict = match v.int(-2..=i64::from(u32::MAX))? {
                -1 => Predict::Endless,
                -2 => Predict::UntilFull,
                n => Predict::Count(u32::try_from(n).map_err(|error| error.to_string())?),
            };
            Ok(())
        }),
    },
    Flag {
        long: "keep",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Engine,
        help: "Prompt tokens kept by a context shift; 0, since there is none",
        more: "",
        act: Value("N", |_, v| match v.int(-1..=i64::from(u32::MAX))? {
            0 => Ok(()),
            _ => Err("emel-run has no context shift; make the context longer with -c".to_owned()),
        }),
    },
    Flag {
        long: "no-context-shift",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Engine,
        help: "Stop when the context is full; always so",
        more: "",
        act: Set(|_| ()),
    },
];

fn threads(number: i64) -> Result<Option<usize>, String> {
    match number {
        -1 => Ok(None),
        0 => Err("at least one thread is needed (without the flag: every core)".to_owned()),
        n => usize::try_from(n)
            .map(Some)
            .map_err(|error| error.to_string()),
    }
}
