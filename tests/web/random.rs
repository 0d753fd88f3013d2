//! Random numbers: the same bits as everywhere else.

use linn::DType;
use linn::nn::{Dropout, Module};
use linn::ops::generator::GeneratorState;
use linn::ops::random::Distribution;
use wasm_bindgen_test::wasm_bindgen_test;

use crate::close::{assert_close, numbers};
use crate::device::{device, read, tensor};
use crate::reference;

#[wasm_bindgen_test]
async fn random_numbers_are_philox() {
    let device = device().await;
    let state = GeneratorState { seed: 0x1234_5678_9abc_def0, offset: u64::from(u32::MAX) - 1 };
    for len in [1usize, 5, 4096, 70_001] {
        let bits = reference::random_bits(state.seed, state.offset, len.next_multiple_of(4));
        let draw = |distribution: Distribution, dtype: DType| {
            device.set_rng_state(state).unwrap();
            distribution.draw(&device, &[len], dtype).unwrap()
        };
        assert_eq!(read::<u32>(&draw(Distribution::bits(), DType::U32)).await, bits[..len]);
        let uniform = Distribution::uniform("uniform", 0.0, 1.0, DType::F32).unwrap();
        let want = reference::uniform(&bits[..len], 24, 0.0, 1.0);
        assert_eq!(read::<f32>(&draw(uniform, DType::F32)).await, want, "the same bits everywhere");
        let whole = Distribution::randint("randint", -5, 1000, DType::I32).unwrap();
        let low = reference::words(state.seed, state.offset, 1, len.next_multiple_of(4));
        let got = read::<i32>(&draw(whole, DType::I32)).await;
        assert_eq!(got.into_iter().map(i64::from).collect::<Vec<_>>(), reference::randint(&bits[..len], &low, -5, 1005));
        let got = read::<f32>(&draw(Distribution::normal("normal", 1.0, 2.0).unwrap(), DType::F32)).await;
        assert_close("normal", &got, &reference::normal(&bits, 1.0, 2.0)[..len], 1e-6, 2e-6);
    }
}

#[wasm_bindgen_test]
async fn dropout_drops_what_the_generator_says() {
    let device = device().await;
    let (len, p) = (10_001, 0.25);
    let data = numbers(1, len);
    let x = tensor(&device, &[len], &data).requires_grad_(true).unwrap();
    device.manual_seed(7).unwrap();
    let y = Dropout::new(p).unwrap().forward(&x).unwrap();
    let drawn = reference::bernoulli(&reference::random_bits(7, 0, len), 1.0 - p, 1.0);
    let kept: Vec<bool> = drawn.iter().map(|kept| *kept == 1.0).collect();
    let scale = (1.0 / (1.0 - p)) as f32;
    let want: Vec<f32> = data.iter().zip(&kept).map(|(x, kept)| if *kept { x * scale } else { 0.0 }).collect();
    assert_eq!(read::<f32>(&y).await, want);
    y.sum_all().unwrap().backward().unwrap();
    let want: Vec<f32> = kept.iter().map(|kept| if *kept { scale } else { 0.0 }).collect();
    assert_eq!(read::<f32>(&x.grad().unwrap()).await, want);
}
