//! Every kernel, one row each.
//!
//! A [`Row`] is one subject (`gelu`); its [`Form`]s are the shaders that compute it: `gelu` (contiguous, `vec4` at a
//! time), `gelu_strided` (views). A form names its body, `shaders/<body>.wgsl` with the one entry point `main`, and its
//! bindings and parameters, which the composer (`kernel::source`) declares: a shader cannot disagree with its row.
//! An element-wise row carries its formula, a WGSL expression over `a`, `b`, `c` (elements) and `s`, `t` (scalars).
//!
//! To add a kernel: a body (or a formula), a row, and a slow reference of the same name in `tests/support/reference.rs`.

use crate::dtype::DType;
use crate::kernel::forms::*;
use crate::kernel::params::ParamsInfo;

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
    /// `item` (`elem`, or `vec4<elem>` in vector forms); `flag_item` is an `item` of bool. `many`, `many_bf16`, `many_f32` and
    /// `many_words` are windows in which many tensors lie, of `elem`, bf16, f32 and words; a shader's own table says where.
    pub ty: &'static str,
}

impl Binding {
    /// True where many tensors lie in what is bound.
    pub fn is_many(&self) -> bool {
        self.ty.starts_with("many")
    }

    /// The type of the elements of many tensors; `None` for words, and for other operands.
    pub(crate) fn many(&self, dtype: DType) -> Option<DType> {
        match self.ty {
            "many" => Some(dtype),
            "many_bf16" => Some(DType::BF16),
            "many_f32" => Some(DType::F32),
            _ => None,
        }
    }
}

/// Which kind of device a form is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Every device, where no form of a closer class exists.
    Any,
    /// Drivers that run on the CPU: registers instead of workgroup memory, no barriers.
    Cpu,
    /// CPU drivers with subgroups of 8 (lavapipe).
    Subgroup,
}

/// What the composer makes of a row's formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormulaKind {
    /// The body needs no formula.
    None,
    /// Over inputs named as bound and scalars `s`, `t`: `fn apply(at, s, t) -> res_item`.
    ElementWise,
    /// Over two elements `a` and `b`, associative: `fn combine(a: item, b: item) -> item` and
    /// `fn finish(v: item)`, which folds the lanes where the output holds elements.
    Combine,
    /// Over a counter `at: vec4<u32>` and scalars `s`, `t`: `fn sample(at, s, t) -> vec4<elem>`.
    Sample,
}

/// How a kernel reads its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// From the blocks themselves; those of `vec4<f32>` also from textures, where `Form::textures` finds it worth it.
    Any,
    /// From copies of the blocks in textures, `vec4<f32>` per texel, [`TEXELS_PER_ROW`] per row. Mesa's CPU driver loads
    /// storage lane by lane, 20 cycles for each element, and texels with the vector unit.
    ///
    /// [`TEXELS_PER_ROW`]: crate::kernel::sharing::TEXELS_PER_ROW
    Texture,
}

/// Which results a form can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// Of every type.
    Any,
    /// Of types whose elements are words.
    Words,
    /// Of types of which several elements lie in a word.
    Packed,
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
    /// Elements of an `item`, 1 or 4.
    pub lanes: u32,
    /// What the composer makes of the row's formula.
    pub formula: FormulaKind,
    /// Inputs, by position, that may be exactly the elements of the output (same block, same layout).
    /// Two operands may always share a block where one only reads or the elements differ; see [`Sharing`](crate::kernel::Sharing).
    pub in_place: &'static [usize],
    /// How inputs are read.
    pub inputs: Inputs,
    /// Which results it can write.
    pub results: Results,
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
    /// Formula in WGSL; the form says over what.
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

    /// True where the shader exists for operands of `dtype`.
    pub fn exists_for(self, dtype: DType) -> bool {
        let packed = self.row().result.unwrap_or(dtype).per_word() > 1;
        let writes = match self.form().results {
            Results::Any => true,
            Results::Words => !packed,
            Results::Packed => packed,
        };
        writes && self.row().dtypes.contains(&dtype)
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

impl Class {
    /// True where workgroups are loops on a few cores, so that long invocations beat many.
    pub fn is_cpu(self) -> bool {
        self != Class::Any
    }
}

impl Row {
    /// The element types it exists for, in words.
    pub fn takes(&self) -> &'static str {
        match self.dtypes {
            F => "f32",
            I => "i32",
            U => "u32",
            IU => "i32 and u32",
            WORDS => "f32, i32 and u32",
            WHOLE => "i32, u32 and bool",
            FLOATS => "f32, f16 and bf16",
            SIGNED => "f32, f16, bf16 and i32",
            NUMBERS => "f32, f16, bf16, i32 and u32",
            _ => "every type",
        }
    }
}

