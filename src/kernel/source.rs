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
    if !row.dtypes.contains(&dtype) {
        return Err(Error::DType { op: row.name, got: dtype, expected: expected(row) });
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
    // What a kernel that checks indices writes into the status words.
    if form.bindings.iter().any(|binding| binding.name == "status") {
        line(&mut out, format_args!("const KERNEL: u32 = {}u;", id.number()));
    }
    for (name, value) in form.constants {
        line(&mut out, format_args!("const {name}: u32 = {value}u;"));
    }
    if let Some(params) = &form.params {
        parameters(&mut out, params, path);
    }
    bindings(&mut out, form, sharing);
    touch(&mut out, form, sharing);
    match (form.formula, row.formula) {
        (FormulaKind::ElementWise, Some(formula)) => element_wise(&mut out, form, formula),
        (FormulaKind::Combine, Some(formula)) => combine(&mut out, form, formula),
        (FormulaKind::Sample, Some(formula)) => {
            line(&mut out, format_args!("fn sample(bits: vec4<u32>, s: elem, t: elem) -> vec4<elem> {{ return {formula}; }}"))
        }
        _ => {}
    }
    let mut pieces: Vec<&str> = Vec::new();
    for piece in form.pieces.iter().chain(row.pieces).chain([&form.body]) {
        if !pieces.contains(piece) {
            pieces.push(piece);
            line(&mut out, format_args!("\n// {piece}.wgsl\n{}", file(row.name, piece)?));
        }
    }
    Ok(out)
}

/// The WGSL type of a binding's elements for one element type: what the aliases stand for.
pub fn resolve_type(binding: &Binding, row: &Row, form: &Form, dtype: DType) -> String {
    let (elem, res) = (dtype.wgsl(), row.result.unwrap_or(dtype).wgsl());
    let item = |scalar: &str| if form.lanes == 4 { format!("vec4<{scalar}>") } else { scalar.to_owned() };
    match binding.ty {
        "item" => item(elem),
        "res_item" => item(res),
        other => other.replace("elem", elem).replace("res", res),
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

fn bindings(out: &mut String, form: &Form, sharing: &Sharing) {
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
        line(out, format_args!("@group(0) @binding({slot}) var<storage, read_write> {name}: array<{}>;", binding.ty));
    }
    if form.lanes == 1 && (0..form.bindings.len()).any(|i| sharing.is_texture(i)) {
        out.push_str("fn lane_of(v: vec4<elem>, i: u32) -> elem { ");
        out.push_str("return select(select(v.x, v.y, i == 1u), select(v.z, v.w, i == 3u), i >= 2u); }\n");
    }
    for (i, binding) in form.bindings.iter().enumerate().filter(|(_, binding)| binding.role == Role::In) {
        let source = variable(&form.bindings[owner(i)]);
        if sharing.is_texture(i) {
            let (name, ty, mask, shift) = (binding.name, binding.ty, TEXELS_PER_ROW - 1, TEXELS_PER_ROW.trailing_zeros());
            let texel = |i: &str| format!("textureLoad({source}, vec2<u32>({i} & {mask}u, {i} >> {shift}u))");
            let value = match ty == "vec4<elem>" || form.lanes == 4 {
                true => texel("i"),
                false => format!("lane_of({}, i & 3u)", texel("(i >> 2u)")),
            };
            line(out, format_args!("fn load_{name}(i: u32) -> {ty} {{ return {value}; }}"));
            continue;
        }
        line(out, format_args!("fn load_{}(i: u32) -> {} {{ return {source}[i]; }}", binding.name, binding.ty));
    }
}

/// `touch(i)` loads what the kernel is about to write there, on the CPU driver for which inputs are copied to textures, and
/// else nothing. The processor completes stores in order: one that misses the cache holds up all behind it, those of spilled
/// registers too, and loads do not wait for each other. What it returns has to be used, or the driver drops the load.
fn touch(out: &mut String, form: &Form, sharing: &Sharing) {
    let wanted = form.class == Class::Subgroup || (0..form.bindings.len()).any(|i| sharing.is_texture(i));
    let Some(binding) = form.bindings.iter().find(|binding| binding.name == "out" && binding.role == Role::Out) else { return };
    let first = if form.lanes == 4 && binding.ty.ends_with("item") { ".x" } else { "" };
    match wanted {
        true => line(out, format_args!("fn touch(i: u32) -> u32 {{ return bitcast<u32>(out[i]{first}); }}")),
        false => line(out, format_args!("fn touch(i: u32) -> u32 {{ return 0u; }}")),
    }
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
    let arguments: String = inputs().map(|input| format!("{}: elem, ", input.name)).collect();
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

fn expected(row: &Row) -> &'static str {
    match row.dtypes {
        [DType::F32] => "f32",
        [DType::F32, DType::I32] => "f32 and i32",
        [DType::I32] => "i32",
        [DType::U32] => "u32",
        _ => "f32, i32 and u32",
    }
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
    "elementwise/strided"
    "index/gather"
    "index/gather_backward"
    "index/links"
    "index/scatter_rows"
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
    "optim/adam"
    "optim/amsgrad_square"
    "optim/momentum_direction"
    "optim/plain_direction"
    "optim/plain_square"
    "optim/sgd"
    "random/fill"
    "reduce/argmax"
    "reduce/merged_position"
    "reduce/position"
    "reduce/split"
    "shared/float"
    "shared/index"
    "shared/item1"
    "shared/item4"
    "shared/philox"
    "shared/status"
    "softmax/item1"
    "softmax/item4"
    "softmax/online"
    "softmax/rows"
    "softmax/rows_backward"
];
