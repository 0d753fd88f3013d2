//! Tensors beyond what an adapter lets a kernel see at a time, beyond 65,535 workgroups, and of up to 8 dimensions.

use linn::ops::reduce::KeepDim::{self, Drop};
use linn::ops::sort::Order;
use linn::{DType, Device, DeviceOptions, Tensor};

use crate::close::numbers;
use crate::device::{device, open};

/// What kernels of [`narrow`] see at a time, in bytes: 65,536 numbers.
const LIMIT: u64 = 256 << 10;

/// A device whose kernels see little at a time.
fn narrow() -> Device {
    let mut options = DeviceOptions::default();
    options.max_storage_buffer_binding_size = Some(LIMIT);
    open(options)
}

type Case = fn(&Device) -> linn::Result<Tensor>;

/// The same numbers on whatever device.
fn filled(device: &Device, shape: &[usize]) -> Tensor {
    Tensor::from_slice(device, shape, &numbers(31, shape.iter().product())).unwrap()
}

fn bytes(x: &Tensor) -> Vec<u8> {
    match x.dtype() {
        DType::F32 => bytemuck::cast_slice(&x.to_vec::<f32>().unwrap()).to_vec(),
        DType::F16 => bytemuck::cast_slice(&x.to_vec::<half::f16>().unwrap()).to_vec(),
        DType::I32 => bytemuck::cast_slice(&x.to_vec::<i32>().unwrap()).to_vec(),
        _ => x.to_vec::<u8>().unwrap(),
    }
}

/// Numbers by chance, and behind them the next ones of the generator.
fn drawn(device: &Device, draw: fn(&Tensor) -> linn::Result<()>) -> linn::Result<Tensor> {
    device.manual_seed(5)?;
    let x = Tensor::empty(device, &[200_003], DType::F32)?;
    draw(&x)?;
    linn::autograd::cat(&[&x, &Tensor::rand(device, &[5])?], 0)
}

/// Element-wise work, copies, ranges and random numbers of tensors that no kernel sees whole, in windows: the same bits as where one does.
#[test]
fn tensors_beyond_the_binding_limit() {
    const N: usize = 200_003;
    let cases: &[(&str, Case)] = &[
        ("full", |device| linn::ops::copy::full(device, &[N], 2.5, DType::F32)),
        ("one less, the limit and one more", |device| {
            let parts: Vec<Tensor> = [65_535, 65_536, 65_537].map(|n| filled(device, &[n]).mul_scalar(3.0).unwrap()).into();
            linn::autograd::cat(&parts.iter().collect::<Vec<_>>(), 0)
        }),
        ("exp", |device| filled(device, &[N]).exp()),
        ("add", |device| filled(device, &[N]).add(&filled(device, &[N]).mul_scalar(0.5)?)),
        ("a row for all", |device| filled(device, &[401, 499]).add(&filled(device, &[499]))),
        ("a column for all", |device| filled(device, &[401, 499]).mul(&filled(device, &[401, 1]))),
        ("one row of what is too large", |device| {
            let x = filled(device, &[2, 100_003]);
            x.sub(&x.narrow(0, 1, 1)?)
        }),
        ("in place", |device| {
            let x = filled(device, &[N]);
            x.mul_(&x)?;
            x.add_scalar_(1.0)?;
            Ok(x)
        }),
        ("a part onto the part beside it", |device| {
            let x = filled(device, &[N]);
            x.narrow(0, 1, N - 1)?.copy_(&x.narrow(0, 0, N - 1)?)?;
            Ok(x)
        }),
        ("one half onto the other", |device| {
            let x = filled(device, &[N]);
            x.narrow(0, 0, 100_000)?.add_(&x.narrow(0, 100_003, 100_000)?, 1.0)?;
            Ok(x)
        }),
        ("neighbours", |device| {
            let x = filled(device, &[N]);
            x.narrow(0, 1, N - 1)?.sub(&x.narrow(0, 0, N - 1)?)
        }),
        ("transposed", |device| {
            let x = filled(device, &[401, 499]);
            x.transpose(0, 1)?.contiguous()?.add(&x.t()?)
        }),
        ("every third", |device| filled(device, &[N]).slice(0, 2.., 3)?.neg()),
        ("six dimensions", |device| filled(device, &[7, 3, 8, 5, 6, 50]).permute(&[5, 3, 1, 0, 2, 4])?.square()),
        ("truths", |device| filled(device, &[3, 100_003]).gt(&filled(device, &[100_003]))),
        ("truths from an odd place", |device| {
            let x = filled(device, &[300_007]);
            let x = x.gt(&x.neg()?)?;
            x.narrow(0, 1, 300_001)?.fill_(true)?;
            Ok(x)
        }),
        ("halves", |device| {
            let x = filled(device, &[N]).to_dtype(DType::F16)?;
            x.narrow(0, 3, N - 5)?.mul_scalar_(2.0)?;
            Ok(x)
        }),
        ("chosen", |device| {
            let (x, y) = (filled(device, &[N]), filled(device, &[N]).neg()?);
            x.where_(&x.gt(&y)?, &y)
        }),
        ("joined", |device| linn::autograd::cat(&[&filled(device, &[3, 40_001]), &filled(device, &[3, 30_000])], 1)),
        ("arange", |device| Tensor::arange(device, N, DType::I32)?.mul_scalar(3)),
        ("a range of floats", |device| Tensor::arange_between(device, -1.0, 1999.03, 0.01, DType::F32)),
        ("linspace", |device| Tensor::linspace(device, -3.0, 4.5, N)),
        ("uniform", |device| drawn(device, |x| x.uniform_(-1.0, 2.0))),
        ("normal", |device| drawn(device, |x| x.normal_(1.0, 2.0))),
        ("randint", |device| {
            device.manual_seed(5)?;
            Tensor::randint(device, -7, 100, &[3, 100_001])
        }),
        ("halves by chance", |device| {
            device.manual_seed(5)?;
            let x = Tensor::empty(device, &[300_007], DType::F16)?;
            x.narrow(0, 1, 300_003)?.uniform_(0.0, 1.0)?;
            x.narrow(0, 1, 300_003)?.contiguous()
        }),
        ("dropout", |device| {
            device.manual_seed(5)?;
            filled(device, &[N]).dropout(0.5)
        }),
        ("cast", |device| filled(device, &[N]).mul_scalar(100.0)?.to_dtype(DType::I32)),
    ];
    let narrow = narrow();
    for (name, case) in cases {
        let run = |device: &Device| case(device).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (got, want) = (run(&narrow), run(&device()));
        assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{name}");
        assert!(bytes(&got) == bytes(&want), "{name}");
    }
}