const F: &[DType] = &[DType::F32];
const I: &[DType] = &[DType::I32];
const U: &[DType] = &[DType::U32];
const IU: &[DType] = &[DType::I32, DType::U32];
const WORDS: &[DType] = &[DType::F32, DType::I32, DType::U32];
const WHOLE: &[DType] = &[DType::I32, DType::U32, DType::Bool];
const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
const SIGNED: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::I32];
const NUMBERS: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32];
const ANY: &[DType] = &DType::ALL;

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
        neg SIGNED MAP = "-a";
        /// out = |a|
        abs SIGNED MAP = "abs(a)";
        /// out = -1, 0 or 1 (0 for NaN)
        sign SIGNED MAP = "elem(i32(a > elem(0)) - i32(a < elem(0)))";
        /// out = a a
        square NUMBERS MAP = "a * a";
        /// out = e^a
        exp FLOATS MAP = "f_exp(a)" with ["shared/float"];
        /// out = natural logarithm of a
        log FLOATS MAP = "f_log(a)" with ["shared/float"];
        /// out = square root of a
        sqrt FLOATS MAP = "sqrt(a)";
        /// out = 1 / square root of a
        rsqrt FLOATS MAP = "1.0 / sqrt(a)";
        /// out = 1 / a
        reciprocal FLOATS MAP = "1.0 / a";
        /// out = sine of a
        sin FLOATS MAP = "f_sin(a)" with ["shared/float"];
        /// out = cosine of a
        cos FLOATS MAP = "f_cos(a)" with ["shared/float"];
        /// out = hyperbolic tangent of a
        tanh FLOATS MAP = "f_tanh(a)" with ["shared/float"];
        /// out = 1 / (1 + e^-a)
        sigmoid FLOATS MAP = "f_sigmoid(a)" with ["shared/float"];
        /// out = error function of a
        erf FLOATS MAP = "f_erf(a)" with ["shared/float"];
        /// out = a where it is positive, else 0; NaN stays NaN
        relu FLOATS MAP = "select(f_or_nan(select(a, 0.0, a < 0.0), a), a, a == 0.0)" with ["shared/float"];
        /// out = a Phi(a), exact (erf)
        gelu FLOATS MAP = "f_gelu(a)" with ["shared/float"];
        /// out = arc sine of a
        asin FLOATS MAP = "f_asin(a)" with ["shared/float", "shared/special"];
        /// out = arc cosine of a
        acos FLOATS MAP = "f_acos(a)" with ["shared/float", "shared/special"];
        /// out = arc tangent of a
        atan FLOATS MAP = "f_atan(a)" with ["shared/float", "shared/special"];
        /// out = tangent of a
        tan FLOATS MAP = "f_tan(a)" with ["shared/float", "shared/special"];
        /// out = hyperbolic sine of a
        sinh FLOATS MAP = "f_sinh(a)" with ["shared/float", "shared/special"];
        /// out = hyperbolic cosine of a
        cosh FLOATS MAP = "f_cosh(a)" with ["shared/float", "shared/special"];
        /// out = the number whose hyperbolic sine is a
        asinh FLOATS MAP = "f_asinh(a)" with ["shared/float", "shared/special"];
        /// out = the positive number whose hyperbolic cosine is a
        acosh FLOATS MAP = "f_acosh(a)" with ["shared/float", "shared/special"];
        /// out = the number whose hyperbolic tangent is a
        atanh FLOATS MAP = "f_atanh(a)" with ["shared/float", "shared/special"];
        /// out = 2^a
        exp2 FLOATS MAP = "f_exp2(a)" with ["shared/float", "shared/special"];
        /// out = e^a - 1
        expm1 FLOATS MAP = "f_or_nan(f_expm1(a), a)" with ["shared/float"];
        /// out = logarithm of 1 + a
        log1p FLOATS MAP = "f_log1p(a)" with ["shared/float", "shared/special"];
        /// out = logarithm of a to base 2
        log2 FLOATS MAP = "f_log(a) * 1.44269504" with ["shared/float"];
        /// out = logarithm of a to base 10
        log10 FLOATS MAP = "f_log(a) * 0.434294482" with ["shared/float"];
        /// out = 1 - erf(a)
        erfc FLOATS MAP = "f_erfc(a)" with ["shared/float", "shared/special"];
        /// out = the number whose error function is a
        erfinv FLOATS MAP = "f_erfinv(a)" with ["shared/float", "shared/special"];
        /// out = sin(pi a) / (pi a), 1 at 0
        sinc FLOATS MAP = "select(f_sin(3.14159265 * a) / (3.14159265 * a), 1.0, a == 0.0)" with ["shared/float"];
        /// out = the largest whole number that is not above a
        floor FLOATS MAP = "floor(a)";
        /// out = the smallest whole number that is not below a
        ceil FLOATS MAP = "ceil(a)";
        /// out = a without its fraction
        trunc FLOATS MAP = "trunc(a)";
        /// out = the nearest whole number, of two the even one
        round FLOATS MAP = "round(a)";
        /// out = the fraction of a, with its sign
        frac FLOATS MAP = "a - trunc(a)";
        /// out = s (e^(t a) - 1) where a is not positive, else a
        elu FLOATS MAP = "select(s * f_expm1(a * t), a, a > 0.0)" with ["shared/float"];
        /// out = s a where a is negative, else a
        leaky_relu FLOATS MAP = "select(a, a * s, a < 0.0)";
        /// out = 0 where a is from -s to s, else a
        hardshrink FLOATS MAP = "select(a, 0.0, a >= -s && a <= s)";
        /// out = a brought nearer to 0 by s
        softshrink FLOATS MAP = "f_or_nan(select(select(select(0.0, f_zero_like(a), (bitcast<u32>(a) & 0x7fffffffu) != 0u), a + s, a <= -s), a - s, a > s), a)" with ["shared/float"];
        /// out = t where a is not above s, else a
        threshold FLOATS MAP = "select(a, t, a <= s)";
        /// out = log(1 + e^(s a)) / s; a where s a is above t
        softplus FLOATS MAP = "select(f_softplus(a * s) / s, a, a * s > t)" with ["shared/float", "shared/special"];
        /// out = log(1 / (1 + e^-a))
        logsigmoid FLOATS MAP = "f_logsigmoid(a)" with ["shared/float", "shared/special"];
        /// out = s where a is NaN, else a
        replace_nan FLOATS MAP = "select(a, s, is_nan(a))" with ["shared/float"];
        /// out = s where a is infinity and t where it is -infinity, else a
        replace_infinity FLOATS MAP = "select(select(a, s, a == f_infinity()), t, a == -f_infinity())" with ["shared/float"];
        /// out = whether a is NaN
        isnan FLOATS MAP = "u32(is_nan(a))" -> Bool with ["shared/float"];
        /// out = whether a is an infinity
        isinf FLOATS MAP = "u32((bitcast<u32>(a) & 0x7fffffffu) == 0x7f800000u)" -> Bool;
        /// out = whether a is neither an infinity nor NaN
        isfinite FLOATS MAP = "u32((bitcast<u32>(a) & 0x7fffffffu) < 0x7f800000u)" -> Bool;
        /// out = whether the sign bit of a is set
        signbit FLOATS MAP = "bitcast<u32>(a) >> 31u" -> Bool;
        /// out = whether a is 0
        logical_not ANY MAP = "u32(a == elem(0))" -> Bool;
        /// out = a + s
        add_scalar NUMBERS MAP = "a + s";
        /// out = a s
        mul_scalar NUMBERS MAP = "a * s";
        /// out = s - a
        rsub_scalar NUMBERS MAP = "s - a";
        /// out = s / a
        rdiv_scalar FLOATS MAP = "s / a";
        /// out = a^s
        pow_scalar FLOATS MAP = "f_pow(a, s)" with ["shared/float"];
        /// out = a bounded by s below and by t above; NaN stays NaN
        clamp FLOATS MAP = "select(f_or_nan(select(select(a, s, a < s), t, select(a, s, a < s) > t), a), a, a == s && s <= t)" with ["shared/float"];
        /// out = a bounded by s below and by t above, whole numbers
        clamp_integer WHOLE MAP = "min(max(a, s), t)";
    }
    binary {
        /// out = a + b; for bool, a or b
        add ANY ZIP = "a + b";
        /// out = a - b
        sub NUMBERS ZIP = "a - b";
        /// out = a b; for bool, a and b
        mul ANY ZIP = "a * b";
        /// out = a / b
        div FLOATS ZIP = "a / b";
        /// out = a^b
        pow FLOATS ZIP = "f_pow(a, b)" with ["shared/float"];
        /// out = the larger of a and b; NaN where one is NaN
        maximum FLOATS ZIP = "f_maximum(a, b)" with ["shared/float"];
        /// out = the smaller of a and b; NaN where one is NaN
        minimum FLOATS ZIP = "f_minimum(a, b)" with ["shared/float"];
        /// out = the larger of a and b, whole numbers
        maximum_integer WHOLE ZIP = "max(a, b)";
        /// out = the smaller of a and b, whole numbers
        minimum_integer WHOLE ZIP = "min(a, b)";
        /// out = the angle of the point (b, a)
        atan2 FLOATS ZIP = "f_atan2(a, b)" with ["shared/float", "shared/special"];
        /// out = |a| with the sign of b
        copysign FLOATS ZIP = "bitcast<f32>((bitcast<u32>(a) & 0x7fffffffu) | (bitcast<u32>(b) & 0x80000000u))";
        /// out = the larger of a and b; the other one where one is NaN
        fmax FLOATS ZIP = "select(select(select(b, a, a >= b), b, is_nan(a)), a, is_nan(b))" with ["shared/float"];
        /// out = the smaller of a and b; the other one where one is NaN
        fmin FLOATS ZIP = "select(select(select(b, a, a <= b), b, is_nan(a)), a, is_nan(b))" with ["shared/float"];
        /// out = a / b without its fraction
        div_trunc FLOATS ZIP = "trunc(a / b)";
        /// out = the largest whole number that is not above a / b
        div_floor FLOATS ZIP = "f_div_floor(a, b)" with ["shared/float", "shared/special"];
        /// out = what a leaves when divided by b, with the sign of a
        fmod FLOATS ZIP = "f_fmod(a, b)" with ["shared/float", "shared/special"];
        /// out = what a leaves when divided by b, with the sign of b
        remainder FLOATS ZIP = "f_remainder(a, b)" with ["shared/float", "shared/special"];
        /// out = a / b without its fraction, whole numbers; 0 where b is 0
        div_trunc_integer IU ZIP = "select(a / select(b, elem(1), b == elem(0)), elem(0), b == elem(0))";
        /// out = what a leaves when divided by b, with the sign of a, whole numbers; 0 where b is 0
        fmod_integer IU ZIP = "select(a % select(b, elem(1), b == elem(0)), elem(0), b == elem(0))";
        /// out = length of the vector (a, b)
        hypot FLOATS ZIP = "f_hypot(a, b)" with ["shared/float", "shared/special"];
        /// out = 0 where a is negative, b where it is 0, 1 where it is positive
        heaviside FLOATS ZIP = "select(select(0.0, b, a == 0.0), 1.0, a > 0.0)";
        /// out = a log(b); 0 where a is 0 and b is not NaN
        xlogy FLOATS ZIP = "select(select(a * f_log(b), 0.0, a == 0.0), b, is_nan(b))" with ["shared/float"];
        /// out = log(e^a + e^b)
        logaddexp FLOATS ZIP = "f_logaddexp(a, b)" with ["shared/float", "shared/special"];
        /// out = whether a and b are both not 0
        logical_and ANY ZIP = "u32(!(a == elem(0)) && !(b == elem(0)))" -> Bool;
        /// out = whether a or b is not 0
        logical_or ANY ZIP = "u32(!(a == elem(0)) || !(b == elem(0)))" -> Bool;
        /// out = whether one of a and b is 0
        logical_xor ANY ZIP = "u32((a == elem(0)) != (b == elem(0)))" -> Bool;
        /// gradient of elu: out = b times its slope at a
        elu_backward FLOATS ZIP = "b * select(s * t * f_exp(a * t), 1.0, a > 0.0)" with ["shared/float"];
        /// gradient of leaky_relu: out = s b where a is not positive, else b
        leaky_relu_backward FLOATS ZIP = "select(b * s, b, a > 0.0)";
        /// gradient of hardshrink and softshrink: out = 0 where a is from -s to s, else b
        shrink_backward FLOATS ZIP = "select(b, 0.0, a >= -s && a <= s)";
        /// gradient of threshold: out = 0 where a is not above s, else b
        threshold_backward FLOATS ZIP = "select(b, 0.0, a <= s)";
        /// gradient of softplus: out = b times its slope at a
        softplus_backward FLOATS ZIP = "b * select(f_sigmoid(a * s), 1.0, a * s > t)" with ["shared/float"];
        /// out = whether a = b
        eq ANY ZIP = "u32(a == b)" -> Bool;
        /// out = whether a and b differ
        ne ANY ZIP = "u32(!(a == b))" -> Bool;
        /// out = whether a < b
        lt ANY ZIP = "u32(a < b)" -> Bool;
        /// out = whether a <= b
        le ANY ZIP = "u32(a <= b)" -> Bool;
        /// out = whether a > b
        gt ANY ZIP = "u32(a > b)" -> Bool;
        /// out = whether a >= b
        ge ANY ZIP = "u32(a >= b)" -> Bool;
        /// out = a + s b
        add_scaled NUMBERS ZIP = "a + s * b";
        /// out = a where c, else b
        where_ ANY WHERE = "select(b, a, c != 0u)";
        /// out = a where c, else s
        where_scalar ANY WHERE_SCALAR = "select(s, a, c != 0u)";
        /// gradient of relu: out = 0 where the result a of relu is 0, else b, also for NaN
        relu_backward FLOATS ZIP = "select(b, 0.0, a <= 0.0)";
        /// gradient of gelu: out = b gelu'(a)
        gelu_backward FLOATS ZIP = "f_gelu_slope(a) * b" with ["shared/float"];
        /// gradient of tanh from its result a: out = b (1 - a a)
        tanh_backward FLOATS ZIP = "b * (1.0 - a * a)";
        /// gradient of sigmoid from its result a: out = b a (1 - a)
        sigmoid_backward FLOATS ZIP = "b * a * (1.0 - a)";
    }
    copy {
        /// out = s
        fill ANY FILL = "s";
        /// out = a
        copy ANY MAP = "a";
        /// out = a, views of more than 4 dimensions after collapsing, and into views of types of which several lie in a word
        copy_rank8 ANY COPY_RANK8;
        /// out = a as f32
        cast_f32 ANY CAST = "f32(a)" -> F32;
        /// out = a as f16, rounded to the nearest
        cast_f16 ANY CAST = "f32(a)" -> F16;
        /// out = a as bf16, rounded to the nearest
        cast_bf16 ANY CAST = "f32(a)" -> BF16;
        /// out = a as i32, fractions cut off
        cast_i32 ANY CAST = "i32(a)" -> I32;
        /// out = a as u32, fractions cut off
        cast_u32 ANY CAST = "u32(a)" -> U32;
        /// out = whether a is not 0
        cast_bool ANY CAST = "u32(!(a == elem(0)))" -> Bool;
        /// `out[i]` = s + t i
        arange WORDS ARANGE;
    }
    reduce {
        /// sum; i32 and u32 wrap
        sum WORDS REDUCE = "a + b";
        /// largest element; NaN where there is one
        max F REDUCE = "f_maximum(a, b)" with ["shared/float"];
        /// smallest element; NaN where there is one
        min F REDUCE = "f_minimum(a, b)" with ["shared/float"];
        /// position of the largest element (the first of equal ones), and its value
        argmax F ARGMAX with ["shared/float", "reduce/float"];
        /// further stages of argmax
        argmax_merge F ARGMAX_MERGE with ["shared/float", "reduce/float"];
        /// product; i32 and u32 wrap
        prod WORDS REDUCE = "a * b";
        /// largest element, whole numbers
        max_integer IU REDUCE = "max(a, b)";
        /// smallest element, whole numbers
        min_integer IU REDUCE = "min(a, b)";
        /// argmax of whole numbers
        argmax_integer IU ARGMAX with ["reduce/whole"];
        /// further stages of argmax_integer
        argmax_merge_integer IU ARGMAX_MERGE with ["reduce/whole"];
    }
    scan {
        /// running sum; i32 and u32 wrap
        cumsum WORDS SCAN = "a + b";
        /// running product; i32 and u32 wrap
        cumprod WORDS SCAN = "a * b";
        /// running maximum; NaN from the first one on
        cummax F SCAN = "f_maximum(a, b)" with ["shared/float"];
        /// running minimum; NaN from the first one on
        cummin F SCAN = "f_minimum(a, b)" with ["shared/float"];
        /// running maximum, whole numbers
        cummax_integer IU SCAN = "max(a, b)";
        /// running minimum, whole numbers
        cummin_integer IU SCAN = "min(a, b)";
        /// running logarithm of the sum of exponentials
        logcumsumexp F SCAN = "f_logaddexp(a, b)" with ["shared/float", "shared/special"];
    }
    matmul {
        /// out = a b: matrices of any strides, in batches
        matmul F MATMUL;
        /// matmul of whole numbers, which wrap
        matmul_integer IU MATMUL_INTEGER;
    }
    softmax {
        /// exp(scale a) of each row, divided by its sum; optionally causally masked
        softmax F SOFTMAX;
        /// scale a of each row less the logarithm of the sum of its exponentials
        log_softmax F LOG_SOFTMAX;
        /// gradient of softmax from its result a
        softmax_backward F SOFTMAX_BACKWARD;
        /// gradient of log_softmax from its result a
        log_softmax_backward F LOG_SOFTMAX_BACKWARD;
    }
    norm {
        /// layer normalisation of rows; mean and 1 / standard deviation are kept for the backward pass
        layer_norm F LAYER_NORM;
        /// gradient of layer_norm for its input
        layer_norm_backward F LAYER_NORM_BACKWARD;
        /// layer_norm_backward, and a gradient that has come to the same input already
        layer_norm_backward_add F LAYER_NORM_BACKWARD_ADD;
        /// gradients of layer_norm for weight and bias, in parts for sum to finish
        layer_norm_backward_weight F LAYER_NORM_BACKWARD_WEIGHT;
    }
    index {
        /// `out[o, k, :]` = `a[o, ids[k], :]`; the forward pass of an embedding
        index_select WORDS INDEX_SELECT;
        /// chains equal ids for embedding_backward
        embedding_links F EMBEDDING_LINKS;
        /// `out[ids[k], :]` += `dout[k, :]`, in the order of k
        embedding_backward WORDS EMBEDDING_BACKWARD;
        /// `out[o, k, i]` = `a[o, ids[o, k, i], i]`
        gather WORDS GATHER;
    }
    scatter {
        /// `out[o, ids[o, k, i], i]` += `dout[o, k, i]`, in the order of k
        gather_backward WORDS SCATTER_REDUCE = "a + b";
        /// `out[o, ids[o, k, i], i]` *= `dout[o, k, i]`, in the order of k
        scatter_prod WORDS SCATTER_REDUCE = "a * b";
        /// `out[o, ids[o, k, i], i]` = the larger of it and `dout[o, k, i]`; NaN where one is NaN
        scatter_amax F SCATTER_REDUCE = "f_maximum(a, b)" with ["shared/float"];
        /// scatter_amax of whole numbers
        scatter_amax_integer IU SCATTER_REDUCE = "max(a, b)";
        /// `out[o, ids[o, k, i], i]` = the smaller of it and `dout[o, k, i]`; NaN where one is NaN
        scatter_amin F SCATTER_REDUCE = "f_minimum(a, b)" with ["shared/float"];
        /// scatter_amin of whole numbers
        scatter_amin_integer IU SCATTER_REDUCE = "min(a, b)";
        /// `out[o, ids[o, k, i], i]` = 1 + the largest such k
        scatter I SCATTER;
    }
    sort {
        /// one step of a bitonic sort of positions by the elements that they name
        sort_step F SORT_STEP with ["shared/float", "sort/float"];
        /// sort_step of whole numbers
        sort_step_integer IU SORT_STEP with ["sort/whole"];
        /// where values belong in lines that rise
        searchsorted F SEARCHSORTED with ["shared/float", "sort/float"];
        /// searchsorted of whole numbers
        searchsorted_integer IU SEARCHSORTED with ["sort/whole"];
    }
    loss {
        /// maximum and sum of exponentials of parts of a row of logits
        cross_entropy_partial F CROSS_ENTROPY_PARTIAL;
        /// loss and log of the sum of exponentials of each row
        cross_entropy F CROSS_ENTROPY;
        /// gradient of cross_entropy for the logits
        cross_entropy_backward F CROSS_ENTROPY_BACKWARD;
    }
    random {
        /// words of Philox4x32-10
        random_bits U RANDOM = "words(at)";
        /// uniform in [s, s + t)
        uniform F RANDOM = "spread(words(at), s, t)";
        /// normal with mean s and standard deviation t
        normal F RANDOM = "s + t * normal(words(at))";
        /// exponential with mean s
        exponential F RANDOM = "s * exponential(words(at))";
        /// t with probability s, else 0
        bernoulli F RANDOM = "select(vec4<elem>(0.0), vec4<elem>(t), unit(words(at)) < vec4<elem>(s))";
        /// whole numbers in s..s + t
        randint IU RANDOM = "s + vec4<elem>(below(words(at), words(at + vec4<u32>(0u, 0u, 1u, 0u)), bitcast<u32>(t)))";
        /// reports an element that is outside a range
        check_range F CHECK_RANGE with ["shared/float"];
    }
    optim {
        /// counts the steps of parameters: step += 1, product *= beta1 (1 - 0.96^(step decay) / 2)
        count_steps F COUNT_STEPS;
        /// moves the scale of a gradient scaler on: state = (scale, steps since it grew), by whether infinities were found
        update_scale F UPDATE_SCALE;
        /// many gradients times a factor
        scale_gradients FLOATS SCALE_GRADIENTS;
        /// many gradients within a bound and its negative
        clamp_gradients FLOATS CLAMP_GRADIENTS;
        /// sums of squares of many tensors, in parts for sum to finish
        square_parts FLOATS SQUARE_PARTS;
        /// one step of SGD on many parameters
        sgd FLOATS SGD;
        /// one step of SGD with momentum
        sgd_momentum FLOATS SGD_MOMENTUM;
        /// one step of Adam or AdamW
        adam FLOATS ADAM;
        /// one step of Adam or AdamW with AMSGrad
        adam_amsgrad FLOATS ADAM_AMSGRAD;
        /// one step of NAdam
        nadam FLOATS NADAM;
        /// one step of Adagrad
        adagrad FLOATS ADAGRAD;
        /// one step of RMSprop
        rmsprop FLOATS RMSPROP;
        /// one step of RMSprop with momentum
        rmsprop_momentum FLOATS RMSPROP_MOMENTUM;
        /// one step of RMSprop over centered squares
        rmsprop_centered FLOATS RMSPROP_CENTERED;
        /// one step of RMSprop over centered squares with momentum
        rmsprop_centered_momentum FLOATS RMSPROP_CENTERED_MOMENTUM;
        /// factor that bounds the gradient norm a by s: out = min(1, s / (a + t)); NaN stays NaN
        clip_coefficient F MAP = "f_or_nan(select(s / (a + t), 1.0, s / (a + t) > 1.0), a)" with ["shared/float"];
    }
}
