//! Pre-tokenizers: how a text is cut into words before BPE merges run inside each.
//!
//! A GGUF names its pre-tokenizer in `tokenizer.ggml.pre`; [`find`] knows the patterns behind
//! the names, which are those of llama.cpp (`llama-vocab.cpp`), applied one after another to
//! the pieces the ones before left.

mod stages;
#[cfg(test)]
mod tests;
mod words;

use super::classes::{Classes, LETTER, MARK, NUMBER, PUNCTUATION};
use stages::Set;
pub(super) use stages::Stage;
use words::{Contractions, Words};

/// A pre-tokenizer, and the tokenizer's rules that go with its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreTokenizer {
    /// The names that mean it.
    pub(super) names: &'static [&'static str],
    stages: &'static [Stage],
    /// A word that is a token as it stands is that token, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// BOS goes first unless the file says otherwise.
    pub(super) add_bos: bool,
}

impl PreTokenizer {
    /// Cuts `text` into words and hands them to `each` in order.
    pub(super) fn split<'a>(
        &self,
        classes: &Classes,
        text: &'a str,
        mut each: impl FnMut(&'a str),
    ) {
        stages::split(self.stages, classes, text, &mut each);
    }
}

/// The name that stands for a missing `tokenizer.ggml.pre`.
pub(super) const DEFAULT: &str = "default";

/// The pre-tokenizer of a name.
pub(super) fn find(name: &str) -> Option<&'static PreTokenizer> {
    KNOWN.iter().find(|known| known.names.contains(&name))
}

/// All names, in one line.
pub(super) fn known_names() -> String {
    let names: Vec<&str> = KNOWN
        .iter()
        .flat_map(|known| known.names.iter().copied())
        .collect();
    names.join(", ")
}

const fn class(classes: u8) -> Set {
    Set {
        classes,
        ranges: &[],
    }
}

const fn ranges(ranges: &'static [(u32, u32)]) -> Set {
    Set { classes: 0, ranges }
}

const LLAMA3: Words = Words {
    contractions: Contractions::First,
    body: LETTER,
    cased: false,
    digits: 3,
    slash: false,
};

const TEKKEN: Words = Words {
    contractions: Contractions::No,
    cased: true,
    digits: 1,
    slash: true,
    ..LLAMA3
};

/// `[一-龥ࠀ-一가-퟿]`, DeepSeek's idea of CJK (which holds much else).
const DEEPSEEK_CJK: Set = ranges(&[(0x0800, 0x9fa5), (0xac00, 0xd7ff)]);

/// Cased letters, as DeepSeek LLM lists them.
const DEEPSEEK_LETTERS: Set = ranges(&[
    (0x41, 0x5a),
    (0x61, 0x7a),
    (0xb5, 0xb5),
    (0xc0, 0xd6),
    (0xd8, 0xf6),
    (0xf8, 0x1ba),
    (0x1bc, 0x1bf),
    (0x1c4, 0x293),
    (0x295, 0x2af),
    (0x370, 0x373),
    (0x376, 0x377),
    (0x37b, 0x37d),
    (0x37f, 0x37f),
    (0x386, 0x386),
    (0x388, 0x38a),
    (0x38c, 0x38c),
    (0x38e, 0x3a1),
    (0x3a3, 0x3f5),
    (0x3f7, 0x481),
    (0x48a, 0x52f),
    (0x531, 0x556),
    (0x10a0, 0x10c5),
    (0x13a0, 0x13f5),
    (0x13f8, 0x13fd),
    (0x1c90, 0x1cba),
    (0x1cbd, 0x1cbf),
    (0x1d00, 0x1d2b),
    (0x1d6b, 0x1d77),
    (0x1d79, 0x1d9a),
    (0x1e00, 0x1f15),
    (0x1f18, 0x1f1d),
    (0x1f20, 0x1f45),
    (0x1f48, 0x1f4d),
    (0x1f50, 0x1f57),
    (0x1f59, 0x1f59),
    (0x1f5b, 0x1f5b),
    (0x1f5d, 0x1f5d),
    (0x1f5f, 0x1f7d),
    (0x1f80, 0x1fb4),
    (0x1fb6, 0x1fbc),
    (0x1fbe, 0x1fbe),
    (0x1fc2, 0x1fc4),
    (0x1fc6, 0x1fcc),
    (0x1fd0, 0x1fd3),
    (0x1fd6, 0x1fdb),
    (0x1fe0, 0x1fec),
    (0x1ff2, 0x1ff4),
    (0x1ff6, 0x1ffc),
    (0x2102, 0x2102),
    (0x2107, 0x2107),
    (0x210a, 0x2113),
    (0x2115, 0x2115),
    (0x2119, 0x211d),
    (0x2124, 0x2124),
    (0x2126, 0x2126),
    (0x2128, 0x2128),
    (0x212a, 0x212d),
    (0x212f, 0x2134),
    (0x2139, 0x2139),
    (0x213c, 0x213f),
    (0x2145, 0x2149),
    (0x214e, 0x214e),
    (0x2183, 0x2184),
    (0x2c00, 0x2c7b),
    (0x2c7e, 0x2ce4),
    (0x2ceb, 0x2cee),
    (0x2cf2, 0x2cf3),
    (0xa640, 0xa66d),
    (0xa680, 0xa69b),
    (0xa722, 0xa76f),
    (0xa771, 0xa787),
    (0xa78b, 0xa78e),
    (0xab70, 0xabbf),
    (0xfb00, 0xfb06),
    (0xfb13, 0xfb17),
    (0xff21, 0xff3a),
    (0xff41, 0xff5a),
    (0x10400, 0x1044f),
    (0x104b0, 0x104d3),
    (0x104d8, 0x104fb),
    (0x10c80, 0x10cb2),
    (0x10cc0, 0x10cf2),
    (0x118a0, 0x118df),
    (0x1e900, 0x1e943),
]);

