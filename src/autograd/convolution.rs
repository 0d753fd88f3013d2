//! Convolutions, as one matrix product with the windows of the input. Letters: N samples, C and O channels of the input and the
//! result, G groups, K entries of a window.

use super::autocast::in_autocast;
use super::halves::rounded_once;
use super::rearrange::PadMode;
use super::windows::{Over, Windows, sizes};
use crate::error::{Error, Result};
use crate::ops::reduce::expect_float;
use crate::tensor::Tensor;

/// What stands beside the input of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding<'a> {
    /// So many zeros before and behind each dimension: a number for each, one for all, or none at all.
    Zeros(&'a [isize]),
    /// As many zeros as keep the lengths of the input, at stride 1; an odd one stands behind.
    Same,
    /// Nothing.
    Valid,
}

/// How the windows of a convolution lie. Lists have a number per dimension, one for all, or none for 1.
#[derive(Clone, Copy, Debug)]
pub struct ConvOptions<'a> {
    /// From one window to the next.
    pub stride: &'a [isize],
    /// What stands beside the input.
    pub padding: Padding<'a>,
    /// From one entry of a window to the next.
    pub dilation: &'a [isize],
    /// Parts of the channels that are convolved on their own.
    pub groups: usize,
}

impl Default for ConvOptions<'_> {
    fn default() -> Self {
        ConvOptions { stride: &[], padding: Padding::Valid, dilation: &[], groups: 1 }
    }
}

/// Where the input of a convolution is that a transposed one makes. Lists have a number per dimension, one for all, or none for
/// the default.
#[derive(Clone, Copy, Debug)]
pub struct ConvTransposeOptions<'a> {
    /// From one window to the next, in the result; 1.
    pub stride: &'a [isize],
    /// Entries of the result that are cut off before and behind; 0.
    pub padding: &'a [isize],
    /// Entries added behind the result, fewer than the stride or the dilation; 0.
    pub output_padding: &'a [isize],
    /// From one entry of a window to the next; 1.
    pub dilation: &'a [isize],
    /// Parts of the channels that are convolved on their own.
    pub groups: usize,
}

impl Default for ConvTransposeOptions<'_> {
    fn default() -> Self {
        ConvTransposeOptions { stride: &[], padding: &[], output_padding: &[], dilation: &[], groups: 1 }
    }
}

/// Methods of 1 to 3 dimensions.
macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident, $dims:literal, $of:ident, $options:ident;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, weight: &Tensor, bias: Option<&Tensor>, options: $options<'_>) -> Result<Tensor> {
            in_autocast!(stringify!($name), (x = self, w = weight, c = bias), x.$name(&w, c.as_ref(), options));
            Over::pictures(stringify!($name), self, $dims).and_then(|over| $of(over, weight, bias, options))
        }
    )* } };
}

convolutions! {
    /// Sums of the products of each window with the weights, plus bias: self `[N, C, L]` (or one sample), weight `[O, C / G, K]`, bias
    /// `[O]` -> `[N, O, windows]`. Channels that G does not divide, and windows of more than the padded input, are errors.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::ConvOptions;
    /// let x = Tensor::new(&device, [[[1.0f32, 2.0, 3.0]]])?;
    /// let weight = Tensor::new(&device, [[[1.0f32, 10.0]]])?;
    /// assert_eq!(x.conv1d(&weight, None, ConvOptions::default())?.to_vec::<f32>()?, [21.0, 32.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    conv1d, 1, convolve, ConvOptions;
    /// [`Tensor::conv1d`] in two dimensions: self `[N, C, H, W]`, weight `[O, C / G, h, w]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::ConvOptions;
    /// let x = Tensor::new(&device, [[[[1.0f32, 2.0], [3.0, 4.0]]]])?;
    /// let weight = Tensor::new(&device, [[[[1.0f32, 10.0]]]])?;
    /// assert_eq!(x.conv2d(&weight, None, ConvOptions::default())?.to_vec::<f32>()?, [21.0, 43.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    conv2d, 2, convolve, ConvOptions;
    /// [`Tensor::conv1d`] in three dimensions: self `[N, C, D, H, W]`, weight `[O, C / G, d, h, w]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::ConvOptions;
    /// let x = Tensor::new(&device, [[[[[1.0f32, 2.0], [3.0, 4.0]]]]])?;
    /// let weight = Tensor::new(&device, [[[[[1.0f32, 10.0]]]]])?;
    /// assert_eq!(x.conv3d(&weight, None, ConvOptions::default())?.to_vec::<f32>()?, [21.0, 43.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    conv3d, 3, convolve, ConvOptions;
    /// The gradient of [`Tensor::conv1d`] by its input, as an operation: self `[N, C, L]` (or one sample), weight `[C, O / G, K]`, bias
    /// `[O]` -> `[N, O, (L - 1) stride - 2 padding + dilation (K - 1) + output_padding + 1]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::ConvTransposeOptions;
    /// let x = Tensor::new(&device, [[[1.0f32, 2.0]]])?;
    /// let weight = Tensor::new(&device, [[[1.0f32, 10.0]]])?;
    /// assert_eq!(x.conv_transpose1d(&weight, None, ConvTransposeOptions::default())?.to_vec::<f32>()?, [1.0, 12.0, 20.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    conv_transpose1d, 1, convolve_transposed, ConvTransposeOptions;
    /// [`Tensor::conv_transpose1d`] in two dimensions: self `[N, C, H, W]`, weight `[C, O / G, h, w]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::ConvTransposeOptions;
    /// let x = Tensor::new(&device, [[[[1.0f32, 2.0]]]])?;
    /// let weight = Tensor::new(&device, [[[[1.0f32, 10.0]]]])?;
    /// assert_eq!(x.conv_transpose2d(&weight, None, ConvTransposeOptions::default())?.to_vec::<f32>()?, [1.0, 12.0, 20.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    conv_transpose2d, 2, convolve_transposed, ConvTransposeOptions;
}

