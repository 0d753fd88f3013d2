//! Composes the WGSL of one kernel: aliases, constants, parameters, bindings, formula, shared pieces, body.
//!
//! Inputs are read through `load_<name>(i)`, so a body does not know whether an input has a binding of its own or
//! shares one with another operand. All bindings are `read_write`: operands are blocks of shared buffers, and read-only
//! beside read-write of one buffer is refused even for disjoint ranges.

use std::fmt::Write;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::catalog::{Binding, Class, Form, FormulaKind, KernelId, Role, Row};
use crate::kernel::params::{IMMEDIATES_SIZE, ParamsInfo};
use crate::kernel::sharing::{Sharing, TEXELS_PER_ROW};

/// Name of the entry point of every body.
pub const ENTRY_POINT: &str = "main";

/// How parameters reach a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamPath {
    /// `var<immediate>`: written into the command stream.
    Immediates,
    /// `@group(1) @binding(0) var<uniform>`, at a dynamic offset.
    Uniform,
}

impl ParamPath {
    /// The path for parameters of `size` bytes on a device whose immediates hold `available` bytes (0 where none).
    pub fn of(size: usize, available: u32) -> ParamPath {
        if size <= IMMEDIATES_SIZE.min(available as usize) { ParamPath::Immediates } else { ParamPath::Uniform }
    }
}

/// The WGSL module of `id` for one element type.
///
/// Bindings of group 0 are numbered by [`Sharing::bound`]: operands in argument order, shared ones once.
/// Fails where the kernel does not exist for `dtype`, or operands that share differ in type.
pub fn compose(id: KernelId, dtype: DType, sharing: &Sharing, path: ParamPath) -> Result<String> {
    let (row, form) = (id.row(), id.form());
    if !id.exists_for(dtype) {
        return Err(Error::DType { op: row.name, got: dtype, expected: row.takes() });
    }
    if !sharing.fits(row, form) {
        return Err(Error::argument(
            row.name,
            format!("operands of different element types share a block in {}", id.name()),
            "this is a fault of linn: report it; a copy of one operand avoids it",
        ));
    }
    let mut out = String::with_capacity(8 << 10);
    aliases(&mut out, row, form, dtype);
    for (name, value) in form.constants {
        line(&mut out, format_args!("const {name}: u32 = {value}u;"));
    }
    if let Some(params) = &form.params {
        parameters(&mut out, params, path);
    }
    let subject = Subject { row, form, dtype, sharing };
    subject.bindings(&mut out);
    subject.stores(&mut out);
    subject.touch(&mut out);
    match (form.formula, row.formula) {
        (FormulaKind::ElementWise, Some(formula)) => element_wise(&mut out, form, formula),
        (FormulaKind::Combine, Some(formula)) => combine(&mut out, form, formula),
        (FormulaKind::Sample, Some(formula)) => {
            line(&mut out, format_args!("fn sample(at: vec4<u32>, s: elem, t: elem) -> vec4<elem> {{ return {formula}; }}"))
        }
        _ => {}
    }
    let mut pieces: Vec<&str> = Vec::new();
    for piece in subject.packings().chain(form.pieces.iter().chain(row.pieces).copied()).chain([form.body]) {
        if !pieces.contains(&piece) {
            pieces.push(piece);
            line(&mut out, format_args!("\n// {piece}.wgsl\n{}", file(row.name, piece)?));
        }
    }
    Ok(out)
}

/// The element type of a binding where it follows from the row; `None` where the form names it.
pub fn element_type(binding: &Binding, row: &Row, dtype: DType) -> Option<DType> {
    match binding.ty {
        "item" | "elem" | "vec4<elem>" => Some(dtype),
        "res_item" | "res" => Some(row.result.unwrap_or(dtype)),
        "flag_item" => Some(DType::Bool),
        _ => None,
    }
}

