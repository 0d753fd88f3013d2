//! Every gradient rule against central differences, on contiguous and strided operands, with broadcasting.

use linn::autograd::{ClassOptions, GradcheckOptions, Reduction, cat, gradcheck};
use linn::ops::attention::Mask;
use linn::ops::reduce::KeepDim;
use linn::{DType, Result, Tensor};

use crate::device::device;

/// Distinct numbers between `low` and `high`, in a mixed order: no two are closer than the step of the differences needs.
fn numbers(shape: &[usize], low: f32, high: f32) -> Tensor {
    let len: usize = shape.iter().product();
    let width = (high - low) / len.max(1) as f32;
    let data: Vec<f32> = (0..len).map(|i| low + width * (((i * 7919 + 3) % len.max(1)) as f32 + 0.5)).collect();
    Tensor::from_slice(&device(), shape, &data).unwrap()
}

fn ids(shape: &[usize], data: &[i32]) -> Tensor {
    Tensor::from_slice(&device(), shape, data).unwrap()
}

fn check(name: &str, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    if let Err(why) = gradcheck(f, inputs, GradcheckOptions::default()) {
        panic!("{name}: {why}");
    }
}

/// A function of one tensor on a contiguous and on a transposed, offset operand.
fn check_unary(name: &str, low: f32, high: f32, f: impl Fn(&Tensor) -> Result<Tensor>) {
    check(name, &[numbers(&[3, 5], low, high)], |x| f(&x[0]));
    let whole = numbers(&[6, 4], low, high);
    check(&format!("{name} on a view"), &[whole], |x| f(&x[0].narrow(0, 1, 3)?.transpose(0, 1)?));
}

#[test]
fn unary_rules() {
    check_unary("neg", -2.0, 2.0, Tensor::neg);
    check_unary("exp", -2.0, 1.0, Tensor::exp);
    check_unary("log", 0.5, 3.0, Tensor::log);
    check_unary("sqrt", 0.5, 3.0, Tensor::sqrt);
    check_unary("rsqrt", 0.5, 3.0, Tensor::rsqrt);
    check_unary("sin", -3.0, 3.0, Tensor::sin);
    check_unary("cos", -3.0, 3.0, Tensor::cos);
    check_unary("tanh", -2.0, 2.0, Tensor::tanh);
    check_unary("sigmoid", -3.0, 3.0, Tensor::sigmoid);
    check_unary("relu", -2.0, 2.3, Tensor::relu);
    check_unary("gelu", -3.0, 3.0, Tensor::gelu);
    check_unary("erf", -2.0, 2.0, Tensor::erf);
    check_unary("abs", -2.0, 2.3, Tensor::abs);
    check_unary("square", -2.0, 2.0, Tensor::square);
    check_unary("reciprocal", 0.5, 2.0, Tensor::reciprocal);
    check_unary("add_scalar", -2.0, 2.0, |x| x + 1.5);
    check_unary("mul_scalar", -2.0, 2.0, |x| -2.5 * x);
    check_unary("scalar over tensor", 0.5, 2.0, |x| 3.0 / x);
    check_unary("scalar minus tensor", -2.0, 2.0, |x| 1.0 - x);
    check_unary("pow_scalar 3", -2.0, 2.0, |x| x.pow_scalar(3.0));
    check_unary("pow_scalar 0", -2.0, 2.0, |x| x.pow_scalar(0.0));
    check_unary("pow_scalar -1.5", 0.6, 2.0, |x| x.pow_scalar(-1.5));
    check_unary("clamp", -2.0, 2.0, |x| x.clamp(-1.03, 0.83));
    check_unary("contiguous", -2.0, 2.0, |x| x.transpose(0, 1)?.contiguous());
}

