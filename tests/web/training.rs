//! Training: a small network against its arithmetic in f64, and a small GPT.

use linn::nn::{Gpt, GptConfig, Module};
use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup, Sgd, SgdOptions};
use wasm_bindgen_test::wasm_bindgen_test;

use crate::close::{assert_close, numbers, wide};
use crate::device::{device, read, tensor};
use crate::reference;

/// y = relu(x w1^T) w2^T, loss = mean of (y - t)^2, all in f64: the loss and the gradients of w1 and w2.
fn judge(x: &[f64], t: &[f64], w1: &[f64], w2: &[f64], [rows, inputs, hidden]: [usize; 3]) -> (f64, Vec<f64>, Vec<f64>) {
    let (mut dw1, mut dw2, mut loss) = (vec![0.0; w1.len()], vec![0.0; w2.len()], 0.0);
    for r in 0..rows {
        let row = &x[r * inputs..][..inputs];
        let sums: Vec<f64> = w1.chunks(inputs).map(|w| w.iter().zip(row).map(|(w, x)| w * x).sum()).collect();
        let y: f64 = sums.iter().zip(w2).map(|(sum, w)| f64::max(*sum, 0.0) * w).sum();
        let dy = 2.0 * (y - t[r]) / rows as f64;
        loss += (y - t[r]).powi(2) / rows as f64;
        for h in (0..hidden).filter(|h| sums[*h] > 0.0) {
            dw2[h] += dy * sums[h];
            (0..inputs).for_each(|i| dw1[h * inputs + i] += dy * w2[h] * row[i]);
        }
    }
    (loss, dw1, dw2)
}

#[wasm_bindgen_test]
async fn a_small_network_learns_as_in_f64() {
    let device = device().await;
    let shape @ [rows, inputs, hidden] = [16, 6, 10];
    let (data, targets) = (numbers(1, rows * inputs), numbers(2, rows));
    let scaled = |seed, len| numbers(seed, len).iter().map(|w| 0.3 * w).collect::<Vec<f32>>();
    let (w1, w2) = (scaled(3, hidden * inputs), scaled(4, hidden));
    let (x, t) = (tensor(&device, &[rows, inputs], &data), tensor(&device, &[rows, 1], &targets));
    let first = tensor(&device, &[hidden, inputs], &w1).requires_grad_(true).unwrap();
    let second = tensor(&device, &[1, hidden], &w2).requires_grad_(true).unwrap();
    let named = vec![("first".to_owned(), first.clone()), ("second".to_owned(), second.clone())];
    let mut optimizer = Sgd::new(vec![ParamGroup::new(named, 0.05, 0.0)], SgdOptions { momentum: 0.9, ..Default::default() });

    let (mut w1, mut w2) = (wide(&w1), wide(&w2));
    let (mut b1, mut b2) = (vec![0.0; w1.len()], vec![0.0; w2.len()]);
    let mut losses = Vec::new();
    for _ in 0..20 {
        let y = x.linear(&first, None).unwrap().relu().unwrap().linear(&second, None).unwrap();
        let loss = y.sub(&t).unwrap().square().unwrap().mean_all().unwrap();
        optimizer.groups().iter().flat_map(|group| &group.params).for_each(|(_, param)| param.zero_grad());
        loss.backward().unwrap();
        optimizer.step().unwrap();
        let (want, dw1, dw2) = judge(&wide(&data), &wide(&targets), &w1, &w2, shape);
        for (w, b, d) in [(&mut w1, &mut b1, dw1), (&mut w2, &mut b2, dw2)] {
            for ((w, b), d) in w.iter_mut().zip(b.iter_mut()).zip(d) {
                *b = 0.9 * *b + d;
                *w -= 0.05 * *b;
            }
        }
        losses.push((loss.item_async::<f32>().unwrap(), want));
    }
    // All twenty steps were enqueued before the first loss is awaited.
    let (mut got, mut want) = (Vec::new(), Vec::new());
    for (loss, judged) in losses {
        got.extend(loss.await.unwrap());
        want.push(judged);
    }
    assert_close("losses", &got, &want, 1e-4, 1e-6);
    assert!(got[19] < 0.5 * got[0], "{got:?}");
    assert_close("first", &read::<f32>(&first).await, &w1, 1e-4, 1e-5);
    assert_close("second", &read::<f32>(&second).await, &w2, 1e-4, 1e-5);
}

#[wasm_bindgen_test]
async fn adam_steps() {
    let device = device().await;
    let (data, grad) = (numbers(5, 1001), numbers(6, 1001));
    let x = tensor(&device, &[1001], &data).requires_grad_(true).unwrap();
    let mut adam = Adam::adamw(vec![ParamGroup::new(vec![("x".into(), x.clone())], 0.01, 0.1)], AdamOptions::default());
    let settings = reference::AdamSettings { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, decoupled: true };
    let mut want: Vec<(f64, f64, f64)> = data.iter().map(|x| (f64::from(*x), 0.0, 0.0)).collect();
    for step in 1..=3 {
        x.set_grad(Some(tensor(&device, &[1001], &grad))).unwrap();
        adam.step().unwrap();
        for ((x, m, v), g) in want.iter_mut().zip(&grad) {
            (*x, *m, *v) = reference::adam(*x, f64::from(*g), *m, *v, step.into(), settings);
        }
    }
    assert_close("adam", &read::<f32>(&x).await, &want.iter().map(|(x, ..)| *x).collect::<Vec<_>>(), 1e-5, 1e-6);
}

#[wasm_bindgen_test]
async fn a_small_gpt_learns_a_sequence_by_heart() {
    let device = device().await;
    device.manual_seed(1).unwrap();
    let config = GptConfig { vocab_size: 11, block_size: 16, n_layer: 2, n_head: 2, n_embd: 32, bias: true, tied: true };
    let gpt = Gpt::new(&device, config).unwrap();
    let ids: Vec<i32> = (0..17).map(|i| i * i % 11).collect();
    let (inputs, targets) = (tensor(&device, &[1, 16], &ids[..16]), tensor(&device, &[1, 16], &ids[1..]));
    let mut adam = Adam::adamw(ParamGroup::by_rank(gpt.named_parameters(), 0.01, 0.0), AdamOptions::default());
    let mut losses = Vec::new();
    for _ in 0..30 {
        gpt.zero_grad();
        let loss = gpt.loss(&inputs, &targets).unwrap();
        loss.backward().unwrap();
        adam.step().unwrap();
        losses.push(loss.item_async::<f32>().unwrap());
    }
    let (mut first, mut last) = (None, f32::NAN);
    for loss in losses {
        last = loss.await.unwrap()[0];
        first.get_or_insert(last);
    }
    let first = first.unwrap();
    assert!((f64::from(first) - 11f64.ln()).abs() < 0.5, "an untrained model knows nothing: {first}");
    assert!(last < 0.1, "from {first} to {last}");
    assert_eq!(device.stats().queue.host_syncs, 0, "nothing waited");
}
