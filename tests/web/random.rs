//! Random numbers: the same bits as everywhere else.

use linn::nn::{Dropout, Module};
use linn::ops::random::{self, GeneratorState};
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
        let start = || random::set_generator_state(&device, state).unwrap();
        start();
        assert_eq!(read::<u32>(&random::random_bits(&device, &[len]).unwrap()).await, bits[..len]);
        start();
        let want: Vec<f32> = reference::uniform(&bits[..len], 0.0, 1.0).iter().map(|x| *x as f32).collect();
        assert_eq!(read::<f32>(&random::uniform(&device, &[len], 0.0, 1.0).unwrap()).await, want, "the same bits everywhere");
        start();
        let got = read::<i32>(&random::randint(&device, &[len], -5, 1000).unwrap()).await;
        assert_eq!(got, reference::randint(&bits[..len], -5, 1000));
        start();
        let got = read::<f32>(&random::normal(&device, &[len], 1.0, 2.0).unwrap()).await;
        assert_close("normal", &got, &reference::normal(&bits, 1.0, 2.0)[..len], 1e-5, 1e-5);
    }
}

#[wasm_bindgen_test]
async fn dropout_drops_what_the_generator_says() {
    let device = device().await;
    let (len, p) = (10_001, 0.25);
    let data = numbers(1, len);
    let x = tensor(&device, &[len], &data).requires_grad_(true).unwrap();
    random::manual_seed(&device, 7).unwrap();
    let y = Dropout::new(p).unwrap().forward(&x).unwrap();
    let kept: Vec<bool> =
        reference::uniform(&reference::random_bits(7, 0, len), 0.0, 1.0).iter().map(|drawn| *drawn >= p).collect();
    let scale = (1.0 / (1.0 - p)) as f32;
    let want: Vec<f32> = data.iter().zip(&kept).map(|(x, kept)| if *kept { x * scale } else { 0.0 }).collect();
    assert_eq!(read::<f32>(&y).await, want);
    y.sum_all().unwrap().backward().unwrap();
    let want: Vec<f32> = kept.iter().map(|kept| if *kept { scale } else { 0.0 }).collect();
    assert_eq!(read::<f32>(&x.grad().unwrap()).await, want);
}