#[test]
fn binary_rules() {
    type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let functions: [(&str, Binary); 7] = [
        ("add", Tensor::add),
        ("sub", Tensor::sub),
        ("mul", Tensor::mul),
        ("div", Tensor::div),
        ("pow", Tensor::pow),
        ("maximum", Tensor::maximum),
        ("minimum", Tensor::minimum),
    ];
    let shapes: [(&[usize], &[usize]); 5] =
        [(&[3, 4], &[3, 4]), (&[3, 4], &[4]), (&[3, 1], &[1, 4]), (&[], &[2, 3]), (&[2, 1, 3], &[4, 1])];
    for (name, f) in functions {
        for (a, b) in shapes {
            // Offset against each other, so that maximum and minimum are never near a tie.
            let inputs = [numbers(a, 0.5, 2.0), numbers(b, 0.4867, 1.7)];
            if name == "maximum" || name == "minimum" {
                let apart = inputs[0].sub(&inputs[1]).unwrap().abs().unwrap().to_vec::<f32>().unwrap();
                if apart.iter().any(|gap| *gap < 0.025) {
                    continue;
                }
            }
            check(&format!("{name} {a:?} {b:?}"), &inputs, |x| f(&x[0], &x[1]));
        }
    }
    check("maximum", &[numbers(&[3, 4], 0.0, 4.0), numbers(&[4], 1.1, 2.1)], |x| x[0].maximum(&x[1]));
    check("a tensor with itself", &[numbers(&[3, 4], 0.5, 2.0)], |x| x[0].mul(&x[0])?.div(&x[0].add(&x[0])?));
    let condition = ids(&[3, 1], &[1, 0, 1]);
    let inputs = [numbers(&[3, 4], -1.0, 1.0), numbers(&[4], -1.0, 1.0)];
    check("where", &inputs, |x| x[0].where_(&condition, &x[1]));
}

#[test]
fn ties_share_the_gradient() {
    let a = Tensor::new(&device(), [1.0f32, 2.0]).unwrap().requires_grad_(true).unwrap();
    let b = Tensor::new(&device(), [1.0f32, 3.0]).unwrap().requires_grad_(true).unwrap();
    a.maximum(&b).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(a.grad().unwrap().to_vec::<f32>().unwrap(), [0.5, 0.0]);
    assert_eq!(b.grad().unwrap().to_vec::<f32>().unwrap(), [0.5, 1.0]);
    let x = Tensor::new(&device(), [5.0f32, 5.0, 1.0]).unwrap().requires_grad_(true).unwrap();
    x.amax(&[], KeepDim::Drop).unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [0.5, 0.5, 0.0]);
}

#[test]
fn reduce_rules() {
    let dims: [&[isize]; 4] = [&[], &[0], &[-1], &[0, 2]];
    for keep in [KeepDim::Keep, KeepDim::Drop] {
        for dims in dims {
            let name = format!("over {dims:?} {keep:?}");
            let input = || [numbers(&[2, 3, 4], -2.0, 2.0)];
            check(&format!("sum {name}"), &input(), |x| x[0].sum(dims, keep));
            check(&format!("mean {name}"), &input(), |x| x[0].mean(dims, keep));
            check(&format!("amax {name}"), &input(), |x| x[0].amax(dims, keep));
            check(&format!("amin {name}"), &input(), |x| x[0].amin(dims, keep));
        }
    }
}

