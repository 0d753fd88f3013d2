//! The prefetching loader with a device that computes.

use linn::data::{DataLoader, DataLoaderOptions, HostTensor};
use linn::{DeviceOptions, Tensor};

use crate::device::open;

#[test]
fn what_workers_prepare_is_computed_with_in_order() {
    for num_workers in [0, 1, 3] {
        let device = open(DeviceOptions::default());
        let mut options = DataLoaderOptions::default();
        (options.num_workers, options.prefetch_factor) = (num_workers, 2);
        let produce = |i: u64| {
            let rows = (0..64 * 64).map(|k| (i % 7) as f32 + (k % 64) as f32).collect();
            let ids: Vec<i32> = (0..8).map(|k| ((i + k) % 64) as i32).collect();
            Ok::<_, linn::Error>(vec![HostTensor::new(&[64, 64], rows)?, HostTensor::new(&[8], ids)?])
        };
        let mut sums = Vec::new();
        // The host runs ahead: memory of items is used again while the device is still at earlier ones.
        for item in DataLoader::new(&device, 0..200, options, produce).unwrap() {
            let tensors: [Tensor; 2] = item.unwrap().try_into().ok().unwrap();
            let [rows, ids] = &tensors;
            sums.push(rows.matmul(rows).unwrap().embedding(ids).unwrap().sum_all().unwrap());
        }
        for (i, sum) in sums.iter().enumerate() {
            // Every row is the same: r[k] = a + k, so a row of the product is (sum of r) * r.
            let row: Vec<f64> = (0..64).map(|k| (i % 7) as f64 + k as f64).collect();
            let total: f64 = row.iter().sum();
            let expected = 8.0 * total * total;
            let got = f64::from(sum.item::<f32>().unwrap());
            assert!((got - expected).abs() <= 1e-5 * expected, "item {i}, {num_workers} workers: {got}, not {expected}");
        }
    }
}
