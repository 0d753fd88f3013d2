//! A program's own kernels: everything that does not fit is an error of two lines, before anything is enqueued.

use linn::autograd::no_grad;
use linn::kernel::{KernelArg, KernelSource};
use linn::{DType, Device, DeviceOptions, Error, Scalar, Tensor, WgslKernel};

use crate::chance::Random;

const X: KernelArg<'static> = KernelArg::input("x", DType::F32);
const Y: KernelArg<'static> = KernelArg::output("y", DType::F32);
const N: (&str, DType) = ("n", DType::U32);

/// y = x + n, with what a test wants changed.
const ADD: &str = "\
struct Params { n: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&y) { y[id.x] = x[id.x] + f32(p.n); }
}
";

fn device() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

fn source(wgsl: &str) -> KernelSource<'_> {
    KernelSource { name: "add_n", wgsl, args: &[X, Y], params: &[N], ..KernelSource::default() }
}

/// The error has one line of fact with all `words` and one of help.
fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[1].starts_with("help: "), "{text}");
    assert!(lines[0].starts_with("add_n: ") || lines[0].starts_with("autograd: "), "{text}");
    words.iter().for_each(|word| assert!(text.contains(word), "{word:?} is not in\n{text}"));
}

fn refused(device: &Device, source: KernelSource<'_>, words: &[&str]) {
    match WgslKernel::new(device, source) {
        Ok(_) => panic!("this is no kernel, but {words:?}:\n{}", source.wgsl),
        Err(error) => says(&error, words),
    }
}

#[test]
fn a_kernel_as_declared_is_taken_whatever_its_text_looks_like() {
    let device = device();
    let kernel = WgslKernel::new(&device, source(ADD)).unwrap();
    assert_eq!((kernel.name(), kernel.workgroup_size()), ("add_n", [64, 1, 1]));
    assert_eq!(kernel.grid([65, 0, 3]).unwrap(), [2, 0, 3]);
    assert_eq!(format!("{kernel:?}"), "WgslKernel(add_n(x, y) of noop)");
    for declaration in [
        "@group(0) @binding(0) var<storage> x: array<f32>;",
        "@binding(0) @group(0)\n var < storage ,\n read > x : array<f32>;",
        "@group(0) /* var<private> /* > */ */ @binding(0) // var<storage>\n var /* < */ <storage, read> /*>*/ x: array<f32>;",
    ] {
        let text = ADD.replace("@group(0) @binding(0) var<storage, read> x: array<f32>;", declaration);
        assert_ne!(text, ADD);
        WgslKernel::new(&device, source(&text)).unwrap_or_else(|error| panic!("{declaration}\n{error}"));
    }
}

#[test]
fn what_the_compiler_says_comes_with_the_line() {
    let device = device();
    let help = "help: correct the shader";
    refused(&device, source(&ADD.replace("f32(p.n)", "f32(q.n)")), &["WGSL line 7, column", "`q`", help]);
    refused(&device, source(&ADD.replace("f32(p.n)", "p.n")), &["WGSL line 7, column", help]);
    refused(&device, source(&ADD.replace("fn main", "fun main")), &["WGSL line 6, column", help]);
    refused(&device, source(""), &["no compute entry point `main`; it has none"]);
    // An input that is stored to, itself or in a function.
    let stores = ADD.replace("y[id.x] = x[id.x]", "x[id.x] = 0.0; y[id.x] = x[id.x]");
    refused(&device, source(&stores), &["WGSL line", "main"]);
    // What the device was not opened with.
    let halves = ADD.replace("f32(p.n)", "f32(f16(p.n))");
    refused(&device, source(&format!("enable f16;\n{halves}")), &["WGSL line 8, column", help]);
    refused(&device, source(&ADD.replace("f32(p.n)", "subgroupAdd(f32(p.n))")), &["WGSL line 7", help]);
}