/// The WGSL type of the elements of a binding's array: what the aliases stand for, and words where an element is less than one.
pub fn resolve_type(binding: &Binding, row: &Row, form: &Form, dtype: DType) -> String {
    if binding.is_many() {
        return "vec2<u32>".to_owned();
    }
    let Some(stored) = element_type(binding, row, dtype) else { return binding.ty.to_owned() };
    let vector = form.lanes == 4 && binding.ty.ends_with("item") || binding.ty == "vec4<elem>";
    match (stored.per_word(), binding.role, binding.ty) {
        (1, ..) if vector => format!("vec4<{}>", stored.wgsl()),
        (1, ..) => stored.wgsl().to_owned(),
        // Scattered elements share words with neighbours that others write.
        (_, Role::Out, "elem") => "atomic<u32>".to_owned(),
        _ => "u32".to_owned(),
    }
}

fn aliases(out: &mut String, row: &Row, form: &Form, dtype: DType) {
    line(out, format_args!("alias elem = {};", dtype.wgsl()));
    line(out, format_args!("alias res = {};", row.result.unwrap_or(dtype).wgsl()));
    match form.lanes {
        4 => out.push_str("alias item = vec4<elem>;\nalias res_item = vec4<res>;\n"),
        _ => out.push_str("alias item = elem;\nalias res_item = res;\n"),
    }
}

fn parameters(out: &mut String, params: &ParamsInfo, path: ParamPath) {
    line(out, format_args!("struct {} {{", params.name));
    for field in params.fields {
        line(out, format_args!("    {}: {},", field.name, field.wgsl));
    }
    out.push_str("}\n");
    let space = match path {
        ParamPath::Immediates => "var<immediate>",
        ParamPath::Uniform => "@group(1) @binding(0) var<uniform>",
    };
    line(out, format_args!("{space} p: {};", params.name));
}

/// A shader's operands.
struct Subject<'a> {
    row: &'a Row,
    form: &'a Form,
    dtype: DType,
    sharing: &'a Sharing,
}