/// `[!-/:-~！-／：-～‘-‟　-。]`, which holds the ASCII letters.
const DEEPSEEK_SIGNS: Set = ranges(&[
    (0x21, 0x2f),
    (0x3a, 0x7e),
    (0x2018, 0x201f),
    (0x3000, 0x3002),
    (0xff01, 0xff0f),
    (0xff1a, 0xff5e),
]);

/// `\p{P}` and the symbols `$+<=>^|~`.
const SIGNS: Set = Set {
    classes: PUNCTUATION,
    ranges: &[
        (0x24, 0x24),
        (0x2b, 0x2b),
        (0x3c, 0x3e),
        (0x5e, 0x5e),
        (0x7c, 0x7c),
        (0x7e, 0x7e),
    ],
};

/// [`SIGNS`] and the grave accent.
const FALCON_SIGNS: Set = Set {
    classes: PUNCTUATION,
    ranges: &[
        (0x24, 0x24),
        (0x2b, 0x2b),
        (0x3c, 0x3e),
        (0x5e, 0x5e),
        (0x60, 0x60),
        (0x7c, 0x7c),
        (0x7e, 0x7e),
    ],
};

const NUMBERS: Set = class(NUMBER);

const PLAIN: PreTokenizer = PreTokenizer {
    names: &[],
    stages: &[],
    ignore_merges: false,
    add_bos: false,
};

const KNOWN: &[PreTokenizer] = &[
    PreTokenizer {
        names: &[DEFAULT],
        stages: &[
            Stage::Runs(SIGNS),
            Stage::Gpt2,
            Stage::Runs(NUMBERS),
            Stage::Triples,
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "lfm2",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
        ],
        stages: &[Stage::Words(LLAMA3)],
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["glm4", "glm5"],
        stages: &[Stage::Words(LLAMA3)],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        stages: &[Stage::Words(LLAMA3)],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
            "kormo",
        ],
        stages: &[Stage::Words(Words {
            digits: 1,
            ..LLAMA3
        })],
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen35"],
        stages: &[Stage::Words(Words {
            digits: 1,
            body: LETTER | MARK,
            ..LLAMA3
        })],
        ..PLAIN
    },
    PreTokenizer {
        names: &["tekken"],
        stages: &[Stage::Words(TEKKEN)],
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2", "minimax-m2"],
        stages: &[Stage::Words(Words {
            contractions: Contractions::Suffix,
            digits: 3,
            ..TEKKEN
        })],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "gigachat",
            "trillion",
            "granite-docling",
            "a.x-4.0",
            "mellum",
        ],
        stages: &[Stage::Gpt2],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        stages: &[Stage::Each(NUMBERS), Stage::Gpt2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["falcon"],
        stages: &[Stage::Runs(FALCON_SIGNS), Stage::Gpt2, Stage::Triples],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        stages: &[
            Stage::LineEnds,
            Stage::SpacedRuns(DEEPSEEK_LETTERS),
            Stage::SpacedRuns(DEEPSEEK_SIGNS),
            Stage::TrailingSpace,
            Stage::Runs(DEEPSEEK_CJK),
            Stage::Runs(NUMBERS),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        stages: &[
            Stage::LineEnds,
            Stage::SpacedRuns(class(LETTER)),
            Stage::SpacedRuns(class(PUNCTUATION)),
            Stage::Runs(DEEPSEEK_CJK),
            Stage::Each(NUMBERS),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        stages: &[
            Stage::UpTo(3, NUMBERS),
            Stage::Runs(ranges(&[(0x3040, 0x30ff), (0x4e00, 0x9fa5)])),
            Stage::DeepSeek3,
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["gemma4"],
        stages: &[Stage::Lines],
        add_bos: true,
        ..PLAIN
    },
];