#[test]
fn a_shader_that_does_not_do_what_is_declared_is_refused() {
    let device = device();
    let with = |from: &str, to: &str| {
        let text = ADD.replace(from, to);
        assert_ne!(text, ADD, "{from}");
        text
    };
    let y_line = "@group(0) @binding(1) var<storage, read_write> y: array<f32>;";
    let p_line = "@group(1) @binding(0) var<uniform> p: Params;";
    let cases: &[(String, &[&str])] = &[
        (with("fn main", "fn run"), &["no compute entry point `main`; it has `run`", "entry_point"]),
        (with("@binding(1)", "@binding(2)"), &["nothing is declared for @group(0) @binding(2) `y`", "declare it in args"]),
        (with("@group(0) @binding(1)", "@group(2) @binding(1)"), &["@group(2) @binding(1) `y`"]),
        (with("var<storage, read> x", "var<storage, read> z").replace("x[id", "z[id"), &["declared as `x`", "calls it `z`"]),
        (with("read> x", "read_write> x"), &["`x` is declared an input, and is read_write in the shader", "var<storage, read>"]),
        (
            with("y[id.x] = x[id.x] + f32(p.n);", "let v = y[id.x] + x[id.x] + f32(p.n);"),
            &["`y` is declared to be written", "never writes"],
        ),
        (with("x: array<f32>", "x: array<i32>").replace("= x[id.x]", "= f32(x[id.x])"), &["`x` is declared f32, and holds i32"]),
        (
            with("x: array<f32>", "x: array<vec2<u32>>").replace("= x[id.x]", "= f32(x[id.x].x)"),
            &["`x` is declared f32, and holds u32"],
        ),
        (
            with("y: array<f32>", "y: array<atomic<u32>>")
                .replace("y[id.x] = x[id.x] + f32(p.n)", "atomicAdd(&y[id.x], u32(x[id.x]) + p.n)"),
            &["`y` is declared an output, and atomics start from what is there", "in-out"],
        ),
        (
            with(y_line, "@group(0) @binding(1) var y: texture_storage_2d<r32float, write>;").replace(
                "if id.x < arrayLength(&y) { y[id.x] = x[id.x] + f32(p.n); }",
                "textureStore(y, id.xy, vec4(x[id.x] + f32(p.n)));",
            ),
            &["nothing is declared for @group(0) @binding(1) `y`", "storage buffers"],
        ),
        (with("f32(p.n)", "1.0"), &["1 parameters are declared, and `main` uses none", "struct Params { n: u32 }"]),
        (with("f32(p.n)", "f32(p)").replace("p: Params", "p: u32"), &["`p` is no struct"]),
        (with("n: u32", "n: i32"), &["declared as { n: u32 } (4 bytes)", "they are { n: i32 } (4 bytes)"]),
        (with("n: u32", "count: u32").replace("p.n", "p.count"), &["they are { count: u32 }"]),
        (with("n: u32", "n: u32, more: f32"), &["they are { n: u32, more: f32 } (8 bytes)", "write struct Params { n: u32 }"]),
        (with("n: u32", "@size(16) n: u32"), &["(16 bytes)"]),
        (with("n: u32", "n: vec2<u32>").replace("p.n", "p.n.x"), &["{ n: no number } (8 bytes)"]),
        (with(p_line, "@group(1) @binding(1) var<uniform> p: Params;"), &["@group(1) @binding(1) `p`", "@group(1) @binding(0)"]),
        (with("@workgroup_size(64)", "@workgroup_size(512)"), &["workgroups of [512, 1, 1]", "256 invocations in all"]),
        (with("@workgroup_size(64)", "@workgroup_size(16, 4, 16)"), &["workgroups of [16, 4, 16]", "invocations in all"]),
        (with("@workgroup_size(64)", "@workgroup_size(1, 1, 128)"), &["workgroups of [1, 1, 128]"]),
        (format!("override a: f32 = 1.0;\n{ADD}"), &["`override` constants"]),
        (
            format!("var<workgroup> w: array<f32, 5000>;\n{}", with("f32(p.n)", "w[0] + f32(p.n)")),
            &["20000 bytes of workgroup memory"],
        ),
    ];
    for (text, words) in cases {
        refused(&device, source(text), words);
    }
}