impl Subject<'_> {
    /// The element type of a binding of which several lie in a word.
    fn packed(&self, binding: &Binding) -> Option<DType> {
        element_type(binding, self.row, self.dtype).filter(|stored| stored.per_word() > 1)
    }

    /// The pieces that know how elements lie in words.
    fn packings(&self) -> impl Iterator<Item = &'static str> {
        self.form.bindings.iter().filter_map(|binding| {
            match self.packed(binding).or_else(|| binding.many(self.dtype).filter(|stored| stored.per_word() > 1))? {
                DType::F16 => Some("shared/f16"),
                DType::BF16 => Some("shared/bf16"),
                _ => Some("shared/bool"),
            }
        })
    }

    /// `load_<name>(i)` and `store_<name>(i, v)` of an operand of many tensors: the four elements at `4 * i` of the window, as f32.
    /// Of words, `load_<name>(i)`, and `word_<name>(i)` for one.
    fn many(&self, out: &mut String, binding: &Binding, source: &str) {
        let name = binding.name;
        let pair = format!("vec4<u32>({source}[2u * i], {source}[2u * i + 1u])");
        let Some(stored) = binding.many(self.dtype) else {
            line(out, format_args!("fn load_{name}(i: u32) -> vec4<u32> {{ return {pair}; }}"));
            line(out, format_args!("fn word_{name}(i: u32) -> u32 {{ return {source}[i >> 1u][i & 1u]; }}"));
            return;
        };
        let (load, store) = match stored {
            DType::F32 => (
                format!("return bitcast<vec4<f32>>({pair});"),
                format!("let w = bitcast<vec4<u32>>(v); {source}[2u * i] = w.xy; {source}[2u * i + 1u] = w.zw;"),
            ),
            half => {
                let load = |word: &str| {
                    format!("{}, {}", from_word(half, &format!("w.{word}"), "0u"), from_word(half, &format!("w.{word}"), "1u"))
                };
                let name = half.name();
                let store = |low: &str, high: &str| format!("to_{name}(v.{low}) | (to_{name}(v.{high}) << 16u)");
                (
                    format!("let w = {source}[i]; return vec4<f32>({}, {});", load("x"), load("y")),
                    format!("{source}[i] = vec2<u32>({}, {});", store("x", "y"), store("z", "w")),
                )
            }
        };
        line(out, format_args!("fn load_{name}(i: u32) -> vec4<f32> {{ {load} }}"));
        if binding.role != Role::In {
            line(out, format_args!("fn store_{name}(i: u32, v: vec4<f32>) {{ {store} }}"));
        }
    }

    fn bindings(&self, out: &mut String) {
        let Subject { row, form, dtype, sharing } = *self;
        // A variable is named after the operand that owns the range: an output, where one shares it, because bodies write
        // outputs by name; else the first operand.
        let owner = |i: usize| {
            let group = |j: &usize| sharing.first(*j) == sharing.first(i);
            (0..form.bindings.len()).filter(group).find(|j| form.bindings[*j].role != Role::In).unwrap_or(sharing.first(i))
        };
        for (slot, i) in sharing.bound().enumerate() {
            let binding = &form.bindings[owner(i)];
            let name = variable(binding);
            if sharing.is_texture(i) {
                line(out, format_args!("@group(0) @binding({slot}) var {name}: texture_storage_2d<rgba32float, read>;"));
                continue;
            }
            let ty = resolve_type(binding, row, form, dtype);
            line(out, format_args!("@group(0) @binding({slot}) var<storage, read_write> {name}: array<{ty}>;"));
        }
        if form.lanes == 1 && (0..form.bindings.len()).any(|i| sharing.is_texture(i)) {
            out.push_str("fn lane_of(v: vec4<elem>, i: u32) -> elem { ");
            out.push_str("return select(select(v.x, v.y, i == 1u), select(v.z, v.w, i == 3u), i >= 2u); }\n");
        }
        for (i, binding) in form.bindings.iter().enumerate().filter(|(_, binding)| binding.is_many()) {
            self.many(out, binding, &variable(&form.bindings[owner(i)]));
        }
        let plain = |binding: &Binding| binding.role == Role::In && !binding.is_many();
        for (i, binding) in form.bindings.iter().enumerate().filter(|(_, binding)| plain(binding)) {
            let source = variable(&form.bindings[owner(i)]);
            let name = binding.name;
            let ty = match (binding.ty, form.lanes) {
                ("flag_item", 4) => "vec4<u32>",
                ("flag_item", _) => "u32",
                (ty, _) => ty,
            };
            if sharing.is_texture(i) {
                let (mask, shift) = (TEXELS_PER_ROW - 1, TEXELS_PER_ROW.trailing_zeros());
                let texel = |i: &str| format!("textureLoad({source}, vec2<u32>({i} & {mask}u, {i} >> {shift}u))");
                let value = match ty == "vec4<elem>" || form.lanes == 4 {
                    true => texel("i"),
                    false => format!("lane_of({}, i & 3u)", texel("(i >> 2u)")),
                };
                line(out, format_args!("fn load_{name}(i: u32) -> {ty} {{ return {value}; }}"));
                continue;
            }
            let shared = resolve_type(&form.bindings[owner(i)], row, form, dtype);
            let at = |place: &str| match shared.starts_with("atomic") {
                true => format!("atomicLoad(&{source}[{place}])"),
                false => format!("{source}[{place}]"),
            };
            let value = match self.packed(binding) {
                None => at("i"),
                Some(packed) if form.lanes == 4 => {
                    let (per_word, lanes) = (packed.per_word(), [0, 1, 2, 3]);
                    let word = |lane: usize| at(&format!("i * {}u + {}u", 4 / per_word, lane / per_word));
                    format!(
                        "{ty}({})",
                        lanes.map(|lane| from_word(packed, &word(lane), &format!("{}u", lane % per_word))).join(", ")
                    )
                }
                Some(packed) => {
                    let per_word = packed.per_word();
                    from_word(packed, &at(&format!("i / {per_word}u")), &format!("(i % {per_word}u)"))
                }
            };
            line(out, format_args!("fn load_{name}(i: u32) -> {ty} {{ return {value}; }}"));
        }
    }

    /// How bodies write a result called `out` whose elements may be less than a word: `store` and `store_part` write items of an
    /// element-wise form (those of the packed form are always four elements), `put` a single element anywhere.
    fn stores(&self, out: &mut String) {
        let Some(binding) = self.form.bindings.iter().find(|binding| binding.name == "out" && binding.role == Role::Out) else {
            return;
        };
        let packed = self.packed(binding);
        match (binding.ty, packed, self.form.lanes) {
            ("elem", None, 1) => out.push_str("fn put(i: u32, v: elem) { out[i] = v; }\n"),
            ("elem", Some(packed), 1) => {
                let (name, per_word, bits) = (packed.name(), packed.per_word(), 32 / packed.per_word());
                let mask = (1u32 << bits) - 1;
                line(out, format_args!("fn put(i: u32, v: elem) {{\n    let shift = i % {per_word}u * {bits}u;"));
                line(out, format_args!("    atomicAnd(&out[i / {per_word}u], ~({mask}u << shift));"));
                line(out, format_args!("    atomicOr(&out[i / {per_word}u], to_{name}(v) << shift);\n}}"));
            }
            ("res_item", None, 4) => {
                out.push_str("fn store(i: u32, v: res_item) { out[i] = v; }\n");
                out.push_str("fn store_part(i: u32, v: res_item, len: u32) {\n    out[i].x = v.x;\n");
                for (lane, name) in [(1, "y"), (2, "z"), (3, "w")] {
                    line(out, format_args!("    if len > {lane}u {{ out[i].{name} = v.{name}; }}"));
                }
                out.push_str("}\n");
            }
            ("res_item", Some(packed), _) => {
                let (name, per_word, bits) = (packed.name(), packed.per_word(), 32 / packed.per_word());
                let words = 4 / per_word;
                let value = |word: usize| {
                    let lane = |k: usize| format!("to_{name}(v.{}) << {}u", ["x", "y", "z", "w"][word * per_word + k], k * bits);
                    (0..per_word).map(|k| format!("({})", lane(k))).collect::<Vec<_>>().join(" | ")
                };
                let place = |word: usize| format!("out[i * {words}u + {word}u]");
                out.push_str("fn store(i: u32, v: vec4<res>) {\n");
                (0..words).for_each(|word| line(out, format_args!("    {} = {};", place(word), value(word))));
                out.push_str("}\nfn store_part(i: u32, v: vec4<res>, len: u32) {\n");
                for word in 0..words {
                    line(out, format_args!("    if len > {}u {{ {} = {}; }}", word * per_word, place(word), value(word)));
                }
                out.push_str("}\n");
            }
            _ => {}
        }
    }

    /// `touch(i)` loads what the kernel is about to write there, on the CPU driver for which inputs are copied to textures, and
    /// else nothing. The processor completes stores in order: one that misses the cache holds up all behind it, those of spilled
    /// registers too, and loads do not wait for each other. What it returns has to be used, or the driver drops the load.
    fn touch(&self, out: &mut String) {
        let form = self.form;
        let wanted = form.class == Class::Subgroup || (0..form.bindings.len()).any(|i| self.sharing.is_texture(i));
        let Some(binding) = form.bindings.iter().find(|binding| binding.name == "out" && binding.role == Role::Out) else {
            return;
        };
        let place = match self.packed(binding) {
            Some(packed) => format!("out[i * {}u]", 4 / packed.per_word()),
            None if form.lanes == 4 && binding.ty.ends_with("item") => "out[i].x".to_owned(),
            None => "out[i]".to_owned(),
        };
        match wanted {
            true => line(out, format_args!("fn touch(i: u32) -> u32 {{ return bitcast<u32>({place}); }}")),
            false => line(out, format_args!("fn touch(i: u32) -> u32 {{ return 0u; }}")),
        }
    }
}

