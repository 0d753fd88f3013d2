//! Joining, cutting and making tensors like others, against slow references; which adapter is opened, and what is said of it.

use std::cell::RefCell;

use linn::autograd::{GradcheckOptions, gradcheck, stack};
use linn::{DType, Device, DeviceOptions, Tensor};

use crate::close::numbers;
use crate::device::{device, open};

fn tensor(shape: &[usize], seed: u32) -> (Tensor, Vec<f32>) {
    let data = numbers(seed, shape.iter().product());
    (Tensor::from_slice(&device(), shape, &data).unwrap(), data)
}

/// The slow reference of `stack`: element by element. `outer` is the product of the lengths before the new dimension.
fn stacked(parts: &[Vec<f32>], outer: usize) -> Vec<f32> {
    let inner = parts[0].len() / outer.max(1);
    let element = |i: usize| parts[i / inner % parts.len()][i / inner / parts.len() * inner + i % inner];
    (0..parts.len() * parts[0].len()).map(element).collect()
}

#[test]
fn stack_makes_a_new_dimension() {
    for shape in [&[][..], &[5], &[3, 4], &[2, 3, 5], &[1, 7, 1], &[2, 0, 3]] {
        let (parts, data): (Vec<Tensor>, Vec<Vec<f32>>) = (0..3).map(|seed| tensor(shape, seed)).unzip();
        let views: Vec<&Tensor> = parts.iter().collect();
        for dim in 0..=shape.len() {
            let mut want_shape = shape.to_vec();
            want_shape.insert(dim, 3);
            for dim_or_negative in [dim as isize, dim as isize - shape.len() as isize - 1] {
                let got = stack(&views, dim_or_negative).unwrap();
                assert_eq!(got.shape(), want_shape, "{shape:?}, {dim_or_negative}");
                let want = stacked(&data, shape[..dim].iter().product());
                assert_eq!(got.to_vec::<f32>().unwrap(), want, "{shape:?}, {dim_or_negative}");
            }
        }
    }
    let (x, y) = (tensor(&[2, 3], 1).0, tensor(&[3, 2], 2).0);
    // A part twice, and one that is a view.
    let joined = |x: &[Tensor]| stack(&[&x[0], &x[1].transpose(0, 1)?, &x[0]], 1)?.square();
    gradcheck(joined, &[x.clone(), y.clone()], GradcheckOptions::default()).unwrap();
    assert!(stack(&[&x, &y], 0).unwrap_err().to_string().contains("shapes [2, 3] and [3, 2] differ"));
    assert!(stack(&[], 0).unwrap_err().to_string().contains("there are no tensors"));
    assert!(stack(&[&x], 3).unwrap_err().to_string().starts_with("stack: "));
    let whole = Tensor::new(&device(), [[1i32, 2, 3], [4, 5, 6]]).unwrap();
    assert!(stack(&[&x, &whole], 0).is_err(), "one type");
}

#[test]
fn chunk_cuts_into_at_most_so_many_parts() {
    // The rule of torch.chunk, counted by hand: lengths of the parts of a dimension of `len` in `count` chunks.
    let rule = |len: usize, count: usize| -> Vec<usize> {
        let size = len.div_ceil(count).max(1);
        let mut lens: Vec<usize> = std::iter::repeat_n(size, len / size).collect();
        lens.extend(Some(len % size).filter(|rest| *rest > 0));
        if len == 0 { vec![0; count] } else { lens }
    };
    assert_eq!(rule(5, 4), [2, 2, 1]);
    for (len, count) in [(6, 3), (5, 4), (5, 2), (3, 7), (1, 1), (0, 3)] {
        let (x, data) = tensor(&[2, len], 3);
        let parts = x.chunk(count, -1).unwrap();
        assert_eq!(parts.iter().map(|part| part.shape()[1]).collect::<Vec<_>>(), rule(len, count), "{len} in {count}");
        let mut start = 0;
        for part in &parts {
            let width = part.shape()[1];
            let want: Vec<f32> = (0..2).flat_map(|row| data[row * len + start..row * len + start + width].to_vec()).collect();
            assert_eq!(part.to_vec::<f32>().unwrap(), want, "{len} in {count}");
            start += width;
        }
    }
    let x = tensor(&[5, 3], 4).0;
    gradcheck(|x| x[0].chunk(2, 0)?[1].square(), std::slice::from_ref(&x), GradcheckOptions::default()).unwrap();
    assert!(x.chunk(0, 0).unwrap_err().to_string().contains("count is 0"));
    let text = x.select(0, 100).unwrap_err().to_string();
    assert!(
        text.starts_with("select: index 100 is out of range for dimension 0 of shape")
            && text.contains("help: use an index below"),
        "{text}"
    );
    assert!(x.chunk(2, 2).is_err());
    assert!(Tensor::ones(&device(), &[]).unwrap().chunk(2, 0).is_err());
}