/// What has no windows says which limit stands in its way, and how much there is.
#[test]
fn what_cannot_be_cut_names_the_limit() {
    let narrow = narrow();
    let x = filled(&narrow, &[2, 40_000]);
    for (name, result) in [("cumsum", x.cumsum(1)), ("softmax", x.softmax(1))] {
        let error = result.unwrap_err().to_string();
        let names = [name, "320000 bytes", "max_storage_buffer_binding_size is 262144", "\nhelp: "];
        assert!(names.iter().all(|part| error.contains(part)), "{error}");
    }
    // The device goes on.
    assert_eq!(x.narrow(1, 0, 1).unwrap().contiguous().unwrap().softmax(1).unwrap().to_vec::<f32>().unwrap(), [1.0; 2]);
}

type Method = fn(&Tensor) -> linn::Result<Tensor>;

/// More than 65,535 workgroups, which fill several dimensions of a dispatch: the last rows come out as they do alone.
#[test]
fn dispatches_of_more_than_65_535_workgroups() {
    // Rows of what each kernel needs more than 65,535 workgroups for, by the size of its workgroups.
    const ROWS: usize = 65_535 * 64 + 4099;
    const FEW: usize = 70_003;
    let methods: &[(&str, &[usize], Method)] = &[
        ("exp", &[ROWS, 1], |x| x.exp()),
        ("strided", &[ROWS, 2], |x| x.slice(1, ..1, 1)?.neg()),
        ("sum", &[ROWS, 2], |x| x.sum(&[1], Drop)),
        ("argmax", &[ROWS, 2], |x| x.argmax(1, Drop)),
        ("amax", &[ROWS, 1, 2], |x| x.amax(&[-1], Drop)),
        ("cumsum", &[ROWS, 2], |x| x.cumsum(1)),
        ("softmax", &[ROWS, 2], |x| x.softmax(1)),
        ("log_softmax", &[ROWS, 2], |x| x.log_softmax(1)),
        ("layer_norm", &[ROWS, 2], |x| x.layer_norm(None, None, 1e-5)),
        ("sort", &[ROWS, 2], |x| Ok(x.sort(1, Order::Ascending)?.0)),
        ("gather", &[ROWS, 2], |x| {
            let other = Tensor::from_slice(x.device(), &[1, 1], &[1i32])?.expand(&[x.shape()[0] as isize, 2])?;
            x.gather(1, &other)
        }),
        ("index_select", &[ROWS, 2], |x| x.index_select(1, &Tensor::from_slice(x.device(), &[2], &[1i32, 0])?)),
        ("scatter_add", &[ROWS, 1], |x| {
            let index = Tensor::from_slice(x.device(), &[1, 1], &[0i32])?.expand(&[x.shape()[0] as isize, 1])?;
            x.scatter_add(1, &index, x)
        }),
        ("truths", &[ROWS, 1], |x| x.gt(&x.neg()?)),
        ("halves", &[ROWS, 2], |x| x.to_dtype(DType::F16)?.slice(1, 1.., 1)?.neg()?.to_dtype(DType::F32)),
        ("six dimensions", &[FEW, 2, 3, 2, 3, 2], |x| x.permute(&[0, 5, 1, 4, 2, 3])?.contiguous()),
        ("batches", &[FEW, 1, 1], |x| x.matmul(x)),
        ("batches of a view", &[FEW, 2, 3], |x| x.transpose(1, 2)?.matmul(x)),
        ("rows of a product", &[FEW * 32, 1], |x| x.matmul(&Tensor::from_slice(x.device(), &[1, 1], &[3.0f32])?)),
        ("norm", &[FEW, 1, 1], |x| x.norm(2.0, &[1, 2], Drop)),
        ("convolution", &[FEW, 1, 3], |x| {
            x.conv1d(&Tensor::from_slice(x.device(), &[1, 1, 2], &[1.0f32, -2.0])?, None, Default::default())
        }),
    ];
    for (name, shape, method) in methods {
        let (rows, end) = (shape[0], 257);
        let x = filled(&device(), shape);
        let of = |x: &Tensor| method(x).unwrap_or_else(|error| panic!("{name}: {error}"));
        let whole = of(&x);
        for start in [0, rows / 2, rows - end] {
            let got = whole.narrow(0, start as isize, end).unwrap();
            let want = of(&x.narrow(0, start as isize, end).unwrap().contiguous().unwrap());
            assert!(bytes(&got) == bytes(&want), "{name} of {rows} rows, from {start} on");
        }
    }
}