/// Element `lane` of a word of packed elements, as kernels compute with it.
fn from_word(packed: DType, word: &str, lane: &str) -> String {
    let bits = 32 / packed.per_word() as u32;
    format!("from_{}(({word} >> ({lane} * {bits}u)) & {}u)", packed.name(), (1u32 << bits) - 1)
}

/// Inputs are only reached through their `load_` function; their variable keeps out of the way of bodies' names.
fn variable(binding: &Binding) -> String {
    match binding.role {
        Role::In => format!("in_{}", binding.name),
        Role::Out | Role::InOut => binding.name.to_owned(),
    }
}

/// `op`, the formula on elements, and `apply`, which loads the operands at `at` (one index each, the result's last).
fn element_wise(out: &mut String, form: &Form, formula: &str) {
    let inputs = || form.bindings.iter().filter(|binding| binding.role == Role::In);
    let scalar = |binding: &Binding| if binding.ty == "flag_item" { "u32" } else { "elem" };
    let arguments: String = inputs().map(|input| format!("{}: {}, ", input.name, scalar(input))).collect();
    line(out, format_args!("fn op({arguments}s: elem, t: elem) -> res {{ return {formula}; }}"));
    let mut call = |suffix: &str| {
        let values: String = inputs().map(|input| format!("{}{suffix}, ", input.name)).collect();
        format!("op({values}s, t)")
    };
    let value = match form.lanes {
        4 => format!("vec4<res>({})", [".x", ".y", ".z", ".w"].map(&mut call).join(", ")),
        _ => call(""),
    };
    out.push_str("fn apply(at: vec4<u32>, s: elem, t: elem) -> res_item {\n");
    for (input, lane) in inputs().zip(["x", "y", "z"]) {
        line(out, format_args!("    let {0} = load_{0}(at.{lane});", input.name));
    }
    line(out, format_args!("    return {value};\n}}"));
}

