use std::fs;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

use super::*;

/// A library of one model and one workload, removed at the end.
struct Small(TempDir);

const ID: &str = "tiny_hello_v1";
const MANIFEST: &str = r#"{
  "schema": "emel-workload/v1",
  "id": "tiny_hello_v1",
  "model": "tiny",
  "prompt": "hello.txt",
  "formatter": "raw",
  "prompt_tokens": null,
  "sampling": "argmax",
  "stop": "eog",
  "seed": 1,
  "max_tokens": 10,
  "lanes": ["single"],
  "process": "warm",
  "comparable": true,
  "comparable_reason": "same text",
  "suites": ["hello"],
  "n_ctx": null
}
"#;
const MODELS: &str = r#"{
  "schema": "emel-models/v1",
  "models": [
    {
      "name": "tiny",
      "file": "synth/tiny.gguf",
      "sha256": null,
      "obtain": "make-it -o {file}",
      "kind": "base",
      "synth": {"shape": "tiny", "quant": "q8_0", "seed": 1}
    }
  ]
}
"#;

impl Small {
    fn new() -> Small {
        let small = Small(tempdir().unwrap());
        fs::create_dir(small.root().join("workloads")).unwrap();
        fs::create_dir(small.root().join("prompts")).unwrap();
        small.write("prompts/hello.txt", "hello\n");
        small.write("models.json", MODELS);
        small.manifest(ID, MANIFEST);
        small
    }
    fn root(&self) -> &Path {
        self.0.path()
    }
    fn write(&self, name: &str, text: &str) {
        fs::write(self.root().join(name), text).unwrap();
    }
    fn manifest(&self, id: &str, text: &str) {
        self.write(&format!("workloads/{id}.json"), text);
    }
    fn open(&self) -> Result<Library, WorkloadError> {
        Library::open(Some(self.root()))
    }
    fn error(&self) -> String {
        self.open().unwrap_err().to_string()
    }
}

fn shipped() -> Library {
    Library::open(Some(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("benchdata"),
    ))
    .unwrap()
}

#[test]
fn a_manifest_is_read_as_it_is_written() {
    let small = Small::new();
    let library = small.open().unwrap();
    let [workload] = library.workloads() else {
        panic!("one workload");
    };
    assert_eq!((workload.id.as_str(), workload.max_tokens), (ID, 10));
    assert_eq!(workload.lanes, [Lane::Single]);
    assert_eq!(library.prompt(workload).unwrap(), "hello");
    let written = serde_json::to_string_pretty(workload).unwrap();
    assert_eq!(
        serde_json::from_str::<Workload>(&written).unwrap(),
        *workload
    );
}

/// What is replaced in the manifest, and what the error then says.
const FAULTS: &[(&str, &str, &[&str])] = &[
    (
        "\"n_ctx\": null",
        "\"phases\": []",
        &["v1.json:17: phases: must name each phase once"],
    ),
    (
        "v1\",\n  \"id",
        "v2\",\n  \"id",
        &["v1.json:2: schema: must be \"emel-workload/v1\""],
    ),
    (
        "\"seed\"",
        "\"sed\"",
        &["v1.json:10: ", "unknown field `sed`"],
    ),
    ("  \"model\": \"tiny\",\n", "", &["missing field `model`"]),
    (
        "\"max_tokens\": 10",
        "\"max_tokens\": \"10\"",
        &["v1.json:11: max_tokens: invalid type"],
    ),
    (
        "\"max_tokens\": 10",
        "\"max_tokens\": 0",
        &["v1.json:11: max_tokens: must be from 1"],
    ),
    (
        "\"max_tokens\": 10",
        "\"max_tokens\": -1",
        &["v1.json:11: max_tokens: invalid value"],
    ),
    (
        "\"prompt_tokens\": null",
        "\"prompt_tokens\": 9000000",
        &["v1.json:7: prompt_tokens: must"],
    ),
    (
        "\"n_ctx\": null",
        "\"n_ctx\": 10",
        &["v1.json:17: n_ctx: must be at least 11"],
    ),
    (
        "\"id\": \"tiny_hello_v1\"",
        "\"id\": \"other_v1\"",
        &["v1.json:3: id: must be the file's"],
    ),
    (
        "\"id\": \"tiny_hello_v1\"",
        "\"id\": \"Tiny\"",
        &["v1.json:3: id: ", "_v1"],
    ),
    (
        "[\"single\"]",
        "[]",
        &["v1.json:12: lanes: must name at least one"],
    ),
    (
        "[\"single\"]",
        "[\"single\", \"single\"]",
        &["v1.json:12: lanes: names a lane twice"],
    ),
    (
        "[\"single\"]",
        "[\"double\"]",
        &["v1.json:12: lanes[0]: unknown variant `double`"],
    ),
    (
        "hello.txt",
        "../hello.txt",
        &["v1.json:5: prompt: `../hello.txt` must be the name"],
    ),
    (
        "hello.txt",
        "bye.txt",
        &["v1.json:5: prompt: ", "bye.txt is missing"],
    ),
    (
        "\"tiny\"",
        "\"huge\"",
        &["v1.json:4: model: models.json has no model `huge`"],
    ),
    (
        "\"same text\"",
        "\" \"",
        &["v1.json:15: comparable_reason: must say why"],
    ),
    (
        "[\"hello\"]",
        "[\"full\"]",
        &["v1.json:16: suites: `full` is every workload's"],
    ),
    ("[\"hello\"]", "[\"a b\"]", &["v1.json:16: suites: "]),
    (
        "null\n}",
        "null,\n  \"packed_cache\": true\n}",
        &["v1.json:18: packed_cache: needs `\"process\": \"cold\"`"],
    ),
    (
        "null\n}",
        "null,\n  \"isa\": \"mmx\"\n}",
        &["v1.json:18: isa: ", "mmx"],
    ),
    (
        "\"raw\"",
        "\"raw\" \"model\"",
        &["v1.json:6: ", "expected `,` or `}`"],
    ),
    ("null\n}", "null\n} {", &["v1.json:18: trailing characters"]),
];

