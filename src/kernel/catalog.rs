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
    /// Over `bits: vec4<u32>` and scalars `s`, `t`: `fn sample(bits, s, t) -> vec4<elem>`.
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

    /// 1 + the place of its row in the catalogue; 0 means "no kernel" in the status words.
    pub fn number(self) -> u32 {
        self.kernel as u32 + 1
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

impl Class {
    /// True where workgroups are loops on a few cores, so that long invocations beat many.
    pub fn is_cpu(self) -> bool {
        self != Class::Any
    }
}

const F: &[DType] = &[DType::F32];
const I: &[DType] = &[DType::I32];
const U: &[DType] = &[DType::U32];
const IU: &[DType] = &[DType::I32, DType::U32];
const FI: &[DType] = &[DType::F32, DType::I32];
const ALL: &[DType] = &[DType::F32, DType::I32, DType::U32];

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
        /// out = -1, 0 or 1 (0 for NaN)
        sign FI MAP = "select(select(elem(0), elem(-1), a < elem(0)), elem(1), a > elem(0))";
        /// out = a a
        square ALL MAP = "a * a";
        /// out = e^a
        exp F MAP = "f_exp(a)" with ["shared/float"];
        /// out = natural logarithm of a
        log F MAP = "f_log(a)" with ["shared/float"];
        /// out = square root of a
        sqrt F MAP = "sqrt(a)";
        /// out = 1 / square root of a
        rsqrt F MAP = "1.0 / sqrt(a)";
        /// out = 1 / a
        reciprocal F MAP = "1.0 / a";
        /// out = sine of a
        sin F MAP = "f_sin(a)" with ["shared/float"];
        /// out = cosine of a
        cos F MAP = "f_cos(a)" with ["shared/float"];
        /// out = hyperbolic tangent of a
        tanh F MAP = "f_tanh(a)" with ["shared/float"];
        /// out = 1 / (1 + e^-a)
        sigmoid F MAP = "f_sigmoid(a)" with ["shared/float"];
        /// out = error function of a
        erf F MAP = "f_erf(a)" with ["shared/float"];
        /// out = a where it is positive, else 0; NaN stays NaN
        relu F MAP = "f_or_nan(select(a, 0.0, a < 0.0), a)" with ["shared/float"];
        /// out = a Phi(a), exact (erf)
        gelu F MAP = "f_gelu(a)" with ["shared/float"];
        /// out = a + s
        add_scalar ALL MAP = "a + s";
        /// out = a s
        mul_scalar ALL MAP = "a * s";
        /// out = s - a
        rsub_scalar ALL MAP = "s - a";
        /// out = s / a
        rdiv_scalar F MAP = "s / a";
        /// out = a^s
        pow_scalar F MAP = "f_pow(a, s)" with ["shared/float"];
        /// out = a bounded by s below and by t above; NaN stays NaN
        clamp F MAP = "f_or_nan(select(select(a, s, a < s), t, select(a, s, a < s) > t), a)" with ["shared/float"];
        /// out = a bounded by s below and by t above, whole numbers
        clamp_integer IU MAP = "min(max(a, s), t)";
    }
    binary {
        /// out = a + b
        add ALL ZIP = "a + b";
        /// out = a - b
        sub ALL ZIP = "a - b";
        /// out = a b
        mul ALL ZIP = "a * b";
        /// out = a / b
        div F ZIP = "a / b";
        /// out = a^b
        pow F ZIP = "f_pow(a, b)" with ["shared/float"];
        /// out = the larger of a and b; NaN where one is NaN
        maximum F ZIP = "f_maximum(a, b)" with ["shared/float"];
        /// out = the smaller of a and b; NaN where one is NaN
        minimum F ZIP = "f_minimum(a, b)" with ["shared/float"];
        /// out = 1 where a = b, else 0
        eq ALL ZIP = "select(elem(0), elem(1), a == b)";
        /// out = 1 where a and b differ, else 0
        ne ALL ZIP = "select(elem(1), elem(0), a == b)";
        /// out = 1 where a < b, else 0
        lt ALL ZIP = "select(elem(0), elem(1), a < b)";
        /// out = 1 where a <= b, else 0
        le ALL ZIP = "select(elem(0), elem(1), a <= b)";
        /// out = 1 where a > b, else 0
        gt ALL ZIP = "select(elem(0), elem(1), a > b)";
        /// out = 1 where a >= b, else 0
        ge ALL ZIP = "select(elem(0), elem(1), a >= b)";
        /// out = a + s b
        add_scaled F ZIP = "a + s * b";
        /// out = a where c is not 0, else b
        where_ ALL ZIP3 = "select(a, b, c == elem(0))";
        /// gradient of relu: out = 0 where the result a of relu is 0, else b, also for NaN
        relu_backward F ZIP = "select(b, 0.0, a <= 0.0)";
        /// gradient of gelu: out = b gelu'(a)
        gelu_backward F ZIP = "f_gelu_slope(a) * b" with ["shared/float"];
        /// gradient of tanh from its result a: out = b (1 - a a)
        tanh_backward F ZIP = "b * (1.0 - a * a)";
        /// gradient of sigmoid from its result a: out = b a (1 - a)
        sigmoid_backward F ZIP = "b * a * (1.0 - a)";
    }
    copy {
        /// out = s
        fill ALL FILL = "s";
        /// out = a
        copy ALL MAP = "a";
        /// out = a, views of more than 4 dimensions after collapsing
        copy_rank8 ALL COPY_RANK8;
        /// out = a as f32
        cast_f32 ALL CAST = "f32(a)" -> F32;
        /// out = a as i32, fractions cut off
        cast_i32 ALL CAST = "i32(a)" -> I32;
        /// out = a as u32, fractions cut off
        cast_u32 ALL CAST = "u32(a)" -> U32;
        /// `out[i]` = s + t i
        arange ALL ARANGE;
    }
    reduce {
        /// sum; i32 and u32 wrap
        sum ALL REDUCE = "a + b";
        /// sum of squares
        sum_squares F REDUCE_SQUARES = "a + b";
        /// largest element; NaN where there is one
        max F REDUCE = "f_maximum(a, b)" with ["shared/float"];
        /// smallest element; NaN where there is one
        min F REDUCE = "f_minimum(a, b)" with ["shared/float"];
        /// position of the largest element (the first of equal ones), and its value
        argmax F ARGMAX with ["shared/float"];
        /// further stages of argmax
        argmax_merge F ARGMAX_MERGE with ["shared/float"];
    }
    matmul {
        /// out = a b: matrices of any strides, in batches
        matmul F MATMUL;
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
        index_select ALL INDEX_SELECT;
        /// chains equal ids for embedding_backward
        embedding_links F EMBEDDING_LINKS;
        /// `out[ids[k], :]` += `dout[k, :]`, in the order of k
        embedding_backward F EMBEDDING_BACKWARD;
        /// `out[o, k, i]` = `a[o, ids[o, k, i], i]`
        gather ALL GATHER;
        /// `out[o, ids[o, k, i], i]` += `dout[o, k, i]`, in the order of k
        gather_backward F GATHER_BACKWARD;
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
        random_bits U RANDOM = "bits";
        /// uniform in [s, t)
        uniform F RANDOM = "s + (t - s) * unit(bits)";
        /// normal with mean s and standard deviation t
        normal F RANDOM = "s + t * normal(bits)";
        /// whole numbers in s..t
        randint I RANDOM = "s + vec4<i32>(below(bits, u32(t - s)))";
    }
    optim {
        /// one step of Adam or AdamW
        adam F ADAM;
        /// one step of Adam or AdamW with AMSGrad
        adam_amsgrad F ADAM_AMSGRAD;
        /// one step of SGD
        sgd F SGD;
        /// one step of SGD with momentum
        sgd_momentum F SGD_MOMENTUM;
        /// factor that bounds the gradient norm a by s: out = min(1, s / (a + t)); NaN stays NaN
        clip_coefficient F MAP = "f_or_nan(select(s / (a + t), 1.0, s / (a + t) > 1.0), a)" with ["shared/float"];
    }
}