/// Views of 8 dimensions give what their elements give in order.
#[test]
fn views_of_eight_dimensions() {
    const SHAPE: [usize; 8] = [2, 1, 3, 2, 4, 1, 2, 5];
    let index = |x: &Tensor, len: usize| Tensor::from_slice(x.device(), &[3], &[0, len as i32 - 1, 0i32]);
    let methods: &[(&str, Method)] = &[
        ("exp", |x| x.exp()),
        ("add", |x| x.add(&x.narrow(0, 0, 1)?)),
        ("gt", |x| x.gt(&x.narrow(3, 0, 1)?)),
        ("where", |x| x.where_(&x.gt(&x.neg()?)?, &x.neg()?)),
        ("in place", |x| {
            x.mul_scalar_(2.0)?;
            x.add_(&x.flip(&[2])?, 1.0)?;
            Ok(x.clone())
        }),
        ("f16", |x| x.to_dtype(DType::F16)?.neg()),
        ("sum of one", |x| x.sum(&[2], Drop)),
        ("sum of some", |x| x.sum(&[0, 3, 5], KeepDim::Keep)),
        ("mean", |x| x.mean(&[], Drop)),
        ("amax", |x| x.amax(&[1, 4, 7], Drop)),
        ("argmax", |x| x.argmax(4, Drop)),
        ("any", |x| x.gt(&x.neg()?)?.any(&[6], Drop)),
        ("var", |x| x.var(&[2, 7], 1.0, Drop)),
        ("norm", |x| x.norm(3.0, &[7], Drop)),
        ("logsumexp", |x| x.logsumexp(&[0, 4], Drop)),
        ("cumsum", |x| x.cumsum(3)),
        ("cummax", |x| Ok(x.cummax(0)?.1)),
        ("softmax", |x| x.softmax(2)),
        ("layer_norm", |x| x.layer_norm(None, None, 1e-5)),
        ("sort", |x| Ok(x.sort(4, Order::Descending)?.0)),
        ("median", |x| Ok(x.median(7, Drop)?.0)),
        ("gather", |x| x.gather(2, &x.argsort(2, Order::Ascending)?)),
        ("scatter", |x| x.scatter(2, &x.argsort(2, Order::Ascending)?, x)),
        ("scatter_add", |x| x.scatter_add(2, &x.argsort(2, Order::Ascending)?, x)),
        ("matmul", |x| x.matmul(&x.transpose(6, 7)?)),
        ("flip", |x| x.flip(&[0, 2, 7])),
        ("roll", |x| x.roll(&[1, -2], &[2, 7])),
        ("rot90", |x| x.rot90(1, &[2, 7])),
        ("repeat", |x| x.repeat(&[1, 2, 1, 1, 2, 1, 1, 1])),
        ("repeat_interleave", |x| x.repeat_interleave(2, 4)),
        ("tril", |x| x.tril(0)),
        ("pad", |x| x.pad(&[1, 2, 0, 1], linn::autograd::PadMode::Constant(1.0))),
        ("cat", |x| linn::autograd::cat(&[x, x], 3)),
        ("chunks", |x| Ok(x.chunk(2, 4)?.remove(1))),
        ("diff", |x| x.diff(1, 2, None, None)),
        ("unbind", |x| Ok(x.unbind(2)?.remove(1))),
        ("diagonal", |x| x.diagonal(0, 2, 4)),
        ("normalize", |x| x.normalize(2.0, 2, 1e-12)),
        ("glu", |x| x.glu(4)),
        ("outer sum", |x| x.flatten(2, 5)?.sum(&[0, 2], Drop)),
        ("masked_fill", |x| x.masked_fill(&x.gt(&x.neg()?)?, 7.0)),
        ("nonzero", |x| x.gt(&x.neg()?)?.nonzero()),
        ("kron", |x| x.kron(&x.narrow(2, 0, 1)?)),
    ];
    let device = device();
    let last = |x: &Tensor| index(x, x.shape()[7]);
    for order in [[0, 1, 2, 3, 4, 5, 6, 7], [7, 2, 4, 1, 0, 6, 3, 5], [3, 5, 7, 6, 2, 0, 4, 1]] {
        // Every second element of the place before, so that no two dimensions merge.
        let wide: Vec<usize> = SHAPE.iter().map(|len| len * 2).collect();
        let view = |x: &Tensor| {
            let mut x = x.clone();
            (0..8).for_each(|dim| x = x.slice(dim, 1.., 2).unwrap());
            // Lengths stay where they were, so that the methods find what they ask for.
            let mut back = [0; 8];
            order.iter().enumerate().for_each(|(i, dim)| back[*dim as usize] = i as isize);
            x.permute(&back).unwrap()
        };
        let shape: Vec<usize> = order.iter().map(|dim| wide[*dim as usize]).collect();
        for (name, method) in methods {
            let what = format!("{name}, stored as {order:?}");
            let x = filled(&device, &shape);
            let strange = view(&x);
            assert_eq!(strange.shape(), SHAPE);
            let plain = strange.contiguous().unwrap();
            let of = |x: &Tensor| method(x).unwrap_or_else(|error| panic!("{what}: {error}"));
            let (got, want) = (of(&strange), of(&plain));
            assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what}");
            match want.dtype() {
                DType::F32 => {
                    let want: Vec<f64> = wide_of(&want);
                    crate::close::assert_close(&what, &got.to_vec().unwrap(), &want, 1e-5, 1e-6);
                }
                _ => assert!(bytes(&got) == bytes(&want), "{what}"),
            }
        }
        let picked = view(&filled(&device, &shape));
        let rows = picked.index_select(7, &last(&picked).unwrap()).unwrap();
        assert_eq!(
            rows.narrow(7, 1, 1).unwrap().to_vec::<f32>().unwrap(),
            picked.narrow(7, 4, 1).unwrap().to_vec::<f32>().unwrap()
        );
    }
}