#[test]
fn a_bad_manifest_is_named_with_line_and_field() {
    let small = Small::new();
    for (what, with, expected) in FAULTS {
        let text = MANIFEST.replacen(what, with, 1);
        assert_ne!(text, MANIFEST, "{what} is not in the manifest");
        small.manifest(ID, &text);
        let error = small.error();
        assert!(
            expected.iter().all(|part| error.contains(part)),
            "{with}: {error}"
        );
    }
}

#[test]
fn a_bad_model_list_is_named_with_line_and_field() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "\"kind\": \"base\"",
            "\"kind\": \"big\"",
            "models.json:9: models[0].kind: unknown variant",
        ),
        (
            "synth/tiny",
            "../tiny",
            "models.json:5: models[0].file: `../tiny.gguf` must lie within",
        ),
        (
            "\"sha256\": null",
            "\"sha256\": \"AB\"",
            "models.json:5: models[0].sha256: must be 64 hex",
        ),
        (
            "\"seed\": 1}",
            "\"seed\": 1, \"x\": 2}",
            "unknown field `x`",
        ),
        (
            "make-it -o {file}",
            "",
            "models[0].obtain: must be the command",
        ),
    ];
    let small = Small::new();
    for (what, with, expected) in cases {
        let text = MODELS.replacen(what, with, 1);
        assert_ne!(text, MODELS, "{what} is not in the list");
        small.write("models.json", &text);
        let error = small.error();
        assert!(error.contains(expected), "{with}: {error}");
    }
}

#[test]
fn a_missing_or_other_model_is_one_line_with_its_cure() {
    let small = Small::new();
    let library = small.open().unwrap();
    let model = library.model("tiny").unwrap();
    let error = model.locate(small.root()).unwrap_err().to_string();
    let file = small.root().join("synth/tiny.gguf").display().to_string();
    assert!(error.contains(&format!("{file} is missing")), "{error}");
    assert!(error.ends_with(&format!("make-it -o {file}")), "{error}");
    assert!(!error.contains('\n'));

    fs::create_dir_all(small.root().join("synth")).unwrap();
    small.write("synth/tiny.gguf", "abc");
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(model.verify(small.root(), None, |_| ()).unwrap(), abc);
    let other = ModelEntry {
        sha256: Some("0".repeat(64)),
        ..model.clone()
    };
    let error = other
        .verify(small.root(), None, |_| ())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(abc) && error.contains(&"0".repeat(64)),
        "{error}"
    );
}

#[test]
fn a_digest_is_computed_once_and_again_when_the_file_changes() {
    let small = Small::new();
    let cache = small.root().join("cache");
    let file = small.root().join("weights");
    let read = |file: &Path| {
        let mut bytes = 0;
        let digest = sha256_cached(Some(&cache), file, |done| bytes = done).unwrap();
        (digest, bytes)
    };
    fs::write(&file, "abc").unwrap();
    let (first, bytes) = read(&file);
    assert_eq!(bytes, 3);
    assert_eq!(read(&file), (first.clone(), 0));
    // Another size; a cached digest that is damaged is not believed either.
    fs::write(&file, "abcd").unwrap();
    let (second, bytes) = read(&file);
    assert!(second != first && bytes == 4);
    for entry in fs::read_dir(cache.join("sha256")).unwrap() {
        fs::write(entry.unwrap().path(), "half").unwrap();
    }
    assert_eq!(read(&file), (second, 4));
}

