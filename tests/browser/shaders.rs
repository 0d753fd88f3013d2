//! Chromium's compiler (Tint) over the catalogue: stricter than naga about uniformity, features and layouts.
//!
//! Every shader is parsed and checked against the layout that linn makes for it. A pipeline of the driver takes ten times as long
//! (SwiftShader compiles it), so there is one for each kernel, form and element type.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use linn::DType;
use linn::kernel::{Class, KernelId, ParamPath};
use serde_json::{Value, json};

use crate::{chromium, every_shader};

/// Storage buffers in one stage that WebGPU guarantees.
const STORAGE_BUFFERS: usize = 8;
/// Storage textures in one stage that WebGPU guarantees. Only the forms for lavapipe have any, and that has more.
const STORAGE_TEXTURES: usize = 4;
/// Bytes of immediates that WebGPU guarantees.
const IMMEDIATES: usize = 64;

#[test]
#[ignore = "needs Chromium"]
fn chromium_compiles_every_shader_with_its_layout() {
    let (mut shaders, mut names, mut too_many) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    // Of each kernel and element type the one with the most storage buffers, by its place among the shaders.
    let mut whole: HashMap<(String, DType), (usize, usize)> = HashMap::new();
    for (subject, code) in every_shader::texts() {
        let form = subject.id.form();
        let size = form.params.map_or(0, |params| params.size);
        let bound: Vec<usize> = subject.sharing.bound().collect();
        let bindings: String = bound.iter().map(|i| if subject.sharing.is_texture(*i) { 't' } else { 's' }).collect();
        let immediates = if subject.path == ParamPath::Immediates { size } else { 0 };
        let storage = bindings.matches('s').count();
        if storage > STORAGE_BUFFERS {
            too_many.insert(subject.id.name());
            continue;
        }
        // The same shader comes with fewer textures, and with a uniform buffer.
        if bindings.matches('t').count() > STORAGE_TEXTURES || immediates > IMMEDIATES {
            continue;
        }
        names.insert(subject.id.name());
        if subject.path == ParamPath::Uniform || size == 0 {
            let best = whole.entry((subject.id.name(), subject.dtype)).or_default();
            *best = (*best).max((storage, shaders.len()));
        }
        shaders.push(json!({
            "name": subject.name(),
            "code": code,
            "bindings": bindings,
            "uniform": subject.path == ParamPath::Uniform && size > 0,
            "immediates": immediates,
            "subgroups": form.class == Class::Subgroup,
        }));
    }
    whole.values().for_each(|(_, at)| shaders[*at]["whole"] = true.into());
    assert!(too_many.is_empty(), "more than {STORAGE_BUFFERS} storage buffers: {too_many:?}");
    let exists = |id: &KernelId| id.row().dtypes.iter().any(|dtype| id.exists_for(*dtype));
    let all: BTreeSet<String> = KernelId::all().filter(exists).map(KernelId::name).collect();
    let missing: Vec<&String> = all.difference(&names).collect();
    assert!(missing.is_empty(), "kernels of the catalogue that are not there: {missing:?}");

    let page = include_str!("shaders.html").to_owned();
    let files = HashMap::from([("/", page), ("/shaders.json", Value::from(shaders.clone()).to_string())]);
    let answer = chromium::answer_of(files, Duration::from_secs(500));
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert_eq!(answer["error"], Value::Null);
    println!("{} kernels, {} shaders, {} pipelines in {} ms", names.len(), answer["accepted"], answer["pipelines"], answer["ms"]);
    let refused = answer["refused"].as_array().expect("a list");
    let lines: Vec<String> = refused.iter().take(20).map(|shader| format!("{}: {}", shader["name"], shader["words"])).collect();
    assert!(refused.is_empty(), "{} of {} refused:\n{}", refused.len(), shaders.len(), lines.join("\n"));
    assert_eq!(answer["lost"], json!([]));
    assert_eq!(answer["accepted"].as_u64(), Some(shaders.len() as u64));
    assert_eq!(answer["pipelines"].as_u64(), Some(whole.len() as u64));
    assert!(
        answer["notices"].as_str().is_some_and(|words| words.to_lowercase().contains("binding")),
        "a wrong layout is noticed: {answer}"
    );
}