#[test]
fn matmul_rules() {
    let shapes: [(&[usize], &[usize]); 8] = [
        (&[3, 4], &[4, 2]),
        (&[4], &[4]),
        (&[4], &[4, 2]),
        (&[3, 4], &[4]),
        (&[2, 3, 4], &[2, 4, 2]),
        (&[2, 3, 4], &[4, 2]),
        (&[2, 1, 3, 4], &[3, 4, 2]),
        (&[2, 3, 4], &[4]),
    ];
    for (a, b) in shapes {
        let inputs = [numbers(a, -1.0, 1.0), numbers(b, -1.0, 1.0)];
        check(&format!("matmul {a:?} {b:?}"), &inputs, |x| x[0].matmul(&x[1]));
    }
    let inputs = [numbers(&[4, 3], -1.0, 1.0), numbers(&[2, 4], -1.0, 1.0)];
    check("matmul of transposes", &inputs, |x| x[0].t()?.matmul(&x[1].t()?));
    let inputs = [numbers(&[2, 3, 4], -1.0, 1.0), numbers(&[5, 4], -1.0, 1.0), numbers(&[5], -1.0, 1.0)];
    check("linear", &inputs, |x| x[0].linear(&x[1], Some(&x[2])));
    check("linear without bias", &inputs[..2], |x| x[0].linear(&x[1], None));
    check("linear on a vector", &[numbers(&[4], -1.0, 1.0), numbers(&[5, 4], -1.0, 1.0)], |x| x[0].linear(&x[1], None));
}

#[test]
fn softmax_and_loss_rules() {
    for dim in [0, 1, -1] {
        check("softmax", &[numbers(&[3, 5], -2.0, 2.0)], |x| x[0].softmax(dim));
        check("log_softmax", &[numbers(&[3, 5], -2.0, 2.0)], |x| x[0].log_softmax(dim));
    }
    let targets = ids(&[4], &[2, 0, 6, 6]);
    check("cross_entropy", &[numbers(&[4, 7], -2.0, 2.0)], |x| x[0].cross_entropy(&targets));
    check("mse_loss", &[numbers(&[6], -1.0, 1.0), numbers(&[6], -2.0, 1.0)], |x| linn::nn::loss::mse_loss(&x[0], &x[1]));
}

#[test]
fn norm_rules() {
    let inputs = [numbers(&[3, 2, 6], -2.0, 2.0), numbers(&[6], 0.5, 1.5), numbers(&[6], -1.0, 1.0)];
    check("layer_norm", &inputs, |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5));
    check("layer_norm without bias", &inputs[..2], |x| x[0].layer_norm(Some(&x[1]), None, 1e-5));
    check("layer_norm without weight", &inputs[..1], |x| x[0].layer_norm(None, None, 1e-5));
    let bias_only = [inputs[0].clone(), inputs[2].clone()];
    check("layer_norm with bias only", &bias_only, |x| x[0].layer_norm(None, Some(&x[1]), 1e-5));
}

#[test]
fn index_rules() {
    let rows = ids(&[2, 3], &[0, 4, 4, 1, 0, 4]);
    check("embedding", &[numbers(&[5, 3], -1.0, 1.0)], |x| x[0].embedding(&rows));
    let columns = ids(&[3, 2], &[0, 3, 1, 1, 2, 0]);
    check("gather 1", &[numbers(&[3, 4], -1.0, 1.0)], |x| x[0].gather(1, &columns));
    let lines = ids(&[2, 4], &[0, 2, 1, 1, 2, 2, 0, 1]);
    check("gather 0", &[numbers(&[3, 4], -1.0, 1.0)], |x| x[0].gather(0, &lines));
}

#[test]
fn attention_rules() {
    for mask in [Mask::None, Mask::Causal] {
        let input = || numbers(&[2, 2, 5, 3], -1.5, 1.5);
        let inputs = [input(), input().mul_scalar(0.7).unwrap(), input().mul_scalar(-0.9).unwrap()];
        check(&format!("attention {mask:?}"), &inputs, |x| x[0].scaled_dot_product_attention(&x[1], &x[2], mask));
    }
    // As a model calls it: parts of one tensor, seen through views.
    check("attention on views", &[numbers(&[2, 5, 12], -1.5, 1.5)], |x| {
        let parts = x[0].split(4, -1)?;
        let heads = |part: &Tensor| part.reshape(&[2, 5, 2, 2])?.transpose(1, 2);
        let y = heads(&parts[0])?.scaled_dot_product_attention(&heads(&parts[1])?, &heads(&parts[2])?, Mask::Causal)?;
        y.transpose(1, 2)?.reshape(&[2, 5, 4])
    });
}

