//! Windows over pictures: pooling, convolutions, other sizes.

use linn::Tensor;
use linn::autograd::{ConvOptions, ConvTransposeOptions, InterpolateMode, Padding, PoolOptions, Resized};

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, Output, give};

pub const ROWS: &[Row] = &[
    row("nn.functional.adaptive_avg_pool1d", |c| give(c.input()?.adaptive_avg_pool1d(&c.ints_or_null(1, "output_size")?))),
    row("nn.functional.adaptive_avg_pool2d", |c| give(c.input()?.adaptive_avg_pool2d(&c.ints_or_null(1, "output_size")?))),
    row("nn.functional.avg_pool1d", |c| avg_pool(c, Tensor::avg_pool1d)),
    row("nn.functional.avg_pool2d", |c| avg_pool(c, Tensor::avg_pool2d)),
    row("nn.functional.conv1d", |c| conv(c, Tensor::conv1d)),
    row("nn.functional.conv2d", |c| conv(c, Tensor::conv2d)),
    row("nn.functional.conv3d", |c| conv(c, Tensor::conv3d)),
    row("nn.functional.conv_transpose1d", |c| conv_transpose(c, Tensor::conv_transpose1d)),
    row("nn.functional.conv_transpose2d", |c| conv_transpose(c, Tensor::conv_transpose2d)),
    row("nn.functional.interpolate.area", interpolate),
    row("nn.functional.interpolate.bicubic", interpolate),
    row("nn.functional.interpolate.bilinear", interpolate),
    row("nn.functional.interpolate.linear", interpolate),
    row("nn.functional.interpolate.nearest", interpolate),
    row("nn.functional.interpolate.nearest-exact", interpolate),
    row("nn.functional.interpolate.trilinear", interpolate),
    row("nn.functional.max_pool1d", |c| max_pool(c, Tensor::max_pool1d)),
    row("nn.functional.max_pool2d", |c| max_pool(c, Tensor::max_pool2d)),
    row("nn.functional.unfold", |c| {
        let (dilation, padding, stride) = (numbers(c, 2, "dilation")?, numbers(c, 3, "padding")?, numbers(c, 4, "stride")?);
        // PyTorch's default stride is 1 here.
        let stride = if stride.is_empty() { vec![1] } else { stride };
        let options = PoolOptions { dilation: &dilation, padding: &padding, stride: &stride, ..PoolOptions::default() };
        give(c.input()?.im2col(&c.ints(1, "kernel_size")?, options))
    })
    .called("im2col"),
];

/// Numbers per dimension; none where the argument is not given.
fn numbers(c: &Call, at: usize, name: &str) -> Answer<Vec<isize>> {
    Ok(c.ints_opt(at, name)?.unwrap_or_default())
}

/// `input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None`.
fn avg_pool(c: &Call, pool: fn(&Tensor, &[isize], PoolOptions<'_>) -> linn::Result<Tensor>) -> Answer {
    let (stride, padding) = (numbers(c, 2, "stride")?, numbers(c, 3, "padding")?);
    let options = PoolOptions {
        stride: &stride,
        padding: &padding,
        ceil_mode: c.bool_or(4, "ceil_mode", false)?,
        count_include_pad: c.bool_or(5, "count_include_pad", true)?,
        divisor_override: c.int_opt(6, "divisor_override")?.map(|divisor| divisor as i64),
        ..PoolOptions::default()
    };
    give(pool(&c.input()?, &c.ints(1, "kernel_size")?, options))
}

/// `input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False`.
type MaxPool = fn(&Tensor, &[isize], PoolOptions<'_>) -> linn::Result<(Tensor, Tensor)>;

fn max_pool(c: &Call, pool: MaxPool) -> Answer {
    let (stride, padding, dilation) = (numbers(c, 2, "stride")?, numbers(c, 3, "padding")?, numbers(c, 4, "dilation")?);
    let ceil_mode = c.bool_or(5, "ceil_mode", false)?;
    let options = PoolOptions { stride: &stride, padding: &padding, dilation: &dilation, ceil_mode, ..PoolOptions::default() };
    let with_positions = c.bool_or(6, "return_indices", false)?;
    let (maxima, positions) = pool(&c.input()?, &c.ints(1, "kernel_size")?, options)?;
    Ok(Output::Tensors(if with_positions { vec![maxima, positions] } else { vec![maxima] }))
}

/// `input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1`.
fn conv(c: &Call, conv: fn(&Tensor, &Tensor, Option<&Tensor>, ConvOptions<'_>) -> linn::Result<Tensor>) -> Answer {
    let (bias, stride, dilation) = (c.tensor_opt(2, "bias")?, numbers(c, 3, "stride")?, numbers(c, 5, "dilation")?);
    let text = if c.is_text(4, "padding") { Some(c.text_or(4, "padding", "")?) } else { None };
    let zeros = if text.is_none() { numbers(c, 4, "padding")? } else { vec![] };
    let padding = match text {
        None => Padding::Zeros(&zeros),
        Some("same") => Padding::Same,
        Some("valid") => Padding::Valid,
        Some(other) => return Err(Fault::Row(format!("padding {other}"))),
    };
    let options = ConvOptions { stride: &stride, padding, dilation: &dilation, groups: c.len_or(6, "groups", 1)? };
    give(conv(&c.input()?, &c.tensor(1, "weight")?, bias.as_ref(), options))
}

/// `input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1`.
fn conv_transpose(
    c: &Call,
    conv: fn(&Tensor, &Tensor, Option<&Tensor>, ConvTransposeOptions<'_>) -> linn::Result<Tensor>,
) -> Answer {
    let (bias, stride, dilation) = (c.tensor_opt(2, "bias")?, numbers(c, 3, "stride")?, numbers(c, 7, "dilation")?);
    let (padding, output_padding) = (numbers(c, 4, "padding")?, numbers(c, 5, "output_padding")?);
    let options = ConvTransposeOptions {
        stride: &stride,
        padding: &padding,
        output_padding: &output_padding,
        dilation: &dilation,
        groups: c.len_or(6, "groups", 1)?,
    };
    give(conv(&c.input()?, &c.tensor(1, "weight")?, bias.as_ref(), options))
}

/// `input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None`.
fn interpolate(c: &Call) -> Answer {
    let (size, factor) = (c.ints_opt(1, "size")?, c.floats_opt(2, "scale_factor")?);
    let mode = match c.text_or(3, "mode", "nearest")? {
        "nearest" => InterpolateMode::Nearest,
        "nearest-exact" => InterpolateMode::NearestExact,
        "linear" | "bilinear" | "trilinear" => InterpolateMode::Linear,
        "bicubic" => InterpolateMode::Bicubic,
        "area" => InterpolateMode::Area,
        other => return Err(Fault::Row(format!("mode {other}"))),
    };
    let align_corners = c.bool_or(4, "align_corners", false)?;
    let recompute = c.bool_or(5, "recompute_scale_factor", false)?;
    let resized = match (&size, &factor) {
        (Some(size), None) => Resized::Size(size),
        (None, Some(factor)) if recompute => Resized::ScaleRecomputed(factor),
        (None, Some(factor)) => Resized::Scale(factor),
        _ => return Err(Fault::Row("linn takes a size or factors".to_string())),
    };
    give(c.input()?.interpolate(resized, mode, align_corners))
}