#[track_caller]
fn convolve(over: Over<'_>, weight: &Tensor, bias: Option<&Tensor>, options: ConvOptions<'_>) -> Result<Tensor> {
    let outputs = weight.shape().first().copied().unwrap_or(0);
    expect_weight(over, weight, bias, outputs, options.groups)?;
    let inputs = over.x.shape()[over.first() - 1];
    if weight.shape()[1] * options.groups != inputs || !outputs.is_multiple_of(options.groups) {
        return Err(unfit(over, weight, options.groups, "pass a weight [O, C / groups, ..], with O that groups divides"));
    }
    let ones = vec![1; over.dims];
    let stride = over.each("stride", options.stride, Some(&ones), 1)?;
    let dilation = over.each("dilation", options.dilation, Some(&ones), 1)?;
    let zeros = match options.padding {
        Padding::Zeros(padding) => over.each("padding", padding, Some(&vec![0; over.dims]), 0)?,
        Padding::Same if stride != ones => {
            return Err(over.refused(&format!("padding is Same, stride {stride:?}"), "use stride 1, or numbers"));
        }
        Padding::Same | Padding::Valid => vec![0; over.dims],
    };
    let window = |i: usize| {
        let (size, dilation) = (weight.shape()[i + 2], dilation[i]);
        let (before, after) = match options.padding {
            Padding::Same => (dilation * (size - 1) / 2, (dilation * (size - 1)).div_ceil(2)),
            _ => (zeros[i], zeros[i]),
        };
        Windows { len: over.lens()[i], size, stride: stride[i], dilation, before: before as isize, after: after as isize }
    };
    product(over, weight, bias, &(0..over.dims).map(window).collect::<Vec<_>>(), options.groups)
}

/// The windows times the weight `[O, C / G, ..]`, plus bias.
#[track_caller]
fn product(over: Over<'_>, weight: &Tensor, bias: Option<&Tensor>, windows: &[Windows], groups: usize) -> Result<Tensor> {
    rounded_once(over.op, [over.x, weight], |[x, weight]| product_of_words(Over { x, ..over }, weight, bias, windows, groups))
}

/// [`product`] where halves are f32 already, but for the bias, which is promoted.
#[track_caller]
fn product_of_words(
    over: Over<'_>,
    weight: &Tensor,
    bias: Option<&Tensor>,
    windows: &[Windows],
    groups: usize,
) -> Result<Tensor> {
    let counts = over.counts(windows)?;
    let (dims, batched) = (over.dims as isize, over.first() == 2);
    let all = over.windows(windows, 0.0)?;
    let all = if batched { all } else { all.unsqueeze(0)? };
    // [N, C, counts, window] -> [G, C / G window, N counts]: one product for each group.
    let order: Vec<isize> = [1].into_iter().chain(2 + dims..2 + 2 * dims).chain([0]).chain(2..2 + dims).collect();
    let (n, outputs) = (all.shape()[0], weight.shape()[0]);
    let entries: usize = weight.shape()[1..].iter().product();
    let places = n * counts.iter().product::<usize>();
    let columns = all.permute(&order)?.reshape(&sizes(&[&[groups, entries, places]]))?;
    let rows = weight.reshape(&sizes(&[&[groups, outputs / groups, entries]]))?;
    let out = rows.matmul(&columns).map_err(|error| error.of(over.op))?;
    let out = out.reshape(&sizes(&[&[outputs, n], &counts]))?.transpose(0, 1)?;
    let out = match bias {
        Some(bias) => {
            let shape: Vec<isize> = [-1].into_iter().chain(vec![1; over.dims]).collect();
            out.add(&bias.reshape(&shape)?).map_err(|error| error.of(over.op))?
        }
        None => out.contiguous()?,
    };
    if batched { Ok(out) } else { out.squeeze(0) }
}