/// `combine`, the formula on items, and `finish`, which folds an item to what the output holds.
fn combine(out: &mut String, form: &Form, formula: &str) {
    line(out, format_args!("fn combine_elem(a: elem, b: elem) -> elem {{ return {formula}; }}"));
    if form.lanes != 4 {
        out.push_str("fn combine(a: item, b: item) -> item { return combine_elem(a, b); }\n");
        out.push_str("fn finish(v: item) -> elem { return v; }\n");
        return;
    }
    let lanes = ["x", "y", "z", "w"].map(|lane| format!("combine_elem(a.{lane}, b.{lane})")).join(", ");
    line(out, format_args!("fn combine(a: item, b: item) -> item {{ return item({lanes}); }}"));
    if form.bindings.iter().any(|binding| binding.role == Role::Out && binding.ty == "elem") {
        out.push_str("fn finish(v: item) -> elem { return combine_elem(combine_elem(v.x, v.y), combine_elem(v.z, v.w)); }\n");
    } else {
        out.push_str("fn finish(v: item) -> item { return v; }\n");
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}"); // writing to a String cannot fail
}

fn file(op: &'static str, name: &str) -> Result<&'static str> {
    FILES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| Error::argument(op, format!("there is no shader file {name}.wgsl"), "list it in kernel::source::FILES"))
}

macro_rules! files {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../../shaders/", $name, ".wgsl"))),)*] };
}

/// Every file under `shaders/`, by its path without extension.
pub const FILES: &[(&str, &str)] = files![
    "copy/arange"
    "copy/rank8"
    "elementwise/contiguous"
    "elementwise/packed"
    "elementwise/strided"
    "index/gather"
    "index/last_position"
    "index/links"
    "index/scatter_reduce"
    "index/scatter_rows"
    "index/scatter_runs"
    "index/select"
    "loss/cross_entropy"
    "loss/cross_entropy_backward"
    "loss/cross_entropy_partial"
    "matmul/broadcast"
    "matmul/pick"
    "matmul/place"
    "matmul/registers"
    "matmul/subgroup"
    "matmul/texture"
    "matmul/touch"
    "matmul/workgroup"
    "norm/added"
    "norm/alone"
    "norm/layer_norm"
    "norm/layer_norm_backward"
    "norm/layer_norm_backward_weight"
    "optim/adagrad"
    "optim/adam"
    "optim/buffered"
    "optim/centered"
    "optim/clamped"
    "optim/count_steps"
    "optim/direct"
    "optim/largest"
    "optim/moments"
    "optim/nadam"
    "optim/rmsprop"
    "optim/scaled"
    "optim/sgd"
    "optim/sgd_momentum"
    "optim/smoothed"
    "optim/squares"
    "optim/uncentered"
    "optim/update_scale"
    "optim/update"
    "random/check"
    "random/fill"
    "reduce/argmax"
    "reduce/float"
    "reduce/merged_position"
    "reduce/position"
    "reduce/split"
    "reduce/whole"
    "scan/running"
    "scan/totals"
    "scan/walk"
    "shared/bf16"
    "shared/bool"
    "shared/f16"
    "shared/float"
    "shared/index"
    "shared/item1"
    "shared/item4"
    "shared/philox"
    "shared/special"
    "shared/status"
    "softmax/item1"
    "softmax/item4"
    "softmax/online"
    "softmax/rows"
    "softmax/rows_backward"
    "sort/float"
    "sort/search"
    "sort/step"
    "sort/whole"
];
