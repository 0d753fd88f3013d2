//! A program's own kernels: WGSL that comes at run time, checked by naga against what is declared beside it. Pure.
//!
//! The text is compiled as it stands, but for one thing: inputs become `read_write`. Tensors are windows of shared buffers, and
//! a dispatch uses a buffer either for reading only or for writing too, whatever bytes of it are meant. That no input is stored
//! to has been verified before. Bounds checks stay on, as for every kernel.

use std::error::Error as _;
use std::ops::Range;

use naga::proc::GlobalCtx;
use naga::valid::{Capabilities, GlobalUse, ModuleInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, EntryPoint, GlobalVariable, Handle, Module, ScalarKind, ShaderStage, SourceLocation, StorageAccess, Type,
    TypeInner,
};

use crate::device::Limits;
use crate::device::command::MAX_PARAMS;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::catalog::Role;

/// A kernel of a program's own: its WGSL, and what it is told and given. Make one with
/// [`WgslKernel::new`](crate::ops::wgsl::WgslKernel::new), which checks that the two agree.
///
/// Tensors are the variables of group 0, in the order of [`KernelSource::args`]: `@group(0) @binding(1)` is the second.
/// Parameters are the members of one struct, `@group(1) @binding(0) var<uniform>`. The shader may have other entry points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSource<'a> {
    /// What errors, order edges and traces call it.
    pub name: &'static str,
    /// The shader, at most 128 KiB.
    pub wgsl: &'a str,
    /// The function with `@compute` to run; `main` by default.
    pub entry_point: &'a str,
    /// Its tensors.
    pub args: &'a [KernelArg<'a>],
    /// Its numbers: name and type (f32, i32 or u32) of the members of the parameter struct. 64 at most.
    pub params: &'a [(&'a str, DType)],
}

impl Default for KernelSource<'_> {
    fn default() -> Self {
        KernelSource { name: "kernel", wgsl: "", entry_point: "main", args: &[], params: &[] }
    }
}

/// A tensor that a kernel is given. f32, i32 and u32 are words of their own (`array<f32>`, vectors and structs of such);
/// f16 and bf16 lie two in a word and bool four (a byte each), the first in the low bits: `array<u32>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelArg<'a> {
    /// Its name in the shader.
    pub name: &'a str,
    /// Read, written or both.
    pub role: Role,
    /// The tensor's element type.
    pub dtype: DType,
}

impl<'a> KernelArg<'a> {
    /// A tensor that is read: `var<storage, read>`.
    pub const fn input(name: &'a str, dtype: DType) -> KernelArg<'a> {
        KernelArg { name, role: Role::In, dtype }
    }

    /// A tensor all of whose elements are written: `var<storage, read_write>`. It holds anything before.
    pub const fn output(name: &'a str, dtype: DType) -> KernelArg<'a> {
        KernelArg { name, role: Role::Out, dtype }
    }

    /// A tensor that is read and written: `var<storage, read_write>`.
    pub const fn in_out(name: &'a str, dtype: DType) -> KernelArg<'a> {
        KernelArg { name, role: Role::InOut, dtype }
    }
}

/// A kernel whose WGSL does what is declared.
pub(crate) struct Checked {
    pub(crate) name: &'static str,
    pub(crate) entry_point: String,
    /// What is compiled.
    pub(crate) wgsl: String,
    pub(crate) args: Vec<CheckedArg>,
    pub(crate) params: Vec<(String, DType)>,
    pub(crate) workgroup_size: [u32; 3],
}

/// A tensor of such a kernel.
pub(crate) struct CheckedArg {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) dtype: DType,
    /// Bytes that the variable's type has at least.
    pub(crate) min_size: u64,
}

/// What a device lets a kernel do.
pub(crate) struct Allowed<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) subgroups: bool,
}

/// The stack of threads that compile WGSL: the compiler recurses along chains of operators, of `else if` and of constants, some
/// 250 bytes for each byte of the text.
pub(crate) const COMPILER_STACK: usize = 64 << 20;
/// Bytes of the longest text, which that stack is enough for.
const LONGEST: usize = 128 << 10;
/// Bytes of a text that any thread's stack is enough for.
const SHORT: usize = 4 << 10;