fn wide_of(x: &Tensor) -> Vec<f64> {
    crate::close::wide(&x.to_vec::<f32>().unwrap())
}

/// Nine dimensions are an error that says how many there may be.
#[test]
fn nine_dimensions_are_refused() {
    let x = filled(&device(), &[1, 2, 1, 2, 1, 2, 1, 2]);
    let refused = [
        ("from_slice", Tensor::from_slice(&device(), &[1; 9], &[1.0f32])),
        ("unsqueeze", x.unsqueeze(0)),
        ("expand", x.expand(&[3, 1, 2, 1, 2, 1, 2, 1, 2])),
        ("reshape", x.reshape(&[1, 2, 2, 1, 2, 1, 2, 1, 1])),
        ("stack", linn::autograd::stack(&[&x, &x], 0)),
        ("unflatten", x.unflatten(1, &[2, 1])),
        ("diag_embed", x.diag_embed(0, -2, -1)),
        ("unfold", x.unfold(1, 1, 1)),
        ("repeat", x.repeat(&[2, 1, 1, 1, 1, 1, 1, 1, 1])),
    ];
    for (name, result) in refused {
        let error = result.err().unwrap_or_else(|| panic!("{name} gave nine dimensions")).to_string();
        assert!(error.starts_with(name) && error.contains("at most 8 dimensions"), "{name}: {error}");
    }
}