#[track_caller]
fn convolve_transposed(
    over: Over<'_>,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvTransposeOptions<'_>,
) -> Result<Tensor> {
    let groups = options.groups;
    let outputs = weight.shape().get(1).copied().unwrap_or(0) * groups;
    expect_weight(over, weight, bias, outputs, groups)?;
    let inputs = over.x.shape()[over.first() - 1];
    if weight.shape()[0] != inputs || !inputs.is_multiple_of(groups) {
        return Err(unfit(over, weight, groups, "pass a weight [C, O / groups, ..], with C that groups divides"));
    }
    let (ones, none) = (vec![1; over.dims], vec![0; over.dims]);
    let stride = over.each("stride", options.stride, Some(&ones), 1)?;
    let dilation = over.each("dilation", options.dilation, Some(&ones), 1)?;
    let padding = over.each("padding", options.padding, Some(&none), 0)?;
    let output_padding = over.each("output_padding", options.output_padding, Some(&none), 0)?;
    if (0..over.dims).any(|i| output_padding[i] >= stride[i].max(dilation[i])) {
        let fact = format!("output_padding {output_padding:?}, stride {stride:?} and dilation {dilation:?}");
        return Err(over.refused(&fact, "add less than the stride or the dilation"));
    }

    // [C, O / G, ..] -> [O, C / G, ..], turned: what an entry of the result sees of the input.
    let kernel = &weight.shape()[2..];
    let split = weight.reshape(&sizes(&[&[groups, inputs / groups, outputs / groups], kernel]))?;
    let swapped = split.transpose(1, 2)?.reshape(&sizes(&[&[outputs, inputs / groups], kernel]))?;
    let turned = swapped.flip(&(2..2 + over.dims as isize).collect::<Vec<_>>())?;

    let mut apart = over.x.clone();
    for (i, stride) in stride.iter().enumerate() {
        apart = with_zeros(&apart, over.first() + i, *stride)?;
    }
    let apart = Over { x: &apart, ..over };
    let window = |i: usize| {
        let (size, dilation) = (kernel[i], dilation[i]);
        let before = (dilation * (size - 1)) as isize - padding[i] as isize;
        let after = before + output_padding[i] as isize;
        Windows { len: apart.lens()[i], size, stride: 1, dilation, before, after }
    };
    product(apart, &turned, bias, &(0..over.dims).map(window).collect::<Vec<_>>(), groups)
}

/// `x` with `stride` - 1 zeros between the entries of dimension `dim`.
#[track_caller]
fn with_zeros(x: &Tensor, dim: usize, stride: usize) -> Result<Tensor> {
    let len = x.shape()[dim];
    if stride == 1 || len == 0 {
        return Ok(x.clone());
    }
    let columns = x.unsqueeze(-1)?.pad(&[0, stride - 1], PadMode::Constant(0.0))?.movedim(&[-1], &[dim as isize + 1])?;
    let joined = columns.reshape(&sizes(&[&x.shape()[..dim], &[len * stride], &x.shape()[dim + 1..]]))?;
    joined.narrow(dim as isize, 0, (len - 1) * stride + 1)
}

/// A weight `[.., .., window]` with entries, and a bias for `outputs` channels.
fn expect_weight(over: Over<'_>, weight: &Tensor, bias: Option<&Tensor>, outputs: usize, groups: usize) -> Result<()> {
    expect_float(over.op, over.x)?;
    if weight.rank() != over.dims + 2 || weight.shape()[2..].contains(&0) || groups == 0 {
        return Err(unfit(over, weight, groups, "pass a weight of two dimensions for channels and one for each of the window's"));
    }
    match bias {
        Some(bias) if bias.shape() != [outputs] => {
            let fact = format!("a bias of shape {:?} for an input of shape {:?}", bias.shape(), over.x.shape());
            Err(Error::shape(over.op, fact, format!("pass {outputs} numbers, one for each channel of the result")))
        }
        _ => Ok(()),
    }
}

fn unfit(over: Over<'_>, weight: &Tensor, groups: usize, help: &str) -> Error {
    let fact = format!("an input of shape {:?} and a weight of shape {:?} in {groups} groups", over.x.shape(), weight.shape());
    Error::shape(over.op, fact, help)
}
