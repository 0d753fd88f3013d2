//! Every kernel, one row each.
//!
//! A [`Row`] is one subject (`gelu`); its [`Form`]s are the shaders that compute it: `gelu` (contiguous, `vec4` at a
//! time), `gelu_strided` (views). A form names its body, `shaders/<body>.wgsl` with the one entry point `main`, and its
//! bindings and parameters, which the composer (`kernel::source`) declares: a shader cannot disagree with its row.
//! An element-wise row carries its formula, a WGSL expression over `a`, `b`, `c` (elements) and `s`, `t` (scalars).
//!
//! To add a kernel: a body (or a formula), a row, and a slow reference of the same name in `tests/support/reference.rs`.

use crate::dtype::DType;
use crate::kernel::params::{self, Params, ParamsInfo};

/// What a kernel does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Only read.
    In,
    /// Only written; what was there before does not matter.
    Out,
    /// Read and written.
    InOut,
}

/// One operand of a kernel, in argument order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its name in the shader: `load_<name>(i)` where it is an input, else the array `<name>`.
    pub name: &'static str,
    /// Read, written or both.
    pub role: Role,
    /// WGSL type of an array element, over the aliases `elem` (dtype of the row), `res` (dtype of the result) and
    /// `item` (`elem`, or `vec4<elem>` in vector forms).
    pub ty: &'static str,
}

/// Which kind of device a form is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Every device, where no form of a closer class exists.
    Any,
    /// Drivers that run on the CPU: registers instead of workgroup memory, no barriers.
    Cpu,
    /// Devices with subgroups of a known size.
    Subgroup,
}

/// One shader of a row.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Appended to the row's name with `_`; empty for the main form.
    pub suffix: &'static str,
    /// Devices it is for.
    pub class: Class,
    /// File under `shaders/`, without extension.
    pub body: &'static str,
    /// Further files that the body needs.
    pub pieces: &'static [&'static str],
    /// Operands in order.
    pub bindings: &'static [Binding],
    /// The parameter struct.
    pub params: Option<ParamsInfo>,
    /// Elements per step of an element-wise body (1 or 4); 0 where the body is not element-wise.
    pub lanes: u32,
    /// Inputs, by position, that may be exactly the elements of the output (same block, same layout).
    /// Two operands may always share a block where one only reads or the elements differ; see [`Sharing`].
    pub in_place: &'static [usize],
    /// Constants that the composer declares as `const NAME: u32`. `WG` is the workgroup size.
    pub constants: &'static [(&'static str, u32)],
}

impl Form {
    /// Value of the constant `name`; 1 where the form has none of that name.
    pub fn constant(&self, name: &str) -> u32 {
        self.constants.iter().find(|(known, _)| *known == name).map_or(1, |(_, value)| *value)
    }
}

/// One kernel of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name: the reference, the bench and the wgpu label (`linn.<name>`) have the same.
    pub name: &'static str,
    /// What it computes.
    pub doc: &'static str,
    /// The file in `src/ops` that uses it.
    pub family: &'static str,
    /// Element types it exists for.
    pub dtypes: &'static [DType],
    /// Formula of an element-wise kernel.
    pub formula: Option<&'static str>,
    /// Type of the result where it is not `elem`.
    pub result: Option<DType>,
    /// Files under `shaders/` that the formula needs.
    pub pieces: &'static [&'static str],
    /// Its shaders.
    pub forms: &'static [Form],
}

/// One shader of the catalogue: a row and one of its forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId {
    kernel: Kernel,
    form: u8,
}

impl KernelId {
    /// The row it belongs to.
    pub fn row(self) -> &'static Row {
        &CATALOG[self.kernel as usize]
    }

    /// The shader it names.
    pub fn form(self) -> &'static Form {
        &self.row().forms[self.form as usize]
    }

    /// `gelu`, `gelu_strided`.
    pub fn name(self) -> String {
        match self.form().suffix {
            "" => self.row().name.to_owned(),
            suffix => format!("{}_{suffix}", self.row().name),
        }
    }

    /// Every shader of the catalogue.
    pub fn all() -> impl Iterator<Item = KernelId> {
        Kernel::ALL
            .iter()
            .flat_map(|kernel| (0..kernel.row().forms.len()).map(|form| KernelId { kernel: *kernel, form: form as u8 }))
    }
}

impl Kernel {
    /// Its row.
    pub fn row(self) -> &'static Row {
        &CATALOG[self as usize]
    }

    /// The form at `index` (a constant such as [`STRIDED`]); the first where the row has fewer.
    pub fn form(self, index: u8) -> KernelId {
        KernelId { kernel: self, form: if usize::from(index) < self.row().forms.len() { index } else { 0 } }
    }

    /// The form for `class`: the first of exactly that class, else the first for any device.
    pub fn select(self, class: Class) -> KernelId {
        let forms = self.row().forms;
        let position = |class: Class| forms.iter().position(|form| form.class == class);
        KernelId { kernel: self, form: position(class).or_else(|| position(Class::Any)).unwrap_or(0) as u8 }
    }
}

/// Which operands of a dispatch are bound through one variable, because they lie in one block.
///
/// No dispatch may bind overlapping ranges twice, so a block is bound once and every operand in it uses that binding.
/// Entry `i` is the first operand that shares with operand `i` (itself where it shares with none before).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sharing {
    first: [u8; MAX_BINDINGS],
    len: u8,
}

/// The most operands a kernel has (WebGPU guarantees 8 storage buffers; larger kernels say so in their row).
pub const MAX_BINDINGS: usize = 10;