#[test]
fn view_rules() {
    let input = || [numbers(&[2, 3, 4], -2.0, 2.0)];
    check("reshape", &input(), |x| x[0].reshape(&[4, -1]));
    check("reshape of a transpose", &input(), |x| x[0].transpose(0, 2)?.reshape(&[24]));
    check("view", &input(), |x| x[0].view(&[6, 4]));
    check("flatten", &input(), |x| x[0].flatten(0, 1));
    check("transpose", &input(), |x| x[0].transpose(-1, 0));
    check("permute", &input(), |x| x[0].permute(&[1, 2, 0]));
    check("narrow", &input(), |x| x[0].narrow(1, 1, 2));
    check("narrow twice", &input(), |x| x[0].narrow(2, 1, 3)?.narrow(0, 1, 1));
    check("select", &input(), |x| x[0].select(1, 2));
    check("select from the back", &input(), |x| x[0].select(0, -2));
    check("slice", &input(), |x| x[0].slice(2, 1.., 2)?.square());
    check("diagonal", &input(), |x| x[0].diagonal(-1, 1, 2)?.square());
    check("unfold, overlapping", &input(), |x| x[0].unfold(2, 3, 1)?.square());
    check("unfold, apart", &input(), |x| x[0].transpose(0, 2)?.unfold(1, 1, 2)?.square());
    check("unflatten", &input(), |x| x[0].unflatten(-1, &[2, -1])?.square());
    check("movedim", &input(), |x| x[0].movedim(&[0, -1], &[1, 0])?.square());
    check("mT and T", &input(), |x| x[0].mT()?.T()?.square());
    check("tensor_split, parts in disorder", &input(), |x| {
        let parts = x[0].tensor_split_at(&[2, 1], 2)?;
        cat(&[&parts[0].square()?, &parts[1], &parts[2]], 2)
    });
    check("split_with_sizes", &input(), |x| x[0].split_with_sizes(&[1, 0, 2], 1)?[2].square());
    check("unbind", &input(), |x| x[0].unbind(1)?[1].square());
    check("squeeze_dims", &[numbers(&[1, 3, 1], -2.0, 2.0)], |x| x[0].squeeze_dims(&[0, 1, -1])?.square());
    check("squeeze and unsqueeze", &input(), |x| x[0].unsqueeze(1)?.square()?.squeeze(1));
    check("expand", &[numbers(&[3, 1], -2.0, 2.0)], |x| x[0].expand(&[2, -1, 4]));
    check("split, one part unused", &input(), |x| {
        let parts = x[0].split(3, 2)?;
        parts[1].square()
    });
    check("split, all parts", &input(), |x| {
        let parts = x[0].split(2, 1)?;
        cat(&[&parts[1].square()?, &parts[0]], 1)
    });
    check("cat", &[numbers(&[2, 3], -1.0, 1.0), numbers(&[2, 1], -1.0, 1.0)], |x| cat(&[&x[0], &x[1], &x[0]], 1)?.square());
    check("to_dtype", &input(), |x| x[0].to_dtype(DType::F32));
}