#[test]
fn a_declaration_that_nothing_can_be_is_refused() {
    let device = device();
    let with = |args: &[KernelArg<'_>], params: &[(&str, DType)], words: &[&str]| {
        refused(&device, KernelSource { name: "add_n", wgsl: ADD, args, params, ..KernelSource::default() }, words);
    };
    with(&[X], &[N], &["nothing is declared for @group(0) @binding(1) `y`"]);
    with(&[X, Y, KernelArg::input("z", DType::F32)], &[N], &["`z` is declared, and `main` uses no @group(0) @binding(2)"]);
    with(&[Y, X], &[N], &["@group(0) @binding(0) is declared as `y`, and the shader calls it `x`", "in the order"]);
    with(&[X, KernelArg::input("y", DType::F32)], &[N], &["`y` is declared an input, and is read_write"]);
    with(&[KernelArg::in_out("x", DType::F32), Y], &[N], &["`x` is declared to be written, and is only read"]);
    with(&[KernelArg::input("x", DType::F16), Y], &[N], &["`x` is declared f16, and holds f32", "array<u32>"]);
    with(
        &[KernelArg::input("x", DType::Bool), Y],
        &[N],
        &["`x` is declared bool, and holds f32", "4 elements of bool lie in a word"],
    );
    with(&[X, Y], &[], &["nothing is declared for @group(1) @binding(0) `p`", "params"]);
    with(&[X, Y], &[("n", DType::F16)], &["parameter `n` is declared f16"]);
    with(&[X, Y], &[N; 65], &["65 parameters; 64 are possible"]);
    with(&[X; 9], &[N], &["9 tensors; the adapter has 8 storage buffers"]);
}

/// A kernel of one file beside another, whose variables have the same numbers.
#[test]
fn the_entry_point_says_which_variables_count() {
    let device = device();
    let both = format!(
        "{ADD}\n@group(0) @binding(0) var<storage, read_write> counts: array<atomic<u32>>;
         fn count(i: u32) {{ atomicAdd(&counts[i], 1u); }}
         @compute @workgroup_size(8, 8) fn second(@builtin(local_invocation_index) i: u32) {{ count(i); }}"
    );
    WgslKernel::new(&device, source(&both)).unwrap();
    let args = &[KernelArg::in_out("counts", DType::U32)];
    let second = KernelSource { name: "add_n", wgsl: &both, entry_point: "second", args, ..KernelSource::default() };
    assert_eq!(WgslKernel::new(&device, second).unwrap().workgroup_size(), [8, 8, 1]);
    refused(
        &device,
        KernelSource { entry_point: "third", ..second },
        &["no compute entry point `third`; it has `main`, `second`"],
    );
    // Floats are added by exchanging their bits.
    let bits = KernelSource { args: &[KernelArg::in_out("counts", DType::F32)], ..second };
    WgslKernel::new(&device, bits).unwrap();
    refused(
        &device,
        KernelSource { args: &[KernelArg::in_out("counts", DType::I32)], ..second },
        &["declared i32, and holds u32"],
    );
}

