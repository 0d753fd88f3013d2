//! Kernels may read copies of their inputs (`src/stream/copies.rs`): whatever was written since, they read what is there.

use linn::{Device, DeviceOptions, Tensor};

use crate::device::open;

/// Numbers that come out the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// A tensor and what it should hold.
struct Pair(Tensor, Vec<f32>);

impl Pair {
    fn new(device: &Device, dice: &mut Dice, len: usize) -> Pair {
        let first = dice.below(1000);
        let values: Vec<f32> = (0..len).map(|i| ((first + i) % 4093) as f32).collect();
        Pair(Tensor::from_slice(device, &[len], &values).unwrap(), values)
    }

    /// One of the ways to write to it; some write only a part.
    fn change(&mut self, dice: &mut Dice, other: &Pair) {
        let (start, len) = (dice.below(100) * 100, 1 + dice.below(5000));
        let part = self.0.narrow(0, start as isize, len).unwrap();
        let value = dice.below(100) as f32;
        let held = &mut self.1;
        match dice.below(6) {
            0 => {
                self.0.add_scalar_(1.0).unwrap();
                held.iter_mut().for_each(|x| *x += 1.0);
            }
            1 => {
                part.fill_(f64::from(value)).unwrap();
                held[start..start + len].fill(value);
            }
            2 => {
                part.copy_from_slice_(&vec![value; len]).unwrap();
                held[start..start + len].fill(value);
            }
            3 => {
                held.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 97) as f32 + value);
                self.0.copy_from_slice_(held).unwrap();
            }
            4 => {
                part.copy_(&other.0.narrow(0, start as isize, len).unwrap()).unwrap();
                held[start..start + len].copy_from_slice(&other.1[start..start + len]);
            }
            // Read and written by one kernel, through two views of one block.
            _ => {
                let from = self.0.narrow(0, (start + len) as isize, len).unwrap();
                part.copy_(&from).unwrap();
                held.copy_within(start + len..start + 2 * len, start);
            }
        }
    }
}

#[test]
fn kernels_read_what_was_written_last() {
    for seed in 0..4 {
        let device = open(DeviceOptions::default());
        let side = device.new_stream();
        let mut dice = Dice(seed);
        let lens = [20_000, 24_576, 65_536, 20_001, 150_000, 24_576];
        let mut pairs: Vec<Pair> = lens.iter().map(|len| Pair::new(&device, &mut dice, *len)).collect();
        let mut answers = Vec::new();
        for step in 0..250 {
            let i = dice.below(lens.len());
            let j = (i + 1 + dice.below(lens.len() - 1)) % lens.len();
            match dice.below(12) {
                0..5 => {
                    let other = Pair(pairs[j].0.clone(), pairs[j].1.clone());
                    let mut change = || pairs[i].change(&mut dice, &other);
                    if step % 2 == 0 { side.scope(change) } else { change() }
                }
                // Another tensor may get the block.
                5 => {
                    let len = lens[dice.below(lens.len())];
                    pairs[i] = Pair::new(&device, &mut dice, len);
                }
                6 if step % 3 == 0 => drop(device.compact(u64::MAX).unwrap()),
                7 if step % 4 == 0 => device.empty_cache().unwrap(),
                _ => {
                    let len = pairs[i].1.len().min(pairs[j].1.len());
                    let [a, b] = [i, j].map(|i| pairs[i].0.narrow(0, 0, len).unwrap());
                    // The inputs are read twice, in one kernel and in two.
                    let double = (&a + &a).unwrap();
                    let sum = (&double + &b).unwrap();
                    let expected: Vec<f32> = (0..len).map(|k| pairs[i].1[k] + pairs[i].1[k] + pairs[j].1[k]).collect();
                    answers.push((step, sum.to_vec_async::<f32>().unwrap(), expected));
                }
            }
        }
        for (step, answer, expected) in answers {
            let values = pollster::block_on(answer).unwrap();
            let wrong = (0..expected.len()).find(|k| values[*k] != expected[*k]);
            assert_eq!(wrong, None, "seed {seed}, step {step}");
        }
        for (i, pair) in pairs.iter().enumerate() {
            assert_eq!(pair.0.to_vec::<f32>().unwrap(), pair.1, "seed {seed}, tensor {i}");
        }
    }
}

#[test]
fn empty_cache_drops_copies_and_what_reads_them_goes_on() {
    let device = open(DeviceOptions::default());
    let x = Tensor::full(&device, &[1 << 16], 2.0).unwrap();
    let textures = || device.stats().queue.staging_texture_bytes;
    // Only lavapipe with vectors of 8 has such copies; there a kernel of this size reads them.
    let info = device.info();
    let copies = info.backend == "vulkan" && info.name.contains("256 bits");
    for _ in 0..2 {
        let sum = (&x + &x).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), vec![4.0; 1 << 16]);
        assert_eq!(textures() > 0, copies, "{info}");
        device.empty_cache().unwrap();
        assert_eq!(textures(), 0);
    }
}