/// Checks `source`; the error says what does not fit, in naga's words where it is the WGSL.
pub(crate) fn check(source: &KernelSource<'_>, allowed: &Allowed<'_>) -> Result<Checked> {
    let len = source.wgsl.len();
    if len > LONGEST {
        let fact = format!("WGSL of {len} bytes");
        return Err(Error::argument(source.name, fact, format!("write a kernel of at most {LONGEST} bytes, or several")));
    }
    // (A browser's thread cannot have another one.)
    if len <= SHORT || cfg!(target_arch = "wasm32") {
        return check_here(source, allowed);
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("linn-wgsl".into()).stack_size(COMPILER_STACK);
        let failed =
            |why: String| Error::argument(source.name, why, "try again with fewer threads, or report this as a fault of linn");
        let checked = thread.spawn_scoped(scope, || check_here(source, allowed));
        let checked = checked.map_err(|why| failed(format!("no thread to compile the WGSL: {why}")))?;
        checked.join().unwrap_or_else(|_| Err(failed("the WGSL compiler panicked".into())))
    })
}

fn check_here(source: &KernelSource<'_>, allowed: &Allowed<'_>) -> Result<Checked> {
    let (module, info) = parse(source, source.wgsl, allowed)?;
    let subject = Subject::new(source, &module, &info)?;
    if !module.overrides.is_empty() || subject.entry.workgroup_size_overrides.is_some() {
        return Err(
            subject.error("the shader has `override` constants", "write const, and the text with format! where it varies")
        );
    }
    subject.workgroup(allowed.limits)?;
    let args = subject.args(allowed.limits)?;
    subject.params()?;
    let inputs = args.iter().filter(|(_, arg)| arg.role == Role::In).map(|(handle, _)| *handle);
    let wgsl = widened(source.wgsl, inputs.filter_map(|handle| module.global_variables.get_span(handle).to_range()));
    subject.is_widened(&parse(source, &wgsl, allowed)?.0)?;
    Ok(Checked {
        name: source.name,
        entry_point: source.entry_point.to_owned(),
        wgsl,
        args: args.into_iter().map(|(_, arg)| arg).collect(),
        params: source.params.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect(),
        workgroup_size: subject.entry.workgroup_size,
    })
}

fn parse(source: &KernelSource<'_>, wgsl: &str, allowed: &Allowed<'_>) -> Result<(Module, ModuleInfo)> {
    let capabilities = if allowed.subgroups { Capabilities::SUBGROUP } else { Capabilities::empty() };
    let refused = |location: Option<SourceLocation>, words: String| {
        let line = location.map_or(String::new(), |at| format!(" line {}, column {}", at.line_number, at.line_position));
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        Error::argument(source.name, format!("WGSL{line}: {words}"), "correct the shader: the words are the WGSL compiler's")
    };
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| refused(error.location(wgsl), error.message().to_owned()))?;
    let info = Validator::new(ValidationFlags::all(), capabilities).validate(&module).map_err(|error| {
        let mut words = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            words = format!("{words}: {error}");
            cause = error.source();
        }
        refused(error.location(wgsl), words)
    })?;
    Ok((module, info))
}

/// A declaration and the entry point that it is about.
struct Subject<'a> {
    source: &'a KernelSource<'a>,
    module: &'a Module,
    entry: &'a EntryPoint,
    /// The global variables that the entry point uses, itself or through functions.
    used: Vec<(Handle<GlobalVariable>, &'a GlobalVariable, GlobalUse)>,
}