#[test]
fn a_launch_that_does_not_fit_is_refused() {
    let device = device();
    let kernel = WgslKernel::new(&device, source(ADD)).unwrap();
    let new = |len: usize| Tensor::zeros(&device, &[len]).unwrap();
    let (x, y) = (new(300), new(300));
    let n: &[Scalar] = &[1.into()];
    let dispatched = || {
        device.synchronize().unwrap();
        device.stats().queue.dispatches
    };
    let check = |tensors: &[&Tensor], params: &[Scalar], grid: [u32; 3], words: &[&str]| {
        let versions: Vec<u64> = tensors.iter().map(|tensor| tensor.version()).collect();
        says(&kernel.launch(tensors, params, grid).unwrap_err(), words);
        assert_eq!(versions, tensors.iter().map(|tensor| tensor.version()).collect::<Vec<_>>());
    };
    let one = [1; 3];
    check(&[&x], n, one, &["takes 2 tensors (x, y), was given 1"]);
    check(&[&x, &y, &y], n, one, &["was given 3"]);
    check(&[&x, &y], &[], one, &["takes 1 parameters (n), was given 0"]);
    check(&[&x, &y], &[(-1).into()], one, &["parameter `n` is -1, which is no u32"]);
    check(&[&x, &y], &[1.5.into()], one, &["parameter `n` is 1.5, which is no u32"]);
    check(&[&x, &y], &[Scalar::Int(1 << 32)], one, &["parameter `n` is 4294967296"]);
    check(&[&x, &y], n, [1, 65_536, 1], &["65536 workgroups in one dimension; the adapter has 65535 at most", "num_workgroups"]);
    says(&kernel.grid([65_535 * 64 + 1, 1, 1]).unwrap_err(), &["65536 workgroups in one dimension"]);
    says(&kernel.grid([usize::MAX, 1, 1]).unwrap_err(), &["workgroups in one dimension"]);
    let whole = Tensor::new(&device, [1i32]).unwrap();
    check(&[&whole, &y], n, one, &["`x` is declared f32, and the tensor is i32", "to_dtype(DType::F32)"]);
    let other = Tensor::zeros(&self::device(), &[300]).unwrap();
    let error = kernel.launch(&[&other, &y], n, one).unwrap_err();
    assert!(matches!(error, Error::DeviceMismatch { op: "add_n", .. }), "{error}");
    // What is written lies as it should.
    let square = Tensor::zeros(&device, &[20, 15]).unwrap();
    check(
        &[&x, &square.t().unwrap()],
        n,
        one,
        &["`y` is written, and is not contiguous (shape [15, 20], strides [1, 15])", "copy_"],
    );
    check(&[&x, &y.narrow(0, 0, 1).unwrap().expand(&[300]).unwrap()], n, one, &["`y` is written, and is not contiguous"]);
    check(
        &[&x, &y.narrow(0, 1, 200).unwrap()],
        n,
        one,
        &["`y` is written, and begins at byte 4 of its memory", "multiple of 256"],
    );
    // There has to be something.
    let empty = new(0);
    check(&[&empty, &y], n, one, &["`x` has no elements (shape [0]), and the grid is [1, 1, 1]", "grid with a 0"]);
    check(&[&x, &empty], n, one, &["`y` has no elements"]);
    // Gradients would be lost.
    let leaf = new(300).requires_grad_(true).unwrap();
    check(&[&leaf, &y], n, one, &["launched on a tensor that wants gradients (`x`)", "Function", "no_grad"]);
    check(&[&x, &leaf], n, one, &["wants gradients (`y`)"]);
    check(&[&x, &leaf.neg().unwrap()], n, one, &["wants gradients (`y`)"]);

    // And what does fit is one dispatch, and a change of what is written.
    let before = dispatched();
    let version = y.version();
    no_grad(|| kernel.launch(&[&leaf, &y], n, one)).unwrap();
    kernel.launch(&[&x, &y.narrow(0, 64, 100).unwrap()], n, one).unwrap();
    assert_eq!((dispatched(), y.version()), (before + 2, version + 2));
    // A grid with a 0 is none.
    kernel.launch(&[&empty, &empty], n, kernel.grid([0, 1, 1]).unwrap()).unwrap();
    kernel.launch(&[&x, &y], n, [1, 0, 1]).unwrap();
    assert_eq!((dispatched(), y.version()), (before + 2, version + 2));
    // Nothing is in the way of a device that goes on.
    drop((x, y, square, leaf, empty, whole));
    device.synchronize().unwrap();
    assert_eq!(device.memory_allocated(), 0);
}