impl Sharing {
    /// Finds equal blocks among the operands (at most [`MAX_BINDINGS`]).
    pub fn of<B: PartialEq>(blocks: &[B]) -> Sharing {
        let mut first = [0; MAX_BINDINGS];
        for (i, block) in blocks.iter().enumerate().take(MAX_BINDINGS) {
            first[i] = blocks.iter().position(|other| other == block).unwrap_or(i) as u8;
        }
        Sharing { first, len: blocks.len().min(MAX_BINDINGS) as u8 }
    }

    /// All operands in blocks of their own.
    pub fn distinct(len: usize) -> Sharing {
        let mut first = [0; MAX_BINDINGS];
        (0..len.min(MAX_BINDINGS)).for_each(|i| first[i] = i as u8);
        Sharing { first, len: len.min(MAX_BINDINGS) as u8 }
    }

    /// The operand whose variable operand `i` uses.
    pub fn first(&self, i: usize) -> usize {
        self.first[..usize::from(self.len)].get(i).map_or(i, |first| usize::from(*first))
    }

    /// The operands that have a binding of their own, in binding order.
    pub fn bound(&self) -> impl Iterator<Item = usize> + '_ {
        (0..usize::from(self.len)).filter(|i| self.first(*i) == *i)
    }

    /// True when operands that share have the same element type, so that one variable serves them.
    /// Where it is false, the smaller read operand must be copied first.
    pub fn fits(&self, row: &Row, form: &Form) -> bool {
        let same = |a: &str, b: &str| a == b || (row.result.is_none() && a.replace("res", "elem") == b.replace("res", "elem"));
        form.bindings.iter().enumerate().all(|(i, binding)| same(binding.ty, form.bindings[self.first(i)].ty))
    }
}

/// Form of element-wise kernels over contiguous operands whose offsets are multiples of 4.
pub const CONTIGUOUS: u8 = 0;
/// Form of element-wise kernels over views: up to 4 dimensions after collapsing.
pub const STRIDED: u8 = 1;
/// As [`STRIDED`], in steps of `vec4`: innermost strides 1, all else a multiple of 4.
pub const STRIDED_VEC4: u8 = 2;

const F: &[DType] = &[DType::F32];
const FI: &[DType] = &[DType::F32, DType::I32];
const ALL: &[DType] = &[DType::F32, DType::I32, DType::U32];

const fn bind(name: &'static str, role: Role, ty: &'static str) -> Binding {
    Binding { name, role, ty }
}

/// The three forms of an element-wise kernel over `$bindings`.
macro_rules! elementwise {
    ($in_place:expr, [$($input:literal),*]) => {{
        const BINDINGS: &[Binding] = &[$(bind($input, Role::In, "item"),)* bind("out", Role::Out, "res_item")];
        const BASE: Form = Form {
            suffix: "",
            class: Class::Any,
            body: "elementwise/contiguous",
            pieces: &["shared/index"],
            bindings: BINDINGS,
            params: Some(params::Contiguous::INFO),
            lanes: 4,
            in_place: $in_place,
            constants: &[("WG", 64)],
        };
        const STRIDED: Form =
            Form { suffix: "strided", body: "elementwise/strided", params: Some(params::Strided::INFO), lanes: 1, ..BASE };
        &[BASE, STRIDED, Form { suffix: "strided_vec4", lanes: 4, ..STRIDED }]
    }};
}

const FILL: &[Form] = elementwise!(&[], []);
const MAP: &[Form] = elementwise!(&[0], ["a"]);
const ZIP: &[Form] = elementwise!(&[0, 1], ["a", "b"]);
const ZIP3: &[Form] = elementwise!(&[0, 1, 2], ["a", "b", "c"]);
const CAST: &[Form] = elementwise!(&[], ["a"]);

macro_rules! kernels {
    ($($family:ident { $(
        $(#[doc = $doc:literal])+
        $name:ident $dtypes:ident $forms:ident $(= $formula:literal)? $(-> $result:ident)? $(with [$($piece:literal),*])?;
    )* })*) => {
        /// The subjects of the catalogue, by name.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Kernel { $($($(#[doc = $doc])+ $name,)*)* }

        impl Kernel {
            /// Every kernel, in catalogue order.
            pub const ALL: &[Kernel] = &[$($(Kernel::$name,)*)*];
        }

        /// One row for each kernel, in the order of [`Kernel`].
        pub static CATALOG: &[Row] = &[$($(Row {
            name: stringify!($name),
            doc: concat!($($doc),+),
            family: stringify!($family),
            dtypes: $dtypes,
            formula: [$(Some($formula),)? None][0],
            result: [$(Some(DType::$result),)? None][0],
            pieces: &[$($($piece),*)?],
            forms: $forms,
        },)*)*];
    };
}

kernels! {
    unary {
        /// out = -a
        neg FI MAP = "-a";
        /// out = |a|
        abs FI MAP = "abs(a)";
        /// out = a + s
        add_scalar ALL MAP = "a + s";
        /// out = a * s
        mul_scalar ALL MAP = "a * s";
        /// out = exact gelu of a
        gelu F MAP = "gelu(a)" with ["shared/float"];
    }
    binary {
        /// out = a + b
        add ALL ZIP = "a + b";
        /// out = dout times the derivative of gelu at x (a = x, b = dout)
        gelu_backward F ZIP = "gelu_slope(a) * b" with ["shared/float"];
        /// out = a where c is not 0, else b
        where_ ALL ZIP3 = "select(b, a, c != elem(0))";
    }
    copy {
        /// out = s everywhere
        fill ALL FILL = "s";
        /// out = a
        copy ALL MAP = "a";
        /// out = a as i32
        cast_i32 ALL CAST = "i32(a)" -> I32;
    }
}