impl<'a> Subject<'a> {
    fn new(source: &'a KernelSource<'a>, module: &'a Module, info: &'a ModuleInfo) -> Result<Subject<'a>> {
        let entries = || module.entry_points.iter().enumerate().filter(|(_, entry)| entry.stage == ShaderStage::Compute);
        let Some((index, entry)) = entries().find(|(_, entry)| entry.name == source.entry_point) else {
            let names: Vec<String> = entries().map(|(_, entry)| format!("`{}`", entry.name)).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(Error::argument(
                source.name,
                format!("the shader has no compute entry point `{}`; it has {known}", source.entry_point),
                "name one in entry_point (main by default)",
            ));
        };
        let usage = info.get_entry_point(index);
        let used = module.global_variables.iter().map(|(handle, global)| (handle, global, usage[handle]));
        let used = used.filter(|(_, _, usage)| !usage.is_empty()).collect();
        Ok(Subject { source, module, entry, used })
    }

    fn error(&self, fact: impl Into<String>, help: impl Into<String>) -> Error {
        Error::argument(self.source.name, fact, help)
    }

    fn limit(&self, fact: String, help: &str) -> Error {
        Error::Limit { op: self.source.name, fact, help: help.into() }
    }

    fn workgroup(&self, limits: &Limits) -> Result<()> {
        let size = self.entry.workgroup_size;
        let invocations: u64 = size.iter().map(|n| u64::from(*n)).product();
        if size.iter().zip(limits.max_workgroup_size).any(|(n, most)| *n > most) || invocations > limits.max_invocations.into() {
            let (most, all) = (limits.max_workgroup_size, limits.max_invocations);
            let fact = format!("workgroups of {size:?}; the adapter has {most:?} at most, and {all} invocations in all");
            return Err(self.limit(fact, "make the workgroup smaller: 256 invocations are possible everywhere, 64 of them in z"));
        }
        let shared = self.used.iter().filter(|(_, global, _)| global.space == AddressSpace::WorkGroup);
        let bytes: u64 = shared.map(|(_, global, _)| self.size(global.ty).next_multiple_of(16)).sum();
        if bytes > limits.max_workgroup_memory.into() {
            let fact = format!("{bytes} bytes of workgroup memory; the adapter has {}", limits.max_workgroup_memory);
            return Err(self.limit(fact, "use less: 16 KiB are there everywhere"));
        }
        Ok(())
    }

    fn size(&self, ty: Handle<Type>) -> u64 {
        let context: GlobalCtx<'_> = self.module.to_ctx();
        self.module.types[ty].inner.try_size(context).map_or(u64::MAX >> 8, u64::from)
    }

    /// The tensors as declared, in order.
    fn args(&self, limits: &Limits) -> Result<Vec<(Handle<GlobalVariable>, CheckedArg)>> {
        let declared = self.source.args;
        if declared.len() > limits.max_storage_buffers as usize {
            let fact = format!("{} tensors; the adapter has {} storage buffers", declared.len(), limits.max_storage_buffers);
            return Err(self.limit(fact, "put several into one tensor (cat): 8 are possible everywhere"));
        }
        for (_, global, _) in &self.used {
            self.is_declared(global)?;
        }
        declared.iter().enumerate().map(|(slot, arg)| self.arg(slot, arg)).collect()
    }

    /// Refuses a variable that nothing would be bound to.
    fn is_declared(&self, global: &GlobalVariable) -> Result<()> {
        let name = global.name.as_deref().unwrap_or_default();
        let place = global.binding.map(|at| (at.group, at.binding));
        let bound = place.map_or(String::new(), |(group, binding)| format!("@group({group}) @binding({binding}) "));
        let fits = match global.space {
            AddressSpace::Storage { .. } => {
                place.is_some_and(|(group, binding)| group == 0 && (binding as usize) < self.source.args.len())
            }
            AddressSpace::Uniform => place == Some((1, 0)) && !self.source.params.is_empty(),
            AddressSpace::WorkGroup | AddressSpace::Private | AddressSpace::Function => true,
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let help = match global.space {
            AddressSpace::Storage { .. } => "declare it in args: the first is @group(0) @binding(0), the second @binding(1)",
            AddressSpace::Uniform | AddressSpace::Immediate => {
                "declare its members in params, and make it @group(1) @binding(0) var<uniform>"
            }
            _ => "kernels are given tensors (storage buffers) and numbers (params)",
        };
        Err(self.error(format!("nothing is declared for {bound}`{name}` of the shader"), help))
    }

    fn arg(&self, slot: usize, arg: &KernelArg<'_>) -> Result<(Handle<GlobalVariable>, CheckedArg)> {
        let KernelArg { name, role, dtype } = *arg;
        let at_slot = |global: &GlobalVariable| global.binding.is_some_and(|at| (at.group, at.binding as usize) == (0, slot));
        let Some((handle, global, usage)) = self.used.iter().find(|(_, global, _)| at_slot(global)) else {
            return Err(self.error(
                format!("`{name}` is declared, and `{}` uses no @group(0) @binding({slot})", self.source.entry_point),
                "leave it out of args, or use it",
            ));
        };
        let found = global.name.as_deref().unwrap_or_default();
        if found != name {
            return Err(self.error(
                format!("@group(0) @binding({slot}) is declared as `{name}`, and the shader calls it `{found}`"),
                "declare args in the order of their bindings, by the shader's names",
            ));
        }
        let AddressSpace::Storage { access } = global.space else {
            return Err(self
                .error(format!("`{name}` is no storage buffer"), "tensors are var<storage, read> or var<storage, read_write>"));
        };
        let (writable, written) = (access.contains(StorageAccess::STORE), usage.intersects(GlobalUse::WRITE | GlobalUse::ATOMIC));
        match role {
            Role::In if writable => {
                let help = "write var<storage, read>, or declare it an output or in-out";
                return Err(self.error(format!("`{name}` is declared an input, and is read_write in the shader"), help));
            }
            Role::Out | Role::InOut if !writable => {
                let help = "write var<storage, read_write>, or declare it an input";
                return Err(self.error(format!("`{name}` is declared to be written, and is only read in the shader"), help));
            }
            Role::Out | Role::InOut if !written => {
                let fact = format!("`{name}` is declared to be written, and `{}` never writes it", self.source.entry_point);
                return Err(self.error(fact, "write to it, or declare it an input (var<storage, read>)"));
            }
            Role::Out if self.has_atomics(global.ty) => {
                let fact = format!("`{name}` is declared an output, and atomics start from what is there before");
                return Err(self.error(fact, "declare it in-out, and pass a tensor of zeros"));
            }
            _ => {}
        }
        self.holds(name, dtype, global.ty)?;
        let min_size = self.size(global.ty);
        Ok((*handle, CheckedArg { name: name.to_owned(), role, dtype, min_size }))
    }

    fn has_atomics(&self, ty: Handle<Type>) -> bool {
        match &self.module.types[ty].inner {
            TypeInner::Array { base, .. } => self.has_atomics(*base),
            TypeInner::Struct { members, .. } => members.iter().any(|member| self.has_atomics(member.ty)),
            other => matches!(other, TypeInner::Atomic(_)),
        }
    }

    /// Refuses a variable whose elements are not those of the tensor.
    fn holds(&self, name: &str, dtype: DType, ty: Handle<Type>) -> Result<()> {
        match &self.module.types[ty].inner {
            TypeInner::Array { base, .. } => self.holds(name, dtype, *base),
            TypeInner::Struct { members, .. } => members.iter().try_for_each(|member| self.holds(name, dtype, member.ty)),
            TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } | TypeInner::Matrix { scalar, .. } => {
                self.is_word(name, dtype, *scalar, false)
            }
            TypeInner::Atomic(scalar) => self.is_word(name, dtype, *scalar, true),
            _ => Err(self.error(format!("`{name}` holds more than numbers"), "tensors are arrays of f32, i32 and u32")),
        }
    }

    fn is_word(&self, name: &str, dtype: DType, scalar: naga::Scalar, atomic: bool) -> Result<()> {
        let word = match dtype {
            DType::F32 => DType::F32,
            DType::I32 => DType::I32,
            // Several elements in a word.
            DType::F16 | DType::BF16 | DType::U32 | DType::Bool => DType::U32,
        };
        let found = plain(scalar);
        // There is no atomic<f32>: programs exchange its bits.
        if found == Some(word) || (atomic && word == DType::F32 && found == Some(DType::U32)) {
            return Ok(());
        }
        let found = found.map_or("other numbers", DType::name);
        let help = match dtype.per_word() {
            1 => format!("pass tensors of the shader's type, or write array<{}>", word.name()),
            n => format!("{n} elements of {dtype} lie in a word: write array<u32>, and take the word apart"),
        };
        Err(self.error(format!("`{name}` is declared {dtype}, and holds {found} in the shader"), help))
    }

    fn params(&self) -> Result<()> {
        let declared = self.source.params;
        if declared.is_empty() {
            return Ok(());
        }
        let list = || {
            let members: Vec<String> = declared.iter().map(|(name, dtype)| format!("{name}: {dtype}")).collect();
            format!("struct Params {{ {} }}", members.join(", "))
        };
        if let Some((name, dtype)) = declared.iter().find(|(_, dtype)| dtype.per_word() > 1) {
            return Err(self.error(format!("parameter `{name}` is declared {dtype}"), "numbers are f32, i32 or u32"));
        }
        if declared.len() * 4 > MAX_PARAMS {
            let fact = format!("{} parameters; {} are possible", declared.len(), MAX_PARAMS / 4);
            return Err(self.error(fact, "put what is left into a tensor"));
        }
        let Some((_, global, _)) = self.used.iter().find(|(_, global, _)| global.space == AddressSpace::Uniform) else {
            let fact = format!("{} parameters are declared, and `{}` uses none", declared.len(), self.source.entry_point);
            return Err(self.error(fact, format!("write @group(1) @binding(0) var<uniform> p: Params; with {}", list())));
        };
        let name = global.name.as_deref().unwrap_or_default();
        let TypeInner::Struct { members, span } = &self.module.types[global.ty].inner else {
            return Err(self.error(format!("`{name}` is no struct"), format!("parameters are members of one: {}", list())));
        };
        let found: Vec<String> = members.iter().map(|member| self.member(member)).collect();
        let wanted: Vec<String> = declared.iter().map(|(name, dtype)| format!("{name}: {}", dtype.name())).collect();
        let in_order = members.iter().enumerate().all(|(i, member)| member.offset as usize == 4 * i);
        if found != wanted || !in_order || *span as usize != 4 * declared.len() {
            let fact = format!(
                "parameters are declared as {{ {} }} ({} bytes), and in the shader they are {{ {} }} ({span} bytes)",
                wanted.join(", "),
                4 * declared.len(),
                found.join(", ")
            );
            return Err(self.error(fact, format!("write {}, or declare what the shader has", list())));
        }
        Ok(())
    }

    fn member(&self, member: &naga::StructMember) -> String {
        let ty = match self.module.types[member.ty].inner {
            TypeInner::Scalar(scalar) => plain(scalar).map_or("another number", DType::name),
            _ => "no number",
        };
        format!("{}: {ty}", member.name.as_deref().unwrap_or_default())
    }

    /// The text with other accesses says what it said before.
    fn is_widened(&self, module: &Module) -> Result<()> {
        let read_only = |global: &GlobalVariable| matches!(global.space, AddressSpace::Storage { access } if !access.contains(StorageAccess::STORE));
        let used = self.used.iter().filter(|(handle, ..)| read_only(&module.global_variables[*handle]));
        match used.map(|(_, global, _)| global.name.as_deref().unwrap_or_default()).next() {
            None => Ok(()),
            Some(name) => Err(self.error(
                format!("`{name}` cannot be bound: its declaration was not understood"),
                format!("write it plainly: @group(0) @binding(N) var<storage, read> {name}: array<f32>;"),
            )),
        }
    }
}