#[test]
fn outputs_that_overlap_are_refused_and_types_need_their_bytes() {
    let device = device();
    let wgsl = "
        @group(0) @binding(0) var<storage, read_write> a: array<u32>;
        @group(0) @binding(1) var<storage, read_write> b: array<vec4<u32>>;
        @compute @workgroup_size(1) fn main() { a[0] = 1u; b[0] = vec4(2u); }";
    let args = &[KernelArg::in_out("a", DType::U32), KernelArg::output("b", DType::U32)];
    let kernel = WgslKernel::new(&device, KernelSource { name: "add_n", wgsl, args, ..KernelSource::default() }).unwrap();
    let x = Tensor::from_slice(&device, &[256], &[0u32; 256]).unwrap();
    let check = |a: &Tensor, b: &Tensor, words: &[&str]| says(&kernel.launch(&[a, b], &[], [1; 3]).unwrap_err(), words);
    check(&x, &x, &["`a` and `b` are both written, and have memory in common"]);
    check(&x.narrow(0, 0, 65).unwrap(), &x.narrow(0, 64, 64).unwrap(), &["`a` and `b` are both written"]);
    check(
        &x,
        &Tensor::from_slice(&device, &[3], &[0u32; 3]).unwrap(),
        &["`b` has 12 bytes, and the shader's type has 16 at least"],
    );
    // Side by side in one tensor is fine.
    kernel.launch(&[&x.narrow(0, 0, 64).unwrap(), &x.narrow(0, 64, 64).unwrap()], &[], [1; 3]).unwrap();
    device.synchronize().unwrap();
}

#[test]
fn call_makes_the_outputs_and_says_what_it_wants() {
    let device = device();
    let kernel = WgslKernel::new(&device, source(ADD)).unwrap();
    let x = Tensor::zeros(&device, &[2, 5]).unwrap();
    let [y] = &kernel.call(&[&x], &[&[5, 2]], &[1.into()], [1; 3]).unwrap()[..] else { panic!("one output") };
    assert_eq!((y.shape(), y.dtype()), (&[5, 2][..], DType::F32));
    says(
        &kernel.call(&[&x], &[], &[1.into()], [1; 3]).unwrap_err(),
        &["gives 1 outputs and takes 1 tensors beside, was given 0 shapes"],
    );
    says(&kernel.call(&[&x, &x], &[&[1]], &[1.into()], [1; 3]).unwrap_err(), &["and 2 tensors"]);
    says(&kernel.call(&[], &[&[1], &[1]], &[1.into()], [1; 3]).unwrap_err(), &["was given 2 shapes and 0 tensors"]);
}

/// What the driver refuses of a program's kernel is told under its name, and costs nobody else's work.
#[test]
fn a_kernel_that_the_driver_refuses_is_a_late_error() {
    let device = device();
    let kernel = WgslKernel::new(&device, source(ADD)).unwrap();
    let x = Tensor::new(&device, [1.0f32, 2.0]).unwrap();
    let y = Tensor::zeros(&device, &[2]).unwrap();
    device.synchronize().unwrap();
    device.refuse_driver_calls(0, 2);
    kernel.launch(&[&x, &y], &[1.into()], [1; 3]).unwrap();
    let error = device.synchronize().unwrap_err().to_string();
    assert!(error.starts_with("device: add_n: ") && error.contains("\nhelp: "), "{error}");
    assert!(!error.contains("commands lost with it"), "{error}");
    device.synchronize().unwrap();
    kernel.launch(&[&x, &y], &[1.into()], [1; 3]).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    device.synchronize().unwrap();
}

