//! Pooling: sums and maxima over windows of a picture. Letters: N pictures, C channels, L, H and W their sizes; the batch `N` may
//! be missing.

use super::halves::rounded_once;
use super::windows::{Over, Windows, sizes};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::reduce::{KeepDim, expect_float};
use crate::tensor::Tensor;

/// How the windows of a pool lie, and what they are divided by. Lists have a number per dimension, one for all, or none for
/// PyTorch's default.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions<'a> {
    /// From one window to the next; the size of the windows where there is none.
    pub stride: &'a [isize],
    /// Entries before and behind the picture, at most half a window; 0 where there are none.
    pub padding: &'a [isize],
    /// From one entry of a window to the next, for maxima; 1 where there is none.
    pub dilation: &'a [isize],
    /// Whether a last window that begins in the picture or before it may reach over the padding.
    pub ceil_mode: bool,
    /// Whether padding counts in a mean.
    pub count_include_pad: bool,
    /// What sums are divided by, instead of the number of entries.
    pub divisor_override: Option<i64>,
}

impl Default for PoolOptions<'_> {
    fn default() -> Self {
        let none: &[isize] = &[];
        let (ceil_mode, count_include_pad) = (false, true);
        PoolOptions { stride: none, padding: none, dilation: none, ceil_mode, count_include_pad, divisor_override: None }
    }
}

impl Tensor {
    /// Means over windows of `kernel_size` entries: `[N, C, L]` -> `[N, C, windows]`. Windows of more than the padded picture, and
    /// padding of more than half a window, are errors.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::PoolOptions;
    /// let x = Tensor::new(&device, [[[1.0f32, 3.0, 5.0, 7.0]]])?;
    /// assert_eq!(x.avg_pool1d(&[2], PoolOptions::default())?.to_vec::<f32>()?, [2.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool1d(&self, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<Tensor> {
        avg_pool(Over::pictures("avg_pool1d", self, 1)?, kernel_size, options)
    }

    /// [`Tensor::avg_pool1d`] over windows in two dimensions: `[N, C, H, W]` -> `[N, C, rows of windows, windows in a row]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::PoolOptions;
    /// let x = Tensor::new(&device, [[[[1.0f32, 3.0], [5.0, 7.0]]]])?;
    /// assert_eq!(x.avg_pool2d(&[2], PoolOptions::default())?.to_vec::<f32>()?, [4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool2d(&self, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<Tensor> {
        avg_pool(Over::pictures("avg_pool2d", self, 2)?, kernel_size, options)
    }

    /// (maxima over windows of `kernel_size` entries, their positions in a channel as i32): `[N, C, L]` -> `[N, C, windows]`. The
    /// first of equal entries counts, and gets the gradient; NaN is the largest. Errors as in [`Tensor::avg_pool1d`], and for a
    /// picture without entries.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::PoolOptions;
    /// let x = Tensor::new(&device, [[[1.0f32, 3.0, 7.0, 5.0]]])?;
    /// let (values, positions) = x.max_pool1d(&[2], PoolOptions::default())?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 7.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool1d(&self, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<(Tensor, Tensor)> {
        max_pool(Over::pictures("max_pool1d", self, 1)?, kernel_size, options)
    }

    /// [`Tensor::max_pool1d`] over windows in two dimensions: `[N, C, H, W]` -> `[N, C, rows of windows, windows in a row]`. The
    /// position of row h and column w is h W + w.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::PoolOptions;
    /// let x = Tensor::new(&device, [[[[1.0f32, 3.0], [7.0, 5.0]]]])?;
    /// let (values, positions) = x.max_pool2d(&[2], PoolOptions::default())?;
    /// assert_eq!(values.to_vec::<f32>()?, [7.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool2d(&self, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<(Tensor, Tensor)> {
        max_pool(Over::pictures("max_pool2d", self, 2)?, kernel_size, options)
    }

    /// Means over as many windows as `output_size` asks for (`[None]`: as many as there are entries): `[N, C, L]` ->
    /// `[N, C, output_size]`. Window i goes from floor(i L / output_size) to below ceil((i + 1) L / output_size).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[[1.0f32, 3.0, 5.0, 7.0]]])?;
    /// assert_eq!(x.adaptive_avg_pool1d(&[Some(2)])?.to_vec::<f32>()?, [2.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn adaptive_avg_pool1d(&self, output_size: &[Option<isize>]) -> Result<Tensor> {
        adaptive_avg_pool(Over::pictures("adaptive_avg_pool1d", self, 1)?, output_size)
    }

    /// [`Tensor::adaptive_avg_pool1d`] in two dimensions: `[N, C, H, W]` -> `[N, C, output_size]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[[[1.0f32, 3.0], [5.0, 7.0]]]])?;
    /// assert_eq!(x.adaptive_avg_pool2d(&[Some(1), None])?.to_vec::<f32>()?, [3.0, 5.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, output_size: &[Option<isize>]) -> Result<Tensor> {
        adaptive_avg_pool(Over::pictures("adaptive_avg_pool2d", self, 2)?, output_size)
    }

    /// The windows of [`Tensor::avg_pool2d`] as columns (`torch.nn.functional.unfold`): `[N, C, H, W]` -> `[N, C h w, windows]` for
    /// windows of h times w entries.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::PoolOptions;
    /// let x = Tensor::new(&device, [[[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]]])?;
    /// let y = x.im2col(&[2], PoolOptions { stride: &[1], ..Default::default() })?;
    /// assert_eq!(y.shape(), [1, 4, 2]);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn im2col(&self, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<Tensor> {
        const OP: &str = "im2col";
        let over = Over::pictures(OP, self, 2)?;
        let windows = layout(over, kernel_size, options)?;
        let counts = over.counts(&windows)?;
        let batch = &self.shape()[..over.first() - 1];
        let columns = self.shape()[over.first() - 1] * windows.iter().map(|window| window.size).product::<usize>();
        let first = over.first() as isize;
        let columns_first = over.windows(&windows, 0.0)?.movedim(&[first, first + 1], &[-2, -1])?;
        columns_first.reshape(&sizes(&[batch, &[columns, counts.iter().product()]]))
    }
}

