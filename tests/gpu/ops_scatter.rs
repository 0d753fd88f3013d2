//! Writing by index against its references, over shapes; with several indices for one place.

use linn::ops::scatter;
use linn::{DType, Tensor};

use crate::close::{assert_close, numbers, wide};
use crate::device::device;
use crate::reference;

fn ids(seed: u32, len: usize, below: usize) -> Vec<i32> {
    numbers(seed, len).iter().map(|x| (((x + 2.0) / 4.0 * below as f32) as i32).min(below as i32 - 1)).collect()
}

#[test]
fn scatters_combine_in_the_order_of_positions() {
    for (shape, count) in [([2, 5, 3], 4), ([1, 7, 1], 1), ([3, 1, 65], 9), ([1, 100, 1], 40_000)] {
        let [outer, rows, width] = shape;
        let ids_shape = [outer, count, width];
        let len = outer * count * width;
        let (x, picks) = (numbers(1, outer * rows * width), ids(2, len, rows));
        // Near 1, so that products of many neither vanish nor grow.
        let src: Vec<f32> = numbers(3, len).iter().map(|x| 1.0 + x / 1000.0).collect();
        let on_device = |shape: &[usize], data: &[f32]| Tensor::from_slice(&device(), shape, data).unwrap();
        let (own, elements) = (on_device(&shape, &x), on_device(&ids_shape, &src));
        let index = Tensor::from_slice(&device(), &ids_shape, &picks).unwrap();
        let (x, src) = (wide(&x), wide(&src));
        let read = |out: linn::Result<Tensor>| out.unwrap().to_vec::<f32>().unwrap();
        let got = read(scatter::scatter_add(&own, 1, &index, &elements));
        assert_close("scatter_add", &got, &reference::scatter_add(&x, shape, &picks, &src), 1e-3, 1e-4);
        let got = read(scatter::scatter_prod(&own, 1, &index, &elements));
        assert_close("scatter_prod", &got, &reference::scatter_prod(&x, shape, &picks, &src), 1e-3, 1e-3);
        let got = read(scatter::scatter_amax(&own, 1, &index, &elements));
        assert_close("scatter_amax", &got, &reference::scatter_amax(&x, shape, &picks, &src), 0.0, 0.0);
        let got = read(scatter::scatter_amin(&own, 1, &index, &elements));
        assert_close("scatter_amin", &got, &reference::scatter_amin(&x, shape, &picks, &src), 0.0, 0.0);
        let last = scatter::last_positions("scatter", &index, 1, rows).unwrap();
        assert_eq!(last.dtype(), DType::I32);
        assert_eq!(last.to_vec::<i32>().unwrap(), reference::scatter(shape, &picks), "{shape:?}, {count}");
    }
}

/// Of several elements for one place the last one stays, and only it gets a gradient.
#[test]
fn the_last_of_several_stays() {
    let x = Tensor::new(&device(), [0.0f32, 0.0, 0.0]).unwrap();
    let src = Tensor::new(&device(), [1.0f32, 2.0, 3.0, 4.0]).unwrap().requires_grad_(true).unwrap();
    let index = Tensor::new(&device(), [2i32, 0, 2, 0]).unwrap();
    let out = x.scatter(0, &index, &src).unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), [4.0, 0.0, 3.0]);
    out.sum_all().unwrap().backward().unwrap();
    assert_eq!(src.grad().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0, 1.0, 1.0]);
}