/// One source is checked and compiled once, whoever makes it, and goes when it has not been used for long.
#[test]
fn kernels_are_compiled_once_and_dropped() {
    let device = device();
    let (x, y) = (Tensor::zeros(&device, &[64]).unwrap(), Tensor::zeros(&device, &[64]).unwrap());
    let run = |kernel: &WgslKernel| {
        kernel.launch(&[&x, &y], &[1.into()], [1; 3]).unwrap();
        device.synchronize().unwrap();
        let counters = device.stats().queue;
        (counters.pipelines, counters.live_pipelines)
    };
    let kernel = WgslKernel::new(&device, source(ADD)).unwrap();
    let (compiled, live) = run(&kernel);
    for _ in 0..10 {
        // Made anew in each step, dropped before it has run.
        let again = WgslKernel::new(&device, source(ADD)).unwrap();
        assert_eq!(run(&again), (compiled, live));
    }
    let mut most = live;
    for i in 1..=200u64 {
        let text = ADD.replace("f32(p.n)", &format!("f32(p.n) + {i}.0"));
        let (now_compiled, now_live) = run(&WgslKernel::new(&device, source(&text)).unwrap());
        assert_eq!(now_compiled, compiled + i);
        most = most.max(now_live);
    }
    assert!((live + 60..live + 70).contains(&most), "{most} pipelines are kept");
    // One that is held is still there.
    assert_eq!(run(&kernel).0, compiled + 200);
}

/// Whatever the text is, the answer is a kernel or an error of two lines.
#[test]
fn broken_texts_are_errors() {
    let device = device();
    let mut chance = Random::new(7);
    let pieces = [
        "{",
        "}",
        "(",
        ")",
        "<",
        ">",
        ";",
        "@",
        "array<",
        "var",
        "/*",
        "*/",
        "//",
        "x",
        "0u",
        "4294967296",
        "é",
        "\0",
        "fn",
        "\n",
    ];
    let (mut kernels, mut errors) = (0, 0);
    for _ in 0..2000 {
        let mut text: Vec<char> = ADD.chars().collect();
        for _ in 0..1 + chance.below(3) {
            let at = chance.below(text.len() as u64);
            let end = (at + chance.below(12)).min(text.len());
            let piece = pieces[chance.below(pieces.len() as u64)];
            text.splice(at..end, piece.chars());
        }
        let text: String = text.into_iter().collect();
        match WgslKernel::new(&device, source(&text)) {
            Ok(_) => kernels += 1,
            Err(error) => {
                errors += 1;
                let message = error.to_string();
                assert!(message.lines().count() == 2 && message.contains("\nhelp: "), "{message}\n{text}");
            }
        }
    }
    assert!(kernels > 0 && errors > 1000, "{kernels} kernels, {errors} errors");
}

/// The WGSL compiler recurses along chains, as long as a text may be: that ends no process.
#[test]
fn long_chains_overflow_no_stack() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let text = |head: &str, body: &str, value: &str| {
        format!(
            "{head}@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n@compute @workgroup_size(64) \
             fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ let a = y[id.x]; {body} y[id.x] = {value}; }}"
        )
    };
    let constants: String =
        (0..6000).map(|i| format!("const c{i} = c{};\n", i + 1)).chain(["const c6000 = 1.0;\n".into()]).collect();
    let texts = [
        text("", "", &vec!["a"; 60_000].join("+")),
        text("", "", &format!("{}a", "- ".repeat(60_000))),
        text("", &format!("if id.x == 1u {{}} {}", "else if id.x==1u {}".repeat(6_000)), "a"),
        text(&constants, "", "c0"),
    ];
    const IN_OUT: &[KernelArg<'static>] = &[KernelArg::in_out("y", DType::F32)];
    let source = |wgsl| KernelSource { name: "long", wgsl, args: IN_OUT, ..KernelSource::default() };
    let y = Tensor::zeros(&device, &[64]).unwrap();
    for wgsl in &texts {
        assert!(wgsl.len() < 128 << 10 && wgsl.len() > 64 << 10, "{}", wgsl.len());
        // Refused or compiled, as the compiler says; what matters is that there is an answer.
        if let Ok(kernel) = WgslKernel::new(&device, source(wgsl)) {
            kernel.launch(&[&y], &[], [1, 1, 1]).unwrap();
        }
        device.synchronize().unwrap();
    }
    let error = WgslKernel::new(&device, source(&text("", "", &vec!["a"; 70_000].join("+")))).unwrap_err().to_string();
    assert!(
        error.starts_with("long: WGSL of 140") && error.contains("\nhelp: write a kernel of at most 131072 bytes"),
        "{error}"
    );
}