#[test]
fn likes_have_the_shape_and_type_of_their_model() {
    let x = tensor(&[4, 3], 5).0.transpose(0, 1).unwrap().requires_grad_(true).unwrap();
    for (like, value) in [(x.zeros_like(), 0.0f32), (x.ones_like(), 1.0), (x.full_like(-2.5), -2.5)] {
        let like = like.unwrap();
        assert_eq!((like.shape(), like.dtype(), like.is_contiguous()), (&[3, 4][..], DType::F32, true));
        assert_eq!(like.to_vec::<f32>().unwrap(), vec![value; 12]);
        assert!(!like.requires_grad() && !like.shares_storage(&x));
    }
    let whole = Tensor::new(&device(), [3i32, 4]).unwrap();
    assert_eq!(whole.full_like(-7.0).unwrap().to_vec::<i32>().unwrap(), [-7, -7]);
    assert!(whole.full_like(0.5).is_err(), "no whole number");
    assert_eq!(Tensor::zeros(&device(), &[0, 2]).unwrap().ones_like().unwrap().shape(), [0, 2]);
}

thread_local! {
    /// What this thread has logged.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Listener;

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.target().starts_with("linn")
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            LINES.with(|lines| lines.borrow_mut().push(record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

#[test]
fn opening_a_software_driver_is_one_line_of_the_log() {
    log::set_logger(&Listener).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let opened = Device::open().unwrap();
    let lines = LINES.take();
    let named = std::env::var("LINN_ADAPTER").is_ok_and(|name| !name.is_empty());
    let software = opened.info().kind == linn::device::AdapterKind::Software;
    assert_eq!(lines.len(), usize::from(software && !named), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains(opened.name()) && !line.contains('\n')), "{lines:?}");
    let mut options = DeviceOptions::default();
    options.adapter = Some(opened.name().to_uppercase());
    let again = Device::open_with(options).unwrap();
    assert_eq!(again.info().name, opened.info().name);
    assert_eq!(LINES.take(), Vec::<String>::new(), "it was named");
}

#[test]
fn what_other_backends_have_is_listed() {
    let name = device().name().to_string();
    let mut options = DeviceOptions::default();
    options.backend = Some(if cfg!(target_os = "macos") { "dx12" } else { "metal" }.into());
    let text = Device::open_with(options).unwrap_err().to_string();
    assert!(text.starts_with("no adapter: asked for backend ") && text.contains(&name), "{text}");
    assert!(text.contains("\nhelp: set LINN_ADAPTER to part of a name in this list"), "{text}");
}

#[test]
fn tensors_go_from_device_to_device_and_gradients_come_back() {
    let (here, there) = (device(), open(DeviceOptions::default()));
    let x = Tensor::new(&here, [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]).unwrap().requires_grad_(true).unwrap();
    assert!(x.to(&here).unwrap().device().same(&here));
    // A view, as everything: the values count.
    let moved = x.transpose(0, 1).unwrap().to(&there).unwrap();
    assert!(moved.device().same(&there) && moved.shape() == [3, 2]);
    assert_eq!(moved.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let weight = Tensor::new(&there, [10.0f32, 1.0]).unwrap();
    moved.mul(&weight).unwrap().sum_all().unwrap().backward().unwrap();
    let grad = x.grad().unwrap();
    assert!(grad.device().same(&here));
    assert_eq!(grad.to_vec::<f32>().unwrap(), [10.0, 10.0, 10.0, 1.0, 1.0, 1.0]);
    let ids = Tensor::new(&here, [1i32, -2]).unwrap().to(&there).unwrap();
    assert_eq!((ids.to_vec::<i32>().unwrap(), ids.grad().is_none()), (vec![1, -2], true));
    assert_eq!(Tensor::empty(&here, &[0, 3], DType::F32).unwrap().to(&there).unwrap().shape(), [0, 3]);
    let error = x.add(&moved).unwrap_err().to_string();
    assert!(error.contains("two devices") && error.contains("help: bring one"), "{error}");
}

#[test]
fn operators_with_numbers_follow_pytorchs_types() {
    let x = Tensor::new(&device(), [1i32, 2]).unwrap();
    assert_eq!((&x - 1).unwrap().to_vec::<i32>().unwrap(), [0, 1]);
    assert_eq!((5 - &x).unwrap().to_vec::<i32>().unwrap(), [4, 3]);
    assert_eq!((&x * -3).unwrap().to_vec::<i32>().unwrap(), [-3, -6]);
    assert_eq!((&x - 1.5).unwrap().to_vec::<f32>().unwrap(), [-0.5, 0.5]);
    assert_eq!((&x / 2).unwrap().to_vec::<f32>().unwrap(), [0.5, 1.0]);
    assert_eq!((1.0 / &x).unwrap().to_vec::<f32>().unwrap(), [1.0, 0.5]);
    assert_eq!((&x / 0.0).unwrap().to_vec::<f32>().unwrap(), [f32::INFINITY; 2]);
    let error = (&x + i32::MIN).unwrap().add_scalar(1i64 << 40).unwrap_err().to_string();
    assert!(error.starts_with("add_scalar: 1099511627776 is no i32\nhelp:"), "{error}");
}

#[test]
fn shapes_that_overflow_are_refused() {
    let (x, nothing) = (tensor(&[2, 3], 1).0, Tensor::zeros(&device(), &[0]).unwrap());
    for shape in [[1 << 40, 1 << 40, -1], [isize::MAX, 4, 0], [-1, isize::MAX, 2]] {
        for tensor in [&x, &nothing] {
            let text = tensor.reshape(&shape).unwrap_err().to_string();
            assert!(text.starts_with("reshape: shape [") && text.contains("\nhelp: "), "{text}");
            assert!(tensor.view(&shape).is_err());
        }
    }
}

#[test]
fn a_fraction_is_a_condition_that_holds() {
    let condition = Tensor::new(&device(), [0.5f32, 0.0, -0.25, f32::NAN, -0.0]).unwrap();
    for dtype in [DType::F32, DType::I32, DType::U32] {
        let [ones, twos] = [1.0, 2.0].map(|value| Tensor::full(&device(), &[5], value).unwrap().to_dtype(dtype).unwrap());
        let got = ones.where_(&condition, &twos).unwrap();
        assert_eq!(got.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 1.0, 1.0, 2.0], "{dtype}");
    }
}

/// What samples of PyTorch's database beyond the stored ones hold, and tensors that it does not sample.
#[test]
fn rare_calls_are_pytorchs() {
    use linn::autograd::NormOptions;
    use linn::ops::reduce::KeepDim;
    let device = device();
    let ones = |shape: &[usize]| Tensor::ones(&device, shape).unwrap();
    let f32s = |x: linn::Result<Tensor>| x.unwrap().to_vec::<f32>().unwrap();
    // A weight that is a vector leaves no dimension of its own.
    let weight = Tensor::new(&device, [1.0f32, 2.0, 3.0]).unwrap();
    let out = ones(&[2, 1, 3]).linear(&weight, None).unwrap();
    assert_eq!((out.shape(), f32s(Ok(out.clone()))), (&[2, 1][..], vec![6.0, 6.0]));
    assert_eq!(ones(&[0, 3]).linear(&weight, None).unwrap().shape(), [0]);
    let text = ones(&[2, 3]).linear(&weight, Some(&ones(&[1]))).unwrap_err().to_string();
    assert!(text.starts_with("linear: "), "{text}");
    // Nothing to normalise, and channels without numbers.
    let training = NormOptions { training: true, ..Default::default() };
    assert_eq!(ones(&[0]).batch_norm(training).unwrap().shape(), [0]);
    let running = ones(&[0]);
    let learning = NormOptions { running_mean: Some(&running), running_var: Some(&running), ..training };
    assert_eq!(ones(&[0]).batch_norm(learning).unwrap().shape(), [0]);
    assert!(ones(&[3]).batch_norm(training).is_err());
    assert_eq!(ones(&[0, 2, 3]).group_norm(2, None, None, 1e-5).unwrap().shape(), [0, 2, 3]);
    for shape in [[1, 0, 2], [1, 2, 0]] {
        let text = ones(&shape).group_norm(1, None, None, 1e-5).unwrap_err().to_string();
        assert!(text.contains("group_norm") && text.contains(&format!("{shape:?}")), "{text}");
    }
    // From the back, which index_fill alone allows.
    let index = Tensor::new(&device, [-1i32, 0]).unwrap();
    assert_eq!(f32s(ones(&[3]).index_fill(0, &index, 7)), [7.0, 1.0, 7.0]);
    assert!(f32s(ones(&[2, 0]).median_all())[0].is_nan());
    assert_eq!(ones(&[0, 2]).split(0, 0).unwrap().len(), 1);
    assert!(ones(&[2]).split(0, 0).is_err());
    // Composed operations name themselves.
    let mask = Tensor::new(&device, [1u8, 0]).unwrap();
    let value = Tensor::new(&device, 1.0f32).unwrap();
    for (name, result) in [
        ("nansum", ones(&[2]).nansum(&[3], KeepDim::Drop)),
        ("softmin", ones(&[2]).softmin(3)),
        ("masked_fill", ones(&[3]).masked_fill_tensor(&mask, &value)),
        ("narrow", ones(&[3]).narrow_tensor(0, &mask, 1)),
        ("searchsorted", ones(&[3]).searchsorted_by(&index, &ones(&[1]), linn::ops::sort::Side::Left)),
    ] {
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with(&format!("{name}: ")), "{name}: {text}");
    }
}

/// A position of a sorter that is out of range is a late error.
#[test]
fn sorters_are_checked_on_the_device() {
    let device = open(DeviceOptions::default());
    let x = Tensor::new(&device, [5.0f32, 1.0, 3.0]).unwrap();
    let sorter = Tensor::new(&device, [1i32, 2, 5]).unwrap();
    x.searchsorted_by(&sorter, &x, linn::ops::sort::Side::Left).unwrap();
    let text = device.synchronize().unwrap_err().to_string();
    assert!(text.contains("searchsorted") && text.contains("index 5"), "{text}");
}
