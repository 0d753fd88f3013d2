//! Parameter structs: what a kernel is told besides its bindings.
//!
//! Each struct is written once, here; the composer prints the WGSL declaration from [`ParamsInfo`]. The same bytes go
//! through immediates or through a uniform buffer, so every struct obeys the stricter rules of uniforms: scalars, and
//! vectors of four at multiples of 16 bytes; the size is a multiple of 16 (`pad` fields fill up, and must be 0).

use std::mem::offset_of;

/// Immediates hold at least this many bytes where there are any; a larger struct always goes through a uniform buffer.
pub const IMMEDIATES_SIZE: usize = 128;

/// Groups of parameters that one dispatch of an optimizer's step knows.
pub const MOST_GROUPS: usize = 12;

/// One member of a parameter struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, the same on both sides.
    pub name: &'static str,
    /// Its WGSL type.
    pub wgsl: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
}

/// A parameter struct as the composer and the tests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamsInfo {
    /// Name of the Rust struct and of the WGSL struct.
    pub name: &'static str,
    /// Bytes, a multiple of 16.
    pub size: usize,
    /// Members in order.
    pub fields: &'static [Field],
}

/// A parameter struct of a kernel: plain bytes with a known layout.
pub trait Params: bytemuck::Pod {
    /// Its layout.
    const INFO: ParamsInfo;
}

/// A Rust member type with a WGSL counterpart of the same layout.
trait Member {
    const WGSL: &'static str;
}
impl Member for u32 {
    const WGSL: &'static str = "u32";
}
impl Member for i32 {
    const WGSL: &'static str = "i32";
}
impl Member for f32 {
    const WGSL: &'static str = "f32";
}
impl Member for [u32; 4] {
    const WGSL: &'static str = "vec4<u32>";
}
impl Member for [f32; 4] {
    const WGSL: &'static str = "vec4<f32>";
}
impl Member for [[f32; 4]; MOST_GROUPS] {
    const WGSL: &'static str = "array<vec4<f32>, 12>";
}
impl Member for [[u32; 4]; 2] {
    const WGSL: &'static str = "array<vec4<u32>, 2>";
}

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)* }

        impl Params for $name {
            const INFO: ParamsInfo = ParamsInfo {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[$(Field {
                    name: stringify!($field),
                    wgsl: <$ty as Member>::WGSL,
                    offset: offset_of!($name, $field),
                },)*],
            };
        }
    )*};
}

