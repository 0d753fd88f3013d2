//! A small program, run again and again while the driver refuses its first, second, third .. call.

use linn::device::ParamsVia;
use linn::{DType, Device, DeviceOptions, Error, Event, Result, Tensor};

/// Elements of 1 MiB.
const ONE: usize = 1 << 18;

/// How a sweep is made.
pub struct Sweep {
    /// Opens a device.
    pub open: fn(DeviceOptions) -> Result<Device>,
    /// Kernels compute, so values can be compared.
    pub computes: bool,
    /// The first call that is refused, and the distance to the next.
    pub first: u64,
    pub step: u64,
    /// Refused from there on.
    pub counts: &'static [u64],
    pub params: ParamsVia,
}

/// Uploads, kernels of several kinds, backward, an index kernel, reads on two streams, live memory that moves, events with timing.
fn program(device: &Device) -> Result<Vec<Vec<f32>>> {
    let values = |len: usize| -> Vec<f32> { (0..len).map(|i| (i % 7) as f32 - 3.0).collect() };
    let w = Tensor::from_slice(device, &[16, 16], &values(256))?.requires_grad_(true)?;
    let x = Tensor::from_slice(device, &[16, 16], &values(256))?;
    let loss = x.matmul(&w)?.relu()?.sum_all()?;
    loss.backward()?;
    let (start, end) = (Event::with_timing(), Event::with_timing());
    if device.has_timestamps() {
        start.record(&device.current_stream())?;
    }
    let grad = w.grad().ok_or_else(|| Error::autograd("there is no gradient", "there should be one"))?;
    let ids = Tensor::from_slice(device, &[4], &[3, 1, 0, 15])?;
    let rows = w.detach().embedding(&ids)?;
    let side = device.new_stream();
    let early = side.scope(|| rows.to_vec_async::<f32>())?;
    if device.has_timestamps() {
        end.record(&device.current_stream())?;
        end.synchronize()?;
        assert!(start.elapsed_time(&end)? >= 0.0);
    }
    // A comb of pieces of 1 MiB, of which every other one goes; then the rest moves together.
    let mut comb = Vec::new();
    for i in 0..8 {
        let piece = Tensor::empty(device, &[ONE], DType::F32)?;
        piece.narrow(0, 0, 1000)?.copy_from_slice_(&[i as f32; 1000])?;
        comb.push(piece);
    }
    let large = Tensor::from_slice(device, &[2 * ONE], &values(2 * ONE))?;
    let comb: Vec<Tensor> = comb.into_iter().step_by(2).collect();
    device.compact(u64::MAX)?;
    let mut out = vec![vec![loss.item::<f32>()?], grad.to_vec()?, early.wait()?];
    for piece in &comb {
        out.push(piece.narrow(0, 0, 1000)?.to_vec()?);
    }
    out.push(large.to_vec()?);
    device.synchronize()?;
    Ok(out)
}

/// What the program's uploads come back as, whatever kernels do.
fn uploaded(values: &[Vec<f32>]) -> &[Vec<f32>] {
    &values[3..]
}

fn check_books(device: &Device) {
    device.validate_memory().unwrap();
    let parts = device.memory_breakdown();
    assert_eq!(parts.sum(), device.memory_reserved(), "{parts:?}");
    assert_eq!(parts.sum() - parts.cached - parts.retiring, device.memory_allocated(), "{parts:?}");
}

/// An error is a value of two lines.
fn is_explained(error: &Error) {
    let text = error.to_string();
    assert_eq!(text.matches("help: ").count(), 1, "{text}");
}

/// What became of the calls that were refused.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub runs: u64,
    /// Runs that ended with an error.
    pub errors: u64,
    /// Runs in which an error came later, or not at all: the call was made again.
    pub healed: u64,
    /// Runs that cost the device.
    pub lost: u64,
}

/// Refuses every call of the program in turn. Panics with the first thing that is not as it should be.
pub fn sweep(sweep: &Sweep) -> Outcome {
    let options = |refuse| {
        let mut options = DeviceOptions::default();
        (options.params, options.refuse_driver_calls) = (sweep.params, refuse);
        options
    };
    let clean = (sweep.open)(options((0, 0))).expect("a device that refuses nothing opens");
    let expected = program(&clean).expect("the program runs");
    let right = |values: &[Vec<f32>], when: &str| {
        let same = if sweep.computes { values == expected } else { uploaded(values) == uploaded(&expected) };
        assert!(same, "{when}: wrong values");
    };
    let mut outcome = Outcome::default();
    for count in sweep.counts.iter().copied() {
        for n in (sweep.first..).step_by(sweep.step as usize) {
            let when = format!("call {n} and {count} refused");
            outcome.runs += 1;
            let device = match (sweep.open)(options((n, count))) {
                Ok(device) => device,
                Err(error) => {
                    is_explained(&error);
                    outcome.errors += 1;
                    continue;
                }
            };
            let result = program(&device);
            let left = device.driver_refusals_left();
            device.refuse_driver_calls(0, 0);
            match &result {
                Ok(values) => right(values, &when),
                Err(error) => is_explained(error),
            }
            outcome.errors += u64::from(result.is_err());
            outcome.healed += u64::from(result.is_ok() && left < count);
            drop(result);
            // What went wrong is told once; then the device is as good as new, or says that it is lost.
            let _ = device.synchronize().map_err(|error| is_explained(&error));
            check_books(&device);
            assert_eq!(device.memory_allocated(), 0, "{when}");
            if let Err(error) = device.synchronize() {
                assert!(matches!(error, Error::DeviceLost { .. }), "{when}: {error}");
                assert!(matches!(Tensor::ones(&device, &[1]), Err(Error::DeviceLost { .. })), "{when}");
                outcome.lost += 1;
                continue;
            }
            let values = program(&device).unwrap_or_else(|error| panic!("{when}, and afterwards: {error}"));
            right(&values, &format!("{when}, and afterwards"));
            device.empty_cache().unwrap();
            check_books(&device);
            assert_eq!((device.memory_allocated(), device.memory_reserved()), (0, 0), "{when}");
            if left == count {
                break;
            }
        }
    }
    outcome
}