/// How the windows lie, by the rules that all pools share.
fn layout(over: Over<'_>, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<Vec<Windows>> {
    let size = over.each("kernel_size", kernel_size, None, 1)?;
    let stride = over.each("stride", options.stride, Some(&size), 1)?;
    let padding = over.each("padding", options.padding, Some(&vec![0; over.dims]), 0)?;
    let dilation = over.each("dilation", options.dilation, Some(&vec![1; over.dims]), 1)?;
    let window = |i: usize| {
        let (len, pad) = (over.lens()[i], padding[i] as isize);
        let window = Windows { len, size: size[i], stride: stride[i], dilation: dilation[i], before: pad, after: pad };
        // With ceil_mode the last window reaches as far behind the padding as it has to, where it begins before it.
        let begins = (len + padding[i]).saturating_sub(1) / window.stride * window.stride;
        let room = (len + 2 * padding[i] + window.stride - 1).checked_sub(window.span());
        let last = room.map(|room| (room / window.stride * window.stride).min(begins));
        match (options.ceil_mode, last) {
            (true, Some(last)) => {
                let after = (last + window.span()) as isize - len as isize - pad;
                Windows { after: after.max(pad), ..window }
            }
            _ => window,
        }
    };
    Ok((0..over.dims).map(window).collect())
}

/// [`layout`] with padding of at most half a window.
fn pool_layout(over: Over<'_>, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<Vec<Windows>> {
    expect_float(over.op, over.x)?;
    let windows = layout(over, kernel_size, options)?;
    match windows.iter().all(|window| 2 * window.before <= window.span() as isize) {
        true => Ok(windows),
        false => Err(over
            .refused(&format!("padding {:?} and windows of {kernel_size:?}", options.padding), "pad with at most half a window")),
    }
}

#[track_caller]
fn avg_pool(over: Over<'_>, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<Tensor> {
    rounded_once(over.op, [over.x], |[x]| means_of_windows(Over { x, ..over }, kernel_size, options))
}

#[track_caller]
fn means_of_windows(over: Over<'_>, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<Tensor> {
    if let Some(0) = options.divisor_override {
        return Err(over.refused("divisor_override is 0", "pass another divisor, or None"));
    }
    if !options.dilation.is_empty() {
        return Err(over.refused(&format!("dilation is {:?}", options.dilation), "dilation is for maxima"));
    }
    let windows = pool_layout(over, kernel_size, options)?;
    let counts = over.counts(&windows)?;
    let last: Vec<isize> = (1..=over.dims as isize).map(|dim| -dim).collect();
    let mut sums = over.windows(&windows, 0.0)?.sum(&last, KeepDim::Drop)?;
    if let Some(divisor) = options.divisor_override {
        return sums.mul_scalar(1.0 / divisor as f64);
    }
    let padding = over.each("padding", options.padding, Some(&vec![0; over.dims]), 0)?;
    for (i, (window, count)) in windows.iter().zip(counts).enumerate() {
        // What ceil_mode adds behind the padding never counts.
        let counted = |at: usize| {
            let (start, pad) = ((at * window.stride) as isize - window.before, padding[i] as isize);
            let end = (start + window.size as isize).min(window.len as isize + pad);
            match options.count_include_pad {
                true => end - start,
                false => end.min(window.len as isize) - start.max(0),
            }
        };
        let factors: Vec<f32> = (0..count).map(|at| 1.0 / counted(at) as f32).collect();
        sums = match factors.iter().all(|factor| *factor == factors[0]) {
            true => sums.mul_scalar(f64::from(factors[0]))?,
            false => {
                let factors = Tensor::from_slice(sums.device(), &[factors.len()], &factors)?.to_dtype(sums.dtype())?;
                sums.mul(&over.along(i, &factors)?)?
            }
        };
    }
    Ok(sums)
}