/// No elements, one, and lengths that nothing divides, in every place.
#[test]
fn no_elements_one_and_primes() {
    let methods: &[(&str, Method)] = &[
        ("exp", |x| x.exp()),
        ("add", |x| x.add(x)),
        ("sum", |x| x.sum(&[-1], Drop)),
        ("mean", |x| x.mean(&[0], Drop)),
        ("prod", |x| x.prod(&[-1], Drop)),
        ("cumsum", |x| x.cumsum(-1)),
        ("softmax", |x| x.softmax(-1)),
        ("sort", |x| Ok(x.sort(-1, Order::Ascending)?.0)),
        ("norm", |x| x.norm(2.0, &[], Drop)),
        ("logsumexp", |x| x.logsumexp(&[-1], Drop)),
        ("matmul", |x| x.matmul(&x.transpose(-1, -2)?)),
        ("flip", |x| x.flip(&[0])),
        ("cat", |x| linn::autograd::cat(&[x, x], 0)),
        ("nonzero", |x| x.nonzero()),
        ("truths", |x| x.gt(x)),
        ("f16", |x| x.to_dtype(DType::F16)?.mul_scalar(2.0)),
    ];
    let device = device();
    for (name, method) in methods {
        for shape in [&[1, 1][..], &[7, 13], &[1, 1009], &[1009, 1], &[0, 3], &[3, 0], &[0, 0], &[2, 0, 3]] {
            let x = filled(&device, shape);
            let what = format!("{name} of {shape:?}");
            let got = method(&x).unwrap_or_else(|error| panic!("{what}: {error}"));
            // From a view with room between the elements the same.
            let wide: Vec<usize> = shape.iter().map(|len| 3 * len + 2).collect();
            let room = filled(&device, &wide);
            let mut view = room.clone();
            for (dim, len) in shape.iter().enumerate() {
                view = view.slice(dim as isize, 1.., 3).unwrap().narrow(dim as isize, 0, *len).unwrap();
            }
            view.copy_(&x).unwrap();
            let again = method(&view).unwrap_or_else(|error| panic!("{what}, a view: {error}"));
            assert_eq!((got.shape(), got.dtype()), (again.shape(), again.dtype()), "{what}");
            match got.dtype() {
                DType::F32 => crate::close::assert_close(&what, &again.to_vec().unwrap(), &wide_of(&got), 1e-5, 1e-6),
                _ => assert!(bytes(&again) == bytes(&got), "{what}"),
            }
        }
    }
    // Of 0 dimensions.
    let x = Tensor::from_slice(&device, &[], &[-2.5f32]).unwrap();
    let scalars: &[(Method, f32)] = &[
        (|x| x.exp(), (-2.5f32).exp()),
        (|x| x.sum(&[], Drop), -2.5),
        (|x| x.sum(&[0], Drop), -2.5),
        (|x| x.cumsum(0), -2.5),
        (|x| x.softmax(0), 1.0),
        (|x| x.norm(1.0, &[], Drop), 2.5),
        (|x| Ok(x.sort(0, Order::Ascending)?.0), -2.5),
        (|x| x.amax(&[], Drop), -2.5),
        (|x| x.flip(&[]), -2.5),
    ];
    for (i, (method, want)) in scalars.iter().enumerate() {
        let got = method(&x).unwrap();
        assert_eq!(got.rank(), 0, "scalar {i}");
        assert!((got.item::<f32>().unwrap() - want).abs() < 1e-6, "scalar {i}");
    }
}