#[test]
fn selections_name_ids_patterns_suites_and_models() {
    let library = shipped();
    let chosen = |workloads: &[&str], suites: &[&str], models: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        let selection = Selection {
            workloads: owned(workloads),
            suites: owned(suites),
            models: owned(models),
        };
        let chosen = library
            .select(&selection)
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(chosen.iter().map(|w| w.id.clone()).collect::<Vec<_>>())
    };
    let all = library.workloads().len();
    assert_eq!(chosen(&[], &[], &[]).unwrap().len(), all);
    assert_eq!(chosen(&[], &["full"], &[]).unwrap().len(), all);
    let one = "smollm2_135m_single_user_hello_max_tokens_10_v1";
    assert_eq!(chosen(&[one], &[], &[]).unwrap(), [one]);
    let hello = chosen(&["smollm2_*hello_max_tokens_*", one], &[], &[]).unwrap();
    assert_eq!(hello.len(), 4);
    assert!(hello.is_sorted());
    let published = chosen(&[], &["published"], &["gemma3_270m"]).unwrap();
    assert_eq!(
        published,
        [
            "gemma3_270m_cold_start_prompt_40_max_tokens_1_v1",
            "gemma3_270m_decode_max_tokens_128_v1",
            "gemma3_270m_packed_start_prompt_40_max_tokens_1_v1",
            "gemma3_270m_prompt_4096_max_tokens_16_v1",
            "gemma3_270m_prompt_512_max_tokens_16_v1"
        ]
    );
    for (asked, error) in [
        (
            chosen(&["nothing*"], &[], &[]),
            "no workload is called `nothing*`; there are: ",
        ),
        (
            chosen(&[], &["daily"], &[]),
            "no suite is called `daily`; there are: cold, curves, full, hello",
        ),
        (
            chosen(&[], &[], &["gpt"]),
            "no model is called `gpt`; there are: smollm2_135m, ",
        ),
        (chosen(&["[a"], &[], &[]), "`[a` is not a pattern"),
        (
            chosen(&["smollm2*"], &[], &["gemma3_270m"]),
            "none of those named is of gemma3_270m",
        ),
    ] {
        let found = asked.unwrap_err();
        assert!(found.contains(error), "{found}");
    }
}

#[test]
fn every_model_has_the_whole_list() {
    let library = shipped();
    for model in library.models() {
        let of_model = library.workloads().iter().filter(|w| w.model == model.name);
        let of_model: Vec<_> = of_model.collect();
        let hello = |n: usize| {
            let in_suite = |w: &&&Workload| w.suites.contains(&"hello".to_owned());
            of_model.iter().filter(in_suite).any(|w| w.max_tokens == n)
        };
        assert!([1, 10, 100, 1000].into_iter().all(hello), "{}", model.name);
        for part in [
            "prompt_512",
            "prompt_4096",
            "depth_4096",
            "decode",
            "code",
            "repeat",
            "cold",
        ] {
            let holds = of_model.iter().any(|w| w.id.contains(part));
            assert!(holds, "{} has no {part}", model.name);
        }
    }
}

fn vocabulary(file: &str) -> PathBuf {
    let path = shipped().models_folder().join(file);
    assert!(
        path.is_file(),
        "{} is missing: run scripts/fetch_models.sh",
        path.display()
    );
    path
}

#[test]
fn prompts_are_long_enough_for_every_tokenizer() {
    let library = shipped();
    let files = [
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "gemma-3-270m-Q4_K_M.gguf",
        "vocab/ggml-vocab-qwen2.gguf",
        "vocab/ggml-vocab-llama-bpe.gguf",
    ];
    for file in files {
        let text = ModelText::read(&vocabulary(file)).unwrap();
        for workload in library.workloads() {
            let tokens = text.count(&library.prompt(workload).unwrap());
            let needed = workload.prompt_tokens.unwrap_or(1);
            assert!(
                tokens >= needed,
                "{file}: {} has {tokens} of {needed}",
                workload.prompt
            );
        }
    }
}

#[test]
fn a_template_makes_one_turn_that_opens_the_answer() {
    let library = shipped();
    let id = "smollm2_135m_single_user_hello_max_tokens_10_v1";
    let workload = library.workloads().iter().find(|w| w.id == id).unwrap();
    let text = ModelText::read(&vocabulary("SmolLM2-135M-Instruct.Q4_1.gguf")).unwrap();
    let formatted = text
        .format(workload.formatter, "hello", &workload.id)
        .unwrap();
    assert!(
        formatted.ends_with("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"),
        "{formatted}"
    );
    let base = ModelText::read(&vocabulary("gemma-3-270m-Q4_K_M.gguf")).unwrap();
    assert!(!base.has_template());
    let error = base
        .format(workload.formatter, "hello", &workload.id)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has no chat template") && error.contains(id),
        "{error}"
    );
    let raw = Workload {
        formatter: Formatter::Raw,
        ..workload.clone()
    };
    assert_eq!(
        base.format(raw.formatter, "hello", &raw.id).unwrap(),
        "hello"
    );
}