fn plain(scalar: naga::Scalar) -> Option<DType> {
    match (scalar.kind, scalar.width) {
        (ScalarKind::Float, 4) => Some(DType::F32),
        (ScalarKind::Sint, 4) => Some(DType::I32),
        (ScalarKind::Uint, 4) => Some(DType::U32),
        _ => None,
    }
}

/// The text with the variables declared in `spans` made `read_write`. Lines stay where they are.
fn widened(wgsl: &str, spans: impl Iterator<Item = Range<usize>>) -> String {
    let mut spans: Vec<Range<usize>> = spans.collect();
    spans.sort_by_key(|span| std::cmp::Reverse(span.start));
    let code = without_comments(wgsl);
    let mut out = wgsl.to_owned();
    for span in spans {
        let Some(text) = code.get(span.clone()) else { continue };
        let open = text.find("var").and_then(|at| Some(at + text[at..].find('<')?));
        let Some((open, close)) = open.and_then(|open| Some((open, open + text[open..].find('>')?))) else { continue };
        let lines = "\n".repeat(text[open..close].matches('\n').count());
        out.replace_range(span.start + open..span.start + close, &format!("<storage, read_write{lines}"));
    }
    out
}

/// The same bytes, those of comments replaced by spaces (line ends stay).
fn without_comments(wgsl: &str) -> String {
    let mut bytes = wgsl.as_bytes().to_vec();
    let (mut i, mut depth) = (0, 0);
    while i < bytes.len() {
        let (pair, in_line) = (bytes.get(i..i + 2).unwrap_or_default(), depth == 0);
        let skip = match pair {
            b"//" if in_line => bytes[i..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - i),
            b"/*" => {
                depth += 1;
                2
            }
            b"*/" if depth > 0 => {
                depth -= 1;
                2
            }
            _ if depth > 0 => 1,
            _ => 0,
        };
        bytes[i..i + skip].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        i += skip.max(1);
    }
    String::from_utf8(bytes).unwrap_or_else(|_| wgsl.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_spaces() {
        let text = "a // é b\n/* c /* d\n */ e */ f / g */ h";
        let plain = without_comments(text);
        assert_eq!(plain.len(), text.len());
        assert_eq!(plain.split_whitespace().collect::<String>(), "af/g*/h");
        assert_eq!(plain.matches('\n').count(), 2);
    }

    #[test]
    fn only_the_access_of_what_is_named_changes() {
        let text = "/* var<storage> */ @group(0) /* var<x> */ @binding(0) var<storage,\n read> x: array<vec2<f32>>;\nvar<storage> y: f32;";
        let end = text.find("\nvar").unwrap();
        assert_eq!(
            widened(text, std::iter::once(19..end)),
            "/* var<storage> */ @group(0) /* var<x> */ @binding(0) var<storage, read_write\n> x: array<vec2<f32>>;\nvar<storage> y: f32;"
        );
    }
}