params! {
    /// Element-wise kernels over contiguous operands whose offsets are multiples of 4.
    Contiguous {
        /// Elements of the result.
        len: u32,
        /// `vec4`s per invocation.
        rounds: u32,
        /// First scalar operand, the bits of an `elem`.
        s: u32,
        /// Second scalar operand, the bits of an `elem`.
        t: u32,
        /// Where each input starts and, last, where the result starts; in `vec4`s.
        offsets: [u32; 4],
    }

    /// Element-wise kernels over views of up to 4 dimensions (innermost last), counted in items (elements or `vec4`s).
    Strided {
        /// Lengths of the dimensions.
        shape: [u32; 4],
        /// Strides of the first input.
        a_strides: [u32; 4],
        /// Strides of the second input, where there is one.
        b_strides: [u32; 4],
        /// Strides of the third input, where there is one.
        c_strides: [u32; 4],
        /// Strides of the result.
        out_strides: [u32; 4],
        /// Where each input starts and, last, where the result starts.
        offsets: [u32; 4],
        /// Invocations needed: rows of the innermost dimension times `chunks`.
        jobs: u32,
        /// Invocations that share one innermost row; neighbours in a row belong to neighbouring invocations.
        chunks: u32,
        /// First scalar operand, the bits of an `elem`.
        s: u32,
        /// Second scalar operand, the bits of an `elem`.
        t: u32,
        /// Elements of the result.
        len: u32,
        /// 0.
        pad: u32,
        /// 0.
        pad_1: u32,
        /// 0.
        pad_2: u32,
    }

    /// `copy_strided` of up to 8 dimensions, outermost first; lengths of unused dimensions are 1.
    Rank8 {
        /// Lengths.
        shape: [[u32; 4]; 2],
        /// Strides of the input.
        a_strides: [[u32; 4]; 2],
        /// Strides of the result.
        out_strides: [[u32; 4]; 2],
        /// Elements.
        len: u32,
        /// Where the input starts.
        a_offset: u32,
        /// Where the result starts.
        out_offset: u32,
        /// 0.
        pad: u32,
    }

    /// `arange`.
    Arange {
        /// Elements.
        len: u32,
        /// Where the result starts.
        out_offset: u32,
        /// First value, the bits of an `elem`.
        s: u32,
        /// Step, the bits of an `elem`.
        t: u32,
        /// Elements before these, of the same range.
        first: u32,
        /// Unused.
        pad: u32,
        /// Unused.
        pad2: u32,
        /// Unused.
        pad3: u32,
    }

    /// One stage of a reduction over the middle of `[outer, n, inner]`; strides and offsets in items.
    Reduce {
        /// outer * splits * inner: results of this stage.
        jobs: u32,
        /// Items to reduce for one result of the last stage.
        n: u32,
        /// Invocations that share those; at most `n`, and `n / splits` at most 16,384.
        splits: u32,
        /// Length of the inner dimension.
        inner: u32,
        /// Stride of the outer dimension.
        outer_stride: u32,
        /// Stride of the reduced dimension.
        stride: u32,
        /// Stride of the inner dimension.
        inner_stride: u32,
        /// Where the input starts.
        offset: u32,
        /// Where the result starts.
        out_offset: u32,
        /// Factor on every result, the bits of an `elem`: 1, or 1 / n in the last stage of a mean.
        s: u32,
        /// 0.
        pad: u32,
        /// 0.
        pad2: u32,
    }

    /// Running results over the middle of `[outer, n, inner]`, contiguous.
    Scan {
        /// outer * blocks * inner.
        jobs: u32,
        /// Length of a line.
        n: u32,
        /// Elements of a block, at most 16,384.
        block: u32,
        /// Blocks of a line.
        blocks: u32,
        /// Length of the inner dimension.
        inner: u32,
        /// Where the input starts.
        offset: u32,
        /// Where the result starts.
        out_offset: u32,
        /// 1 where lines are walked from their end.
        backward: u32,
    }

    /// One step of a bitonic sort of lines.
    Sort {
        /// Pairs of all lines.
        jobs: u32,
        /// Elements of a line.
        n: u32,
        /// Positions of a line, a power of two.
        padded: u32,
        /// Positions that are sorted in one direction: 2 in the first step, which reads no positions.
        block: u32,
        /// Distance of a pair.
        step: u32,
        /// 1 where the largest element comes first.
        descending: u32,
        /// Where the elements start.
        offset: u32,
        /// Where the positions start.
        out_offset: u32,
    }

    /// Layer normalisation over rows; lengths and offsets in items.
    Norm {
        /// Rows.
        rows: u32,
        /// Items per row.
        n: u32,
        /// Invocations that share a column (weight gradient); at most `rows`.
        splits: u32,
        /// 1 where there is a bias.
        has_bias: u32,
        /// Where the input starts.
        a_offset: u32,
        /// Where the weight starts.
        weight_offset: u32,
        /// Where the bias starts.
        bias_offset: u32,
        /// Where the gradient of the output starts.
        dout_offset: u32,
        /// Where the result starts.
        out_offset: u32,
        /// 1 / elements per row.
        inverse_len: f32,
        /// Added to the variance.
        eps: f32,
        /// Where the gradient that is added starts.
        sum_offset: u32,
    }

    /// A product out `[M, N]` = a `[M, K]` b `[K, N]` for each entry of a batch of up to two dimensions, any strides.
    Matmul {
        /// M, N, K, and the length of the inner batch dimension.
        size: [u32; 4],
        /// Of a: where it starts; strides of rows, of k and of the inner batch dimension.
        a: [u32; 4],
        /// Of b: where it starts; strides of k, of columns and of the inner batch dimension.
        b: [u32; 4],
        /// Of the result: where it starts; strides of rows, of columns and of the inner batch dimension.
        out: [u32; 4],
        /// Strides of the outer batch dimension in a, b and the result; stride of the parts of K in the result.
        outer: [u32; 4],
        /// Tiles across, tiles down, and batch entries times parts.
        tiles: [u32; 4],
        /// Parts that K is cut into; each has a result of its own.
        parts: u32,
        /// Length of a part, at most 16,384.
        part_len: u32,
        /// 0.
        pad: u32,
        /// 0.
        pad2: u32,
    }

    /// Softmax and its gradients over contiguous rows; lengths and offsets in items.
    Softmax {
        /// Rows.
        rows: u32,
        /// Items per row.
        n: u32,
        /// Rows of one matrix, whose row t counts columns 0..=t only; 0 where all columns count.
        causal: u32,
        /// Factor on the input.
        scale: f32,
        /// Where the input (backward: the result of the forward pass) starts.
        a_offset: u32,
        /// Where the gradient of the output starts.
        dout_offset: u32,
        /// Where the result starts.
        out_offset: u32,
        /// 0.
        pad: u32,
    }

    /// Index kernels over `[outer, rows, width]`; lengths and offsets in items.
    Index {
        /// Invocations needed.
        jobs: u32,
        /// Indices per outer index.
        count: u32,
        /// Invocations that share one row.
        chunks: u32,
        /// Length of the indexed dimension.
        rows: u32,
        /// Length of what lies behind the indexed dimension.
        width: u32,
        /// First position of the window (backward).
        start: u32,
        /// One past the last position of the window; at most 32,768 behind `start`.
        end: u32,
        /// Where the input starts.
        a_offset: u32,
        /// Where the indices start.
        ids_offset: u32,
        /// Where the gradient of the output starts.
        dout_offset: u32,
        /// Where the result starts.
        out_offset: u32,
        /// Number of the operation, for the status words.
        label: u32,
    }

    /// Cross entropy over rows of logits.
    Loss {
        /// Rows.
        rows: u32,
        /// Classes.
        n: u32,
        /// Invocations that share a row; at most `n`.
        splits: u32,
        /// Where the logits start.
        a_offset: u32,
        /// Where the targets start.
        targets_offset: u32,
        /// Where the gradient of the loss lies.
        dout_offset: u32,
        /// Where the result starts.
        out_offset: u32,
        /// Factor on the gradient: 1 / rows for the mean.
        scale: f32,
        /// Number of the operation, for the status words.
        label: u32,
        /// 0.
        pad: u32,
        /// 0.
        pad2: u32,
        /// 0.
        pad3: u32,
    }

    /// Random fills.
    Random {
        /// Elements.
        len: u32,
        /// Groups of four per invocation.
        rounds: u32,
        /// Low word of the first counter; one counter per four elements.
        counter_low: u32,
        /// High word of the first counter.
        counter_high: u32,
        /// Low word of the seed.
        seed_low: u32,
        /// High word of the seed.
        seed_high: u32,
        /// First parameter of the distribution, the bits of an `elem`.
        s: u32,
        /// Second parameter of the distribution, the bits of an `elem`.
        t: u32,
        /// Where the result starts.
        out_offset: u32,
        /// Bits of a word that a uniform number drops: 32 less the digits of its type.
        shift: u32,
        /// What a uniform number has to be less than.
        limit: f32,
        /// 0.
        zero: u32,
    }

    /// `check_range`.
    Check {
        /// Invocations.
        jobs: u32,
        /// Elements.
        len: u32,
        /// Where they start.
        offset: u32,
        /// What they are: the label of a `kernel::checks::Subject`.
        label: u32,
        /// Least value.
        low: f32,
        /// Greatest value.
        high: f32,
        /// 0.
        pad: u32,
        /// 0.
        pad2: u32,
    }

    /// `count_steps`.
    CountSteps {
        /// Parameters.
        len: u32,
        /// Word of the first step count.
        steps: u32,
        /// Word of the first product.
        products: u32,
        /// Word of the first flag: 1 where the parameter steps.
        flags: u32,
        /// Decay of the first moment.
        beta1: f32,
        /// NAdam's momentum decay times the logarithm of 0.96.
        decay: f32,
        /// 0.
        pad: u32,
        /// 0.
        pad2: u32,
    }

    /// `update_scale`.
    UpdateScale {
        /// The factor of growth.
        growth: f32,
        /// The factor where infinities were found.
        backoff: f32,
        /// Steps without infinities after which it grows.
        interval: u32,
        /// Element of `state` with the scale.
        state: u32,
        /// Element of `found`.
        found: u32,
        /// 0.
        pad: u32,
        /// 0.
        pad2: u32,
        /// 0.
        pad3: u32,
    }

    /// `square_parts`.
    Squares {
        /// Tensors.
        rows: u32,
        /// Workgroups.
        chunks: u32,
        /// `vec4`s per invocation.
        rounds: u32,
        /// `vec4` of `table` at which the rows start.
        table: u32,
    }

    /// An optimizer's step on many parameters. Their table has two `vec4`s for each: its first chunk, elements, number (and that of
    /// its group in the highest byte), and where it, its gradient and its state start in the windows; in `vec4`s.
    Update {
        /// Parameters.
        rows: u32,
        /// Workgroups.
        chunks: u32,
        /// `vec4`s per invocation.
        rounds: u32,
        /// `vec4` of `control` at which the table starts.
        table: u32,
        /// Word of `control` at which the step counts start.
        steps: u32,
        /// Word of `control` at which the products start.
        products: u32,
        /// `vec4` of `control` with the factor on gradients and the word that skips the step.
        head: u32,
        /// AdamW's decoupled weight decay; Nesterov momentum.
        flag: u32,
        /// The rule's numbers.
        a: [f32; 4],
        /// More of them.
        b: [f32; 4],
        /// Learning rate and weight decay of each group.
        groups: [[f32; 4]; MOST_GROUPS],
    }
}