#[test]
fn statistics_rules() {
    use KeepDim::{Drop, Keep};
    check_unary("prod", 0.5, 1.5, |x| x.prod(&[1], Drop));
    let zeros = Tensor::from_slice(&device(), &[3, 3], &[2.0f32, 0.0, 3.0, 0.0, 5.0, 0.0, 1.0, 2.0, 3.0]).unwrap();
    check("prod with zeros", std::slice::from_ref(&zeros), |x| x[0].prod(&[1], Keep));
    check("cumprod with zeros", std::slice::from_ref(&zeros), |x| x[0].cumprod(1));
    check_unary("cumprod", 0.5, 1.5, |x| x.cumprod(0));
    check_unary("cumsum", -2.0, 2.0, |x| x.cumsum(1));
    check_unary("logcumsumexp", -2.0, 2.0, |x| x.logcumsumexp(1));
    check_unary("cummax", -2.0, 2.0, |x| Ok(x.cummax(1)?.0));
    check_unary("max", -2.0, 2.0, |x| Ok(x.max(0, Drop)?.0));
    check_unary("min", -2.0, 2.0, |x| Ok(x.min(1, Keep)?.0));
    check_unary("var", -2.0, 2.0, |x| x.var(&[0], 1.0, Drop));
    check_unary("std", -2.0, 2.0, |x| x.std(&[], 0.0, Keep));
    check_unary("logsumexp", -2.0, 2.0, |x| x.logsumexp(&[1], Drop));
    for p in [0.5, 1.0, 2.0, 3.0, -1.0, f64::INFINITY, f64::NEG_INFINITY] {
        check_unary(&format!("norm {p}"), 0.4, 2.0, |x| x.norm(p, &[1], Drop));
    }
    check_unary("normalize", 0.4, 2.0, |x| x.normalize(2.0, 1, 1e-12));
    check_unary("diff", -2.0, 2.0, |x| x.diff(2, 1, None, None));
    check_unary("trapezoid", -2.0, 2.0, |x| x.trapezoid(0.5, 0));
    let pair = [numbers(&[3, 4], -1.0, 1.0), numbers(&[3, 4], 0.3, 1.7)];
    check("cosine_similarity", &pair, |x| x[0].cosine_similarity(&x[1], 1, 1e-8));
    check("dist", &pair, |x| x[0].dist(&x[1], 2.0));
    check("trapezoid_at", &pair, |x| x[0].trapezoid_at(&x[1], 1));
    check("kron", &pair, |x| x[0].kron(&x[1]));
    check("inner", &pair, |x| x[0].inner(&x[1]));
    check("tensordot", &pair, |x| x[0].tensordot(&x[1], &[0], &[0]));
}

#[test]
fn elementwise_loss_rules() {
    for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
        let pair = [numbers(&[3, 4], -2.0, 2.0), numbers(&[3, 4], -1.1, 1.7)];
        check("l1_loss", &pair, |x| x[0].l1_loss(&x[1], reduction));
        check("smooth_l1_loss", &pair, |x| x[0].smooth_l1_loss(&x[1], 0.7, reduction));
        check("huber_loss", &pair, |x| x[0].huber_loss(&x[1], 0.7, reduction));
        let pair = [numbers(&[3, 4], -2.0, 2.0), numbers(&[3, 4], 0.2, 0.8)];
        check("kl_div", &pair, |x| x[0].kl_div(&x[1], false, reduction));
        check("kl_div of logarithms", &pair, |x| x[0].kl_div(&x[1], true, reduction));
        let factors = numbers(&[4], 0.5, 2.0);
        check("with logits", &pair, |x| x[0].binary_cross_entropy_with_logits(&x[1], Some(&factors), Some(&factors), reduction));
        let pair = [numbers(&[3, 4], 0.2, 0.8), numbers(&[3, 4], 0.1, 0.9)];
        check("binary_cross_entropy", &pair, |x| x[0].binary_cross_entropy(&x[1], Some(&factors), reduction));
        let weight = numbers(&[5], 0.5, 2.0);
        let options = ClassOptions { weight: Some(&weight), ignore_index: Some(2), reduction, label_smoothing: 0.2 };
        let targets = ids(&[4], &[3, 2, 0, 4]);
        check("cross_entropy", &[numbers(&[4, 5], -2.0, 2.0)], |x| x[0].cross_entropy_with(&targets, options));
        check("nll_loss", &[numbers(&[4, 5], -2.0, 2.0)], |x| x[0].nll_loss(&targets, options));
        let inputs = [numbers(&[4, 5], -2.0, 2.0), numbers(&[4, 5], 0.1, 0.9)];
        check("cross_entropy of probabilities", &inputs, |x| x[0].cross_entropy_with(&x[1], options));
    }
}