#[track_caller]
fn max_pool(over: Over<'_>, kernel_size: &[isize], options: PoolOptions<'_>) -> Result<(Tensor, Tensor)> {
    if over.x.shape()[over.first() - 1..].contains(&0) {
        let fact = format!("an input of shape {:?}", over.x.shape());
        return Err(Error::shape(over.op, fact, "pass pictures that have entries; only the batch may be empty"));
    }
    let windows = pool_layout(over, kernel_size, options)?;
    let counts = over.counts(&windows)?;
    let shape = sizes(&[&over.x.shape()[..over.first()], &counts, &[windows.iter().map(|window| window.size).product()]]);
    let (maxima, entries) = over.windows(&windows, f64::NEG_INFINITY)?.reshape(&shape)?.max(-1, KeepDim::Drop)?;

    // Position of an entry: where its window begins, and how far into it.
    let (mut width, mut offsets) = (1, vec![0i32]);
    let mut begins: Option<Tensor> = None;
    for (i, window) in windows.iter().enumerate().rev() {
        let within = (0..window.size).flat_map(|at| offsets.iter().map(move |rest| rest + (at * window.dilation * width) as i32));
        offsets = within.collect();
        let begin = Tensor::arange(over.x.device(), counts[i], DType::I32)?
            .mul_scalar((window.stride * width) as i64)?
            .add_scalar(-(window.before as i64) * width as i64)?;
        let begin = over.along(i, &begin)?;
        begins = Some(begins.map_or(Ok(begin.clone()), |rest| rest.add(&begin))?);
        width *= window.len;
    }
    let offsets = Tensor::from_slice(over.x.device(), &[offsets.len()], &offsets)?;
    let within = offsets.gather(0, &entries.reshape(&[entries.len() as isize])?)?.reshape(&sizes(&[entries.shape()]))?;
    let positions = begins.map_or(Ok(within.clone()), |begins| within.add(&begins))?;
    Ok((maxima, positions))
}

#[track_caller]
fn adaptive_avg_pool(over: Over<'_>, output_size: &[Option<isize>]) -> Result<Tensor> {
    expect_float(over.op, over.x)?;
    let every = vec![output_size.first().copied().flatten(); over.dims];
    // One number for all dimensions.
    let output_size = if output_size.len() == 1 { &every[..] } else { output_size };
    let fits = output_size.len() == over.dims && output_size.iter().flatten().all(|len| *len >= 0);
    if !fits || over.x.shape()[over.first() - 1..].contains(&0) {
        let help = format!("pass {} sizes of at least 0, and pictures that have entries", over.dims);
        return Err(over.refused(&format!("output_size is {output_size:?}"), help));
    }
    rounded_once(over.op, [over.x], |[x]| {
        let mut out = x.clone();
        for (i, len) in output_size.iter().enumerate() {
            let len = len.map_or(over.lens()[i], |len| len as usize);
            out = out.means_of_parts(over.first() + i, len)?;
        }
        Ok(out)
    })
}

impl Tensor {
    /// Dimension `dim` as the means of `count` parts, which may overlap by an entry.
    #[track_caller]
    pub(super) fn means_of_parts(&self, dim: usize, count: usize) -> Result<Tensor> {
        let len = self.shape()[dim];
        let behind = dim as isize + 1;
        if len == count {
            return Ok(self.clone());
        }
        if count > 0 && len.is_multiple_of(count) {
            return self.unfold(dim as isize, len / count, len / count)?.mean(&[-1], KeepDim::Drop);
        }
        let parts: Vec<(usize, usize)> = (0..count).map(|i| (i * len / count, ((i + 1) * len).div_ceil(count))).collect();
        let most = parts.iter().map(|(start, end)| end - start).max().unwrap_or(1);
        let entries = || parts.iter().flat_map(|(start, end)| (0..most).map(move |at| (start + at, *end)));
        let positions: Vec<i32> = entries().map(|(at, end)| at.min(end - 1) as i32).collect();
        let (before, after) = (&self.shape()[..dim], &self.shape()[dim + 1..]);
        let entries_of = self.pick(dim, &positions)?.reshape(&sizes(&[before, &[count, most], after]))?;
        // Parts differ in length: what the shorter ones lack does not count.
        let missing: Vec<i32> = entries().map(|(at, end)| i32::from(at >= end)).collect();
        let lens: Vec<f32> = parts.iter().map(|(start, end)| (end - start) as f32).collect();
        let ones = vec![1; after.len()];
        let missing = Tensor::from_slice(self.device(), &[count, most], &missing)?.to_dtype(DType::Bool)?;
        let missing = missing.reshape(&sizes(&[&[count, most], &ones]))?;
        let lens =
            Tensor::from_slice(self.device(), &[count], &lens)?.to_dtype(self.dtype())?.reshape(&sizes(&[&[count], &ones]))?;
        entries_of.masked_fill(&missing, 0)?.sum(&[behind], KeepDim::Drop)?.div(&lens)
    }
}
